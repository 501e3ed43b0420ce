"""The picture of docs/architecture.md is the import graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from mpis import ROOT

PACKAGE = ROOT / "src" / "rankscope"
PICTURE = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
# the package itself and its version, the entry point, and the writer that only tests use
LEFT_OUT = {"rankscope", "__main__", "__version__", "SCHEMA_VERSION", "rank_file_writer"}


def drawn() -> set[tuple[str, str]]:
    found = PICTURE.search((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
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
