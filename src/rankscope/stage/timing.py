"""With --times: the command runs as a child, and how long it took is noted for the table."""

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from rankscope.record.place import process
from rankscope.stage.task import node_name

if TYPE_CHECKING:
    from rankscope.stage.options import Options
    from rankscope.stage.run import Start

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run_timed(program: str, start: "Start", options: "Options") -> int:
    """The command's exit code; a signal that ends the command ends us too."""
    folder = os.path.abspath(options.value("times"))
    os.makedirs(folder, exist_ok=True)
    waited_ns = age_ns()
    began_ns = time.monotonic_ns()
    child = subprocess.Popen(start.command, executable=program, env=start.environment)
    for number in PASSED_ON:
        signal.signal(number, lambda received, _: child.send_signal(received))
    exit_code = child.wait()
    write(folder, start, waited_ns, time.monotonic_ns() - began_ns, exit_code)
    if exit_code < 0:
        signal.signal(-exit_code, signal.SIG_DFL)
        os.kill(os.getpid(), -exit_code)
    return exit_code


def age_ns() -> int:
    """How long this process has been there, the start of its Python included; to 10 ms."""
    found = process(os.getpid())
    return time.time_ns() - found.started_ns if found else 0


def write(folder: str, start: "Start", waited_ns: int, import_ns: int, exit_code: int) -> None:
    """One rank's line, in a file of its own; written beside and renamed."""
    import json

    copy = start.outcome.copy
    report = {
        "rank": start.place.rank,
        "host": os.uname().nodename,
        "node": node_name(os.path.dirname(copy)) if copy else os.uname().nodename,
        "staged": bool(copy),
        "reason": start.outcome.reason,
        "import_ns": import_ns,
        "waited_ns": waited_ns,
        "exit_code": exit_code,
    }
    rank = start.place.rank if start.place.rank is not None else os.getpid()
    path = f"{folder}/rank-{rank}.json"
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(report, file)
    os.replace(f"{path}.part", path)
