"""A study's folder: what was planned, and every cell as it ended. Nothing in it is ever half-written.

study.json                         what was asked for, and where it ran
cells/<cell>/cell.json             how the cell ended, and which attempt counts: written last, in one step
cells/<cell>/attempt-<n>/run/      the recorded run
cells/<cell>/attempt-<n>/results/  what each rank left
cells/<cell>/attempt-<n>/output.txt   what the launcher and the ranks printed
cells/<cell>/attempt-<n>/ended.json   how the command ended (guard.py); absent where it was stopped half-way
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankscope.studies.errors import BadStudy
from rankscope.studies.files import read_json, write_json
from rankscope.studies.plan import FINAL, Cell, Outcome

STUDY = "study.json"
CELL = "cell.json"
ATTEMPT = re.compile(r"attempt-(\d+)")


class Ledger:
    """The folder of one study, held by one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))  # ranks may go elsewhere

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else may run cells of this study; the system lets go when we end, however that is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError:
            raise BadStudy(f"{self.folder}: another process is running this study; wait for it or stop it") from None
        finally:
            os.close(lock)

    def describe(self, what: dict[str, Any]) -> None:
        write_json(self.folder / STUDY, what)

    def description(self) -> dict[str, Any]:
        return read_json(self.folder / STUDY) or {}

    def outcome(self, cell: Cell) -> Outcome:
        """How it ended, or that it waits."""
        place = self.folder / "cells" / cell.name
        record = read_json(place / CELL)
        if record is None or record.get("state") not in FINAL:
            return Outcome(cell)
        attempt = str(place / record["attempt"]) if record.get("attempt") else ""
        results = results_in(Path(attempt)) if attempt else []
        command = tuple(record.get("command", ()))
        return Outcome(
            cell, record["state"], record.get("reason", ""), record.get("seconds"), attempt, command, results
        )

    def attempts(self, cell: Cell) -> list[Path]:
        """In the order in which they were made."""
        place = self.folder / "cells" / cell.name
        numbered = [(int(name[1]), path) for path in place.glob("attempt-*") if (name := ATTEMPT.fullmatch(path.name))]
        return [path for _, path in sorted(numbered)]

    def new_attempt(self, cell: Cell) -> Path:
        """A folder that no earlier attempt has: one that was killed may have left processes that still write."""
        place = self.folder / "cells" / cell.name
        number = 1
        while True:
            try:
                (place / f"attempt-{number}").mkdir(parents=True)
                (place / f"attempt-{number}" / "results").mkdir()
                return place / f"attempt-{number}"
            except FileExistsError:
                number += 1

    def keep(self, outcome: Outcome) -> None:
        place = self.folder / "cells" / outcome.cell.name
        place.mkdir(parents=True, exist_ok=True)
        record = {
            "state": outcome.state,
            "reason": outcome.reason,
            "seconds": outcome.seconds,
            "attempt": os.path.basename(outcome.folder),
            "command": list(outcome.command),
            "values": dict(outcome.cell.values),
            "ranks": outcome.cell.ranks,
            "repeat": outcome.cell.repeat,
        }
        write_json(place / CELL, record)


def results_in(attempt: Path) -> list[dict[str, Any]]:
    """What the ranks left there, in their order."""
    results = [read_json(path) for path in (attempt / "results").glob("*.json")]
    return sorted((result for result in results if result is not None), key=lambda result: int(result.get("rank", 0)))
