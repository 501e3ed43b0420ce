"""Rank files are read by workers on the node that wrote them where there are any, and by others when need be."""

from __future__ import annotations

import importlib
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rankscope.api.run import Run
from rankscope.rank_files.read import read_rank_file
from rankscope.store import rank_files as batches
from rankscope.store.executors import ANYWHERE, At, Dask, Killed, cluster
from rankscope.store.rank_files import batches_of
from rankscope.store.run import OpenOptions, open_run
from runs.many_ranks import LAW, Watched, aged_run, assert_same, rank_files, tables
from store.nodes.cluster import HOSTS, DaskNodes
from store.nodes.reading import noted, noting

QUERIES = (
    "SELECT process, name, calls, total_ns FROM tallies ORDER BY ALL",
    "SELECT process, name, sequence, start_ns, end_ns FROM events ORDER BY ALL",
    "SELECT * FROM ranks ORDER BY process",
)


def answers(run: Any) -> list[Any]:
    return [run.query(sql) for sql in QUERIES]


def by_dask(nodes: DaskNodes, folder: Path, log: Path, **options: Any) -> list[Any]:
    reads = partial(noting, log=log, **options)
    return answers(open_run(folder, reads, OpenOptions(executor=Dask(nodes.address), keep=False)))


def test_each_node_reads_its_own_files(nodes: DaskNodes, tmp_path: Path) -> None:
    """Ten ranks on four hosts; two of the hosts have a worker."""
    folder, log = aged_run(tmp_path / "run"), tmp_path / "read.log"
    expected = answers(open_run(folder, read_rank_file, OpenOptions(executor=Watched(), keep=False)))
    assert by_dask(nodes, folder, log) == expected
    read = noted(log)
    assert sorted(file for _, file in read) == [f"{path.parent.name}/{path.name}" for path in rank_files(folder)]
    at_home = [(host, file) for host, file in read if file.startswith(("node00000/", "node00001/"))]
    assert len(at_home) == 2 * LAW.ranks_per_host and all(file.startswith(f"{host}/") for host, file in at_home)
    assert_same(tables(Run(folder, keep=False, dask=nodes.address)), tables(Run(folder, keep=False)), exact=True)


def test_who_has_nothing_to_do_takes_over(nodes: DaskNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_FILES", 1)
    folder, log = aged_run(tmp_path / "run"), tmp_path / "read.log"
    for path in rank_files(folder)[3:]:  # all on one node
        path.rename(folder / "ranks/node00000" / f"{path.parent.name[-1]}{path.name}")
    expected = answers(open_run(folder, read_rank_file, OpenOptions(executor=Watched(), keep=False)))
    assert by_dask(nodes, folder, log, slowly_s=0.3) == expected
    read = noted(log)
    assert len(read) == len({file for _, file in read}) == LAW.ranks
    assert {host for host, _ in read} > {"node00000"}


def test_a_worker_killed_in_the_middle_is_replaced_by_others(nodes: DaskNodes, tmp_path: Path) -> None:
    folder, log = aged_run(tmp_path / "run"), tmp_path / "read.log"
    expected = answers(open_run(folder, read_rank_file, OpenOptions(executor=Watched(), keep=False)))
    assert by_dask(nodes, folder, log, killed_at="node00001/1001.rank") == expected
    assert (tmp_path / "killed").exists()
    read = noted(log)
    assert next(host for host, file in read if file == "node00001/1001.rank") == "node00001"
    again = [(host, file) for host, file in read if file.startswith("node00001/") and host != "node00001"]
    assert [file for _, file in again] == [f"node00001/100{at}.rank" for at in range(3)]
    once = [file for _, file in read if not file.startswith("node00001/")]
    assert len(once) == len(set(once)) == LAW.ranks - 3


def test_a_host_that_cannot_answer_is_told(nodes: DaskNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def made():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Killed, match=r"cannot answer .*No module named 'only_here'"):
        cluster(nodes.address).on_each_host(importlib.import_module("only_here").made)
    assert cluster(nodes.address).on_each_host(socket.gethostname) == {host: host for host in HOSTS}


def test_batches_are_of_one_host_where_it_has_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = aged_run(tmp_path / "run")
    files = list(enumerate(rank_files(folder)))
    monkeypatch.setattr(batches, "MOST_FILES", 2)
    monkeypatch.setattr(batches, "OWN_BYTES", 1)
    placed = batches_of(files, {}, frozenset({"node00000", "node00002"}))
    assert [([process for process, _ in batch], at) for batch, at in placed] == [
        ([0, 1], At("node00000")),
        ([3, 4], ANYWHERE),
        ([6, 7], At("node00002")),
        ([2], At("node00000")),
        ([5, 9], ANYWHERE),
        ([8], At("node00002")),
    ]
    assert [len(batch) for batch, at in batches_of(files, {}, frozenset({"other"}))] == [2] * 5
    monkeypatch.setattr(batches, "OWN_BYTES", 1 << 30)  # hosts of few bytes share batches
    assert {at for _, at in batches_of(files, {}, frozenset({"node00000"}))} == {ANYWHERE}
