"""Rank files are found in a fixed order, whatever else lies in the folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.store.folder import NoRun, is_run, rank_files, run_folders


def test_rank_files_come_by_host_and_name(tmp_path: Path) -> None:
    for host in ("node1", "node10", "node1-a", "node2"):
        for name in ("7.rank", "10.rank", "7-1.rank", ".8.part", "notes.txt"):
            (tmp_path / "ranks" / host).mkdir(parents=True, exist_ok=True)
            (tmp_path / "ranks" / host / name).touch()
    (tmp_path / "ranks" / "README").touch()
    found = rank_files(tmp_path)
    assert found == sorted(tmp_path.glob("ranks/*/*.rank")) and len(found) == 12
    assert found[0] == tmp_path / "ranks/node1/10.rank"


def test_no_rank_files(tmp_path: Path) -> None:
    with pytest.raises(NoRun, match="no rank files"):
        rank_files(tmp_path)
    assert rank_files(tmp_path, ["loaded"]) == []


@pytest.mark.parametrize("name", ["loaded", "ranks"])
def test_a_run_may_be_called_like_a_part_of_one(tmp_path: Path, name: str) -> None:
    """Its parent is then the folder of runs that it was."""
    (tmp_path / name / "loaded").mkdir(parents=True)
    (tmp_path / name / "run.json").touch()
    assert not is_run(tmp_path) and run_folders(tmp_path) == [tmp_path / name]
