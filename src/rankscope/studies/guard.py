"""Runs one command so that nothing of it outlives us, and leaves how it ended.

    python guard.py --into FOLDER --timeout S [--parent PID] [--no-results] -- command …

FOLDER/output.txt has what it printed. FOLDER/ended.json says how it ended; it is written last, and not at all where we
were told to stop: then the attempt does not count. Standard library only, one file: it runs where rankscope is not
installed.

Exit code: the command's (128 + signal where it was killed), 124 where its time was up; killed by the signal that
stopped us; 125 where its end cannot be written down.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
POLITE_S = 10.0  # launchers need a while to end ranks on other nodes
LEFT_OVER_S = 2.0  # for processes that end after the launcher has ended, as Python's resource tracker does
KILL_S = 10.0
HEAD_BYTES, TAIL_BYTES = (
    32 << 20,
    64 << 10,
)  # kept of what is printed: a job that prints for ever must not fill the disk
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
TIME_UP, NOT_WRITTEN, NOT_FOUND, NOT_RUN = 124, 125, 127, 126


class Output:
    """What the job prints: the beginning as it comes, the end when all has been said."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "wb", buffering=0)
        self.written = self.left_out = 0
        self.tail = b""

    def add(self, piece: bytes) -> None:
        head = piece[: max(0, HEAD_BYTES - self.written)]
        self.write(head)
        rest = self.tail + piece[len(head) :]
        self.tail = rest[-TAIL_BYTES:]
        self.left_out += len(rest) - len(self.tail)

    def write(self, piece: bytes) -> None:
        try:
            while piece:
                count = self.file.write(piece)
                self.written += count
                piece = piece[count:]
        except OSError:  # a full disk shows when the end is written down
            pass

    def close(self) -> None:
        if self.left_out:
            self.write(f"\n… {self.left_out} bytes omitted here …\n".encode())
        self.write(self.tail)
        self.file.close()


class Guard:
    """One command on its way."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.launcher = 0  # its pid, which is also its session
        self.status: int | None = None  # exit code, or minus the signal
        self.stopped: int | None = None  # signal that we were sent
        self.wake, self.wakes = os.pipe()
        for end in (self.wake, self.wakes):
            os.set_blocking(end, False)
        self.listened = [self.wake]
        signal.set_wakeup_fd(self.wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        for number in STOPPING:
            signal.signal(number, self.stop)

    def stop(self, number: int, frame: object) -> None:
        self.stopped = self.stopped or number

    def start(self, command: list[str]) -> None:
        """In a session of its own, which ends with us even where we are killed."""
        prctl, here = ctypes.CDLL(None).prctl, os.getpid()

        def follow() -> None:
            prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != here:
                os._exit(1)

        reading, writing = os.pipe()
        try:
            job = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=follow,
            )
            self.launcher = job.pid
            job.returncode = 0  # its end is taken up by reap()
            self.listened.append(reading)
        except OSError as problem:
            self.output.add(f"{command[0]}: {problem.strerror}\n".encode())
            self.status = NOT_FOUND if isinstance(problem, FileNotFoundError) else NOT_RUN
        finally:
            os.close(writing)

    def wait(self, until: float) -> None:
        """Until the launcher has ended, somebody stops us, or the time is up."""
        while self.status is None and self.stopped is None and time.monotonic() < until:
            self.listen(until - time.monotonic())

    def listen(self, seconds: float) -> None:
        """What is printed and who ends within that time; comes back at the first of it."""
        ready, _, _ = select.select(self.listened, [], [], max(0.0, seconds))
        for end in ready:
            piece = os.read(end, 65536)
            if end == self.wake:
                self.reap()
            elif piece:
                self.output.add(piece)
            else:
                self.listened.remove(end)
                os.close(end)

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.launcher:
                self.status = os.waitstatus_to_exitcode(status)

    def clear(self) -> None:
        """Ends whatever there is: the launcher politely, if it still runs, then all, whoever their parent was."""
        if self.status is None:
            self.send(signal.SIGTERM)
            self.until_empty(POLITE_S)
        else:
            self.until_empty(LEFT_OVER_S)
        until = time.monotonic() + KILL_S
        while (left := descendants()) and time.monotonic() < until:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            self.listen(0.02)
            self.reap()
        self.drain()

    def send(self, number: int) -> None:
        try:
            os.killpg(self.launcher, number)
        except ProcessLookupError:
            pass

    def until_empty(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while descendants() and time.monotonic() < until:
            self.listen(min(0.05, until - time.monotonic()))
            self.reap()

    def drain(self) -> None:
        """What was printed and not yet read."""
        while len(self.listened) > 1 and select.select(self.listened[1:], [], [], 0)[0]:
            self.listen(0)


def descendants() -> list[int]:
    """All that we have started, directly or not, and that have not ended: those whose parent has died are ours too."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state not in (b"Z", b"X"):
                children.setdefault(int(parent), []).append(int(name))
    pids: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        pids += below
        waiting += below
    return pids


def bind_to(parent: int) -> None:
    """Whoever started us takes us along when it ends; orphans of the job become ours."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if parent and os.getppid() != parent:
        sys.exit(1)


def write_down(folder: str, what: dict[str, object]) -> None:
    beside, path = os.path.join(folder, ".ended.json"), os.path.join(folder, "ended.json")
    try:
        with open(beside, "w", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        if os.path.exists(beside):
            os.unlink(beside)
        raise


def parsed(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser("guard.py")
    parser.add_argument("--into", required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--parent", type=int, default=0)
    parser.add_argument("--no-results", action="store_true")
    at = arguments.index("--")
    return parser.parse_args(arguments[:at]), arguments[at + 1 :]


def main(arguments: list[str]) -> int:
    options, command = parsed(arguments)
    bind_to(options.parent)
    try:
        return guarded(options, command)
    except OSError as problem:
        print(f"{options.into}: {problem.strerror}", file=sys.stderr)
        return NOT_WRITTEN


def guarded(options: argparse.Namespace, command: list[str]) -> int:
    guard = Guard(Output(os.path.join(options.into, "output.txt")))
    began = time.monotonic()
    if guard.stopped is None:
        guard.start(command)
    guard.wait(began + options.timeout)
    seconds, status = time.monotonic() - began, guard.status
    guard.clear()
    guard.output.close()
    if status is None and guard.stopped:
        signal.signal(guard.stopped, signal.SIG_DFL)
        os.kill(os.getpid(), guard.stopped)  # so that a script that has started us stops too
    write_down(
        options.into,
        {
            "exit_code": status,
            "timed_out": status is None,
            "seconds": round(seconds, 6),
            "timeout_s": options.timeout,
            "results": not options.no_results,
            "command": command,
        },
    )
    if status is None:
        return TIME_UP
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
