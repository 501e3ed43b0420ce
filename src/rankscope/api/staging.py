"""What recorded runs say of staging: the files to pack, and how long both ways took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankscope.api.run import NoRun, Run
from rankscope.model.tables import Table
from rankscope.questions.imports.projection import has_table
from rankscope.questions.imports.staging import BothWays, StagingNotes, staging
from rankscope.stage.build_bundle import NoRehearsal
from rankscope.stage.compare import reports
from rankscope.stage.contents import LOOKED_AT, OPENED, Touched, add

OPENING = ("open", "exec", "list")
NO_PATHS = "has no paths: record it with rankscope run --imports paths"


def touched_in(folder: str) -> Touched:
    """What the processes of a run, recorded with --imports paths, asked for and found."""
    try:
        tables = Run(folder).store()
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


def staging_tables(folders: Sequence[Path]) -> tuple[list[Table], list[Path]]:
    """The tables of what `rankscope stage --times` noted, a folder for each number of nodes; and notes not readable."""
    unread: list[Path] = []
    return staging([_noted(folder, unread) for folder in folders]), unread


def _noted(folder: Path, unread: list[Path]) -> BothWays:
    """The notes in a folder: of both ways, each in folders of its own; a folder of --times alone is one way."""
    compared = BothWays()
    for part in sorted([folder, *(child for child in folder.iterdir() if child.is_dir())]):
        timed = StagingNotes(reports(part, "rank", unread), reports(part, "node", unread))
        if timed.ranks:
            way = compared.staged if timed.nodes else compared.in_place
            way.append(timed)
    return compared
