"""A page of 6,000 ranks: by host, with the ranks that stand out; it loads and scrolls."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from browser.chromium import Chromium
from browser.large_run import PER_HOST, write_large_run
from browser.pages import FILLED, TABLES
from rankscope.output.html import to_html
from rankscope.pictures import Page
from rankscope.questions.page import page_of
from rankscope.rank_files.read import read_rank_file
from rankscope.store.columns import joined, reading_tables
from rankscope.store.folder import Job
from rankscope.store.rank_files import Recorded
from rankscope.store.run import RunContents, RunTables

RANKS, STEPS, SLOW = 6000, 24, 4321


def many_ranks(folder: Path) -> RunTables:
    """The tables of 6,000 ranks, each a copy of one of two that were read from their files."""
    write_large_run(folder / "two", ranks=2, steps=STEPS, slow=1)
    usual, slow = (read_rank_file(path) for path in sorted((folder / "two").glob("ranks/*/*.rank")))
    recorded = Recorded(list(range(RANKS)))
    copies: dict[str, list[pa.Table]] = {}
    usual_tables, slow_tables = reading_tables(0, usual, True), reading_tables(0, slow, True)
    for rank in range(RANKS):
        told, tables = (slow, slow_tables) if rank == SLOW else (usual, usual_tables)
        host = f"node{rank // PER_HOST:04d}"
        recorded.facts.append(replace(told.facts, rank=rank, world_size=RANKS, host=host, pid=rank + 1))
        for name, table in tables.items():
            copies.setdefault(name, []).append(_of_rank(name, table, rank))
    recorded.tables = {name: [joined(parts)] for name, parts in copies.items()}
    return RunTables(RunContents(folder / "two", Job(["srun", "python", "train.py"], "slurm", RANKS), recorded))


def _of_rank(name: str, table: pa.Table, rank: int) -> pa.Table:
    rows = len(table)
    changed = {"process": pa.array([rank] * rows, pa.int32())}
    if name == "groups":
        changed |= {"size": pa.array([RANKS] * rows, pa.int64()), "my_rank": pa.array([rank] * rows, pa.int64())}
    for column, values in changed.items():
        table = table.set_column(table.schema.get_field_index(column), table.schema.field(column), values)
    return table


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(many_ranks(tmp_path_factory.mktemp("large")), "6,000 ranks")


@pytest.mark.slow
def test_many_ranks_are_shown_by_host_with_those_that_stand_out(described: Page) -> None:
    sections = {section.name: section for section in described.sections}
    assert {"start", "steps", "wait_map", "waiting", "communication", "memory", "balance"} <= sections.keys()
    steps = {table.name: table for table in sections["steps"].tables}
    assert len(steps["step_parts_by_hosts"].rows) == RANKS / PER_HOST / 2
    assert steps["step_parts_outliers"].rows[0][0] == SLOW
    assert f"Ranks that differ: rank {SLOW} has" in sections["steps"].charts[1].title
    named = [row[0] for row in sections["differing"].tables[0].rows]
    assert named[0] == SLOW and f"Rank {SLOW} on" in sections["differing"].lead
    for name in ("steps", "start", "memory", "balance", "waiting"):
        marked = [table for table in sections[name].tables if table.name.endswith("_outliers")]
        assert [[row[0] for row in table.rows] for table in marked] == [named], name
    assert re.search(rf"\b{SLOW}\b", sections["waiting"].charts[0].title)
    assert max(len(table.rows) for section in described.sections for table in section.tables) <= 512


@pytest.mark.slow
def test_page_of_many_ranks_loads_and_scrolls(chromium: Chromium, described: Page, tmp_path: Path) -> None:
    page = tmp_path / "large.html"
    page.write_text(to_html(described), encoding="utf-8")
    assert page.stat().st_size < 1_500_000
    told = chromium.ask(page, {"do": "scroll"}, FILLED, {"do": "scroll"}, {"do": "evaluate", "code": TABLES})
    print(f"{page.stat().st_size / 1e6:.1f} MB, first paint after {told.paint_ms:.0f} ms, then {told.answers[2]}")
    on_page: dict[str, Any] = {one["name"]: one["rows"] for one in told.answers[3]}
    for section in described.sections:
        for table in section.tables:
            assert len(on_page[table.name]) == len(table.rows), table.name
