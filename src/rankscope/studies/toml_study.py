"""A user's own study, from a TOML file: docs/commands/study.md shows one."""

from __future__ import annotations

import hashlib
import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.registry import ALIASES, QUESTIONS
from rankscope.questions.scaling.scaling import of_run
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons
from rankscope.studies.launchers import kinds
from rankscope.studies.plan import Cell, CellJob, Missing, Outcome, Settings, Study, by_place

# ---------------------------------------------------------------------------------------------------------------------
# Is a file of one's own a study that can be run? Said before anything runs, in one line.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
TAKEN = ("cell", "repeat")
KNOWN: dict[str, dict[str, type | tuple[type, ...]]] = {
    "": {"name": str, "title": str, "about": str, "repeat": int, "timeout_s": (int, float), "show": list},
    "workload": {"command": list, "record": list, "environment": dict, "results": bool},
    "launch": {"launcher": str, "template": str, "per_node": int, "arguments": list},
    "axes": {},
}


def check(path: Path, document: Mapping[str, Any]) -> None:
    """Everything there is known and of the right kind: a word that is misspelt is not silently ignored."""
    for section, known in KNOWN.items():
        part = (
            document.get(section, {})
            if section
            else {key: value for key, value in document.items() if key not in KNOWN}
        )
        if not isinstance(part, dict):
            raise BadStudy(f"{path}: [{section}] must be a table")
        for key, value in part.items():
            where = f"{section}.{key}" if section else key
            if section == "axes":
                check_axis(path, where, key, value)
            elif key not in known:
                raise BadStudy(f"{path}: {where} is unknown; known are {', '.join(known)}")
            elif not isinstance(value, known[key]) or isinstance(value, bool) != (known[key] is bool):
                raise BadStudy(f"{path}: {where} is a {type(value).__name__} where another type is expected")
            elif isinstance(value, (int, float)) and known[key] is not bool and value <= 0:
                raise BadStudy(f"{path}: {where} must be more than 0")
    if not document.get("workload", {}).get("command"):
        raise BadStudy(
            f'{path}: no workload; as in [workload] command = ["python", "train.py", "--batch", "{{batch}}"]'
        )
    if not NAME.fullmatch(str(document.get("name", path.stem))):
        raise BadStudy(f"{path}: name may have letters, digits and any of . _ - in it: it becomes a file's name")
    launcher = document.get("launch", {}).get("launcher", "auto")
    if launcher not in kinds():
        raise BadStudy(f"{path}: launch.launcher {launcher}: choose one of {', '.join(kinds())}")
    unknown = [name for name in document.get("show", ()) if name not in (*QUESTIONS, *ALIASES)]
    if unknown:
        raise BadStudy(f"{path}: show: there is no table {unknown[0]}; rankscope report --help names them")


def check_axis(path: Path, where: str, name: str, values: Any) -> None:
    if name in TAKEN:
        raise BadStudy(f"{path}: {where}: an axis cannot be called {name}, which has another meaning in commands")
    if not isinstance(values, list) or not values:
        raise BadStudy(f"{path}: {where} must be a list of at least one value")
    if any(isinstance(value, (dict, list)) for value in values):
        raise BadStudy(f"{path}: {where}: its values must be strings or numbers")
    if len({str(value) for value in values}) < len(values):
        raise BadStudy(f"{path}: {where} has a value twice")
    if name == "ranks" and any(not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1 for ranks in values):
        raise BadStudy(f"{path}: axes.ranks must be whole numbers above 0")


def filled(path: Path, word: str, words: Mapping[str, str]) -> str:
    """{axis}, {ranks}, {repeat} and {cell} (a folder of the cell's own) in a word of the command."""
    try:
        return word.format_map(words)
    except (KeyError, ValueError, IndexError):
        raise BadStudy(f"{path}: {word!r}: braces may contain {', '.join(words)}; write a brace itself twice") from None


# ---------------------------------------------------------------- the tables of a study of one's own
def results(outcomes: Sequence[Outcome], axes: Sequence[str]) -> Table:
    """The numbers that the ranks have left: medians over all ranks and repeats."""
    by_key = {
        place: [result for outcome in repeats for result in outcome.results]
        for place, repeats in by_place(outcomes, *axes).items()
    }
    every = [name for ranks in by_key.values() for rank in ranks for name, value in rank.items() if is_number(value)]
    names = [name for name in dict.fromkeys(every) if name != "rank"]
    columns = [Column(axis, Unit.NAME, axis) for axis in axes] + [Column("ranks", Unit.COUNT, "Ranks")]
    columns += [Column(name, Unit.NUMBER, name) for name in names]
    rows: list[tuple[Value, ...]] = []
    for place, ranks in by_key.items():
        values = [[rank[name] for rank in ranks if is_number(rank.get(name))] for name in names]
        rows.append((*place, *(statistics.median(numbers) if numbers else None for numbers in values)))
    return Table("results", "Results of the ranks", columns, rows)


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def figures(outcomes: Sequence[Outcome], axes: Sequence[str]) -> Table:
    """What every recorded run has: elapsed time, phases, steps and their parts; medians over the repeats."""
    by_key = {
        place: [dict(of_run(repeat.run.store())) for repeat in repeats]
        for place, repeats in by_place(outcomes, *axes).items()
    }
    names = list(dict.fromkeys(name for runs in by_key.values() for run in runs for name in run))
    columns = [Column(axis, Unit.NAME, axis) for axis in axes] + [Column("ranks", Unit.COUNT, "Ranks")]
    columns += [Column(f"{name.replace(', ', '_').replace(' ', '_')}_ns", Unit.NS, name) for name in names]
    rows: list[tuple[Value, ...]] = []
    for place, runs in by_key.items():
        values = [[run[name] for run in runs if name in run] for name in names]
        rows.append((*place, *(statistics.median(numbers) if numbers else None for numbers in values)))
    return Table("figures", "Where the time goes", columns, rows)


def joined(outcomes: Sequence[Outcome], axes: Sequence[str], name: str) -> Table:
    """One table of each run, one under the other."""
    table: Table | None = None
    for outcome in outcomes:
        if not outcome.done:
            continue
        frame = outcome.run.table(name)
        if table is None:
            head = [Column(axis, Unit.NAME, axis) for axis in axes]
            head += [Column("job_ranks", Unit.COUNT, "Job's ranks"), Column("repeat", Unit.COUNT, "Repeat")]
            table = Table(name, frame.title, [*head, *frame.table.columns], [])
        place = [dict(outcome.cell.values)[axis] for axis in axes]
        table.rows += [(*place, outcome.cell.ranks, outcome.cell.repeat, *row) for row in frame.rows]
    return table or Table(name, name, (), [])


# ---------------------------------------------------------------- toml study
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_study(path: Path) -> tuple[Study, Mapping[str, Any]]:
    """The study, and what its file says about launching."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadStudy(f"{path}: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadStudy(f"{path}: not TOML: {problem}") from None
    check(path, document)
    workload, axes = document["workload"], dict(document.get("axes", {}))
    scales = tuple(axes.pop("ranks", (1,)))
    named = {axis: [str(value) for value in values] for axis, values in axes.items()}
    show = tuple(document.get("show", ()))

    def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> CellJob | Missing:
        words = {**dict(cell.values), "ranks": str(cell.ranks), "repeat": str(cell.repeat), "cell": folder}
        command = tuple(filled(path, str(word), words) for word in workload["command"])
        variables = {key: filled(path, str(value), words) for key, value in workload.get("environment", {}).items()}
        launcher = document.get("launch", {}).get("launcher", "auto")
        return CellJob(
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
    name = str(document.get("name", path.stem))
    study = Study(
        name,
        str(document.get("title", name)),
        str(document.get("about", "")),
        lambda settings: named,
        job,
        tables,
        scales=scales,
        repeats=int(document.get("repeat", 1)),
        timeout_s=float(document.get("timeout_s", 600)),
        definition=fingerprint({"workload": workload, "launch": document.get("launch", {})}),
    )
    return study, document.get("launch", {})


def fingerprint(what: Mapping[str, Any]) -> str:
    """Tells a changed file without repeating it: a variable in it may be secret."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:16]
