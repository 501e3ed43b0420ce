"""The study `allreduce` with buffers on a device: each library installed here, on Level Zero's scripted driver.

    python scripts/study_on_scripted_device.py FOLDER [--scale 1,2,4] [more options of `rankscope study allreduce`]

Needs `make env-levelzero`, and of `make envs env-horovod env-oneccl` what is to be compared. The libraries are the real
ones; copies between host and device take the times that the driver of tests/native/level_zero is told.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from scripts import level_zero_random as level_zero  # noqa: E402

ENVIRONMENTS = ("openmpi", "torch", "horovod", "oneccl")
BACKENDS = "mpi4py,gloo,horovod,horovod_gloo,oneccl,oneccl_mpi"


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__)
        return 2
    if level_zero.installed() is None:
        print("no Level Zero loader and headers: make env-levelzero", file=sys.stderr)
        return 2
    pythons = [ROOT / ".envs" / name / "bin" / "python" for name in ENVIRONMENTS]
    words = [word for path in pythons if path.exists() for word in ("--python", str(path))]
    study = [
        "study",
        "allreduce",
        "--out",
        sys.argv[1],
        "--device",
        "ze",
        "--backends",
        BACKENDS,
        *words,
        *sys.argv[2:],
    ]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **level_zero.Scripted(Path(folder)).variables()}
        command = [sys.executable, "-m", "rankscope", *study, *words, *sys.argv[2:]]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
