"""A study of one's own, from a TOML file: docs/study.md shows one."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.model import Table
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons
from rankscope.studies.outcome import Outcome
from rankscope.studies.own_checks import check, filled
from rankscope.studies.own_tables import figures, joined, results
from rankscope.studies.plan import Cell, Job, Missing, Settings, Study

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_study(path: Path) -> tuple[Study, Mapping[str, Any]]:
    """The study, and what its file says about launching."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadStudy(f"{path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadStudy(f"{path}: not TOML: {problem}") from None
    check(path, told)
    workload, axes = told["workload"], dict(told.get("axes", {}))
    scales = tuple(axes.pop("ranks", (1,)))
    named = {axis: [str(value) for value in values] for axis, values in axes.items()}
    show = tuple(told.get("show", ()))

    def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> Job | Missing:
        words = {**dict(cell.values), "ranks": str(cell.ranks), "repeat": str(cell.repeat), "cell": folder}
        command = tuple(filled(path, str(word), words) for word in workload["command"])
        variables = {key: filled(path, str(value), words) for key, value in workload.get("environment", {}).items()}
        launcher = told.get("launch", {}).get("launcher", "auto")
        return Job(
            command,
            "local" if launcher == "auto" else launcher,
            command[0],
            variables,
            tuple(map(str, workload.get("record", ()))),
            results=bool(workload.get("results")),
        )

    def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
        axes = list(named)
        left = [results(outcomes, axes)] if workload.get("results") else []
        return [*left, figures(outcomes, axes), *(joined(outcomes, axes, name) for name in show)]

    first = Cell(tuple((axis, values[0]) for axis, values in named.items()), 1, 1)
    job(first, {}, Pythons([]), "")  # can its words be filled?
    name = str(told.get("name", path.stem))
    study = Study(
        name,
        str(told.get("title", name)),
        str(told.get("about", "")),
        lambda settings: named,
        job,
        tables,
        scales=scales,
        repeats=int(told.get("repeat", 1)),
        timeout_s=float(told.get("timeout_s", 600)),
        definition=fingerprint({"workload": workload, "launch": told.get("launch", {})}),
    )
    return study, told.get("launch", {})


def fingerprint(what: Mapping[str, Any]) -> str:
    """Tells a changed file without repeating it: a variable in it may be secret."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]
