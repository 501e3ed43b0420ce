"""Programs of popular packages give the same output with and without the index."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.import_index.environments import Environment
from agent.import_index.smoke import PACKAGES, TORCH
from mpis import ROOT

# Of every kind one: extension modules, data files, namespaces, entry points. The others take minutes together.
OFTEN = ("numpy", "pandas", "jinja2", "matplotlib", "aiohttp", "pyarrow", "polars")


def indexed(name: str, folder: Path) -> Environment:
    python = ROOT / ".envs" / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f".envs/{name} is missing: run make envs")
    environment = Environment(python, folder / f"{name}.rsindex")
    environment.build()
    return environment


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return indexed("packages", tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def torch(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return indexed("torch", tmp_path_factory.mktemp("torch"))


def compare(environment: Environment, code: str, folder: Path) -> None:
    script = folder / "program.py"
    script.write_text(code)
    without, used = environment.both(script, cwd=folder)
    assert without.code == 0, without.stderr
    assert used.seen == without.seen
    assert used.counts["code"] > 20
    assert (used.changed, used.counts["refused"]) == ([], 0)


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in PACKAGES]
)
def test_program_of(packages: Environment, tmp_path: Path, name: str) -> None:
    compare(packages, PACKAGES[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", TORCH)
def test_torch_program_of(torch: Environment, tmp_path: Path, name: str) -> None:
    compare(torch, TORCH[name], tmp_path)
