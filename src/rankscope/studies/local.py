"""Starts N processes of one command on this machine, each told its rank; ends them all when one fails.

    python local.py N -- command …

Exit code: that of the first process that failed (128 + signal where it was killed), else 0. Standard library only, one
file: it runs where rankscope is not installed.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

GRACE_S = 5.0
PR_SET_PDEATHSIG = 1
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Rank variables of a launcher around us, which would be taken for those of our ranks.
FOREIGN = (
    *("OMPI_COMM_WORLD_", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    *("PALS_RANKID", "PALS_LOCAL_RANKID", "PALS_SIZE", "TORCHELASTIC_"),
)


def main(arguments: list[str]) -> int:
    at = arguments.index("--")
    count, command = int(arguments[0]), arguments[at + 1 :]
    for number in STOPPING:
        signal.signal(number, lambda received, frame: sys.exit(128 + received))
    variables = shared(count)
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def follow() -> None:
        """In the child: do not outlive the one that started us."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    children: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for rank in range(count):
            ranked = {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            child = subprocess.Popen(command, env=ranked, preexec_fn=follow)
            children[child.pid] = child
        return wait(children)
    except OSError as problem:
        print(f"{command[0]}: {problem.strerror}", file=sys.stderr)
        return 127 if isinstance(problem, FileNotFoundError) else 126
    finally:
        end(children)


def shared(count: int) -> dict[str, str]:
    """The variables by which torch and rankscope know a job; the same for all ranks."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    mine.update(WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count), GROUP_RANK="0")
    mine["RANKSCOPE_LOCAL_JOB"] = f"{os.uname().nodename}-{os.getpid()}-{time.time_ns()}"
    mine.setdefault("MASTER_ADDR", "127.0.0.1")
    if "MASTER_PORT" not in mine:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            mine["MASTER_PORT"] = str(free.getsockname()[1])
    return mine


def wait(children: dict[int, subprocess.Popen[bytes]]) -> int:
    """Until all have ended, or the first has failed."""
    while children:
        pid, status = os.wait()
        child = children.pop(pid, None)
        if child is None:
            continue
        child.returncode = code = os.waitstatus_to_exitcode(status)
        if code:
            return code if code > 0 else 128 - code
    return 0


def end(children: dict[int, subprocess.Popen[bytes]]) -> None:
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)  # we are at it already
    for child in children.values():
        child.terminate()
    until = time.monotonic() + GRACE_S
    for child in children.values():
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
