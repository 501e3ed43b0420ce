"""Which Python has what a cell needs: environments rarely hold everything at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from rankscope.studies.errors import BadStudy

PROBE_S = 60
PROBE = """
import importlib.metadata, importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)  # some packages hold libraries and no module
        continue
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        if importlib.util.find_spec(name):
            found[name] = ""
    except (ImportError, ValueError):
        pass
print(json.dumps({"version": sys.version.split()[0], "prefix": sys.prefix, "modules": found}))
"""
ASKED = (
    "torch",
    "mpi4py",
    "horovod",
    "numpy",
    "pandas",
    "oneccl",
    "oneccl-devel",
    "oneccl_bindings_for_pytorch",
    "tensorflow",
    "jax",
)
TRUE = """
import sys, torch
import torch.distributed as distributed
sys.exit(not eval(sys.argv[1]))
"""


@dataclass(frozen=True)
class Python:
    """One interpreter and its packages."""

    path: str
    version: str
    prefix: str
    modules: dict[str, str]
    elsewhere: bool = False  # on another machine: taken at its user's word

    @property
    def mpirun(self) -> str:
        """The launcher of the MPI in the same environment, or the one on the PATH; "" where there is none."""
        beside = os.path.join(os.path.dirname(self.path), "mpirun")
        if self.elsewhere:
            return beside
        return beside if os.access(beside, os.X_OK) else shutil.which("mpirun") or ""

    def answers(self, question: str) -> bool:
        """Whether this is true of its torch, which has to be imported for it."""
        return self.elsewhere or is_true(self.path, question)


class Pythons:
    """Those that the user named, in order, or the ones at hand."""

    def __init__(self, paths: Sequence[str], assumed: Sequence[str] = ()) -> None:
        self.paths = list(paths)
        self.assumed = list(assumed)  # modules that they have on another machine, where they cannot be asked

    @cached_property
    def all(self) -> list[Python]:
        if self.assumed:
            has = dict.fromkeys(self.assumed, "")
            return [Python(path, "", "", has, elsewhere=True) for path in self.paths or ["python3"]]
        named = [probe(path) for path in self.paths]
        if named:
            return named
        at_hand = dict.fromkeys(
            path for path in (shutil.which("python3"), shutil.which("python"), sys.executable) if path
        )
        return [probe(path) for path in at_hand]

    def lasting_paths(self) -> list[str]:
        """As they are found from any folder; those of another machine as they were given."""
        return [os.path.abspath(path) if os.sep in path and not self.assumed else path for path in self.paths]

    def having(self, *modules: str) -> Python | None:
        """The first that has them all."""
        return next((python for python in self.all if all(has(python, name) for name in modules)), None)

    def without(self, *modules: str) -> str:
        """What is said where none has them."""
        looked = ", ".join(python.path for python in self.all)
        return f"no {' and '.join(modules)} in {looked}: install it, or name the Python that has it with --python"


def has(python: Python, module: str) -> bool:
    """Whether it can import this; what is asked for rarely is asked of the interpreter when it is."""
    if module in ASKED or python.elsewhere:
        return module in python.modules
    return importable(python.path, module)


@cache
def importable(path: str, module: str) -> bool:
    return module in probe(path, module).modules


@cache
def is_true(python: str, question: str) -> bool:
    try:
        answer = subprocess.run(
            [python, "-c", TRUE, question], capture_output=True, timeout=PROBE_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return answer.returncode == 0


def probe(path: str, *more: str) -> Python:
    """Ask it; the interpreter is not followed through links, which would leave its environment."""
    where = shutil.which(path)
    if where is None:
        raise BadStudy(f"--python {path}: there is no such program")
    where = os.path.abspath(where)
    try:
        answer = subprocess.run(
            [where, "-c", PROBE, *(more or ASKED)],
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        facts = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as problem:
        raise BadStudy(f"--python {path}: it cannot be asked for its modules ({problem})") from None
    return Python(where, facts["version"], facts["prefix"], facts["modules"])


# ---------------------------------------------------------------- questions to another Python or program, asked once
ASK_S = 120


@cache
def said(*command: str) -> str:
    """What it prints; "" where it fails or is not there."""
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=ASK_S, check=True, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout


def is_elsewhere(python: Python) -> bool:
    """On another machine: it cannot be asked, and is taken at its user's word."""
    return bool(getattr(python, "elsewhere", False))


def is_true_after_import(python: str, module: str, expression: str) -> bool:
    """Whether the expression is true there, after the import."""
    return said(python, "-c", f"import {module}; print(bool({expression}))").strip().endswith("True")
