"""`rankscope gather` on nodes: killed at every line, beside processes that end, and without a node that is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from many_processes import traced

import rankscope
from rankscope.rank_file import State
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from rankscope.record import gather as copying
from rankscope.record import gather as gathering
from rankscope.record.gather import gather, read_head
from store.nodes.cluster import WITHOUT, Nodes, environment

WRITES = (copying.__file__, gathering.__file__)  # the code that changes files
RESERVED = bytes(8192)
MOST_LINES = 2000


def at_line(number: int, then: Callable[[], None], *code: str) -> Callable[..., Any]:
    """A trace function that does something at so many lines of these files, once."""
    left = [number]

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename in code and event == "line":
            left[0] -= 1
            if left[0] == 0:
                then()
        return line

    return line


def killed_at(number: int, work: Callable[[], Any]) -> bool:
    """Does the work in a process that is killed at that line; whether it came to it."""
    pid = os.fork()
    if pid == 0:
        sys.settrace(at_line(number, lambda: os.kill(os.getpid(), signal.SIGKILL), *WRITES))
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def rank_file(path: Path, rank: int, state: State = State.EXITED) -> bytes:
    """A file that reserves more than it uses; gives what it uses."""
    made = RankFileWriter(rank=rank, pid=2**22 + rank, state=state, start_jiffies=7, loaded={"realtime_ns": 10**18})
    made.tally("MPI_Send", 3, 100)
    data = made.to_bytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data + RESERVED)
    return data


def test_killed_at_any_line_it_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "BLOCK_BYTES", 4096)  # a file takes several writes
    run, local = tmp_path / "run", tmp_path / "local"
    files = {f"ranks/{os.uname().nodename}/{1000 + rank}.rank": rank for rank in range(1)}
    for number in range(1, MOST_LINES):
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        whole = {name: rank_file(local / name, rank) for name, rank in files.items()}
        killed = killed_at(number, lambda: gather(run, local, remove=True))
        for name, data in whole.items():
            assert (local / name).exists() or (run / name).read_bytes() == data, number
            assert not (run / name).exists() or (run / name).read_bytes() == data, number
        gather(run, local, remove=True)
        assert {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()} == set(files), number
        assert {name: (run / name).read_bytes() for name in files} == whole and not list(local.rglob("*.rank"))
        if not killed:
            break
    assert 50 < number < MOST_LINES - 1


@pytest.mark.parametrize("grows", [False, True])
def test_a_file_that_is_written_meanwhile_is_copied_so_that_it_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    """At every line of copying a new name, a new communicator and rows that need them are published."""
    monkeypatch.setattr(copying, "BLOCK_BYTES", 4096)

    def data(names: int) -> bytes:
        made = RankFileWriter(rank=0, pid=5, state=State.RUNNING, start_jiffies=7, loaded={"realtime_ns": 10**18})
        for number in range(names):
            made.tally(f"MPI_{number}", 1, 1, group=made.group(f"group {number}", size=1))
        return made.to_bytes()

    source, target = tmp_path / "5.rank", tmp_path / "run" / "5.rank"
    before, after = data(1), data(200 if grows else 2)
    assert (len(after) > len(before)) is grows
    for number in range(1, MOST_LINES):
        source.write_bytes(before + bytes(1 << 20))
        done: list[int] = []

        def publish(done: list[int] = done) -> None:
            done.append(1)
            with source.open("r+b") as file:
                file.write(after)

        sys.settrace(at_line(number, publish, copying.__file__))
        try:
            copying.copy(source, target)
        finally:
            sys.settrace(None)
        assert len(read_rank_file(target).tally_columns["calls"]) in (1, 200 if grows else 2), number
        if not done:
            break
    assert 30 < number < MOST_LINES - 1


def test_an_end_meanwhile_is_not_lost(tmp_path: Path) -> None:
    """At every line of copying the process ends, puts its own copy there and removes the local file."""
    source, target = tmp_path / "local" / "5.rank", tmp_path / "run" / "5.rank"
    for number in range(1, MOST_LINES):
        rank_file(source, 5, State.RUNNING)
        shutil.rmtree(target.parent, ignore_errors=True)
        done: list[bytes] = []

        def end(done: list[bytes] = done) -> None:
            with source.open("r+b") as file:  # in place, as the process does
                file.write(rank_file(tmp_path / "ended.rank", 5))
            done.append((tmp_path / "ended.rank").read_bytes()[: -len(RESERVED)])
            target.parent.mkdir(exist_ok=True)
            (tmp_path / "ended.rank").replace(target)
            os.truncate(target, len(done[0]))
            source.unlink()

        sys.settrace(at_line(number, end, copying.__file__))
        try:
            copying.copy(source, target)
        except FileNotFoundError:
            assert number < 5
        finally:
            sys.settrace(None)
        if not done:
            break
        assert target.read_bytes() == done[0], number
    assert 30 < number < MOST_LINES - 1


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    made = Nodes(tmp_path)
    if not made.are_possible():
        pytest.skip(WITHOUT)
    return made


def start(nodes: Nodes, run: Path, host: str, rank: int, ranks: int, program: str) -> subprocess.Popen[bytes]:
    told = environment(TORCHELASTIC_RUN_ID="nodes", RANK=rank, WORLD_SIZE=ranks, LOCAL_RANK=rank % 2)
    words = ("run", "--quiet", "--out", str(run), "--local", str(nodes.local), "sh", "-c", program)
    return subprocess.Popen(nodes.rankscope(host, *words), env=told, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_lost_node_costs_only_its_own_ranks(nodes: Nodes, tmp_path: Path) -> None:
    """Six real ranks on three nodes are killed; the folder of one node goes with it."""
    run = tmp_path / "run"
    jobs = [start(nodes, run, f"n{rank // 2}", rank, 6, "kill -9 $$") for rank in range(6)]
    assert {job.wait() for job in jobs} == {-signal.SIGKILL}
    shutil.rmtree(nodes.folder("n1"))
    gathering = [subprocess.Popen(nodes.rankscope(f"n{at}", "gather", str(run)), env=environment()) for at in range(3)]
    assert [job.wait() for job in gathering] == [0, 0, 0]
    assert [len(list((run / "ranks").glob(f"n{at}/*.rank"))) for at in range(3)] == [2, 0, 2]
    command = [sys.executable, "-m", "rankscope", "report", str(run), "--table", "coverage"]
    report = subprocess.run(command, env=environment(COLUMNS=200), capture_output=True, text=True)
    assert report.returncode == 0 and "of 6 ranks expected by run.json, 2 not recorded: 2-3" in report.stdout
    found = rankscope.open(run).query("SELECT rank, host FROM ranks WHERE role = 'rank' ORDER BY rank").rows
    assert found == [(0, "n0"), (1, "n0"), (4, "n2"), (5, "n2")]


def test_gathered_while_it_runs_a_process_is_there_once(nodes: Nodes, tmp_path: Path) -> None:
    """Its own copy takes the place of the one that was made before it ended."""
    run = tmp_path / "run"
    job = start(nodes, run, "n0", 0, 1, "echo; read line; exit 3")
    assert job.stdout is not None and job.stdout.readline() == b"\n"
    words = nodes.rankscope("n0", "gather", str(run))
    assert b"still running" in subprocess.run(words, env=environment(), capture_output=True, check=True).stdout
    [copied] = run.glob("ranks/n0/*.rank")
    assert read_head(copied).state == State.RUNNING
    job.communicate()
    assert list(run.glob("ranks/n0/*")) == [copied]
    assert read_head(copied).state == State.EXITED and not list(nodes.folder("n0").rglob("*.rank"))


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: it counts the calls")
def test_it_asks_little_of_the_runs_folder(tmp_path: Path) -> None:
    """For each file two calls that name it, and one list for all; once for the node some more."""
    run, local = tmp_path / "run", tmp_path / "local"
    run.mkdir()
    for rank in range(40):
        rank_file(local / f"ranks/n0/{1000 + rank}.rank", rank)
    command = [sys.executable, "-m", "rankscope", "gather", str(run), "--from", str(local)]
    first = traced(["env", f"PYTHONPATH={environment()['PYTHONPATH']}", *command], tmp_path, (str(run),))
    again = traced(["env", f"PYTHONPATH={environment()['PYTHONPATH']}", *command], tmp_path, (str(run),))
    assert len(list(run.glob("ranks/n0/*.rank"))) == 40
    assert first.in_run.total() <= 2 * 40 + 12 and first.listings == 1, first.in_run
    assert again.in_run.total() <= 2 * 40 + 12 and again.listings == 1, again.in_run


def test_gathering_again_and_again_while_processes_end(nodes: Nodes, tmp_path: Path) -> None:
    """Whoever comes first: each process is there once, as it ended, and nothing fails."""
    run, ranks = tmp_path / "run", 60
    program = str(Path(__file__).parents[2] / "programs" / "starts_ranks.py")
    record = ("rankscope", "run", "--quiet", "--out", str(run), "--local", str(nodes.local))
    words = (sys.executable, program, str(ranks), sys.executable, "-m", *record, "sh", "-c", "sleep 0.0$((RANK % 10))")
    job = subprocess.Popen(nodes.command("n0", *words), env=environment(), stdout=subprocess.PIPE)
    outcomes = []
    while job.poll() is None:
        for source in nodes.folder("n0").glob("run-*"):
            outcomes += gather(run, source, remove=False)
    job.communicate()
    assert job.returncode == 0 and "copied" in {one.action for one in outcomes}
    assert [one for one in outcomes if one.action == "failed" and one.reason != "is no rank file"] == []
    heads = [read_head(path) for path in run.glob("ranks/n0/*")]
    assert len(heads) == len({head.identity for head in heads}) and len({head.pid for head in heads}) >= ranks
    assert {head.state for head in heads} <= {State.EXITED, State.REPLACED}  # some shells become the command
    assert not list(nodes.folder("n0").rglob("*.rank"))
