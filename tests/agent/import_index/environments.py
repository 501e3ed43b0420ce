"""Environments for the tests of the import index: small ones written here, and programs run with and without it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from mpis import ROOT

AGENT_START = ROOT / "src" / "rankscope" / "agent" / "start"
COMMAND = [sys.executable, "-c", "import sys; from rankscope.cli import main; sys.exit(main())"]


def rankscope(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command of this tree."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **variables}
    return subprocess.run([*COMMAND, *map(str, words)], env=environment, capture_output=True, text=True, check=False)


@dataclass
class Ran:
    """How a program ended, and what the index did in it."""

    code: int
    stdout: str
    stderr: str
    counts: dict[str, int]
    changed: list[str]

    @property
    def seen(self) -> tuple[int, str, str]:
        return self.code, self.stdout, self.stderr


@dataclass(frozen=True)
class Environment:
    """A Python and its index."""

    python: Path
    index: Path

    def build(self, *options: str) -> str:
        done = rankscope("index", self.python, "--out", self.index, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *words: str | Path, index: bool, cwd: Path | None = None, **variables: str) -> Ran:
        """A program as its user runs it, or with the index as `rankscope index --run` would."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("RANKSCOPE", "PYTHON"))}
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg", **variables}
        log = self.index.with_suffix(".logs")
        if index:
            log.mkdir(exist_ok=True)
            for old in log.iterdir():
                old.unlink()
            theirs = environment.get("PYTHONPATH")
            environment["PYTHONPATH"] = f"{AGENT_START}:{theirs}" if theirs else str(AGENT_START)
            environment |= {"RANKSCOPE_INDEX": str(self.index), "RANKSCOPE_INDEX_LOG": str(log)}
        command = [str(self.python), *map(str, words)]
        done = subprocess.run(
            command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=100, check=False
        )
        lines = [line for file in log.glob("*.txt") for line in file.read_text().splitlines()] if index else []
        return ran(done, [line.split(" ", 1) for line in lines])

    def both(self, *words: str | Path, cwd: Path | None = None, **variables: str) -> tuple[Ran, Ran]:
        """Without and with the index."""
        return (
            self.run(*words, index=False, cwd=cwd, **variables),
            self.run(*words, index=True, cwd=cwd, **variables),
        )


def ran(done: subprocess.CompletedProcess[str], told: list[list[str]]) -> Ran:
    counts: dict[str, int] = {}
    for name, value in told:
        if name != "changed":
            counts[name] = counts.get(name, 0) + int(value)
    changed = [value for name, value in told if name == "changed"]
    return Ran(done.returncode, done.stdout, done.stderr, counts, changed)


def new_environment(folder: Path) -> Environment:
    """A virtual environment of the Python that runs the tests, without anything installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    return Environment(folder / "venv" / "bin" / "python", folder / "of-the-test.rsindex")


def site_packages(environment: Environment) -> Path:
    return next((environment.python.parents[1] / "lib").glob("python3*/site-packages"))


def install(environment: Environment, wheel: Path) -> None:
    """As users do: by pip, which removes the version that is there."""
    pip(environment, "install", "--no-index", "--no-deps", "--no-compile", str(wheel))


def pip(environment: Environment, *words: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(environment.python), "--disable-pip-version-check", *words]
    subprocess.run(command, check=True, capture_output=True)


def wheel(folder: Path, name: str, version: str, files: dict[str, str]) -> Path:
    """A wheel with these files; with a .pth among them it is what an editable install is."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    texts = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for place, text in texts.items():
            archive.writestr(place, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{place},,\n" for place in texts) + f"{info}/RECORD,,\n")
    return path
