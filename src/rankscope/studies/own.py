"""A study of one's own, from a TOML file: docs/study.md shows one."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.analyse.scale_series import of_run
from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.studies.errors import BadStudy
from rankscope.studies.outcome import Outcome
from rankscope.studies.plan import Cell, Job, Missing, Settings, Study
from rankscope.studies.pythons import Pythons
from rankscope.studies.rows import by_place

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KNOWN: dict[str, dict[str, type | tuple[type, ...]]] = {
    "": {"name": str, "title": str, "about": str, "repeat": int, "timeout_s": (int, float), "show": list},
    "workload": {"command": list, "record": list, "environment": dict},
    "launch": {"launcher": str, "template": str, "per_node": int, "arguments": list},
    "axes": {},
}


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
        launcher = told.get("launch", {}).get("launcher", "local")
        return Job(command, launcher, command[0], variables, tuple(map(str, workload.get("record", ()))), results=False)

    def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
        return [figures(outcomes, list(named)), *(joined(outcomes, list(named), name) for name in show)]

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
        definition=json.dumps({"workload": workload, "launch": told.get("launch", {})}, sort_keys=True, default=str),
    )
    return study, told.get("launch", {})


def check(path: Path, told: Mapping[str, Any]) -> None:
    """Everything there is known and of the right kind: a word that is misspelt is not silently ignored."""
    for section, known in KNOWN.items():
        part = told.get(section, {}) if section else {key: value for key, value in told.items() if key not in KNOWN}
        if not isinstance(part, dict):
            raise BadStudy(f"{path}: [{section}] must be a table")
        for key, value in part.items():
            where = f"{section}.{key}" if section else key
            if section == "axes":
                if not isinstance(value, list) or not value:
                    raise BadStudy(f"{path}: {where} must be a list of at least one value")
            elif key not in known:
                raise BadStudy(f"{path}: {where} is not known; known are {', '.join(known)}")
            elif not isinstance(value, known[key]):
                raise BadStudy(f"{path}: {where} is a {type(value).__name__} where another kind is expected")
    if not told.get("workload", {}).get("command"):
        raise BadStudy(
            f'{path}: no workload; as in [workload] command = ["python", "train.py", "--batch", "{{batch}}"]'
        )
    if any(not isinstance(ranks, int) or ranks < 1 for ranks in told.get("axes", {}).get("ranks", ())):
        raise BadStudy(f"{path}: axes.ranks must be whole numbers above 0")


def filled(path: Path, word: str, words: Mapping[str, str]) -> str:
    """{axis}, {ranks}, {repeat} and {cell} (a folder of the cell's own) in a word of the command."""
    try:
        return word.format_map(words)
    except (KeyError, ValueError, IndexError):
        raise BadStudy(
            f"{path}: {word!r}: in braces there may be {', '.join(words)}; a brace itself is doubled"
        ) from None


def figures(outcomes: Sequence[Outcome], axes: Sequence[str]) -> Table:
    """What every recorded run has: elapsed time, phases, steps and their parts; medians over the repeats."""
    found = {
        place: [dict(of_run(one.run.store())) for one in repeats]
        for place, repeats in by_place(outcomes, *axes).items()
    }
    names = list(dict.fromkeys(name for runs in found.values() for run in runs for name in run))
    columns = [Column(axis, Unit.NAME, axis) for axis in axes] + [Column("ranks", Unit.COUNT, "Ranks")]
    columns += [Column(f"{name.replace(', ', '_').replace(' ', '_')}_ns", Unit.NS, name) for name in names]
    rows: list[tuple[Value, ...]] = []
    for place, runs in found.items():
        values = [[run[name] for run in runs if name in run] for name in names]
        rows.append((*place, *(statistics.median(one) if one else None for one in values)))
    return Table("figures", "Where the time goes", columns, rows)


def joined(outcomes: Sequence[Outcome], axes: Sequence[str], name: str) -> Table:
    """One table of each run, one under the other."""
    whole: Table | None = None
    for outcome in outcomes:
        if not outcome.done:
            continue
        frame = outcome.run.table(name)
        if whole is None:
            head = [Column(axis, Unit.NAME, axis) for axis in axes]
            head += [Column("job_ranks", Unit.COUNT, "Job's ranks"), Column("repeat", Unit.COUNT, "Repeat")]
            whole = Table(name, frame.title, [*head, *frame.table.columns], [])
        place = [dict(outcome.cell.values)[axis] for axis in axes]
        whole.rows += [(*place, outcome.cell.ranks, outcome.cell.repeat, *row) for row in frame.rows]
    return whole or Table(name, name, (), [])
