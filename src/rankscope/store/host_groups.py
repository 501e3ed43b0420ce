"""Which hosts belong together, by a mapping file: lines of host and group, as those of one switch."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa

from rankscope.store.folder import NoRun

FILE = "groups.csv"  # in the folder of the run
HEADING = ("host", "group")


def read_host_groups(path: Path) -> dict[str, str]:
    """The group of each host."""
    found: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                words = [word.strip() for word in row]
                if not any(words) or tuple(words) == HEADING or words[0].startswith("#"):
                    continue
                if len(words) != len(HEADING) or not all(words):
                    raise NoRun(f"{path}:{number}: write a host and its group, with a comma between")
                found[words[0]] = words[1]
    except (OSError, UnicodeError, csv.Error) as problem:
        raise NoRun(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
    return found


def host_groups(path: Path | None, run: Path) -> dict[str, str]:
    """Of the file that was named, or of the one in the run's folder, if there is one."""
    chosen = path if path is not None else run / FILE
    return read_host_groups(chosen) if path is not None or chosen.is_file() else {}


def host_groups_table(path: Path | None, run: Path) -> pa.Table:
    """The same as a table."""
    found = host_groups(path, run)
    return pa.table({"host": pa.array(found, pa.string()), "group": pa.array(found.values(), pa.string())})
