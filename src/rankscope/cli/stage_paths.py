"""The files that a recorded run asked for, for `rankscope stage --run` and `--method paths`."""

from __future__ import annotations

from pathlib import Path

from rankscope.analyse.import_counts import has_table
from rankscope.rank_files.read import read_rank_file
from rankscope.stage.rehearsal import NoRehearsal
from rankscope.stage.touched import LOOKED_AT, OPENED, Touched, add
from rankscope.store.folder import NoRun
from rankscope.store.run import open_run

OPENING = ("open", "exec", "list")
NO_PATHS = "has no paths: record it with rankscope run --imports paths"


def touched_in(folder: str) -> Touched:
    """What the processes of a run, recorded with --imports paths, asked for and found."""
    try:
        tables = open_run(Path(folder), read_rank_file, events=False)
    except NoRun as error:
        raise NoRehearsal(str(error)) from None
    if not has_table(tables, "paths"):
        raise NoRehearsal(f"{folder} {NO_PATHS}")
    touched: Touched = {}
    for operation, path in tables.query("SELECT DISTINCT operation, path FROM paths WHERE result = 'ok'"):
        add(touched, path, OPENED if operation in OPENING else LOOKED_AT)
    if not touched:
        raise NoRehearsal(f"{folder} {NO_PATHS}")
    return touched
