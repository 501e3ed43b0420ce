"""Answers of a large run that no longer changes, kept beside its tables: nothing need be worked out twice.

An answer belongs to the files that it comes from, as they were then: to others, or others of them, it says nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankscope.model import Column, Table, Unit
from rankscope.store.cache import FOLDER, SWITCH, code_key, write_whole
from rankscope.store.foreign import ABOUT
from rankscope.store.host_groups import FILE
from rankscope.store.summary import Stamp, below, stamp_of

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
    told = [(below(run, path), stamp_of(path)) for path in beside if path.exists()]
    digest = hashlib.blake2b(repr((code_key(), told)).encode(), digest_size=12)
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
            told = json.loads(self._path(self.key, question).read_bytes())
            return told["answer"] if told["question"] == json.loads(json.dumps(question)) else None
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
                write_whole(self._path(key, question), data)

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
        kept = list((self._folder / key).iterdir())
        for path in kept if len(kept) >= MOST_FILES else ():
            path.unlink()


def _number(value: Any) -> Any:
    """A number of numpy as one of Python; anything else has no place in an answer."""
    if not hasattr(value, "item"):
        raise TypeError(type(value).__name__)
    return value.item()


def table_data(table: Table) -> dict[str, Any]:
    """A table as JSON has it."""
    columns = [(column.name, column.unit.value, column.title) for column in table.columns]
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
        columns = tuple(Column(name, Unit(unit), title) for name, unit, title in data["columns"])
        rows = [tuple(row) for row in data["rows"]]
        if any(len(row) != len(columns) for row in rows):
            return None
        texts = [str(text) for text in data["notes"]], [str(text) for text in data["warnings"]]
        return Table(str(data["name"]), str(data["title"]), columns, rows, *texts, vertical=bool(data["vertical"]))
    except (KeyError, TypeError, ValueError):
        return None
