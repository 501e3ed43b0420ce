"""Imports: each question answered with numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.model.tables import Table
from rankscope.questions.imports.calls import (
    import_calls,
    import_causes,
    import_module_mounts,
    import_mounts,
    import_paths,
)
from rankscope.questions.imports.imports import imports
from rankscope.questions.imports.modules import View, import_icicle, import_modules, import_tree
from rankscope.questions.imports.trees import Node, import_trees
from rankscope.questions.selection import Selection
from runs.import_runs import MS, HandFilled, small_run


@pytest.fixture
def run() -> HandFilled:
    return small_run()


def lines(table: Table) -> dict[Any, dict[str, Any]]:
    """The rows by their first column."""
    names = [column.name for column in table.columns]
    found = [dict(zip(names, row, strict=True)) for row in table.rows]
    assert all(len(row) == len(names) for row in table.rows)
    return {row[names[0]]: row for row in found}


def test_all_calls_of_all_processes_are_in_the_sum(run: HandFilled) -> None:
    (row,) = imports(run).rows
    told = dict(zip([column.name for column in imports(run).columns], row, strict=True))
    assert told["calls"] == 10 + 20 + 30 + 6 + 4 + 100 + 1 + 200 + 8 + 3 + 12
    assert told["opens"] == 10 + 100 + 12 and told["stats"] == 30 + 4 + 200 + 3
    assert told["reads"] == 6 + 8 and told["mmaps"] == 20 and told["read_bytes"] == 14_000
    assert told["failed"] == 4 + 5 + 90 + 3 + 2 and told["missing"] == told["failed"] - 1
    assert told["processes"] == 2 and told["modules"] == 5 and told["failed_imports"] == 1
    assert told["wall_ns"] == 900 * MS and told["shared_objects"] == 2
    assert told["method"] == "dispatch (1), preload (1)" and told["seen_share"] == 0.82
    assert any("prctl is not allowed" in note for note in imports(run).notes)


def test_every_module_by_itself_and_with_all_below(run: HandFilled) -> None:
    rows = lines(import_modules(run))
    assert rows["slow"]["self_calls"] == 301 and rows["slow"]["calls"] == 301 + 8 + 12  # deep, and ldconfig
    assert rows["app"]["self_calls"] == 36 and rows["app"]["calls"] == 36 + 4 + 321 + 3
    assert rows["slow"]["self_read_bytes"] == 0 and rows["slow"]["read_bytes"] == 8000
    assert rows["slow"]["self_cpu_ns"] == 495 * MS and rows["slow"]["cpu_ns"] == (795 + 20) * MS
    assert rows["app"]["cpu_ns"] == (900 + 20) * MS
    assert rows["deep"]["parent"] == "slow" and rows["slow"]["shared_objects"] == 2
    assert rows["slow"]["self_loader_calls"] == 100 and rows["slow"]["self_module_calls"] == 201
    assert rows["app"]["search_calls"] == 37 and rows["app"]["code_calls"] == 14 and rows["app"]["loader_calls"] == 100
    total = sum(row["self_calls"] for row in rows.values())
    assert total == import_table_total(run)


def import_table_total(run: HandFilled) -> int:
    return int(run.query("SELECT sum(calls)::BIGINT FROM system_calls")[0][0])


def test_a_process_belongs_to_the_module_that_started_it(run: HandFilled) -> None:
    (tree,) = import_trees(run)
    slow = next(node for node in tree.walk() if node.name == "slow")
    assert [child.name for child in slow.children if child.is_process] == ["/sbin/ldconfig -p"]
    assert tree.whole.calls == import_table_total(run)


def test_a_process_that_began_in_no_module_belongs_to_its_parent(run: HandFilled) -> None:
    run.query("UPDATE ranks SET started_ns = ? WHERE process = 1", [990 * MS])
    (tree,) = import_trees(run)
    assert [child.name for child in tree.children if child.is_process] == ["/sbin/ldconfig -p"]


def test_a_process_that_was_several_programs(run: HandFilled) -> None:
    run.process(2, "sh -c python3", pid=100, elapsed_ns=300 * MS, user_ns=100 * MS, system_ns=0)
    run.calls(0, "interpreter", "vfork", 1, process=2)
    run.query("UPDATE ranks SET started_ns = ? WHERE process = 1", [200 * MS])
    shell, python = sorted(import_trees(run), key=lambda tree: tree.wall_ns)
    assert (shell.wall_ns, python.wall_ns) == (300 * MS, 700 * MS) and python.cpu_ns == 700 * MS
    assert [child.name for child in shell.children] == ["/sbin/ldconfig -p"]


def test_tree_is_ordered_and_small_branches_are_folded(run: HandFilled) -> None:
    names = [row[0] for row in import_tree(run).rows]
    assert names == [
        "python3 -c 'import app'",
        "  app",
        "    slow",
        "      deep",
        "      ldconfig -p",
        "    … 2 smaller",
    ]
    rows = lines(import_tree(run, view=View(depth=1)))
    assert list(rows) == ["python3 -c 'import app'", "  app"]
    everything = lines(import_tree(run, view=View(None, "calls", 0.0)))
    assert list(everything)[2:] == ["    slow", "      ldconfig -p", "      deep", "    fast", "    gone (failed)"]
    assert everything["    slow"]["failed"] == 92 and everything["    slow"]["stats"] == 200


def test_names_in_few_letters(run: HandFilled) -> None:
    names = [row[0] for row in import_tree(run, view=View(letters=10)).rows]
    assert names[:4] == ["python3 -…", "  app", "    slow", "      deep"]


def test_ranks_that_import_the_same_are_one_branch(run: HandFilled) -> None:
    run.process(2, rank=1, role="rank", pid=500, parent_pid=1)
    run.module(1, 0, "app", 700, 700, process=2)
    run.calls(1, "search", "stat", 40, process=2)
    rows = lines(import_tree(run))
    assert rows["  app"]["wall_ns"] == 1600 * MS and rows["  app"]["stats"] == 237 + 40
    assert [row[0] for row in import_tree(run, Selection(frozenset([1]))).rows] == ["python3 -c 'import app'", "  app"]


def test_causes_add_up(run: HandFilled) -> None:
    rows = lines(import_causes(run))
    assert {cause: row["calls"] for cause, row in rows.items()} == {
        "module": 201,
        "loader": 100,
        "interpreter": 42,
        "search": 37,
        "code": 14,
    }
    assert rows["loader"]["missing"] == 90 and rows["loader"]["share"] == 100 / 394


def test_by_mount_and_type(run: HandFilled) -> None:
    rows = lines(import_mounts(run))
    assert rows["/soft"]["type"] == "lustre" and rows["/soft"]["calls"] == 208 and rows["/soft"]["stats"] == 200
    assert rows["(no file)"]["calls"] == 21 and rows["/"]["calls"] == 165
    assert rows["/"]["mean_ns"] == 1000


def test_modules_by_mount(run: HandFilled) -> None:
    found = [row[:4] for row in import_module_mounts(run).rows]
    assert found[:3] == [("slow", "/soft", "lustre", 200), ("slow", "/", "ext4", 100), ("app", "/", "ext4", 36)]
    assert sum(row[3] for row in import_module_mounts(run).rows) == 394 - 21


def test_calls_beside_those_of_a_loaded_strace(run: HandFilled) -> None:
    assert all(row["strace_calls"] is None for row in lines(import_calls(run)).values())
    run.process(9, "", tool="strace_summary", role="document", pid=None)
    run.add("tallies", process=9, layer="calls", name="openat", kind="call", calls=122)
    run.add("tallies", process=9, layer="calls", name="brk", kind="call", calls=3)
    rows = lines(import_calls(run))
    assert rows["openat"]["calls"] == 122 and rows["openat"]["strace_calls"] == 122
    assert rows["brk"]["calls"] is None and rows["brk"]["strace_calls"] == 3
    assert import_calls(run).notes == ["394 calls here, 125 in the loaded strace: 315.2 %."]


def test_modules_beside_those_of_a_loaded_importtime(run: HandFilled) -> None:
    run.add("tallies", process=9, layer="import", name="slow", kind="call", calls=1, total_ns=490.0 * MS)
    run.add("range_tallies", process=9, layer="import", name="slow", kind="whole", calls=1, total_ns=780.0 * MS)
    row = lines(import_modules(run))["slow"]
    assert (row["importtime_self_ns"], row["importtime_ns"]) == (490.0 * MS, 780.0 * MS)
    assert lines(import_modules(run))["deep"]["importtime_ns"] is None


def test_paths_asked_again(run: HandFilled) -> None:
    run.path(3, "module", "stat", "/a", 7)
    run.path(1, "search", "open", "/a", 2, result="ENOENT")
    run.path(1, "search", "open", "/b")
    table = import_paths(run)
    rows = lines(table)
    assert rows["/a"] == {
        "path": "/a",
        "times": 9,
        "missing": 2,
        "stats": 7,
        "opens": 2,
        "others": 0,
        "modules": 2,
        "most_by": "slow",
        "most_cause": "module",
    }
    assert table.notes == ["10 operations on 2 distinct paths."]


def test_times_alone_have_no_counts() -> None:
    run = HandFilled()
    run.process()
    run.module(1, 0, "app", 900, 900)
    assert lines(import_tree(run, view=View(sort="calls")))["  app"]["calls"] is None
    assert lines(import_modules(run))["app"]["self_calls"] is None
    assert imports(run).rows[0][5] is None and import_causes(run).rows == []


def test_nothing_recorded_is_nothing_shown() -> None:
    assert imports(HandFilled()).rows == [] and import_tree(HandFilled()).rows == []


def test_icicle_boxes_nest_and_add_up(run: HandFilled) -> None:
    told = import_icicle(run)
    assert told["calls"] == import_table_total(run) and told["name"] == "all processes"

    def check(box: dict[str, Any]) -> int:
        below = sum(check(child) for child in box["children"])
        assert box["calls"] == box["self_calls"] + below
        return int(box["calls"])

    check(told)
    (process,) = told["children"]
    assert process["kind"] == "process" and process["children"][0]["name"] == "app"
    assert process["children"][0]["self_wall_ns"] == 100 * MS


def test_a_module_whose_parent_was_lost_hangs_on_its_process(run: HandFilled) -> None:
    run.module(9, 77, "orphan", 1, 1)
    tree: Node = import_trees(run)[0]
    assert "orphan" in [child.name for child in tree.children]
