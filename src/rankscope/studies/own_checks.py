"""Is a file of one's own a study that can be run? Said before anything runs, in one line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankscope.api.registry import ALIASES, QUESTIONS
from rankscope.studies.errors import BadStudy
from rankscope.studies.launchers import kinds

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
TAKEN = ("cell", "repeat")
KNOWN: dict[str, dict[str, type | tuple[type, ...]]] = {
    "": {"name": str, "title": str, "about": str, "repeat": int, "timeout_s": (int, float), "show": list},
    "workload": {"command": list, "record": list, "environment": dict, "results": bool},
    "launch": {"launcher": str, "template": str, "per_node": int, "arguments": list},
    "axes": {},
}


def check(path: Path, told: Mapping[str, Any]) -> None:
    """Everything there is known and of the right kind: a word that is misspelt is not silently ignored."""
    for section, known in KNOWN.items():
        part = told.get(section, {}) if section else {key: value for key, value in told.items() if key not in KNOWN}
        if not isinstance(part, dict):
            raise BadStudy(f"{path}: [{section}] must be a table")
        for key, value in part.items():
            where = f"{section}.{key}" if section else key
            if section == "axes":
                check_axis(path, where, key, value)
            elif key not in known:
                raise BadStudy(f"{path}: {where} is not known; known are {', '.join(known)}")
            elif not isinstance(value, known[key]) or isinstance(value, bool) != (known[key] is bool):
                raise BadStudy(f"{path}: {where} is a {type(value).__name__} where another kind is expected")
            elif isinstance(value, (int, float)) and known[key] is not bool and value <= 0:
                raise BadStudy(f"{path}: {where} must be more than 0")
    if not told.get("workload", {}).get("command"):
        raise BadStudy(
            f'{path}: no workload; as in [workload] command = ["python", "train.py", "--batch", "{{batch}}"]'
        )
    if not NAME.fullmatch(str(told.get("name", path.stem))):
        raise BadStudy(f"{path}: name may have letters, digits and any of . _ - in it: it becomes a file's name")
    launcher = told.get("launch", {}).get("launcher", "auto")
    if launcher not in kinds():
        raise BadStudy(f"{path}: launch.launcher {launcher}: choose one of {', '.join(kinds())}")
    unknown = [name for name in told.get("show", ()) if name not in (*QUESTIONS, *ALIASES)]
    if unknown:
        raise BadStudy(f"{path}: show: there is no table {unknown[0]}; rankscope report --help names them")


def check_axis(path: Path, where: str, name: str, found: Any) -> None:
    if name in TAKEN:
        raise BadStudy(f"{path}: {where}: an axis cannot be called {name}, which stands for something else in commands")
    if not isinstance(found, list) or not found:
        raise BadStudy(f"{path}: {where} must be a list of at least one value")
    if any(isinstance(value, (dict, list)) for value in found):
        raise BadStudy(f"{path}: {where}: its values must be words or numbers")
    if len({str(value) for value in found}) < len(found):
        raise BadStudy(f"{path}: {where} has a value twice")
    if name == "ranks" and any(not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1 for ranks in found):
        raise BadStudy(f"{path}: axes.ranks must be whole numbers above 0")


def filled(path: Path, word: str, words: Mapping[str, str]) -> str:
    """{axis}, {ranks}, {repeat} and {cell} (a folder of the cell's own) in a word of the command."""
    try:
        return word.format_map(words)
    except (KeyError, ValueError, IndexError):
        raise BadStudy(
            f"{path}: {word!r}: in braces there may be {', '.join(words)}; a brace itself is doubled"
        ) from None
