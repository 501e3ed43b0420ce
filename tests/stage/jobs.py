"""Starts `rankscope stage` as a user does, and looks at what it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

LONG_S = 60.0


@dataclass(frozen=True)
class Environment:
    """An environment, where its packages are, and its bundle."""

    folder: Path
    packages: Path
    bundle: Path


def clean_variables() -> dict[str, str]:
    """Ours and the launchers' of an outer run do not count."""
    left_out = ("RANKSCOPE_", "OMPI_", "PMI", "SLURM_", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


def words(environment: Environment, *options: str | Path, command: list[str]) -> list[str]:
    ours = [sys.executable, "-m", "rankscope", "stage", environment.folder, "--bundle", environment.bundle]
    return [str(word) for word in [*ours, *options, "--", *command]]


def stage(
    environment: Environment, *options: str | Path, command: list[str], **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    return subprocess.run(
        words(environment, *options, command=command),
        env={**clean_variables(), **variables},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


def python(code: str) -> list[str]:
    return ["python", "-c", code]


def staged_folder(place: Path) -> Path:
    return place / f"rankscope-stage-{os.geteuid()}"


def copies(place: Path) -> list[Path]:
    """The copies in a node's folder."""
    folder = staged_folder(place)
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def is_soon(truth: object, longest_s: float = 45.0) -> bool:
    """Whether the callable comes true; the keeper ends a moment after the job."""
    deadline_s = time.monotonic() + longest_s
    while time.monotonic() < deadline_s:
        if truth():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False
