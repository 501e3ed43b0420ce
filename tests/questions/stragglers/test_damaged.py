"""Damaged rank files may make the numbers wrong, but break no table."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from questions.stragglers.simulated import Case, write_case
from rankscope.questions.findings import findings
from rankscope.questions.steps.phases import phase_calls, phase_ranks, phases
from rankscope.questions.steps.steps import step_parts, steps
from rankscope.questions.stragglers.causes import causes
from rankscope.rank_file import HEADER, whole_pages
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.small_run import MILLI

TABLES = (findings, causes, steps, step_parts, phases, phase_ranks, phase_calls)


@pytest.mark.parametrize("seed", range(24))
def test_tables_of_damaged_files(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    case = Case(3, "forward", 1, 5.0 * MILLI, steps=40)
    folder = write_case(tmp_path / "run", case, np.random.default_rng(seed))
    for path in sorted(folder.glob("ranks/*/*.rank")):
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 60)):
            data[chance.randrange(whole_pages(HEADER.itemsize), len(data))] = chance.randrange(256)
        path.write_bytes(data)
    run = open_run(folder, read_rank_file)
    for table in TABLES:
        table(run)
