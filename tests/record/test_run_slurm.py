"""`rankscope run srun …` on a real Slurm: what reaches the ranks where --export says what does."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from installed import library_of
from tools.slurm_here import missing, slurm

SHOW = ("sh", "-c", 'echo "$RANKSCOPE_DIR|$LD_PRELOAD|$PYTHONPATH"')


@pytest.fixture(scope="module")
def here() -> Iterator[dict[str, str]]:
    if absent := missing():
        pytest.skip(f"{', '.join(absent)} not found: install slurmctld, slurmd, slurm-client, munge (Debian's names)")
    with slurm(nodes=1, cpus=2) as variables:
        yield variables


@pytest.mark.parametrize("export", ["--export=PATH,PYTHONPATH={}", "--export=ALL,PYTHONPATH={}", "PATH", "NONE", ""])
def test_exports(rankscope: str, here: dict[str, str], work: Path, export: str) -> None:
    """One of the ranks' variables is given by the user, and the folder of the run has a comma in its name."""
    theirs = "/of/the:/user" if "{}" in export else ""
    environment = {key: value for key, value in {**os.environ, **here}.items() if key != "PYTHONPATH"}
    if export in ("PATH", "NONE"):
        environment["SLURM_EXPORT_ENV"] = export
    words = [export.format(theirs)] if theirs else []
    command = [rankscope, "run", "--out", "a,b=c", "srun", "--quiet", *words, "-n", "2", "/bin/sh", *SHOW[1:]]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=100, check=False)
    library = library_of(Path(rankscope))
    agent = str(library.parents[1] / "agent" / "start")
    reached = f"{work}/a,b=c|{library}|{agent}:{theirs}" if theirs else f"{work}/a,b=c|{library}|{agent}"
    assert done.stdout.splitlines() == [reached] * 2, done
