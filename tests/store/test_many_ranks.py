"""A large run has the tables of a small one, and what was read once is not read again unless it changed."""

from __future__ import annotations

import json
import os
import signal
import tarfile
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT
from rankscope.api import run as api
from rankscope.api.run import Run, Selection
from rankscope.model.records import INSIDE, RangeTally, Reading
from rankscope.rank_file import HEADER, State
from rankscope.rank_files.read import read_rank_file
from rankscope.store import cache, large_runs
from rankscope.store.executors import Killed, Pool
from rankscope.store.run import OpenOptions, RunTables, open_run
from runs.many_ranks import LAW, Watched, age, aged_run, assert_same, make_large, rank_files, tables
from runs.small_run import mpi_rank


def opened(folder: Path, **options: Any) -> tuple[RunTables, list[str]]:
    watched = Watched()
    return open_run(folder, read_rank_file, OpenOptions(executor=watched, **options)), watched.read


def test_the_tables_are_those_of_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = aged_run(tmp_path / "run")
    small = tables(Run(folder))
    make_large(monkeypatch)
    first, again = tables(Run(folder)), tables(Run(folder))
    assert_same(first, small)
    assert_same(again, first, exact=True)
    assert_same(tables(Run(folder, keep=False)), first, exact=True)


def test_losses_and_uneven_sizes_are_those_of_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    folder = aged_run(tmp_path / "run", replace(LAW, killed=(2,), log_capacity=180, lost_calls=3))
    path = rank_files(folder)[5]
    data = bytearray(path.read_bytes())
    at = data.rindex((4096).to_bytes(8, "little") + (290).to_bytes(4, "little"))  # bytes and sequence of one record
    data[at : at + 8] = (5000).to_bytes(8, "little")
    path.write_bytes(data)
    small = tables(Run(folder))
    make_large(monkeypatch)
    assert_same(tables(Run(folder)), small)
    assert "Left out" in " ".join(small["collectives"].notes)


def test_only_what_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    _, read = opened(folder)
    assert len(read) == 10
    store, read = opened(folder)
    assert read == []
    before = store.query("SELECT rank, sum(calls) FROM tallies JOIN ranks USING (process) GROUP BY 1 ORDER BY 1")
    changed = rank_files(folder)[4]
    age(changed, 1)
    _, read = opened(folder)
    assert read == [changed.name]
    new = mpi_rank(10, 10, host=b"node00001")  # its file comes between the others
    new.tally("MPI_Send", 7, 70)
    age(new.write(folder / "ranks/node00001/0999.rank"))
    store, read = opened(folder)
    assert read == ["0999.rank"]
    sql = "SELECT rank, sum(calls) FROM tallies JOIN ranks USING (process) GROUP BY 1 ORDER BY 1"
    assert store.query(sql) == [*before, (10, 7)]
    assert store.query("SELECT process, rank FROM ranks ORDER BY process")[3] == (3, 10)
    assert opened(folder)[1] == []


def test_events_that_stay_on_disk_follow_their_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    monkeypatch.setattr(large_runs, "MOST_ROWS", 20)  # tallies stay there too
    folder = aged_run(tmp_path / "it's [a] run*")
    sql = """SELECT rank, min(start_ns), count(*), (SELECT sum(total_ns) FROM tallies WHERE process = one.process)
        FROM events AS one JOIN ranks USING (process) GROUP BY rank, one.process ORDER BY rank"""
    before = opened(folder)[0].query(sql)
    age(mpi_rank(10, 10, host=b"node00000").write(folder / "ranks/node00000/0999.rank"))
    store, read = opened(folder)
    assert read == ["0999.rank"] and store.query(sql) == before
    assert store.query("SELECT count(*) FROM events") == [(3000,)]


def test_a_rank_that_runs_is_read_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    running = rank_files(folder)[1]
    with running.open("r+b") as file:
        members = HEADER.fields
        assert members is not None
        file.seek(members["state"][1])
        file.write(int(State.RUNNING).to_bytes(4, "little"))
    age(running)
    assert len(opened(folder)[1]) == 10
    assert opened(folder)[1] == [running.name]
    young = rank_files(folder)[8]
    os.utime(young)
    assert sorted(opened(folder)[1]) == sorted([running.name, young.name])
    assert sorted(opened(folder)[1]) == sorted([running.name, young.name])  # it may change without a new time


@pytest.mark.parametrize("damage", ["index", "cut", "flipped", "rubbish", "gone"])
def test_damaged_tables_are_made_again(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    sql = "SELECT name, sum(calls), sum(total_ns) FROM tallies GROUP BY 1 ORDER BY 1"
    before = opened(folder)[0].query(sql)
    # of the batch of one file: no other size of it can hide behind those of its neighbours
    victim = min((folder / "tables").glob("*.tallies.parquet"), key=lambda path: path.stat().st_size)
    data = victim.read_bytes()
    if damage == "index":
        (folder / "tables/index.json").write_text('{"format": 1, "batches": [{"name": "../../x"}]}')
    elif damage == "cut":
        victim.write_bytes(data[:-20])
    elif damage == "flipped":
        victim.write_bytes(data[:300] + bytes([data[300] ^ 255]) + data[301:])
    elif damage == "rubbish":
        victim.write_bytes(b"x" * len(data))
    else:
        victim.unlink()
    store, read = opened(folder)
    assert store.query(sql) == before
    assert len(read) in (1, 10)  # that of the batch, or all
    assert opened(folder)[1] == []


def test_without_a_place_for_tables_everything_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    (folder / "tables").write_text("")  # no folder can be made there
    for _ in range(2):
        store, read = opened(folder)
        assert len(read) == 10 and store.query("SELECT count(*) FROM ranks") == [(10,)]
    (folder / "tables").unlink()
    monkeypatch.setenv(cache.SWITCH, "off")
    assert len(opened(folder)[1]) == 10 and not (folder / "tables").exists()
    monkeypatch.delenv(cache.SWITCH)
    assert len(opened(folder, keep=False)[1]) == 10 and not (folder / "tables").exists()


def test_a_bad_file_is_told_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    bad = rank_files(folder)[3]
    bad.write_bytes(b"rubbish" * 1000)
    for _ in range(2):
        store, _ = opened(folder)
        assert len(store.bad_files) == 1 and bad.name in store.bad_files[0]
        assert store.query("SELECT count(*) FROM ranks") == [(9,)]


def test_other_code_makes_other_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    opened(folder)
    told = json.loads((folder / "tables/index.json").read_text())
    (folder / "tables/index.json").write_text(json.dumps({**told, "code": "of yesterday"}))
    assert len(opened(folder)[1]) == 10


def test_an_answer_is_kept_as_long_as_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    first = tables(Run(folder))
    openings: list[Path] = []

    def counted(path: Path, *given: Any, **options: Any) -> RunTables:
        openings.append(path)
        return open_run(path, *given, **options)

    monkeypatch.setattr(api, "open_run", counted)
    assert_same(tables(Run(folder)), first, exact=True)
    run = Run(folder)
    run.prepare(events=True)
    assert "waiting" in run.default_tables() and run.bad_files == [] and not openings
    assert len(Run(folder).answers(["ranks"], Selection(frozenset({1}), 5))[0].rows) == 1  # another question
    assert len(openings) == 1
    age(rank_files(folder)[0], 1)
    assert_same(tables(Run(folder)), first, exact=True)
    assert len(openings) == 2
    (folder / "run.json").write_text(json.dumps({"format": 1, "expected_ranks": 12}))
    assert any("expected by run.json" in text for text in tables(Run(folder), ["coverage"])["coverage"].warnings)
    for path in (folder / "tables/answers").rglob("*.json"):
        path.write_text("{")
    assert_same(tables(Run(folder), ["waiting"]), {"waiting": first["waiting"]}, exact=True)


def test_a_run_that_goes_on_keeps_no_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    os.utime(rank_files(folder)[2])
    tables(Run(folder))
    assert not list((folder / "tables").rglob("answers/*/*.json"))


def killing(path: Path) -> Reading:
    """Kills its process at the first file of the second batch, once."""
    mark = path.parents[2] / "killed"
    if path.name == "1001.rank" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return read_rank_file(path)


def killing_again(path: Path) -> Reading:
    os.kill(os.getpid(), signal.SIGKILL)
    return read_rank_file(path)


def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    sql = "SELECT process, name, calls, total_ns FROM tallies ORDER BY ALL"
    whole = open_run(folder, read_rank_file, OpenOptions(executor=Watched(), keep=False)).query(sql)
    assert open_run(folder, killing, OpenOptions(executor=Pool(2), keep=False)).query(sql) == whole
    assert (folder / "killed").exists()
    with pytest.raises(large_runs.NoRun, match="were killed 3 times"):
        open_run(folder, killing_again, OpenOptions(executor=Pool(2), keep=False))


def test_results_come_in_order() -> None:
    assert list(Pool(2).map(str, range(50))) == [str(number) for number in range(50)]
    with pytest.raises(Killed):
        list(Pool(2).map(os._exit, [1, 1, 1]))


def with_ranges(path: Path) -> Reading:
    """The rank file, and work inside a range, which these files are too old to tell."""
    made = read_rank_file(path)
    made.range_tallies = [
        RangeTally("gpu", name, made.facts.pid or 0, 5.0, within=f"app/step{INSIDE}app/{name}") for name in ("k", "l")
    ]
    return made


@pytest.mark.parametrize("most_rows", [4_000_000, 1])
def test_ranges_and_devices_of_a_large_run(most_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An H200's run: the same rows from memory and from disk, made now and kept before, as of a small run."""
    with tarfile.open(ROOT / "tests" / "runs" / "h200_runs.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    names = ("tallies", "range_tallies", "devices", "device_gaps", "gpu_clocks")

    def rows() -> dict[str, list[Any]]:
        run = open_run(tmp_path / "ddp", with_ranges, OpenOptions(events=False))
        return {name: run.query(f"SELECT * FROM {name} ORDER BY ALL") for name in names}

    small = rows()
    assert all(small.values()) and len(small["range_tallies"]) == 3 * 2 and not list(tmp_path.rglob("*.parquet"))
    make_large(monkeypatch)
    monkeypatch.setattr(large_runs, "MOST_ROWS", most_rows)
    for path in rank_files(tmp_path / "ddp"):
        age(path, 30)
    assert rows() == small and list(tmp_path.rglob("*.range_tallies.parquet"))
    assert rows() == small
