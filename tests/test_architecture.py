"""The picture of docs/inside/architecture.md is the import graph."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from mpis import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGE = ROOT / "src" / "rankscope"
PICTURE = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
# the package itself and its version, the entry point, and the writer that only tests use
LEFT_OUT = {"rankscope", "__main__", "__version__", "SCHEMA_VERSION", "rank_file_writer"}


def drawn() -> set[tuple[str, str]]:
    found = PICTURE.search((ROOT / "docs" / "inside" / "architecture.md").read_text(encoding="utf-8"))
    assert found is not None
    chains = (line.strip().split(" --> ") for line in found[1].splitlines() if " --> " in line)
    return {pair for chain in chains for pair in pairwise(chain)}


def imported(path: Path) -> Iterator[str]:
    """Names right below rankscope that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            whole, _, rest = node.module.partition(".")
            if whole == "rankscope":
                yield from [rest.partition(".")[0]] if rest else [name.name for name in node.names]


def found() -> set[tuple[str, str]]:
    edges = set()
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        part = place.parts[0] if len(place.parts) > 1 else "rankscope" if place.stem == "__init__" else place.stem
        edges |= {(part, other) for other in imported(path) if other != part}
    return {edge for edge in edges if not LEFT_OUT & set(edge)}


def test_the_picture_is_the_import_graph() -> None:
    assert drawn() == found()


def test_every_folder_is_in_the_table_of_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert {name for name in folders if f"`{name}/`" not in text} == set()


def test_contracts_of_the_standard_library_name_every_dependency() -> None:
    """A package that is added to the dependencies must not slip past them."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in told["project"]["dependencies"]}
    contracts = [one for one in told["tool"]["importlinter"]["contracts"] if "standard library" in one["name"]]
    assert len(contracts) == 4
    assert [packages - set(one["forbidden_modules"]) for one in contracts] == [set()] * 4


MEASURED = {"horovod", "mpi4py", "numpy", "torch"}  # what studies are about: there where the workload runs


def test_workloads_need_the_standard_library_and_what_they_measure() -> None:
    """They run in the ranks of a study, by any Python: import-linter does not see them, as they are no package."""
    folder = PACKAGE / "studies" / "workloads"
    known = {path.stem for path in folder.glob("*.py")} | sys.stdlib_module_names | MEASURED
    roots = {path.name: set(roots_of(path)) for path in folder.glob("*.py")}
    assert len(roots) > 20
    assert {name: found - known for name, found in roots.items() if found - known} == {}


def roots_of(path: Path) -> Iterator[str]:
    """The first words of all names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
