"""Programs that cells run: files of their own, started by their path, whatever Python runs them.

Those in workloads/ (which is no package) run in the job's own Python, which need not have rankscope: standard library,
and the framework that is studied.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache

HERE = os.path.dirname(os.path.abspath(__file__))
VERSION_S = 30


def path_of(workload: str) -> str:
    return os.path.join(HERE, "workloads", f"{workload}.py")


def beside(name: str) -> str:
    """One of ours that needs the standard library only."""
    return os.path.join(HERE, f"{name}.py")


@cache
def version_of(program: str) -> str:
    """What it says of itself."""
    try:
        answer = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout + answer.stderr
