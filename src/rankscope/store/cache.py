"""The tables of many rank files, kept as Parquet in the run's folder: an index, and a few files for each batch.

Nothing in it is needed: what is missing, damaged or of another version of rankscope is made again from the rank files.
A file is written beside its place and renamed, the index last, so that nobody ever sees half of one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import rankscope
from rankscope.model.tables import Column, Table, Unit
from rankscope.store.folder import FILE
from rankscope.store.foreign import ABOUT
from rankscope.store.rank_files import Batch, Stamp, Summary, below, stamp_of
from rankscope.whole_file import write_whole

FORMAT = 1
FOLDER = "tables"  # in the folder of the run
INDEX = "index.json"
SWITCH = "RANKSCOPE_TABLES"
ABANDONED_S = 3600  # after which a file that no index names is taken away: its writer is gone
ALIVE = 0.5  # of the files of a batch that must be as they were for it to be of use
CODE = ("rank_files", "formats", "store", "questions", "api")


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch: where its tables are, and which files they come from."""

    folder: Path
    name: str
    events: bool
    files: Mapping[int, str]  # process there, path below the run
    stamps: Mapping[int, Stamp]  # of those that will not change any more
    bad: Mapping[int, str]
    sizes: Mapping[str, int]  # bytes of each table
    rows: Mapping[str, int]

    def path(self, table: str) -> Path:
        return self.folder / f"{self.name}.{table}.parquet"

    def is_same(self, here: Mapping[int, int]) -> bool:
        """Whether its processes have the same numbers in the run, and none of them is gone."""
        return len(here) + len(self.bad) == len(self.files) and all(there == number for there, number in here.items())

    @property
    def is_whole(self) -> bool:
        try:
            return all(self.path(table).stat().st_size == size for table, size in self.sizes.items())
        except OSError:
            return False


@cache
def code_key() -> str:
    """Another version of what reads and answers makes other tables, also one of a working tree."""
    package = Path(rankscope.__file__).parent
    files = [*sorted(package.glob("*.py")), *sorted((package / "native").glob("*.so"))]
    files += [path for name in CODE for path in sorted((package / name).rglob("*.py"))]
    stamps = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.blake2b(repr((FORMAT, rankscope.__version__, stamps)).encode(), digest_size=8).hexdigest()


class Kept:
    """The kept tables of one run, or a folder that goes with this object where nothing may be kept."""

    def __init__(self, run: Path, wanted: bool) -> None:
        self.run = run
        self.folder = _writable(run / FOLDER) if wanted and os.environ.get(SWITCH) != "off" else None
        self._passing = tempfile.TemporaryDirectory(prefix="rankscope-tables-")
        self.entries = _read_index(self.folder) if self.folder is not None else []

    @property
    def passing(self) -> Path:
        """A place for what goes with this object."""
        return Path(self._passing.name)

    def add(self, batch: Batch, summary: Summary, events: bool) -> Entry:
        """Write the tables of a batch; to stay only if most of its files will not change any more."""
        stays = len(summary.stamps) >= ALIVE * len(batch)
        folder = self.folder if self.folder is not None and stays else self.passing
        files = {process: below(self.run, path) for process, path in batch}
        identity = repr((code_key(), events, files, sorted(summary.stamps.items()), os.getpid()))
        name = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()
        sizes = {table: len(data) for table, data in summary.tables.items()}
        entry = Entry(folder, name, events, files, summary.stamps, summary.bad, sizes, summary.rows)
        try:
            for table, data in summary.tables.items():
                write_whole(entry.path(table), [data])
        except OSError:  # no room, no right: without keeping anything
            if folder != self.folder:
                raise
            self.folder = None
            return self.add(batch, summary, events)
        return entry

    def finish(self, entries: Iterable[Entry]) -> None:
        """Let the index name these, and take away what it no longer names."""
        if self.folder is None:
            return
        staying = [entry for entry in entries if entry.folder == self.folder]
        batches = {entry.name: _told(entry) for entry in staying}
        if batches == {
            entry.name: _told(entry) for entry in self.entries
        }:  # also of the same sizes: one was made again
            return
        index = {"format": FORMAT, "code": code_key(), "batches": list(batches.values())}
        with suppress(OSError):
            write_whole(self.folder / INDEX, [json.dumps(index).encode()])
            _sweep(self.folder, {entry.name for entry in staying})


def _writable(folder: Path) -> Path | None:
    """The folder if it can be written to; a run that was copied to a read-only place is read all the same."""
    try:
        folder.mkdir(exist_ok=True)
        return folder if os.access(folder, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def _told(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "events": entry.events,
        "files": [[process, path, entry.stamps.get(process)] for process, path in entry.files.items()],
        "sizes": entry.sizes,
        "rows": entry.rows,
    }


def _read_index(folder: Path) -> list[Entry]:
    """The batches of which everything is there; none where the index cannot be believed."""
    try:
        index = json.loads((folder / INDEX).read_bytes())
        if index["format"] != FORMAT or index["code"] != code_key():
            return []
        entries = [_entry(folder, stored_entry) for stored_entry in index["batches"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []
    return [entry for entry in entries if entry.is_whole]


def _entry(folder: Path, stored: Mapping[str, Any]) -> Entry:
    files: Sequence[tuple[int, str, Any]] = stored["files"]
    name = str(stored["name"])
    if not name.isalnum():
        raise ValueError(name)  # would lead elsewhere
    return Entry(
        folder,
        name,
        bool(stored["events"]),
        {int(process): str(path) for process, path, _ in files},
        {int(process): (int(at[0]), int(at[1]), int(at[2])) for process, _, at in files if at is not None},
        {},  # bad files are read again
        {str(table): int(size) for table, size in stored["sizes"].items()},
        {str(table): int(rows) for table, rows in stored["rows"].items()},
    )


def _sweep(folder: Path, named: set[str]) -> None:
    for path in folder.glob("*.parquet"):
        if path.name.partition(".")[0] not in named and path.stat().st_mtime < time.time() - ABANDONED_S:
            path.unlink()


# ---------------------------------------------------------------------------------------------------------------------
# Answers of a large run that no longer changes, kept beside its tables: nothing need be worked out twice.
# An answer belongs to the files that it comes from, as they were then: to others, or others of them, it says nothing.
ANSWERS = "answers"
MOST_FILES = 512
MOST_BYTES = 64 << 20  # of one answer


def fingerprint(run: Path, stamps: Mapping[str, Stamp]) -> str:
    """What a run is made of: its rank files with their stamps, its description, what was loaded, and our own code."""
    beside = [
        run / "run.json",
        run / FILE,
        *sorted(run.glob(f"loaded/[!.]*/{ABOUT}")),
        *sorted(run.glob("unrecorded/*")),
    ]
    states = [(below(run, path), stamp_of(path)) for path in beside if path.exists()]
    digest = hashlib.blake2b(repr((code_key(), states)).encode(), digest_size=12)
    for path in sorted(stamps):
        digest.update(f"{path}\0{stamps[path]}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


class Answers:
    """The kept answers of one run."""

    def __init__(self, run: Path, files: Sequence[Path], wanted: bool) -> None:
        self._run = run
        self._folder = run / FOLDER / ANSWERS if wanted and os.environ.get(SWITCH) != "off" else None
        self.key = ""
        with suppress(OSError):  # a file that has gone meanwhile: then there is no answer
            self.key = fingerprint(run, {below(run, path): stamp_of(path) for path in files})

    def get(self, question: Sequence[Any]) -> Any | None:
        """What was kept of a question, None where nothing was."""
        if self._folder is None or not self.key:
            return None
        try:
            stored = json.loads(self._path(self.key, question).read_bytes())
            return stored["answer"] if stored["question"] == json.loads(json.dumps(question)) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, stamps: Mapping[str, Stamp] | None, question: Sequence[Any], answer: Any) -> None:
        """Keep an answer that comes from files with these stamps; None: from files that may still change."""
        if self._folder is None or stamps is None:
            return
        with suppress(OSError, TypeError):  # without it everything works as well
            key = fingerprint(self._run, stamps)
            data = json.dumps({"question": question, "answer": answer}, default=_number).encode()
            if len(data) <= MOST_BYTES:
                self._make_room(key)
                write_whole(self._path(key, question), [data])

    def _path(self, key: str, question: Sequence[Any]) -> Path:
        assert self._folder is not None
        name = hashlib.blake2b(json.dumps(question).encode(), digest_size=12).hexdigest()
        return self._folder / key / f"{name}.json"

    def _make_room(self, key: str) -> None:
        """Only those of one state of the run, and not too many."""
        assert self._folder is not None
        (self._folder / key).mkdir(parents=True, exist_ok=True)
        for other in self._folder.iterdir():
            if other.name != key:
                shutil.rmtree(other, ignore_errors=True)
        answers = list((self._folder / key).iterdir())
        for path in answers if len(answers) >= MOST_FILES else ():
            path.unlink()


def _number(value: Any) -> Any:
    """A number of numpy as one of Python; anything else has no place in an answer."""
    if not hasattr(value, "item"):
        raise TypeError(type(value).__name__)
    return value.item()


def table_data(table: Table) -> dict[str, Any]:
    """A table as JSON has it."""
    columns = [(column.name, column.unit.value, column.title, column.formula) for column in table.columns]
    return {
        "name": table.name,
        "title": table.title,
        "columns": columns,
        "rows": table.rows,
        "notes": table.notes,
        "warnings": table.warnings,
        "vertical": table.vertical,
    }


def table_of(data: Any) -> Table | None:
    """The table again; None where it is none."""
    try:
        columns = tuple(Column(name, Unit(unit), title, formula) for name, unit, title, formula in data["columns"])
        rows = [tuple(row) for row in data["rows"]]
        if any(len(row) != len(columns) for row in rows):
            return None
        texts = [str(text) for text in data["notes"]], [str(text) for text in data["warnings"]]
        return Table(str(data["name"]), str(data["title"]), columns, rows, *texts, vertical=bool(data["vertical"]))
    except (KeyError, TypeError, ValueError):
        return None
