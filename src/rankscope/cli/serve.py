"""`rankscope serve`: shows the pages of all runs of a folder in a browser."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rankscope.api.pages import PageServer
from rankscope.output.cells import printable

HELP = "browse the runs of a folder, live"
ABOUT = """\
Show the runs of a folder, and the page of each, in a browser on this machine; the list and the page of a running job
update without reloading. It is read-only, and answers only requests from this machine with the token in the
address it prints."""
RUNS = Path("rankscope-runs")


def run(argv: list[str]) -> int:
    """0: served until Ctrl-C; 2: nothing to serve, or the port is taken."""
    options = parser().parse_args(argv)
    folder = options.folder or RUNS
    if not folder.is_dir():
        what = "not a folder" if folder.exists() else "no such folder"
        return refused(f"{printable(str(folder))}: {what}: name one that holds runs")
    if not os.access(folder, os.R_OK | os.X_OK):
        return refused(f"{printable(str(folder))}: permission denied")
    try:
        server = PageServer(folder, options.port)
    except (OSError, OverflowError) as problem:
        why = getattr(problem, "strerror", None) or "ports go from 0 to 65535"
        return refused(f"--port {options.port}: {why.lower()}: choose another, or 0 for any free one")
    with server:
        try:
            print(server.address, flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            pass  # the way to end it
    return 0


def refused(text: str) -> int:
    print(f"rankscope: {text}", file=sys.stderr)
    return 2


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope serve", description=ABOUT)
    arguments.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help=f"holds the runs (default: {RUNS})")
    arguments.add_argument(
        "--port", type=int, default=0, metavar="N", help="port of 127.0.0.1 (default: 0, any free one)"
    )
    return arguments
