"""What does a word of a report mean: a label, a column, a table, a phase or a finding?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from rankscope.api.schema import schema
from rankscope.model.tables import Column, Table, Unit, Wrong
from rankscope.questions.history import tables as history
from rankscope.questions.registry import ALIASES, QUESTIONS
from rankscope.questions.run.screen import LABELS
from rankscope.questions.steps.phases import SEGMENT_FORMULAS
from rankscope.questions.steps.startup import PARTS

DOCS = "words.json"  # of docs/reference and docs/commands/report.md, by tools/docs_schema.py
PLAIN_NAME = "a name, not a number"


@dataclass(frozen=True, slots=True)
class Meaning:
    """One meaning of one word."""

    word: str
    kind: str  # "word", "label", "phase", "column of steps, step_parts", "table", "finding"
    text: str
    also: str = ""  # another name of the same: what stands over a column


def explain(word: str) -> list[Meaning]:
    """All that the word means, the most general first; an unknown word is an error that names the nearest."""
    known = _known()
    key_asked = _key(word)
    for matches in (_is, _ends, _has, _is_inside):
        matching = [meaning for meaning in known if matches(key_asked, meaning)]
        if matching:
            return _joined(matching)
    names = {_key(name): name for meaning in known for name in (meaning.word, meaning.also) if name}
    like = [names[key] for key in get_close_matches(key_asked, names, 3, 0.4)]
    raise Wrong(f"{word}: no such word{'; did you mean ' + ', '.join(like) + '?' if like else ''}")


@cache
def _known() -> list[Meaning]:
    return list(meanings())


def _is(key: str, meaning: Meaning) -> bool:
    return key in (_key(meaning.word), _key(meaning.also))


def _ends(key: str, meaning: Meaning) -> bool:
    """`launching` of `idle: launching`, `start` of `idle: kernel start`."""
    return any(_key(name).endswith(f" {key}") for name in (meaning.word, meaning.also))


def _has(key: str, meaning: Meaning) -> bool:
    return len(key) > 3 and any(f" {key}" in f" {_key(name)}" for name in (meaning.word, meaning.also))


def _is_inside(key: str, meaning: Meaning) -> bool:
    """`MPI_Init` of the phase that is inside it: the screen calls a phase that is one call like that call."""
    return meaning.kind == "phase" and meaning.text.startswith("inside ") and key in _key(meaning.text)


def _key(text: str) -> str:
    """Without what nobody remembers: case, punctuation, the unit of a column."""
    return " ".join(re.sub(r"[^a-z0-9/%]+", " ", text.lower()).removesuffix(" ns").split())


def _joined(entries: list[Meaning]) -> list[Meaning]:
    """Columns of several tables that mean the same are one."""
    kinds_of: dict[tuple[str, str, str], list[str]] = {}
    for meaning in entries:
        kinds_of.setdefault((meaning.word, meaning.also, meaning.text), []).append(meaning.kind)
    return [Meaning(word, _kinds(kinds), text, also) for (word, also, text), kinds in kinds_of.items()]


def _kinds(kinds: list[str]) -> str:
    tables = [kind.removeprefix(COLUMN) for kind in kinds if kind.startswith(COLUMN)]
    return COLUMN + ", ".join(tables) if tables else kinds[0]


COLUMN = "column of "


def _docs() -> Any:
    return json.loads(files("rankscope.api").joinpath(DOCS).read_text(encoding="utf-8"))


def meanings() -> Iterator[Meaning]:
    """Everything that has a definition: words, labels of the screen, phases, findings, tables, columns."""
    documented = _docs()
    yield from (Meaning(word, "word", text) for word, text in documented["words"].items())
    yield from (Meaning(label, "label", text) for label, text in LABELS.items())
    yield from (Meaning(phase, "phase", text) for phase, text in SEGMENT_FORMULAS.items())
    starts = ((part, text) for part, text in PARTS.items() if part not in SEGMENT_FORMULAS)
    yield from (Meaning(part, "part of the start", text) for part, text in starts)
    for rule, (fires, saved) in documented["rules"].items():
        yield Meaning(rule, "finding", f"fires when {fires}" + (f"; could save: {saved}" if saved != "–" else ""))
    aliases = {name: alias for alias, name in ALIASES.items()}
    for table in schema():
        if table.kind != "question":
            continue
        columns = ", ".join(column.name for column in table.columns)
        empty = QUESTIONS[table.name].empty
        text = f"{documented['tables'][table.name]}\n{table.about}\nColumns: {columns}" + (
            f"\nEmpty where {empty}" if empty else ""
        )
        yield Meaning(table.name, "table", text, aliases.get(table.name, ""))
        for column in table.columns:
            yield Meaning(column.name, f"{COLUMN}{table.name}", column.formula or PLAIN_NAME, column.title)
    for name, shown in OF_HISTORY.items():
        yield from (
            Meaning(column.name, f"{COLUMN}{name}", column.formula or PLAIN_NAME, column.title) for column in shown
        )


OF_HISTORY = {  # what `rankscope history` shows
    "history": history.HISTORY_COLUMNS,
    "regressions": history.REGRESSION_COLUMNS,
    "slow_hosts": history.HOST_COLUMNS,
}


# ---------------------------------------------------------------- which tables are there?
SUBJECTS = {"mpi": "MPI", "gpu": "GPU", "run": "the run", "collectives": "communication", "stragglers": "ranks"}
TABLE_COLUMNS = (
    Column("subject", Unit.NAME, "Subject", "what it is about"),
    Column("name", Unit.NAME, "Table", "as `rankscope report --table` takes it"),
    Column("about", Unit.NAME, "What it shows", "in one line"),
)


def table_list() -> Table:
    """The tables of a report, those of one subject together, in the order of a report."""
    docs = _docs()
    table = Table("tables", "Tables", TABLE_COLUMNS, [])
    subjects = {name: question.module.partition(".")[0] for name, question in QUESTIONS.items()}
    called = {name: SUBJECTS.get(subject, subject) for name, subject in subjects.items()}
    for subject in dict.fromkeys(called.values()):
        for name in (name for name in QUESTIONS if called[name] == subject):
            table.rows.append((subject, name, docs["tables"][name]))
    return table
