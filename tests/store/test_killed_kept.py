"""Of a process that was killed without a word the file is read until it is sure that it cannot change any more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rankscope.rank_files.facts import Here
from rankscope.rank_files.read import read_rank_file
from rankscope.store.rank_files import nobody_writes
from rankscope.store.run import OpenOptions, open_run
from runs.many_ranks import Watched, age, make_large, rank_files

DEADLINE_S = 30
# A process and two children, all recorded; the children tell their pids.
PARENT = r"""
import subprocess, sys
child = [sys.executable, "-c", r"import os; os.write(1, b'%d\n' % os.getpid()); input()"]
children = [subprocess.Popen(child, stdin=subprocess.PIPE) for _ in range(2)]
input()
"""


@contextmanager
def job(run: Path) -> Iterator[tuple[int, list[int]]]:
    """The pids of a recorded process and of its children, all of them killed at the end."""
    command = [sys.executable, "-m", "rankscope", "run", "--out", run, sys.executable, "-c", PARENT]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as parent:
        children: list[int] = []
        try:
            assert parent.stdout is not None
            children += [int(parent.stdout.readline()) for _ in range(2)]
            yield parent.pid, children
        finally:
            os.killpg(parent.pid, signal.SIGKILL)
            for pid in (parent.pid, *children):
                until_gone(pid)


def until_gone(pid: int) -> None:
    stat, deadline = Path(f"/proc/{pid}/stat"), time.monotonic() + DEADLINE_S
    with suppress(FileNotFoundError, ProcessLookupError):
        while stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
            assert time.monotonic() < deadline
            time.sleep(0.005)


def read_again(run: Path, read: Any = read_rank_file) -> set[int]:
    """The pids of the processes whose files a report reads; none of the files is young."""
    for path in rank_files(run):
        age(path)
    watched = Watched()
    open_run(run, read, OpenOptions(executor=watched))
    for path in rank_files(run):
        age(path, -60)
    return {int(name.partition(".")[0].partition("-")[0]) for name in watched.read}


def test_a_killed_process_is_read_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_large(monkeypatch)
    monkeypatch.setattr("rankscope.store.cache.ALIVE", 0.0)  # one of three files is enough to be kept
    monkeypatch.setattr("rankscope.store.large_runs.ALIVE", 0.0)
    run = tmp_path / "run"
    with job(run) as (parent, children):
        everyone = {parent, *children}
        assert read_again(run) == everyone
        assert read_again(run) == everyone  # all of them run
        hidden = partial(read_rank_file, here=Here(proc=tmp_path))
        assert read_again(run, hidden) == everyone
        assert read_again(run, hidden) == everyone  # they seem to be gone, but somebody has the files open
        os.kill(children[0], signal.SIGKILL)
        until_gone(children[0])
        assert read_again(run) == everyone
        assert read_again(run) == {parent, children[1]}
    assert read_again(run) == {parent, children[1]}
    assert read_again(run) == set()
    endings = open_run(run, read_rank_file).query("SELECT ending FROM ranks")
    assert endings == [("vanished",)] * 3


def test_who_has_a_file_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1")
    if nobody_writes(path) is None:
        pytest.skip("the file system of the tests' folder has no leases")
    assert nobody_writes(path)
    with path.open("r+b"):
        assert nobody_writes(path) is False
    with path.open("rb"):
        assert nobody_writes(path)


def test_a_process_of_another_machine_is_read_until_its_file_is_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_large(monkeypatch)
    monkeypatch.setattr("rankscope.store.cache.ALIVE", 0.0)
    monkeypatch.setattr("rankscope.store.large_runs.ALIVE", 0.0)
    run = tmp_path / "run"
    elsewhere = partial(read_rank_file, here=Here(host="elsewhere", now_ns=lambda: time.time_ns() + 10**12))
    with job(run) as (parent, children):
        pass
    everyone = {parent, *children}
    assert read_again(run, elsewhere) == everyone
    assert read_again(run, elsewhere) == everyone  # it may only be quiet
    for path in rank_files(run):
        age(path, 600)
    assert read_again(run, elsewhere) == everyone
    assert read_again(run, elsewhere) == set()
