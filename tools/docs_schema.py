"""Writes the columns of every table from the code: those of records into docs/reference/schema.md, those of answers
with their formulas into docs/reference/metrics.md; and of pages what `rankscope explain` and `rankscope tables` say,
into words.json. With --check only says whether one differs."""

from __future__ import annotations

import argparse
import hashlib
import inspect
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from markers import between, filled
from rankscope import SCHEMA_VERSION
from rankscope.api.runs import LIST_COLUMNS
from rankscope.api.schema import ColumnSchema, TableSchema, schema
from rankscope.api.words import TABLE_COLUMNS
from rankscope.model.tables import Column
from rankscope.questions.compare.tables import CHANGES
from rankscope.questions.history import tables as history
from rankscope.questions.imports import projection, replay, saving, staging
from rankscope.questions.imports.break_even import BREAK_EVEN_COLUMNS, FIT_COLUMNS
from rankscope.questions.imports.imports import IMPORT_COST_COLUMNS
from rankscope.questions.live import top
from rankscope.questions.page import gpu, ranks, step_times, steps, timeline
from rankscope.questions.registry import QUESTIONS
from rankscope.questions.run.screen import LABELS
from rankscope.questions.scaling import crossovers, scaling
from rankscope.questions.whatif import whatif
from rankscope.store.columns import RECORDS

DOCS = Path(__file__).resolve().parent.parent / "docs"
COMMAND = ".venv/bin/python tools/docs_schema.py"
# answers of commands other than report
OTHERS: dict[str, Sequence[Column]] = {
    "import_saving": saving.COLUMNS,
    "import_cost": IMPORT_COST_COLUMNS,
    "top": top.FIGURES,
    "replay": replay.OVERVIEW,
    "replay_operations": replay.OPERATIONS,
    "import_projection": projection.COLUMNS,
    "import_fit": FIT_COLUMNS,
    "import_break_even": BREAK_EVEN_COLUMNS,
    "staging": staging.STAGING_COLUMNS,
    "staging_nodes": staging.NODE_COLUMNS,
    "changes": CHANGES,
    "history": history.HISTORY_COLUMNS,
    "regressions": history.REGRESSION_COLUMNS,
    "slow_hosts": history.HOST_COLUMNS,
    "history_by": history.BY_COLUMNS,
    "history_runs": history.RUN_COLUMNS,
    "scale_laws": scaling.LAWS,
    "scale_speed_up": scaling.SPEED_UP,
    "scale_break_even": crossovers.COLUMNS,
    "whatif_model": whatif.MODEL_COLUMNS,
    "whatif": whatif.WHATIF_COLUMNS,
    "critical_path": whatif.PATH_COLUMNS,
    "runs": LIST_COLUMNS,
    "tables": TABLE_COLUMNS,
    "pages": (steps.START, *gpu.ADDED, *ranks.COLUMNS, *step_times.COLUMNS, *timeline.COLUMNS[:4]),
}


# ---------------------------------------------------------------------------------------------------------------------
# docs/reference/schema.md: the records
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


def record_section(table: TableSchema) -> Iterator[str]:
    told = comments(RECORDS[table.name]) if table.name in RECORDS else {}
    yield f"### {table.name}\n\n{table.about}\n\n| column | type | |\n|---|---|---|"
    for column in table.columns:
        about = "which process: the key to `ranks`" if column.name == "process" else told.get(column.name, "")
        about = re.sub(r"\bNone\b", "null", about)  # as SQL has it
        yield f"| `{column.name}` | {column.type} | {escaped(about)} |"
    yield ""


def fingerprint(tables: Sequence[TableSchema]) -> str:
    """Changes where a column goes, comes or changes its type: then SCHEMA_VERSION is looked at."""
    told = [
        (table.kind, table.name, column.name, column.type, column.unit) for table in tables for column in table.columns
    ]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:12]


def schema_page(page: str, tables: Sequence[TableSchema]) -> str:
    version = f"Version {SCHEMA_VERSION} (`rankscope.SCHEMA_VERSION`), columns {fingerprint(tables)}."
    records = (line for table in tables if table.kind == "records" for line in record_section(table))
    return filled(filled(page, "version", version), "records", "\n".join(records))


# ---------------------------------------------------------------------------------------------------------------------
# docs/reference/metrics.md: the answers
def metrics_page(page: str, tables: Sequence[TableSchema]) -> str:
    for table in tables:
        if table.kind == "question" and not QUESTIONS[table.name].is_wide:
            page = filled(page, f"columns {table.name}", "\n".join((f"{table.about}\n", *column_rows(table.columns))))
    page = filled(page, "labels", "\n".join(label_rows()))
    for name, columns in OTHERS.items():
        shown = [ColumnSchema(one.name, "", one.unit.value, one.title, one.formula) for one in columns]
        page = filled(page, f"columns {name}", "\n".join(column_rows(shown)))
    return page


def label_rows() -> Iterator[str]:
    yield "| label | what it means |\n|---|---|"
    yield from (f"| {label} | {escaped(text)} |" for label, text in LABELS.items())


def column_rows(columns: Sequence[ColumnSchema]) -> Iterator[str]:
    yield "| column | in reports | unit | formula |\n|---|---|---|---|"
    for column in columns:
        yield f"| `{column.name}` | {escaped(column.title)} | {column.unit} | {escaped(column.formula)} |"


def escaped(text: str) -> str:
    return text.replace("|", r"\|")


# ---------------------------------------------------------------------------------------------------------------------
PAGES = {"reference/schema.md": schema_page, "reference/metrics.md": metrics_page}
WORDS = DOCS.parent / "src" / "rankscope" / "api" / "words.json"
TABLE_ROW = re.compile(r"^\|(.*)\|$", re.MULTILINE)


def words() -> str:
    """What `rankscope explain` and `tables` say of metrics.md (words), findings.md (rules) and report.md (tables)."""
    metrics = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    defined = dict(table_rows(between_headings(metrics, "## Words"), 2))
    rules = {
        rule.strip("`"): told
        for names, *told in table_rows((DOCS / "reference" / "findings.md").read_text(encoding="utf-8"), 3)
        for rule in names.split(", ")
    }
    tables = {
        name.strip("`"): about
        for names, about in table_rows((DOCS / "commands" / "report.md").read_text(encoding="utf-8"), 2)
        for name in names.split(", ")
    }
    told = {"words": {word.strip("*"): text for word, text in defined.items()}, "rules": rules, "tables": tables}
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def between_headings(page: str, heading: str) -> str:
    return page.partition(f"\n{heading}\n")[2].partition("\n## ")[0]


def table_rows(text: str, columns: int) -> list[list[str]]:
    """The cells of tables of so many columns that begin with a name, without links."""
    found = [[plain(cell) for cell in row.split(" | ")] for row in TABLE_ROW.findall(text)]
    return [row for row in found if len(row) == columns and row[0].startswith(("`", "*"))]


def plain(cell: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a page is not up to date")
    is_check = parser.parse_args().check
    tables, stale = schema(), False
    for name, make in PAGES.items():
        before = (DOCS / name).read_text(encoding="utf-8")
        after = make(before, tables)
        if after == before:
            continue
        stale = True
        if is_check:
            print(f"docs/{name} is not what the code says: run {COMMAND}", file=sys.stderr)
            continue
        (DOCS / name).write_text(after, encoding="utf-8")
        if name == "reference/schema.md" and between(before, "version") != between(after, "version"):
            print(f"{between(after, 'version')} Did a column go or change its meaning? Then raise SCHEMA_VERSION.")
    if words() != (WORDS.read_text(encoding="utf-8") if WORDS.exists() else ""):
        stale = True
        if is_check:
            print(f"{WORDS.name} is not what the docs say: run {COMMAND}", file=sys.stderr)
        else:
            WORDS.write_text(words(), encoding="utf-8")
    return int(is_check and stale)


if __name__ == "__main__":
    sys.exit(main())
