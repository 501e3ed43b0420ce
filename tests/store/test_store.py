"""A run's folder becomes tables; who is a rank, a helper or a launcher is found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.model.records import Event, RankFacts, Reading, Tally
from rankscope.model.tables import names_of
from rankscope.rank_file import COLLECTIVE, State
from rankscope.rank_files.read import read_rank_file
from rankscope.store import large_runs, rank_files
from rankscope.store.folder import NoRun
from rankscope.store.roles import assign_roles
from rankscope.store.run import OpenOptions, RunTables, open_run
from runs.small_run import START, mpi_rank, process, write_run


def opened(folder: Path, **options: Any) -> RunTables:
    return open_run(folder, read_rank_file, OpenOptions(**options))


def test_tables_have_the_columns_of_the_model(tmp_path: Path) -> None:
    rank = mpi_rank(0, 1)
    rank.tally("MPI_Send", 2, 100, bytes=16, size_class=4)
    records = np.zeros(1, COLLECTIVE)
    records["name"], records["enter_ticks"], records["end_ticks"] = rank.string("MPI_Barrier"), 11, 21
    rank.collectives(records)
    run = opened(write_run(tmp_path, rank))
    described = {row[0]: row[1] for row in run.query("DESCRIBE tallies")}
    assert tuple(described) == ("process", *names_of(Tally))
    assert run.query("SELECT process, name, calls, total_ns, bytes, kind FROM tallies") == [
        (0, "MPI_Send", 2, 100.0, 16, "call")
    ]
    assert run.query("SELECT name, start_ns, end_ns, correlation FROM events") == [
        ("MPI_Barrier", START + 11, START + 21, None)
    ]
    assert run.query("SELECT command, launcher, expected_ranks FROM run") == [("mpirun -n 2 'a b'", "openmpi", None)]


def test_records_of_a_small_foreign_reader_do_as_well(tmp_path: Path) -> None:
    def read(path: Path) -> Reading:
        tally, event = Tally("gpu", "gemm", 2, 5.5), Event("gpu", "copy", 1, None, root=4)
        return Reading(RankFacts(rank=3), tallies=[tally], events=[event])

    run = open_run(write_run(tmp_path, process()), read)
    assert run.query("SELECT layer, name, total_ns, min_ns, errors FROM tallies") == [("gpu", "gemm", 5.5, None, 0)]
    assert run.query("SELECT name, end_ns, root FROM events") == [("copy", None, 4)]


def test_a_bad_file_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, mpi_rank(0, 2), mpi_rank(1, 2))
    (folder / "ranks/node0/101.rank").write_bytes(b"rubbish" * 1000)
    run = opened(folder)
    assert len(run.bad_files) == 1 and "101.rank" in run.bad_files[0]
    assert run.query("SELECT process, rank FROM ranks") == [(0, 0)]
    assert run.query("SELECT count(*) FROM notes WHERE severity = 'warning' AND process IS NULL") == [(1,)]


def test_many_files_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_runs, "MANY_FROM", 2)
    monkeypatch.setattr(rank_files, "MOST_FILES", 3)
    ranks = [mpi_rank(rank, 10, host=f"node{rank % 2}".encode()) for rank in range(10)]
    for rank, made in enumerate(ranks):
        made.tally(f"MPI_F{rank}", rank + 1, 10)
    seen: list[tuple[int, int]] = []
    run = opened(write_run(tmp_path, *ranks), progress=lambda done, total: seen.append((done, total)))
    assert run.query("SELECT rank, name, calls FROM tallies JOIN ranks USING (process) ORDER BY rank") == [
        (rank, f"MPI_F{rank}", rank + 1) for rank in range(10)
    ]
    assert seen == [(3, 10), (6, 10), (9, 10), (10, 10)]


def test_what_is_no_run_is_said_with_the_next_action(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoRun, match="no runs in rankscope-runs/: record one with"):
        open_run(None, read_rank_file)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoRun, match="empty: no rank files"):
        opened(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(NoRun, match="file: not a folder"):
        opened(tmp_path / "file")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "cannot be read"), ("[]", "not an object"), ('{"format": 9}', "format 9"), (None, "is missing")],
)
def test_a_run_without_a_good_description_is_still_read(text: str | None, message: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path, mpi_rank(0, 1))
    if text is None:
        (folder / "run.json").unlink()
    else:
        (folder / "run.json").write_text(text)
    run = opened(folder)
    assert message in run.query("SELECT text FROM notes")[0][0]
    assert run.query("SELECT count(*) FROM ranks") == [(1,)]


def roles(*processes: RankFacts) -> list[str]:
    assign_roles(processes)
    return [facts.role for facts in processes]


def one(pid: int, parent: int, rank: int | None = None, mpi: bool = False, **more: Any) -> RankFacts:
    return RankFacts("h", pid, parent, rank, finalized=True if mpi else None, started_ns=pid, **more)


def test_the_process_that_initialised_mpi_is_the_rank() -> None:
    shell, python, worker = one(10, 1, 0), one(11, 10, 0, mpi=True), one(12, 11, 0)
    assert roles(shell, python, worker) == ["helper", "rank", "helper"]


def test_without_mpi_the_topmost_process_is_the_rank() -> None:
    assert roles(one(11, 10, 0), one(10, 1, 0), one(12, 11, 0)) == ["helper", "rank", "helper"]


def test_a_program_image_that_was_replaced_is_not_the_rank() -> None:
    assert roles(one(10, 1, 0, ending="replaced"), one(10, 1, 0)) == ["helper", "rank"]


def test_processes_without_a_rank_are_launchers_or_helpers() -> None:
    assert roles(one(1, 0), one(2, 1), one(3, 2, 0), one(4, 3), one(5, 1)) == [
        "launcher", "launcher", "rank", "helper", "helper",
    ]  # fmt: skip


def test_equal_pids_on_two_hosts_are_two_families() -> None:
    first, second = one(10, 1), one(11, 10, 0)
    second.host = "other"
    assert roles(first, second) == ["helper", "rank"]


def test_a_run_without_rank_numbers_has_one_rank() -> None:
    child, top = one(11, 10), one(10, 1)
    assert roles(child, top) == ["helper", "rank"]
    assert (top.rank, top.world_size, top.rank_source) == (0, 1, "none")


def test_parents_in_a_circle_end() -> None:
    assert sorted(roles(one(10, 11), one(11, 10))) == ["launcher", "rank"]


def test_a_replaced_image_in_the_file(tmp_path: Path) -> None:
    run = opened(write_run(tmp_path, mpi_rank(0, 1), process(pid=100, state=State.REPLACED, rank=0)))
    assert run.query("SELECT role, ending FROM ranks ORDER BY role") == [("helper", "replaced"), ("rank", "exited")]
