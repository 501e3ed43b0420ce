"""`rankscope load`: reads other tools' files into a run."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rankscope.api.load import FORMATS, LoadOptions, load
from rankscope.cli.printing import deliver
from rankscope.model.tables import Wrong
from rankscope.output.cells import printable

HELP = "load other tools' profiles, traces and logs as a run"
ABOUT = """\
Reads other tools' profiles, traces and logs into a run, which every other command treats like a recorded one. The
format is recognised by content; gzip and zstd are unpacked; folders are read recursively. A file that was loaded
before is replaced, never counted twice."""
EXIT_CODES = "Exit code: 0 all files were read, 1 some could not (a line each says why), 2 none could, or wrong usage."
NAME_WIDTH = 40


def run(argv: list[str]) -> int:
    """0: all read; 1: some files could not be read; 2: nothing was read."""
    options = parser().parse_args(argv)
    if options.list:
        deliver([f"{name:16} {about}\n" for name, about in FORMATS.items()], None)
        return 0
    try:
        return load_and_tell(options)
    except Wrong as problem:
        say(str(problem))
        return 2
    except KeyboardInterrupt:
        say("interrupted; what was read before is kept")
        return 130


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope load", description=ABOUT, epilog=EXIT_CODES)
    arguments.add_argument(
        "files", nargs="*", metavar="FILE|FOLDER", help="files, folders or patterns such as '*.json.gz'"
    )
    arguments.add_argument(
        "--as", dest="wanted", metavar="FORMAT", help="read them as this format instead of recognising it"
    )
    arguments.add_argument("--rank", type=int, metavar="N", help="the rank they belong to, if they do not say")
    arguments.add_argument("--name", metavar="RUN", help="name of the run; one that exists is extended")
    arguments.add_argument("--out", type=Path, metavar="DIR", help="folder of the run; one that exists is extended")
    arguments.add_argument("--map", type=Path, metavar="FILE", help="what the columns of hand-made tables mean")
    arguments.add_argument("--list", action="store_true", help="list the formats that can be read, and exit")
    return arguments


def load_and_tell(options: argparse.Namespace) -> int:
    """What came in, what did not and why, and what to do next."""
    if not options.files:
        raise Wrong("name the files or folders to load (see rankscope load --help)")
    how = LoadOptions(options.wanted, options.rank, options.map, options.name, options.out)
    loaded = load(options.files, how, say, byte_bar)
    for problem in loaded.problems:
        say(problem)
    if loaded.folder is not None and loaded.read:
        folder = loaded.folder
        shown = os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)
        shown = folder.name if options.name else shown
        deliver([f"{printable(loaded.summary())}\nrankscope report {printable(shlex.quote(shown))}\n"], None)
    if not loaded.read:
        return 2
    return 1 if loaded.problems or loaded.absent else 0


@contextmanager
def byte_bar(files: Sequence[tuple[Path, int]]) -> Iterator[Callable[[int, int], None]]:
    """A function to call with the place of a file and the bytes taken of it."""
    if not sys.stderr.isatty():
        yield lambda place, done_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    name = TextColumn("{task.description}", markup=False)
    bar = Progress(name, BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(file=sys.stderr))
    taken = [0] * len(files)
    with bar:
        task = bar.add_task("", total=sum(size for _, size in files))

        def show(place: int, done_bytes: int) -> None:
            path, size = files[place]
            grown = min(done_bytes, size) - taken[place]
            if grown > 0:  # a file is opened more than once; only the furthest counts
                taken[place] += grown
                bar.update(task, advance=grown, description=printable(path.name)[-NAME_WIDTH:])

        yield show


def say(text: str) -> None:
    """One line on stderr, with nothing in it that a terminal would obey."""
    print(f"rankscope: {printable(text)}", file=sys.stderr)
