"""How long collectives were in progress, whatever the order in which threads tell of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hatch_build
from native.builds import SANITIZERS, compile_c

HERE = Path(__file__).parent


def test_no_time_counts_twice_where_an_older_moment_comes_later(tmp_path: Path) -> None:
    included = [f"-I{folder}" for folder in hatch_build.NATIVE.iterdir() if folder.is_dir()]
    clock = str(hatch_build.NATIVE / "core" / "clock.c")
    program = compile_c(tmp_path / "driver", HERE / "in_progress_driver.c", clock, *SANITIZERS["address"], *included)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["200", "310", "410"]
