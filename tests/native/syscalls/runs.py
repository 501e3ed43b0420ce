"""Runs programs bare and with their system calls counted, and reads what was recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mpis import ROOT
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run

LIMIT_S = 100


@dataclass(frozen=True)
class Ended:
    """What the user of a program sees of it."""

    code: int
    out: str
    err: str


def environment(**settings: str) -> dict[str, str]:
    """Ours without what another recording has left."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RANKSCOPE_") and name not in ("LD_PRELOAD", "PYTHONPATH")
    }
    return {**kept, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **settings}


def bare(command: Sequence[str | Path], **settings: str) -> Ended:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=LIMIT_S, env=environment(**settings)
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def recorded(command: Sequence[str | Path], folder: Path, mode: str, **settings: str) -> Ended:
    """The same with `rankscope run --imports`, to the end of the program."""
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from rankscope.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", start, "run", "--out", str(folder), "--imports", mode, "--"]
    done = subprocess.run(
        [*words, *map(str, command)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=environment(**{"RANKSCOPE_IMPORTS_UNTIL": "end", **settings}),
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def opened(folder: Path) -> RunTables:
    return open_run(folder, read_rank_file)


def methods(folder: Path) -> list[tuple[str, str]]:
    return [(str(method), str(note)) for method, note in opened(folder).query("SELECT method, note FROM calls_method")]
