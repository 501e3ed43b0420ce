"""`rankscope serve`: shows the pages of all runs of a folder in a browser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rankscope.api.pages import PageServer
from rankscope.output.cells import printable

HELP = "show the pages of all runs of a folder in a browser"
ABOUT = """\
Show the runs of a folder and the page of each in a browser of this machine; the page of a running job is made anew
every few seconds. Reads only, answers only to this machine and only with the token of the address that it prints."""
RUNS = Path("rankscope-runs")


def run(argv: list[str]) -> int:
    """0: served until Ctrl-C; 2: nothing to serve, or the port is taken."""
    options = parser().parse_args(argv)
    folder = options.folder or RUNS
    if not folder.is_dir():
        print(f"rankscope: {printable(str(folder))}: no such folder: name one that holds runs", file=sys.stderr)
        return 2
    try:
        server = PageServer(folder, options.port)
    except (OSError, OverflowError) as problem:
        print(f"rankscope: --port {options.port}: {problem}: choose another, or 0 for any", file=sys.stderr)
        return 2
    print(server.address, flush=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass  # the way to end it
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("rankscope serve", description=ABOUT)
    made.add_argument("folder", nargs="?", type=Path, metavar="FOLDER", help=f"holds the runs (default: {RUNS})")
    made.add_argument("--port", type=int, default=0, metavar="N", help="port of 127.0.0.1 (default: 0, any free one)")
    return made
