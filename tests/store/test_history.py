"""Summaries as Parquet: added to by several, read whole, and rebuilt where a file is damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from mpis import ROOT
from rankscope.model.summaries import RunSummary
from rankscope.store.history import FOLDER, MOST_FILES, History

WRITER = """
import sys
from pathlib import Path
from rankscope.model.summaries import RunSummary
from rankscope.store.history import History
history = History(Path(sys.argv[1]))
for at in range(30):
    history.add([RunSummary(f"{sys.argv[2]}-{at}", at, hosts=["a", "b"], host_own_ns=[1.0, 2.0])])
"""


def names(history: History) -> list[str]:
    return sorted(history.read().rows["run"].to_pylist())


def test_what_was_added_is_read(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add([RunSummary("a", 1, commit="c", step_ns=2.0, hosts=["x", "y"], host_own_ns=[1.0, 3.0])])
    history.add([RunSummary("b", 2)])
    rows = history.read().rows.to_pylist()
    assert [row["run"] for row in rows] == ["a", "b"] and rows[0]["host_own_ns"] == [1.0, 3.0]
    assert (rows[1]["step_ns"], rows[1]["commit"], rows[1]["hosts"]) == (None, "", [])


def test_of_a_run_that_was_summarised_again_the_newest_counts(tmp_path: Path) -> None:
    history = History(tmp_path)
    for at in (3, 9, 6):
        history.add([RunSummary("a", 1, ranks=at, summarised_ns=at), RunSummary(f"b{at}", 1)])
    rows = {row["run"]: row["ranks"] for row in history.read().rows.to_pylist()}
    assert rows == {"a": 9, "b3": 0, "b6": 0, "b9": 0}


def test_many_files_become_one(tmp_path: Path) -> None:
    history = History(tmp_path)
    for at in range(3 * MOST_FILES):
        history.add([RunSummary(f"r{at:02}", at)])
    assert len(list((tmp_path / FOLDER).iterdir())) <= MOST_FILES
    assert names(history) == [f"r{at:02}" for at in range(3 * MOST_FILES)]


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    """Each of them joins files while the other adds some."""
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    writers = [subprocess.Popen([*command, name], env={"PYTHONPATH": str(ROOT / "src")}) for name in ("a", "b")]
    assert [one.wait() for one in writers] == [0, 0]
    assert names(History(tmp_path)) == sorted(f"{name}-{at}" for name in ("a", "b") for at in range(30))


def test_a_damaged_file_is_one_line_and_is_put_aside(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add([RunSummary("a", 1)])
    history.add([RunSummary("b", 1)])
    path = sorted((tmp_path / FOLDER).iterdir())[0]
    path.write_bytes(path.read_bytes()[:-40])
    told = history.read()
    assert [row["run"] for row in told.rows.to_pylist()] == ["b"]
    (warning,) = told.warnings
    assert "is damaged" in warning and "summarised again" in warning and "\n" not in warning
    assert history.read().warnings == []


def test_a_file_of_another_format_is_none_of_ours(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add([RunSummary("a", 1)])
    pq.write_table(history.read().rows.replace_schema_metadata({}), tmp_path / FOLDER / "x.parquet")
    told = history.read()
    assert told.rows.num_rows == 1 and len(told.warnings) == 1


def test_without_the_right_to_write_nothing_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "runs"
    place.write_text("no folder")
    History(place).add([RunSummary("a", 1)])
    assert History(tmp_path).read().rows.num_rows == 0
