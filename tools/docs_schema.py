"""Writes docs/schema.md, the columns of every table, from the code; with --check only says whether it differs."""

from __future__ import annotations

import argparse
import hashlib
import inspect
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from markers import between, filled
from rankscope import SCHEMA_VERSION
from rankscope.api.schema import TableSchema, schema
from rankscope.questions.registry import QUESTIONS
from rankscope.store.columns import RECORDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "schema.md"
COMMAND = ".venv/bin/python tools/docs_schema.py"


def comments(record: type) -> dict[str, str]:
    """What the source says beside each field of a record, those it inherits first."""
    above = record.__base__
    found = comments(above) if above is not None and above is not object else {}
    name = ""
    for token in tokenize.generate_tokens(io.StringIO(inspect.getsource(record)).readline):
        if token.type == tokenize.NAME and token.start[1] == 4:
            name = token.string
        elif token.type == tokenize.COMMENT and name:
            found[name] = token.string.lstrip("# ")
        elif token.type == tokenize.NEWLINE:
            name = ""
    return found


def section(table: TableSchema) -> Iterator[str]:
    yield f"### {table.name}\n"
    yield f"{table.about}\n"
    if table.kind == "records":
        told = comments(RECORDS[table.name]) if table.name in RECORDS else {}
        yield "| column | type | |\n|---|---|---|"
        for column in table.columns:
            about = "which process: the key to `ranks`" if column.name == "process" else told.get(column.name, "")
            yield f"| `{column.name}` | {column.type} | {about.replace('|', chr(92) + '|')} |"
    elif table.kind == "question" and QUESTIONS[table.name].is_wide:
        yield "Its columns depend on the run: one for each step, or rank."
    else:
        yield "| column | unit | in reports |\n|---|---|---|"
        for column in table.columns:
            yield f"| `{column.name}` | {column.unit} | {column.title} |"
    yield ""


def text(kind: str) -> str:
    return "\n".join(line for table in schema() if table.kind == kind for line in section(table))


def fingerprint() -> str:
    """Changes where a column goes, comes or changes its type: then SCHEMA_VERSION is looked at."""
    told = [
        (table.kind, table.name, column.name, column.type, column.unit)
        for table in schema()
        for column in table.columns
    ]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:12]


def made(page: str) -> str:
    page = filled(page, "version", f"Version {SCHEMA_VERSION} (`rankscope.SCHEMA_VERSION`), columns {fingerprint()}.")
    for kind in ("records", "question"):
        page = filled(page, kind, text(kind))
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page is not up to date")
    page = PAGE.read_text(encoding="utf-8")
    if parser.parse_args().check:
        if made(page) == page:
            return 0
        print(f"docs/schema.md is not what the code says: run {COMMAND}", file=sys.stderr)
        return 1
    before, after = between(page, "version"), between(made(page), "version")
    PAGE.write_text(made(page), encoding="utf-8")
    if before not in ("", after):
        print(f"{before}\n{after}\nDid a column go or change its meaning? Then raise SCHEMA_VERSION.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
