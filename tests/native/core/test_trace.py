"""The trace under load: which events it keeps, from how many threads, and what a kill leaves of it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from native.builds import STRICT, Driver, make_driver, recording
from native.mpi.test_driver import is_child
from programs import recorded
from programs.recorded import word
from rankscope.rank_file import ChunkKind
from rankscope.rank_files.chunks import open_rank_file
from rankscope.rank_files.events import trace_events
from rankscope.rank_files.read import read_rank_file
from rankscope.rank_files.trace import trace_blocks

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder with a sanitizer

SMALL = "65536"
CAPACITY = (17 * 4096 - 64) // 32  # 64 KiB and the chunk's header, in whole pages
LARGE = str(8 << 20)
NO_LOG = {"RANKSCOPE_LOG_RECORDS": "0"}  # so that every event comes from the trace


@pytest.fixture(scope="session")
def driver(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp(sanitizer), sanitizer)


def run(driver: Driver, folder: Path, part: str, number: int, **settings: str) -> list[Path]:
    folder.mkdir(exist_ok=True)
    environment = recording(folder, **STRICT, **settings)
    command = driver.command(part, number)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return recorded.rank_files(folder)


def events(path: Path) -> Iterator[tuple[str, str, int]]:
    """Name, kind and bytes of each event, in the order of the trace."""
    for columns in trace_events(path):
        for i, size in enumerate(columns["bytes"].tolist()):
            yield word(columns["name"], i), word(columns["kind"], i), size


def tallied(path: Path) -> Counter[tuple[str, str]]:
    kinds = {number: kind for kind, number in recorded.KINDS.items()}
    counts: Counter[tuple[str, str]] = Counter()
    for row in recorded.rows_of(recorded.read(path)):
        counts[row.name, kinds[row.kind]] += row.calls
    return counts


def figures(path: Path) -> dict[str, float]:
    return {figure.name: figure.value for figure in read_rank_file(path).figures if figure.series == "trace mpi"}


def test_without_it_there_is_none(driver: Driver, tmp_path: Path) -> None:
    (path,) = run(driver, tmp_path, "tallies", 100)
    file = open_rank_file(path)
    assert (file.header["trace_keep"], file.parts(ChunkKind.TRACE), list(trace_events(path))) == (0, [], [])
    assert path.stat().st_size <= 4 << 20


@pytest.mark.parametrize("part", ["threads", "requests", "communicators"])
def test_it_has_as_many_of_everything_as_the_tallies(driver: Driver, part: str, tmp_path: Path) -> None:
    number = {"threads": 20, "requests": 2000, "communicators": 500}[part]
    (path,) = run(driver, tmp_path, part, number, RANKSCOPE_TRACE_BYTES=LARGE, **NO_LOG)
    found = Counter((name, kind) for name, kind, _ in events(path))
    assert found == tallied(path)
    assert (figures(path)["events kept"], figures(path)["events lost"]) == (found.total(), 0)
    assert read_rank_file(path).facts.lost_calls == 0


def test_collectives_come_once_and_from_the_log(driver: Driver, tmp_path: Path) -> None:
    (path,) = run(driver, tmp_path, "communicators", 100, RANKSCOPE_TRACE_BYTES=LARGE)
    found = Counter(name for name, _, _ in events(path))
    logged = Counter(one.name for one in recorded.log_of(recorded.read(path)))
    assert logged["MPI_Allreduce"] == 200 and logged["MPI_Iallreduce"] == 100
    assert not found.keys() & logged.keys()
    assert found["MPI_Wait"] == 100 and found["MPI_Isend"] == 200  # calls and completions


def test_the_newest_or_the_oldest_are_kept(driver: Driver, tmp_path: Path) -> None:
    count = 5 * CAPACITY + 17
    for keep in ("newest", "oldest"):
        settings = {"RANKSCOPE_TRACE_BYTES": SMALL, "RANKSCOPE_TRACE_KEEP": keep, **NO_LOG}
        (path,) = run(driver, tmp_path / keep, "ring", count, **settings)
        found = [(name, size) for name, _, size in events(path)]
        casts = [("MPI_Bcast", 4 * (i % 32)) for i in range(count)]
        every = [("MPI_Init_thread", 0), *casts, ("MPI_Finalize", 0), ("MPI_Comm_rank", 0)]
        assert found == (every[-CAPACITY:] if keep == "newest" else every[:CAPACITY])
        lost = len(every) - CAPACITY
        assert figures(path)["events lost"] == read_rank_file(path).facts.lost_trace_events == lost


def test_threads_that_overtake_each_other_leave_whole_records(driver: Driver, tmp_path: Path) -> None:
    (path,) = run(driver, tmp_path, "threads", 24, RANKSCOPE_TRACE_BYTES=SMALL, **NO_LOG)
    offered = tallied(path).total()
    (rows,) = [np.concatenate(list(trace_blocks(open_rank_file(path))))]
    assert int(open_rank_file(path).header["trace_written"]) == offered
    assert CAPACITY - 24 <= len(rows) <= CAPACITY
    assert {name for name, _, _ in events(path)} <= {name for name, _ in tallied(path)}
    assert figures(path)["events kept"] + figures(path)["events lost"] == offered


def test_children_have_traces_of_their_own(driver: Driver, tmp_path: Path) -> None:
    paths = run(driver, tmp_path, "forks", 16, RANKSCOPE_TRACE_BYTES=SMALL, **NO_LOG)
    children = [path for path in paths if is_child(path)]
    assert len(children) == 16
    for path in paths:
        assert Counter((name, kind) for name, kind, _ in events(path)) == tallied(path)


def test_the_rest_of_the_file_keeps_its_bound(driver: Driver, tmp_path: Path) -> None:
    """The trace's bytes come on top, and neither takes from the other."""
    settings = {"RANKSCOPE_FILE_BYTES": "65536", "RANKSCOPE_TRACE_BYTES": SMALL, "RANKSCOPE_LOG_RECORDS": "16"}
    (path,) = run(driver, tmp_path, "communicators", 3000, **settings)
    file = open_rank_file(path)
    assert file.header["bound_bytes"] == 65536 + 17 * 4096 == path.stat().st_size
    assert file.header["trace_capacity"] == CAPACITY
    assert read_rank_file(path).facts.lost_calls > 0
    assert figures(path)["events kept"] == CAPACITY


def test_a_limit_on_file_sizes_leaves_no_room_and_is_told(driver: Driver, tmp_path: Path) -> None:
    command = ["sh", "-c", f"ulimit -f 4096; exec {driver.recorded} tallies 100"]  # 2 MiB: less than the plain bound
    environment = recording(tmp_path, **STRICT, RANKSCOPE_TRACE_BYTES=SMALL)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = recorded.rank_files(tmp_path)
    reading = read_rank_file(path)
    assert list(trace_events(path)) == []
    assert reading.facts.lost_trace_events == 103  # 100 probes, MPI_Init_thread, MPI_Finalize, MPI_Comm_rank
    assert any("no space for the trace" in note.text for note in reading.notes)


def test_a_kill_leaves_every_finished_event(driver: Driver, tmp_path: Path) -> None:
    environment = recording(tmp_path, **STRICT, RANKSCOPE_TRACE_BYTES=LARGE, **NO_LOG)
    job = subprocess.Popen(driver.command("tallies", 10**12), env=environment, stdout=subprocess.DEVNULL)
    try:
        assert wait_for(tmp_path, 20_000)
    finally:
        job.send_signal(signal.SIGKILL)
        job.wait()
    (path,) = recorded.rank_files(tmp_path)
    file = open_rank_file(path)
    written, rows = int(file.header["trace_written"]), sum(len(rows) for rows in trace_blocks(file))
    assert min(written, int(file.header["trace_capacity"])) - 1 <= rows
    assert tallied(path).total() - written in (-1, 0, 1)
    assert {name for name, _, _ in events(path)} <= {"MPI_Init_thread", "MPI_Iprobe"}


def test_it_can_be_read_while_it_is_written(driver: Driver, tmp_path: Path) -> None:
    environment = recording(tmp_path, **STRICT, RANKSCOPE_TRACE_BYTES=SMALL, **NO_LOG)
    job = subprocess.Popen(driver.command("ring", 2 * 10**9), env=environment, stdout=subprocess.DEVNULL)
    try:
        path = wait_for(tmp_path, 3 * CAPACITY)
        assert path is not None
        for _ in range(20):
            sizes = [check_whole(columns) for columns in trace_events(path)]
            assert sum(sizes) <= CAPACITY
    finally:
        job.kill()
        job.wait()


def check_whole(columns: Any) -> int:
    """No event is half of one and half of another: a broadcast has 0 to 31 integers and an end after its start."""
    rows = len(columns["bytes"])
    assert {word(columns["name"], i) for i in range(rows)} <= {"MPI_Bcast"}
    assert (columns["bytes"] % 4 == 0).all() and (columns["bytes"] < 128).all()
    assert (columns["end_ns"] >= columns["start_ns"]).all()
    assert (columns["end_ns"] - columns["start_ns"] < 60e9).all()
    return rows


def wait_for(folder: Path, written: int) -> Path | None:
    """The rank file, once its trace was offered that many events."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for path in recorded.rank_files(folder):
            try:
                if open_rank_file(path).now("trace_written") >= written:
                    return path
            except Exception:  # not ready yet
                pass
        time.sleep(0.01)
    return None
