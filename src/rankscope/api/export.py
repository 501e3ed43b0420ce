"""A run for other tools: a timeline, its tables, or metrics for a scrape. What is written is whole or not there."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rankscope import SCHEMA_VERSION
from rankscope.api.frame import Frame
from rankscope.api.run import Run
from rankscope.model.tables import Wrong
from rankscope.output.chrome import chrome_pieces
from rankscope.output.csv import csv_pieces, to_csv
from rankscope.output.json import to_json
from rankscope.output.perfetto import perfetto_pieces
from rankscope.output.prometheus import to_prometheus
from rankscope.pictures import Slices
from rankscope.questions.events.events import EVENTS_COLUMNS, events_sql
from rankscope.questions.events.timeline import begin_of, in_order, timeline
from rankscope.questions.metrics import scrape
from rankscope.questions.registry import QUESTIONS
from rankscope.questions.selection import ALL, Selection
from rankscope.store.columns import RECORDS
from rankscope.whole_file import write_whole

__all__ = ["EVENTS_COLUMNS", "FOLDERS", "FORMS", "events_csv", "export"]

FORMS = ("perfetto", "chrome", "parquet", "csv", "json", "prometheus")
FOLDERS = ("parquet", "csv", "json")
ROWS = 100_000

Told = Callable[[int], None]  # how many events so far


def events_csv(run: Run, selection: Selection) -> Iterator[str]:
    """The events in pieces, as they may be more than memory holds."""
    run.ranks_shown(selection)
    return csv_pieces(EVENTS_COLUMNS, run.batches(events_sql(selection)))


def export(run: Run, form: str, out: Path, report: Told = lambda events: None) -> str:
    """Write the run in that form; gives a line that says what was written."""
    if form not in FORMS:
        raise Wrong(f"{form}: unknown format; choose one of {', '.join(FORMS)}")
    if form in FOLDERS:
        return _folder(run, form, out)
    if form == "prometheus":
        text = to_prometheus(scrape(run.store(events=run.is_small)))
        _whole(out, [text.encode()])
        return f"{text.count(chr(10))} lines"
    trace = timeline(run.store(events=True))
    counted = _Counted(report)
    if form == "perfetto":
        ordered = ((block, *in_order(block.start_ns, block.end_ns)) for block in counted.through(trace.slices()))
        _whole(out, perfetto_pieces(trace.actors, ordered))
    else:
        texts = chrome_pieces(
            trace.actors, counted.through(trace.slices()), begin_of(trace.tables), trace.first_of_flows()
        )
        _whole(out, (text.encode() for text in texts))
    return f"{counted.slices} slices on {len(trace.tracks)} tracks"


class _Counted:
    def __init__(self, report: Told) -> None:
        self.slices, self._told = 0, report

    def through(self, slices: Iterable[Slices]) -> Iterator[Slices]:
        for block in slices:
            yield block
            self.slices += len(block.start_ns)
            self._told(self.slices)


def _whole(out: Path, pieces: Iterable[bytes]) -> None:
    try:
        write_whole(out, pieces)
    except OSError as problem:
        raise Wrong(f"{out}: cannot be written: {problem.strerror}") from None


def _folder(run: Run, form: str, out: Path) -> str:
    """One file a table: records/NAME, questions/NAME, and schema.json."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise Wrong(f"{out}: already exists; choose a new or empty folder")
    try:
        draft = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as problem:
        raise Wrong(f"{out}: cannot be created: {problem.strerror}") from None
    try:
        draft.chmod(0o755)
        row_counts = _fill(run, form, draft)
        about = {"schema_version": SCHEMA_VERSION, "rows": row_counts}
        (draft / "schema.json").write_text(json.dumps(about, indent=1) + "\n")
        if out.exists():
            out.rmdir()
        draft.rename(out)
    except OSError as problem:
        raise Wrong(f"{out}: cannot be written: {problem.strerror}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return f"{len(row_counts)} tables"


def _fill(run: Run, form: str, folder: Path) -> dict[str, int]:
    store = run.store(events=True)
    rows: dict[str, int] = {}
    for kind in ("records", "questions"):
        (folder / kind).mkdir()
    for name in ("run", *RECORDS):
        batches = store.arrow_batches(f'SELECT * FROM "{name}"', rows=ROWS)
        schema = store.arrow(f'SELECT * FROM "{name}" LIMIT 0').schema
        rows[f"records/{name}"] = WRITERS[form](folder / "records" / f"{name}.{form}", schema, batches)
    for name in QUESTIONS:
        if name == "events":
            continue  # its rows are records/events
        [table] = run.answers([name], ALL)
        path = folder / "questions" / f"{name}.{form}"
        if form == "parquet":
            pq.write_table(Frame(table).to_arrow(), path)
        else:
            path.write_text(to_csv([table]) if form == "csv" else to_json([table]), encoding="utf-8")
        rows[f"questions/{name}"] = len(table.rows)
    return rows


def _parquet(path: Path, schema: Any, batches: Iterable[Any]) -> int:
    rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
            rows += batch.num_rows
    return rows


def _csv(path: Path, schema: Any, batches: Iterable[Any]) -> int:
    rows = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(schema.names)
        for batch in batches:
            writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            rows += batch.num_rows
    return rows


def _json(path: Path, schema: Any, batches: Iterable[Any]) -> int:
    """One object a line: records may be more than a program wants to hold."""
    rows = 0
    with path.open("w", encoding="utf-8") as file:
        for batch in batches:
            buffer = io.StringIO()
            for row in batch.to_pylist():
                buffer.write(json.dumps(row) + "\n")
            file.write(buffer.getvalue())
            rows += batch.num_rows
    return rows


WRITERS: dict[str, Callable[[Path, Any, Iterable[Any]], int]] = {"parquet": _parquet, "csv": _csv, "json": _json}
