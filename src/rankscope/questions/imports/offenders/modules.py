"""One module that something else imports makes most of the cost."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankscope.model.tables import Tables
from rankscope.questions.imports.offenders.offender import Offender, some
from rankscope.questions.imports.trees import Node, chosen, command_name, has_calls, import_trees
from rankscope.questions.selection import ALL, Selection

# ---------------------------------------------------------------------------------------------------------------------
# The metadata of all installed packages is read at import: entry points, versions, pkg_resources.
METADATA_SCAN_FEWEST = 5  # packages
METADATA_SCAN_SQL = r"""
    WITH mine AS (
        SELECT modules.name, operation, times,
            regexp_extract(path, '^(.*\.(dist-info|egg-info))(/|$)', 1) AS package
        FROM paths JOIN modules USING (process, module)
        WHERE cause = 'module' AND operation IN ('open', 'stat', 'list') AND module > 0)
    SELECT name, count(DISTINCT CASE WHEN operation = 'open' THEN package END), sum(times)::BIGINT
    FROM mine WHERE package <> '' GROUP BY name
    HAVING count(DISTINCT CASE WHEN operation = 'open' THEN package END) >= ? ORDER BY 3 DESC, 1 LIMIT 3"""


def metadata_scan(tables: Tables) -> list[Offender]:
    """One module opens files in the .dist-info of many packages."""
    return [
        Offender(
            "metadata_scan",
            f"{name} reads the metadata of {packages} installed packages while it is imported",
            "it queries entry points or imports pkg_resources: replace pkg_resources with importlib.metadata, "
            "query only the package you need, or only when the answer is needed",
            calls,
            [f"import_paths: {calls} operations in .dist-info and .egg-info folders"],
            f"module={name}",
        )
        for name, packages, calls in tables.query(METADATA_SCAN_SQL, [METADATA_SCAN_FEWEST])
    ]


# ---------------------------------------------------------------- A module starts other programs while it is imported
def started_programs(tables: Tables) -> list[Offender]:
    """Processes that began while a module was being imported that started something."""
    by_module: dict[str, list[Node]] = {}
    for tree in import_trees(tables):
        for module, process in _started(tree):
            by_module.setdefault(module.name, []).append(process)
    offenders = []
    for name, processes in by_module.items():
        calls = sum(process.whole.calls for process in processes)
        wall_ns = sum(process.wall_ns for process in processes)
        commands = some(dict.fromkeys(command_name(process.name) for process in processes))
        number = f"{len(processes)} program{'s' * (len(processes) != 1)}"
        title = f"{name} starts {number} while it is imported ({wall_ns / 1e6:.0f} ms): {commands}"
        action = f"look for subprocess, ctypes.util.find_library or platform at the top level of {name}"
        evidence = [f"import_tree: below {name}"]
        offenders.append(Offender("started_programs", title, action, calls, evidence, f"module={name}"))
    return sorted(offenders, key=lambda offender: -offender.calls)


def _started(tree: Node) -> Iterator[tuple[Node, Node]]:
    for node in tree.walk():
        if not node.is_process:
            yield from ((node, child) for child in node.children if child.is_process)


# ---------------------------------------------------------------------------------------------------------------------
# Source is compiled at import because there is no bytecode of it.
BYTECODE_FEWEST = 10
REFUSED = ("EACCES", "EROFS", "EPERM", "ENOTDIR")
CACHED = re.compile(r"\.[\w-]+(\.opt-\w+)?\.pyc(\.\d+)?$")
BYTECODE_SQL = """
    SELECT path, operation, result, sum(times)::BIGINT, max(bytes) FROM paths JOIN ranks USING (process)
    WHERE {condition} AND cause IN ('code', 'search') AND path LIKE '%.py%' GROUP BY ALL ORDER BY ALL"""


@dataclass(slots=True)
class Compiled:
    """Sources that were read because their bytecode was not there."""

    sources: dict[str, int] = field(default_factory=dict)  # path: bytes
    calls: int = 0
    refused: int = 0  # bytecode that could not be written
    written: int = 0


def compiled(tables: Tables, selection: Selection = ALL) -> Compiled:
    """What had to be compiled: its source was opened, and of its bytecode nothing could be."""
    rows = tables.query(BYTECODE_SQL.format(condition=chosen(selection)))
    opened = {path: size for path, operation, result, _, size in rows if operation == "open" and result == "ok"}
    cached = {_source(path) for path in opened if path.endswith(".pyc")}
    uncached = Compiled()
    uncached.sources = {path: size for path, size in opened.items() if path.endswith(".py") and path not in cached}
    # a .pyc that has just been written was opened under a temporary name, not under its own
    for path, operation, result, times, _ in rows:
        source = path if path.endswith(".py") else _source(path)
        if source not in uncached.sources:
            continue
        uncached.calls += times if operation == "open" else 0
        if re.search(r"\.pyc\.\d+$", path) and operation == "open":
            uncached.refused += times if result in REFUSED else 0
            uncached.written += times if result == "ok" else 0
    return uncached


def _source(path: str) -> str:
    """The source of a file in __pycache__."""
    folder, name = os.path.split(CACHED.sub("", path))
    return os.path.join(os.path.dirname(folder), name + ".py") if os.path.basename(folder) == "__pycache__" else ""


def missing_bytecode(tables: Tables) -> list[Offender]:
    """Many modules are compiled anew."""
    code = compiled(tables)
    if len(code.sources) < BYTECODE_FEWEST:
        return []
    size = sum(code.sources.values())
    folders = sorted({os.path.dirname(path) for path in code.sources}, key=len)
    if code.written >= len(code.sources) // 2:
        action = "nothing: their bytecode was written now, the next start is faster"
    elif code.refused:
        action = (
            "__pycache__ cannot be written: let its owner run python -m compileall on it once, or set "
            "PYTHONPYCACHEPREFIX to a folder that can be written"
        )
    else:
        action = "run python -m compileall on them once, or set PYTHONPYCACHEPREFIX; unset PYTHONDONTWRITEBYTECODE"
    return [
        Offender(
            "missing_bytecode",
            f"{len(code.sources)} modules ({size / 1024:.0f} KiB of source) are compiled because bytecode is missing",
            action,
            code.calls,
            [f"import_paths: sources opened in {some(folders)}; {code.refused} attempts to write bytecode refused"],
            "bytecode",
        )
    ]


# ---------------------------------------------------------------- modules
SHARE = 0.3  # of the whole process
LEAST_CALLS, LEAST_NS = 500, 200_000_000


def dominant_module(tables: Tables) -> list[Offender]:
    """The deepest module whose branch is still a large part, where it is not what the program itself imports."""
    calls = has_calls(tables)
    by_module: dict[str, Offender] = {}
    for tree in import_trees(tables):
        node, depth = _deepest(tree, calls)
        if depth < 2:
            continue
        of_calls = node.whole.calls / max(1, tree.whole.calls)
        of_time = node.wall_ns / max(1, tree.wall_ns)
        shares = f"{100 * of_time:.0f} % of the time"
        shares += f" and {100 * of_calls:.0f} % of the system calls" if calls else ""
        by_module[node.name] = Offender(
            "dominant_module",
            f"{node.name} makes {shares}",
            f"import {node.name.partition('.')[0]} only where it is needed, or let what imports it do without",
            node.whole.calls,
            [f"import_tree: {node.name}: {node.wall_ns / 1e9:.2f} s, {node.whole.calls} calls with all below it"],
            f"module={node.name}",
        )
    return list(by_module.values())


def _deepest(tree: Node, calls: bool) -> tuple[Node, int]:
    """Down the largest branch as long as it is large and belongs to another package than what imports it."""
    best, depth, node, at = tree, 0, tree, 0
    while True:
        large = [child for child in node.children if not child.is_process and _is_large(child, tree, calls)]
        if not large:
            return best, depth
        node, at = max(large, key=lambda child: child.wall_ns), at + 1
        if at >= 2 and node.name.partition(".")[0] != _package(best, tree):
            best, depth = node, at
        elif at == 1:
            best, depth = node, at


def _package(node: Node, tree: Node) -> str:
    return "" if node is tree else node.name.partition(".")[0]


def _is_large(node: Node, tree: Node, calls: bool) -> bool:
    slow = node.wall_ns >= max(LEAST_NS, SHARE * tree.wall_ns)
    return slow or (calls and node.whole.calls >= max(LEAST_CALLS, SHARE * tree.whole.calls))
