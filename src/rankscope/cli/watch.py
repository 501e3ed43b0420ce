"""`rankscope watch`: calls a command when a running job becomes slow or hangs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from rankscope.api.live import NoRun
from rankscope.api.trouble import Trouble, troubles
from rankscope.cli.printing import RUN_HELP

HELP = "run a command when a job slows down or hangs"
COMMAND_LIMIT_S = 600


def run(argv: list[str]) -> int:
    """0: watched until the job ended or --once was fulfilled; 2: there was nothing to watch."""
    options = parser().parse_args(argv)
    if options.every <= 0 or options.patience < 0:
        print("rankscope: give --every more than 0 and --patience at least 0 seconds", file=sys.stderr)
        return 2
    try:
        for trouble in troubles(options.run, options.every, options.patience):
            print(f"{time.strftime('%H:%M:%S')} {trouble.kind}: {trouble.text}", flush=True)
            command = {"slow": options.on_slow, "hang": options.on_hang}.get(trouble.kind)
            if command:
                call(command, trouble, options.run)
            if options.once and trouble.kind in ("slow", "hang"):
                break
    except NoRun as problem:
        print(f"rankscope: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass  # the way to leave it
    return 0


def call(command: str, trouble: Trouble, path: Path | None) -> None:
    """By the shell, with what happened in its environment; what becomes of it is its own affair."""
    facts = {
        "RANKSCOPE_TROUBLE": trouble.kind,
        "RANKSCOPE_TEXT": trouble.text,
        "RANKSCOPE_STEP": "" if trouble.step is None else str(trouble.step),
        "RANKSCOPE_WHO": trouble.who,
        "RANKSCOPE_WHAT": trouble.part,
        "RANKSCOPE_RUN": str(path or ""),
    }
    try:
        done = subprocess.run(command, shell=True, env={**os.environ, **facts}, timeout=COMMAND_LIMIT_S, check=False)
        if done.returncode:
            print(f"rankscope: {command}: exit code {done.returncode}", file=sys.stderr)
    except subprocess.TimeoutExpired:
        print(f"rankscope: {command}: stopped after {COMMAND_LIMIT_S} s", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        "rankscope watch",
        description="Watch a running job: print a line and run a command each time it slows down or hangs. Reads "
        "the rank files, changes nothing, and ends with the job.",
        epilog="commands run in a shell with RANKSCOPE_TROUBLE (slow or hang), RANKSCOPE_TEXT (one sentence), "
        "RANKSCOPE_STEP, RANKSCOPE_WHO, RANKSCOPE_WHAT and RANKSCOPE_RUN set",
    )
    arguments.add_argument("run", nargs="?", type=Path, metavar="RUN", help=RUN_HELP)
    arguments.add_argument("--on-slow", metavar="CMD", help="run this once for each slow-down")
    arguments.add_argument("--on-hang", metavar="CMD", help="run this once for each hang")
    arguments.add_argument(
        "--every", type=float, default=10.0, metavar="SECONDS", help="time between checks (default: 10)"
    )
    arguments.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how late a rank may be before it counts as hung, as in rankscope hang (default: 60)",
    )
    arguments.add_argument("--once", action="store_true", help="exit after the first slow-down or hang")
    return arguments
