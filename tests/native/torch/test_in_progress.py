"""How long collectives were in progress, whatever the order in which threads tell of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hatch_build
from native.builds import SANITIZERS, compile_c

HERE = Path(__file__).parent


def told_by_the_driver(tmp_path: Path) -> list[str]:
    included = [f"-I{folder}" for folder in hatch_build.NATIVE.iterdir() if folder.is_dir()]
    clock = str(hatch_build.NATIVE / "core" / "clock.c")
    program = compile_c(tmp_path / "driver", HERE / "in_progress_driver.c", clock, *SANITIZERS["address"], *included)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


def test_no_time_counts_twice_where_an_older_moment_comes_later(tmp_path: Path) -> None:
    assert told_by_the_driver(tmp_path)[0].split() == ["200", "310", "410"]


def test_nobody_waits_while_the_system_is_asked(tmp_path: Path) -> None:
    """Threads that begin and end collectives share a lock with the loop's, which nobody holds in a system call."""
    asked, asked_under_lock = map(int, told_by_the_driver(tmp_path)[1].split())
    assert (asked, asked_under_lock) == (10, 0)  # five times each for the CPU time and the run delay
