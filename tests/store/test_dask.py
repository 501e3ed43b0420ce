"""Rank files read by Dask give the tables that a process pool gives, also when a worker is lost."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.api.run import NoRun, Run
from rankscope.cli import main
from rankscope.model.records import Reading
from rankscope.rank_files.read import read_rank_file
from rankscope.store import executors
from rankscope.store.executors import Cluster, Killed, cluster
from rankscope.store.run import OpenOptions, open_run
from runs.many_ranks import Watched, aged_run, assert_same, make_large, tables

distributed = pytest.importorskip("distributed", reason="Dask is missing: pip install 'rankscope[dask]'")
SQL = "SELECT process, name, calls, total_ns FROM tallies ORDER BY ALL"
EVENTS = "SELECT process, name, sequence, start_ns, end_ns FROM events ORDER BY ALL"


@pytest.fixture(scope="module")
def workers() -> Iterator[Cluster]:
    """Two workers in processes of their own."""
    cloudpickle = pytest.importorskip("cloudpickle")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # they do not know the folder of tests
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "host": "127.0.0.1"}
    with distributed.LocalCluster(**options) as here, distributed.Client(here) as client:
        yield Cluster(client)
        cluster(client.scheduler.address).client.close()  # that of those who were given the address only
        cluster.cache_clear()


def killing(path: Path) -> Reading:
    """Kills the worker at one file, once."""
    mark = path.parents[2] / "killed"
    if path.name == "1001.rank" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return read_rank_file(path)


def always_killing(path: Path) -> Reading:
    os.kill(os.getpid(), signal.SIGKILL)
    return read_rank_file(path)


def test_the_tables_are_those_of_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: Cluster) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    by_pool = tables(Run(folder, keep=False))
    by_dask = tables(Run(folder, keep=False, dask=workers.client.scheduler.address))
    assert_same(by_dask, by_pool, exact=True)


def test_a_worker_that_is_killed_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: Cluster
) -> None:
    make_large(monkeypatch)
    folder = aged_run(tmp_path / "run")
    here = open_run(folder, read_rank_file, OpenOptions(executor=Watched(), keep=False))
    there = open_run(folder, killing, OpenOptions(executor=workers, keep=False))
    assert (folder / "killed").exists()
    assert there.query(SQL) == here.query(SQL)
    assert there.query(EVENTS) == here.query(EVENTS)


@pytest.mark.slow
def test_workers_that_are_always_killed_are_told(workers: Cluster) -> None:
    with pytest.raises(Killed, match="killed repeatedly"):
        list(workers.map(always_killing, [Path("x")]))


def test_workers_that_lack_what_the_work_needs_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: Cluster
) -> None:
    (tmp_path / "only_here.py").write_text("def made():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Killed, match="has no only_here: install rankscope there"):
        list(workers.map(str, [importlib.import_module("only_here").made]))
    assert list(workers.map(str, [1, 2])) == ["1", "2"]


def test_a_scheduler_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "CONNECT_S", 1)
    with pytest.raises(NoRun, match="no scheduler answers there"):
        cluster("tcp://127.0.0.1:9")
    with pytest.raises(NoRun, match="no scheduler answers there"):
        cluster("nonsense://")


def test_the_command_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    make_large(monkeypatch)
    folder = str(aged_run(tmp_path / "run"))
    assert main(["report", folder, "--table", "waiting", "--fresh"]) == 0
    by_pool = capsys.readouterr().out
    assert main(["report", folder, "--table", "waiting", "--fresh", "--dask", workers.client.scheduler.address]) == 0
    assert capsys.readouterr().out == by_pool
