"""The questions of a page: what their pictures say in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from browser.large_run import write_large_run
from browser.pages import gpu_run
from rankscope.model.tables import Table
from rankscope.pictures import Page
from rankscope.questions.page import PageOptions, page_of
from rankscope.questions.page.imports import import_boxes
from rankscope.questions.ranks.ranks import hosts
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.small_run import MILLI, SECOND


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunTables:
    folder = write_large_run(tmp_path_factory.mktemp("sections") / "run", ranks=16, steps=50)
    return open_run(folder, read_rank_file)


@pytest.fixture(scope="module")
def page(run: RunTables) -> Page:
    return page_of(run, "run")


def titles(page: Page) -> dict[str, str]:
    return {section.name: section.charts[0].title for section in page.sections if section.charts}


def cells(table: Table) -> list[dict[str, object]]:
    return [dict(zip([column.name for column in table.columns], row, strict=True)) for row in table.rows]


def test_words_have_the_numbers_of_the_run(page: Page) -> None:
    """A step of 100 ms: 30 to 31 ms forward (60 to 61 on rank 5), 30 backward, the rest in the all-reduce."""
    told = titles(page)
    assert told["start"].startswith("It takes 1.1 s until the end of the first step")
    assert told["steps"] == "A step takes 100 ms: 32 % forward, 30 % backward, 28 % exposed wait"
    assert re.match(r"A rank waits 28\.\d ms per step on average, 3[01]", told["wait_map"])
    assert "rank 5: 22." in told["waiting"] and "100 % of all waiting" in told["waiting"]
    most = "MPI_Allreduce of up to 8 B takes the most time: 2.4 s, summed over the ranks, in 2,400 calls, 50 % of all"
    assert told["communication"] == most
    assert told["gpu"] == "kernel_11 takes 15 % of the GPU time: 960 ms in 800 calls"
    assert told["memory"].startswith("The largest process peaks at 1.01 GiB (rank ")
    assert told["balance"].startswith("Rank ")
    assert told["overhead"].endswith("nothing was lost")


def test_parts_of_a_step_add_up(page: Page) -> None:
    section = next(one for one in page.sections if one.name == "steps")
    for row in cells(section.tables[0]):
        drawn = sum(float(str(row[part])) for part in section.charts[0].parts)
        assert abs(drawn - 100 * MILLI) < 2
        assert row["exposed_wait_ns"] == pytest.approx(0 if row["rank"] == 5 else 30 * MILLI, abs=0.3 * MILLI)


def test_parts_of_a_gpu_add_up(tmp_path: Path) -> None:
    """Of a real run: what each GPU did, alone or at once, and its idle time are the time from first to last."""
    found = page_of(open_run(gpu_run(tmp_path), read_rank_file), "ddp")
    section = next(one for one in found.sections if one.name == "gpu_time")
    rows = cells(section.tables[0])
    assert len(rows) == 2
    for row in rows:
        drawn = sum(float(str(row[part])) for part in section.charts[0].parts)
        assert drawn == pytest.approx(float(str(row["span_ns"])), rel=1e-9)


def test_hosts(run: RunTables) -> None:
    rows = cells(hosts(run))
    assert [(row["host"], row["ranks"]) for row in rows] == [("node0000", 8), ("node0001", 8)]
    assert rows[0]["cpu_ns"] == 50 * 60 * MILLI + 5 * SECOND
    assert rows[0]["cpu_share"] == pytest.approx((3 + 5) / 7)


TREE = {
    "name": "all processes",
    "wall_ns": 1000,
    "children": [
        {
            "name": "python train.py",
            **{"wall_ns": 1000, "self_wall_ns": 100, "calls": 50, "self_calls": 5},
            "children": [
                {"name": "torch", "wall_ns": 700, "self_wall_ns": 700, "calls": 40, "self_calls": 40, "children": []},
                {"name": "numpy", "wall_ns": 200, "self_wall_ns": 200, "calls": 5, "self_calls": 5, "children": []},
                {"name": "tiny", "wall_ns": 0, "self_wall_ns": 0, "calls": 0, "self_calls": 0, "children": []},
            ],
        }
    ],
}


def test_imports_as_boxes(run: RunTables) -> None:
    page = page_of(run, "run", PageOptions(imports=TREE))
    section = next(one for one in page.sections if one.name == "imports")
    told = "torch takes 700 ns of the 900 ns of all imports; all processes make 50 system calls"
    assert section.charts[0].title == told
    rows = cells(section.tables[0])
    assert [(row["name"], row["id"], row["parent"]) for row in rows] == [
        ("python train.py", 1, None),
        ("torch", 2, 1),
        ("numpy", 3, 1),
    ]
    assert section.tables[0].notes == ["Left out: 1 module of less than 0.02 % of the time."]


def test_processes_that_another_started_stand_beside_it() -> None:
    """Two ranks of 9 s each in a launcher of 10 s: 18 s would not fit into it."""
    module = {"name": "torch", "kind": "module", "wall_ns": 8, "self_wall_ns": 8, "calls": 3, "self_calls": 3}
    ranks = {"name": "train", "kind": "process", "wall_ns": 18, "self_wall_ns": 10, "calls": 5, "self_calls": 2}
    launcher = {"name": "torchrun", "kind": "process", "wall_ns": 10, "self_wall_ns": 10, "calls": 9, "self_calls": 4}
    tree = {"wall_ns": 10, "children": [{**launcher, "children": [{**ranks, "children": [module]}]}]}
    told = import_boxes(tree).rows
    assert told == [("train", 18, 10, 5, 2, 1, None), ("torchrun", 10, 10, 4, 4, 2, None), ("torch", 8, 8, 3, 3, 3, 1)]


def test_imports_without_calls_are_drawn_by_time() -> None:
    tree = {"name": "all", "wall_ns": 5, "children": [{"name": "a", "wall_ns": 5, "self_wall_ns": 5, "calls": None}]}
    assert import_boxes(tree).rows == [("a", 5, 5, None, None, 1, None)]


def test_no_imports_no_section(page: Page) -> None:
    assert "imports" not in [section.name for section in page.sections]
