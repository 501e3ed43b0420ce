"""A module starts other programs while it is imported."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope.analyse.import_names import command_name
from rankscope.model import Tables
from rankscope.questions.imports.offenders.offender import Offender, some
from rankscope.questions.imports.trees import Node, import_trees


def started_programs(tables: Tables) -> list[Offender]:
    """Processes that began while a module was being imported that started something."""
    by_module: dict[str, list[Node]] = {}
    for tree in import_trees(tables):
        for module, process in _started(tree):
            by_module.setdefault(module.name, []).append(process)
    found = []
    for name, processes in by_module.items():
        calls = sum(process.whole.calls for process in processes)
        wall_ns = sum(process.wall_ns for process in processes)
        commands = some(dict.fromkeys(command_name(process.name) for process in processes))
        number = f"{len(processes)} program{'s' * (len(processes) != 1)}"
        title = f"{name} starts {number} while it is imported ({wall_ns / 1e6:.0f} ms): {commands}"
        action = f"look for subprocess, ctypes.util.find_library or platform at the top level of {name}"
        evidence = [f"import_tree: below {name}"]
        found.append(Offender("started_programs", title, action, calls, evidence, f"module={name}"))
    return sorted(found, key=lambda one: -one.calls)


def _started(tree: Node) -> Iterator[tuple[Node, Node]]:
    for node in tree.walk():
        if not node.is_process:
            yield from ((node, child) for child in node.children if child.is_process)
