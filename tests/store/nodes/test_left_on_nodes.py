"""Rank files that are still on their nodes (`--local`) are read there by workers, and counted once."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from questions.events.test_many_traces import traced_run
from rankscope.api.run import Run, files_elsewhere
from rankscope.cli import main
from rankscope.rank_file import HEADER, State
from rankscope.rank_files.read import read_rank_file
from rankscope.store import executors, large_runs
from rankscope.store.executors import Dask, cluster
from rankscope.store.run import OpenOptions, open_run
from runs.many_ranks import ASKED, LAW, aged_run, assert_same, tables
from store.nodes.cluster import DaskNodes, environment
from store.nodes.reading import noted, noting
from store.nodes.test_places import answers

TABLES = [name for name in ASKED if name != "coverage"]
LEFT = "read on its node, not in the run"


def local_run(nodes: DaskNodes, folder: Path, *hosts: str) -> Path:
    """A run of which the files of some hosts are still there."""
    aged_run(folder)
    told = json.loads((folder / "run.json").read_text())
    told["options"] = {**told.get("options", {}), "local_dir": str(nodes.local / folder.name)}
    (folder / "run.json").write_text(json.dumps(told))
    for host in hosts:
        there = nodes.folder(host) / folder.name / "ranks"
        there.mkdir(parents=True)
        shutil.move(folder / "ranks" / host, there / host)
    return folder


def gathered(nodes: DaskNodes, folder: Path, host: str, *words: str) -> str:
    done = subprocess.run(nodes.rankscope(host, "gather", str(folder), *words), env=environment(), capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def coverage(run: Run) -> dict[str, tuple[int, str]]:
    return {row[0]: row[1:] for row in run.table("coverage").rows}


def set_state(path: Path, state: State) -> None:
    data = bytearray(path.read_bytes())
    at = HEADER.fields["state"][1] if HEADER.fields is not None else 0
    data[at : at + 4] = int(state).to_bytes(4, "little")
    path.write_bytes(data)


def test_the_tables_are_those_of_the_gathered_run(nodes: DaskNodes, tmp_path: Path) -> None:
    folder = local_run(nodes, tmp_path / "tables", "node00000", "node00001")
    assert len(Run(folder, keep=False).query("SELECT * FROM ranks")) == LAW.ranks - 6
    run = Run(folder, dask=nodes.address)
    on_nodes = tables(run, TABLES)
    assert coverage(run)[LEFT] == (6, "0-2 on node00000; 3-5 on node00001")
    assert "rankscope gather" in run.table("coverage").notes[0] and not run.bad_files
    read = noted_by(nodes, folder, tmp_path / "read.log")
    assert len(read) == len(set(read)) == LAW.ranks
    assert all(file.startswith(f"{host}/") for host, file in read if file.startswith(("node00000/", "node00001/")))
    kept = json.loads((folder / "tables/index.json").read_text())["batches"]
    assert {path.split("/")[1] for batch in kept for _, path, _ in batch["files"]} == {"node00002", "node00003"}
    for host in ("node00000", "node00001"):
        assert "3 copied" in gathered(nodes, folder, host)
    assert_same(tables(Run(folder), TABLES), on_nodes, exact=True)
    afterwards = Run(folder, dask=nodes.address)  # the local files are still there
    assert_same(tables(afterwards, TABLES), on_nodes, exact=True)
    assert LEFT not in coverage(afterwards)


def noted_by(nodes: DaskNodes, folder: Path, log: Path) -> list[tuple[str, str]]:
    left = files_elsewhere(folder, nodes.address)
    open_run(folder, partial(noting, log=log), OpenOptions(executor=Dask(nodes.address), keep=False, elsewhere=left))
    return noted(log)


def test_a_small_run_all_of_whose_files_are_on_nodes(
    nodes: DaskNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_runs, "MANY_FROM", 256)
    folder = local_run(nodes, tmp_path / "small", "node00000", "node00001")
    shutil.rmtree(folder / "ranks")
    assert main(["report", str(folder), "--dask", nodes.address, "--out", str(tmp_path / "report")]) == 0
    assert "not recorded (ranks 6-9)" in (tmp_path / "report").read_text()
    assert not (folder / "tables").exists()
    assert main(["report", str(folder)]) == 2


def test_the_newer_of_two_counts(nodes: DaskNodes, tmp_path: Path) -> None:
    """A copy of a process that still ran, and one of a process that had ended: nobody is counted twice."""
    folder = local_run(nodes, tmp_path / "newer", "node00000")
    there = nodes.folder("node00000") / folder.name / "ranks/node00000"
    shutil.copytree(there, folder / "ranks/node00000")
    set_state(folder / "ranks/node00000/1001.rank", State.RUNNING)
    run = Run(folder, dask=nodes.address)
    assert [row[0] for row in run.query("SELECT rank FROM ranks ORDER BY rank").rows] == list(range(LAW.ranks))
    assert coverage(run)["read on its node, newer than the copy in the run"] == (1, "1 on node00000")
    assert run.query("SELECT ending FROM ranks WHERE rank = 1").rows == [("exited",)] and LEFT not in coverage(run)


def test_files_that_come_home_meanwhile_are_read_there(nodes: DaskNodes, tmp_path: Path) -> None:
    folder = local_run(nodes, tmp_path / "home", "node00000", "node00001")
    left = files_elsewhere(folder, nodes.address)
    gathered(nodes, folder, "node00000", "--remove")
    (nodes.folder("node00001") / "home/ranks/node00001/1001.rank").write_bytes(b"damaged")
    run = open_run(folder, read_rank_file, OpenOptions(executor=Dask(nodes.address), elsewhere=left))
    assert [row[0] for row in run.query("SELECT rank FROM ranks ORDER BY rank")] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert len(run.bad_files) == 1 and "1001.rank: 7 bytes are too few" in run.bad_files[0]
    noted = run.query("SELECT DISTINCT host FROM notes JOIN ranks USING (process) WHERE starts_with(text, 'read on')")
    assert noted == [("node00001",)]


def test_answers_of_before_are_not_given(nodes: DaskNodes, tmp_path: Path) -> None:
    folder = local_run(nodes, tmp_path / "answers", "node00001")
    for _ in range(2):
        assert coverage(Run(folder))["ranks seen"] == (7, "0-2, 6-9")
    assert coverage(Run(folder, dask=nodes.address))["ranks seen"] == (10, "0-9")
    assert coverage(Run(folder))["ranks seen"] == (7, "0-2, 6-9")


def test_a_node_that_is_lost_costs_its_own_ranks(
    nodes: DaskNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its only worker is killed while it reads, and none comes back."""
    monkeypatch.setattr(executors, "LOST_S", 0.5)
    monkeypatch.setattr(executors, "POLL_S", 0.1)
    folder, log = local_run(nodes, tmp_path / "lost", "node00001"), tmp_path / "read.log"
    left = files_elsewhere(folder, nodes.address)
    reads = partial(noting, log=log, killed_at="node00001/1001.rank")
    run = open_run(folder, reads, OpenOptions(executor=Dask(nodes.address), keep=False, elsewhere=left))
    assert len(run.bad_files) == 3 and all("no worker of Dask is on node00001" in text for text in run.bad_files)
    assert [row[0] for row in run.query("SELECT rank FROM ranks ORDER BY rank")] == [0, 1, 2, 6, 7, 8, 9]
    assert {host for host, file in noted(log) if file.startswith("node00001/")} == {"node00001"}
    assert main(["report", str(folder), "--dask", nodes.address, "--table", "coverage"]) == 0  # nobody is there to ask


def test_a_worker_that_comes_back_reads_on(nodes: DaskNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another address: nobody else can read the files of its node."""
    monkeypatch.setattr(executors, "POLL_S", 0.1)
    expected = answers(open_run(aged_run(tmp_path / "whole"), read_rank_file, OpenOptions(keep=False)))
    folder, log = local_run(nodes, tmp_path / "back", "node00002"), tmp_path / "read.log"
    worker = nodes.worker("node00002", nanny=True)
    try:
        nodes.wait_for(cluster(nodes.address).client, ["node00000", "node00001", "node00002", "elsewhere"])
        left = files_elsewhere(folder, nodes.address)
        assert len(left) == 3 and {one.host for one in left} == {"node00002"}
        reads = partial(noting, log=log, killed_at="node00002/1001.rank")
        run = open_run(folder, reads, OpenOptions(executor=Dask(nodes.address), keep=False, elsewhere=left))
        assert (tmp_path / "killed").exists() and not run.bad_files
        assert answers(run)[:2] == expected[:2]
    finally:
        nodes.end(worker)


def test_a_job_that_runs_and_a_rank_that_was_killed(nodes: DaskNodes, tmp_path: Path) -> None:
    """Real processes: one killed, one still there, one that ended and brought its file home."""
    folder = tmp_path / "job"
    record = ("run", "--quiet", "--out", str(folder), "--local", str(nodes.local), "sh", "-c")
    ranks = [("node00000", "kill -9 $$"), ("node00001", "echo; exec sleep 60"), ("elsewhere", "true")]
    jobs = [
        subprocess.Popen(nodes.rankscope(host, *record, program), stdout=subprocess.PIPE, env=told_rank(rank))
        for rank, (host, program) in enumerate(ranks)
    ]
    try:
        assert jobs[0].wait() in (-signal.SIGKILL, 137) and jobs[2].wait() == 0
        assert jobs[1].stdout is not None and jobs[1].stdout.readline() == b"\n"
        run = Run(folder, dask=nodes.address)
        found = run.query("SELECT rank, host, ending FROM ranks WHERE role = 'rank' ORDER BY rank").rows
        assert found == [(0, "node00000", "vanished"), (1, "node00001", "running"), (2, "elsewhere", "exited")]
        assert coverage(run)[LEFT] == (2, "0 on node00000; 1 on node00001")
        assert coverage(Run(folder))["ranks seen"] == (1, "2")
    finally:
        jobs[1].kill()
        for job in jobs:
            job.communicate()


def told_rank(rank: int) -> dict[str, str]:
    return environment(TORCHELASTIC_RUN_ID="left", RANK=rank, WORLD_SIZE=3, LOCAL_RANK=0)


def test_traces_are_summed_on_the_nodes(nodes: DaskNodes, tmp_path: Path) -> None:
    """Single events stay there: who asks for them is told."""
    folder = traced_run(tmp_path / "traces")
    asked = ("gpu_time", "gpu_idle", "kernels", "ranges")
    expected = tables(Run(folder, keep=False), asked)
    there = nodes.folder("node00001") / "traces/ranks"
    there.mkdir(parents=True)
    shutil.move(folder / "ranks/node1", there / "node00001")
    told = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**told, "options": {"local_dir": str(nodes.local / "traces")}}))
    run = Run(folder, keep=False, dask=nodes.address)
    assert_same(tables(run, asked), expected, exact=True)
    assert not run.bad_files
    events = Run(folder, keep=False, dask=nodes.address).store(events=True)
    assert events.query("SELECT count(*) FROM events")[0][0] > 0
    assert len(events.bad_files) == 3 and all("rankscope gather brings" in text for text in events.bad_files)
