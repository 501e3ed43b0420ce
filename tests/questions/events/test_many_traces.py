"""Traces of a large run: its tables are those of a small one, whoever sums them, and kept answers stay true."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_law import STEP_EVENTS, Law, rank_file, write_run

from rankscope.api import run as api
from rankscope.api.run import Run
from rankscope.cli import main
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu.kernels import kernels
from rankscope.rank_file import COLLECTIVE, EVENT, LayerNumber
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.events import trace_events
from rankscope.rank_files.read import read_rank_file
from rankscope.store import large_runs
from rankscope.store.derived import Traces
from rankscope.store.executors import Cluster, Killed, cluster
from rankscope.store.folder import NoRun
from rankscope.store.run import OpenOptions, open_run
from runs.many_ranks import age, assert_same, make_large, rank_files, tables

RANKS, STEPS, COLLECTIVES = 8, 3, 20
OF_TRACES = ("gpu_time", "gpu_idle", "kernels", "ranges", "gpu_kinds", "gpu_spread")
ASKED = (*OF_TRACES, "trace", "collectives", "waiting", "ranks", "coverage", "findings")
EVENTS = "SELECT process, layer, name, start_ns, end_ns FROM events ORDER BY ALL"


def with_log(rank: int, size: int) -> RankFileWriter:
    """A rank with a trace of its GPU and a log of collectives."""
    made = rank_file(Law(rank, STEPS, seed=2), size)
    world = made.group("MPI_COMM_WORLD", size=RANKS, my_rank=rank)
    log = np.zeros(COLLECTIVES, COLLECTIVE)
    log["name"], log["group"], log["bytes"] = made.string("MPI_Allreduce"), world, 64
    log["sequence"] = np.arange(1, COLLECTIVES + 1)
    log["enter_ticks"] = log["sequence"] * 1_000_000 + 1_000 * rank
    log["end_ticks"] = log["sequence"] * 1_000_000 + 1_000 * RANKS + 500
    made.collectives(log)
    return made


def traced_run(folder: Path, size: int = RANKS) -> Path:
    write_run(folder, [], ranks=RANKS)
    for rank in range(RANKS):
        age(with_log(rank, size).write(folder / f"ranks/node{rank // 3}/{1000 + rank}.rank"))
    return folder


def unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Traces, "write", lambda traces, *told: pytest.fail("unpacked"))


def test_the_tables_are_those_of_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = traced_run(tmp_path / "run")
    small, events = tables(Run(folder), ASKED), Run(folder).query(EVENTS).rows
    assert len(events) == RANKS * (STEPS * STEP_EVENTS + COLLECTIVES)
    assert all(small[name].rows for name in (*OF_TRACES, "waiting"))
    make_large(monkeypatch)
    assert Run(folder).query(EVENTS).rows == events
    unpacked(monkeypatch)
    first, again = tables(Run(folder), ASKED), tables(Run(folder), ASKED)
    assert_same(first, small)
    assert_same(again, first, exact=True)


def test_a_whole_report_unpacks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    unpacked(monkeypatch)
    folder = traced_run(tmp_path / "run")
    run = Run(folder)
    run.prepare(events=True)
    shown = run.default_tables()
    assert set(OF_TRACES) <= set(shown)
    for name in (*shown, "outliers", "alike", "places"):
        run.table(name)
    assert run.store().query("SELECT count(*) FROM untraced_events") == [(RANKS * COLLECTIVES,)]


def test_traces_are_found_where_figures_stay_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = traced_run(tmp_path / "run")
    small = tables(Run(folder), OF_TRACES)
    make_large(monkeypatch)
    monkeypatch.setattr(large_runs, "MOST_ROWS", 2)
    assert_same(tables(Run(folder), OF_TRACES), small)
    (folder / "ranks/node0/1001.rank").unlink()  # all later ones have other numbers in the run
    without = tables(Run(folder, keep=False), OF_TRACES)
    assert_same(tables(Run(folder), OF_TRACES), without)
    assert {row[0] for row in without["gpu_time"].rows} == set(range(RANKS)) - {1}


def test_answers_about_traces_go_with_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    folder = traced_run(tmp_path / "run")
    first = tables(Run(folder), OF_TRACES)
    openings: list[Path] = []

    def counted(path: Path, *given: Any, **options: Any) -> Any:
        openings.append(path)
        return open_run(path, *given, **options)

    monkeypatch.setattr(api, "open_run", counted)
    assert_same(tables(Run(folder), OF_TRACES), first, exact=True)
    assert not openings
    other = rank_file(Law(2, STEPS + 2, seed=9), RANKS).write(rank_files(folder)[2])
    age(other, 30)
    changed = tables(Run(folder), OF_TRACES)
    assert len(openings) == 1
    assert_same(changed, tables(Run(folder, keep=False), OF_TRACES), exact=True)
    assert changed["gpu_time"].rows != first["gpu_time"].rows


def test_a_damaged_trace_is_told_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That it is damaged is only seen when it is summed: what was answered then is not kept."""
    make_large(monkeypatch)
    folder = traced_run(tmp_path / "run")
    made = rank_file(Law(5, 1), RANKS)
    rows = np.zeros(4, EVENT)
    rows["layer"], rows["name"], rows["start_ticks"] = LayerNumber.GPU, 9_999, np.arange(4)
    made.trace(rows, [1] * 4)
    age(made.write(rank_files(folder)[5]))
    for _ in range(2):
        assert main(["report", str(folder), "--table", "ranks", "--table", "gpu_time"]) == 1
        told = capsys.readouterr()
        assert told.err.count("left out") == 1 and "1005.rank: the trace has a name" in told.err
        assert "node" in told.out


class Elsewhere:
    """Counts what it is given."""

    hosts: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.done = 0

    def map(self, work: Callable[[Any], Any], things: Sequence[Any], at: Sequence[Any] = ()) -> Iterator[Any]:
        for thing in things:
            self.done += 1
            yield work(thing)


class Lost:
    hosts: frozenset[str] = frozenset()

    def map(self, work: Callable[[Any], Any], things: Sequence[Any], at: Sequence[Any] = ()) -> Iterator[Any]:
        raise Killed("workers were killed")


def test_who_does_the_work_sums_traces_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a small run: its events may be many."""
    folder = traced_run(tmp_path / "run")
    there = Elsewhere()
    run = open_run(folder, read_rank_file, OpenOptions(read_trace=trace_events, executor=there))
    run.derive(trace_tables)
    assert there.done == RANKS
    lost = open_run(folder, read_rank_file, OpenOptions(read_trace=trace_events, executor=Lost()))
    for _ in range(2):
        with pytest.raises(NoRun, match="workers were killed"):
            lost.derive(trace_tables)


def test_with_loaded_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = traced_run(tmp_path / "run", RANKS + 2)
    write_run(folder, [Law(RANKS + at, STEPS) for at in range(2)], "parquet", ranks=RANKS + 2)
    small, events = tables(Run(folder), ASKED), Run(folder).query(EVENTS).rows
    assert {row[0] for row in small["gpu_time"].rows} == set(range(RANKS + 2))
    make_large(monkeypatch)
    assert_same(tables(Run(folder), ASKED), small)
    assert Run(folder).query(EVENTS).rows == events


def killing(path: Path) -> Iterator[Any]:
    """Kills the worker at one file, once."""
    mark = path.parents[2] / "killed"
    if path.name == "1003.rank" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return trace_events(path)


def test_dask_sums_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is missing: pip install 'rankscope[dask]'")
    folder = traced_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("cloudpickle").register_pickle_by_value(sys.modules[__name__])  # they do not know this folder
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with distributed.LocalCluster(**options) as here, distributed.Client(here) as client:
        client.run(os.chdir, "/")  # theirs is another folder
        for large in (False, True):
            if large:
                make_large(monkeypatch)
            by_threads = tables(Run(folder, keep=False), ASKED)
            by_dask = tables(Run("run", keep=False, dask=client.scheduler.address), ASKED)
            assert_same(by_dask, by_threads, exact=True)
        store = open_run(folder, read_rank_file, OpenOptions(read_trace=killing, executor=Cluster(client)))
        assert_same({"kernels": kernels(store)}, {"kernels": kernels(Run(folder).store(events=True))}, exact=True)
        assert (folder / "killed").exists()
        cluster(client.scheduler.address).client.close()
        cluster.cache_clear()


def test_summing_and_unpacking_show_how_far_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = traced_run(tmp_path / "run")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        assert main(["report", str(folder), "--table", "kernels", "--out", str(tmp_path / "kernels")]) == 0
        summed = os.read(master, 100_000).decode()
        assert main(["report", str(folder), "--table", "events", "--out", str(tmp_path / "events")]) == 0
    unpacked = os.read(master, 100_000).decode()
    os.close(master)
    every = [f"summing traces: {done} of {RANKS}" for done in range(1, RANKS + 1)]
    assert summed.split("\r")[1:-1] == unpacked.split("\r")[1:-1] == every  # a terminal ends its lines with \r\n


def test_nothing_is_shown_where_nobody_looks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = traced_run(tmp_path / "run")
    assert main(["report", str(folder), "--table", "kernels", "--out", str(tmp_path / "kernels")]) == 0
    assert capfd.readouterr() == ("", "")
