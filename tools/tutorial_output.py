"""Runs the commands of docs/tutorial.md in an empty folder and puts what they print below them."""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
CONSOLE = re.compile(r"(?<!-->\n)```console\n(.*?)```", re.DOTALL)  # but for those that a comment marks as not run
FILE = re.compile(r"<!-- file: ([\w.]+) -->\n```\w+\n(.*?)```", re.DOTALL)
PLAIN = {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT / "src")}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SLOTS = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "PRTE_MCA_hwloc_default_binding_policy": "none"}


@dataclass(frozen=True)
class Shown:
    """One command and what is printed below it."""

    command: str
    output: str


def blocks(page: str) -> list[list[Shown]]:
    """The commands of each block and the output below them."""
    return [_commands(text) for text in CONSOLE.findall(page)]


def _commands(text: str) -> list[Shown]:
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    return [Shown(command, output) for command, _, output in (part.partition("\n") for part in parts)]


def environment() -> dict[str, str]:
    """One in which python has mpi4py, and rankscope and mpirun are found."""
    places = [ROOT / ".envs" / "openmpi" / "bin", Path(sys.executable).parent]
    path = os.pathsep.join([*(str(place) for place in places), os.environ["PATH"]])
    return {**os.environ, **PLAIN, **AS_ROOT, **SLOTS, "PATH": path}


def write_files(page: str, folder: Path) -> None:
    for name, text in FILE.findall(page):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "rankscope").symlink_to(ROOT)  # as the page calls the project's folder


def run(command: str, folder: Path) -> str:
    """What a command prints, with nothing of this machine in it."""
    if command.startswith("python "):  # with rankscope and what it needs, which the environment of the MPI has not
        command = f"{sys.executable} {command.removeprefix('python ')}"
    shell, pipe = ["bash", "-c", f"exec 2>&1; {command}"], subprocess.PIPE
    done = subprocess.run(shell, cwd=folder, env=environment(), stdout=pipe, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout}")
    told = re.sub(rf"\b{re.escape(socket.gethostname())}\b( *)", _another_host, done.stdout)
    return "".join(line.rstrip() + "\n" for line in told.splitlines())


def _another_host(found: re.Match[str]) -> str:
    """A name that every machine may have, as wide as the one that was printed where it is in a table."""
    return f"node{found[1]}" if len(found[1]) < 2 else "node".ljust(len(found[0]))


def run_page(page: str, folder: Path) -> list[list[Shown]]:
    """All commands in their order, each with what it prints now."""
    write_files(page, folder)
    return [[Shown(one.command, run(one.command, folder)) for one in block] for block in blocks(page)]


def filled(page: str, made: list[list[Shown]]) -> str:
    """The page with these outputs."""
    texts = iter("".join(f"$ {one.command}\n{one.output}" for one in block) for block in made)
    return CONSOLE.sub(lambda _: f"```console\n{next(texts)}```", page)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        PAGE.write_text(filled(page, run_page(page, Path(folder))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
