"""A bar on the terminal that shows how far loading is; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rankscope.output.cells import printable

NAME_WIDTH = 40


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
