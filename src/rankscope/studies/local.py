"""Starts N processes of one command on this machine, each told its rank; ends them all when one fails.

    python -m rankscope.studies.local N -- command …

Exit code: that of the first process that failed (128 + signal where it was killed), else 0.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

GRACE_S = 5.0
PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    at = arguments.index("--")
    count, command = int(arguments[0]), arguments[at + 1 :]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda received, frame: sys.exit(128 + received))
    libc, parent = ctypes.CDLL(None), os.getpid()
    job = f"{os.uname().nodename}-{parent}-{time.time_ns()}"
    children: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for rank in range(count):
            child = subprocess.Popen(
                command, env=environment(rank, count, job), preexec_fn=lambda: follow(libc, parent)
            )
            children[child.pid] = child
        return wait(children)
    finally:
        end(children)


def environment(rank: int, count: int, job: str) -> dict[str, str]:
    """The variables by which torch and rankscope know a rank."""
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "GROUP_RANK": 0}
    return {**os.environ, **{name: str(value) for name, value in told.items()}, "RANKSCOPE_LOCAL_JOB": job}


def follow(libc: ctypes.CDLL, parent: int) -> None:
    """In the child: do not outlive the one that started us."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def wait(children: dict[int, subprocess.Popen[bytes]]) -> int:
    """Until all have ended, or the first has failed."""
    while children:
        pid, status = os.wait()
        child = children.pop(pid, None)
        if child is None:
            continue
        code = os.waitstatus_to_exitcode(status)
        child.returncode = code
        if code:
            return code if code > 0 else 128 - code
    return 0


def end(children: dict[int, subprocess.Popen[bytes]]) -> None:
    for child in children.values():
        child.terminate()
    for child in children.values():
        try:
            child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
