"""A run's whole life: the starts of one job, joined, and where their wall time went."""

from __future__ import annotations

from pathlib import Path

from rankscope.api.run import NoRun, Run
from rankscope.model.tables import Table
from rankscope.questions.run.goodput import Account, account, goodput_table
from rankscope.store.folder import find_run, lineage_of

__all__ = ["NoRun", "lineage_goodput"]


def lineage_goodput(path: Path | None, alone: bool = False) -> Table:
    """Goodput of the job that a run is a start of, or of that run alone."""
    folder = find_run(path)
    accounts: list[Account] = []
    unread: list[str] = []
    for one in [folder] if alone else lineage_of(folder):
        try:
            made = account(Run(one).store())
        except NoRun as problem:
            if one == folder:
                raise
            unread.append(str(problem))
            continue
        accounts += [made] if made is not None else []
    table = goodput_table(sorted(accounts, key=lambda one: one.began_ns))
    table.warnings += [f"left out: {text}" for text in unread]
    if not table.rows:
        table.notes.append("Empty: no rank was recorded.")
    return table
