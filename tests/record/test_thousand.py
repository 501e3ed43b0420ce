"""A thousand real processes on one machine: every one of them is in the report, with few file calls of ours."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

import rankscope as api

from .conftest import Run

RANKS = 1_000
LAUNCHES = Path(__file__).parents[1] / "programs" / "launches_many.py"
CALL = re.compile(r"^\d+ +(open|openat|mkdir|mkdirat|stat|newfstatat|access|ftruncate|fallocate|rename|unlink)\(")
OTHERS = 8  # calls of the launcher and the first rank: processes that are no ranks, and the folder of the host


def test_every_process_is_in_the_report(rankscope: str, run: Run, tmp_path: Path) -> None:
    done = run(rankscope, "run", "--out", "made", sys.executable, "-S", str(LAUNCHES), str(RANKS), "true")
    assert done.returncode == 0
    [folder] = list(tmp_path.rglob("made"))
    opened = api.open(folder)
    assert opened.query("SELECT rank FROM ranks WHERE role = 'rank' ORDER BY rank").rows == [
        (rank,) for rank in range(RANKS)
    ]
    assert opened.query("SELECT DISTINCT ending, exit_code FROM ranks WHERE role = 'rank'").rows == [("exited", 0)]
    assert opened.bad_files == []


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is missing: install it to count calls")
def test_a_rank_asks_little_of_the_file_system(rankscope: str, run: Run, tmp_path: Path) -> None:
    ranks = 20
    log = tmp_path / "strace.log"
    strace = ["strace", "-f", "-o", str(log), "-e", "trace=file,ftruncate,fallocate"]
    launch = [sys.executable, "-S", str(LAUNCHES), str(ranks), "true"]
    done = run(*strace, rankscope, "run", "--out", "made", *launch)
    assert done.returncode == 0
    calls = [line for line in log.read_text().splitlines() if CALL.match(line) and "/made/ranks" in line]
    assert ranks <= len(calls) <= ranks + OTHERS  # each makes its file, and that is all
