"""The columns of every table in a run of which nothing is known: the pages of docs/reference are made of this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rankscope.model.tables import Unit
from rankscope.questions.registry import QUESTIONS
from rankscope.questions.selection import ALL
from rankscope.store.columns import RECORDS
from rankscope.store.run import RunContents, RunTables

ABOUT_RUN = "What was started, where, when and with how many ranks: one row."
TYPES = {Unit.NAME: "string, or int64 where every value is a whole number", Unit.COUNT: "int64"}  # others: double


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """One column: its name, its type as to_arrow() has it, what it holds, what a report writes over it, its formula."""

    name: str
    type: str
    unit: str = ""
    title: str = ""
    formula: str = ""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table: the answer to a question, or records that SQL sees."""

    name: str
    kind: str  # "question" or "records"
    about: str
    columns: tuple[ColumnSchema, ...]


def schema() -> list[TableSchema]:
    """All tables: first those of records, then the answers to questions."""
    empty = RunTables(RunContents(Path("run")))
    return [*(_records(empty, name) for name in ("run", *RECORDS)), *(_question(empty, name) for name in QUESTIONS)]


def _records(empty: RunTables, name: str) -> TableSchema:
    fields = empty.arrow(f'SELECT * FROM "{name}"').schema
    columns = (ColumnSchema(field.name, _type(str(field.type))) for field in fields)
    about = (RECORDS[name].__doc__ or "").strip().partition("\n")[0] if name in RECORDS else ABOUT_RUN
    return TableSchema(name, "records", about, tuple(columns))


def _type(arrow: str) -> str:
    return "string" if arrow.startswith("dictionary") else arrow


def _question(empty: RunTables, name: str) -> TableSchema:
    answer = QUESTIONS[name].answer(empty, ALL)
    columns = (
        ColumnSchema(column.name, TYPES.get(column.unit, "double"), column.unit.value, column.title, column.formula)
        for column in answer.columns
    )
    return TableSchema(name, "question", QUESTIONS[name].about, tuple(columns))
