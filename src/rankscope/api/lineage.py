"""A run's whole life: the starts of one job, joined, and where their wall time went."""

from __future__ import annotations

from pathlib import Path

from rankscope.api.run import NoRun, Run
from rankscope.model.tables import Table
from rankscope.questions.run.goodput import Account, account, goodput_table
from rankscope.store.folder import find_run, lineage_of

__all__ = ["NoRun", "lineage_goodput", "other_accounts"]


def lineage_goodput(path: Path | None, alone: bool = False) -> Table:
    """Goodput of the job that a run is a start of, or of that run alone."""
    folder = find_run(path)
    earlier, unread = ([], []) if alone else other_accounts(folder)
    run_account = _account(folder)
    accounts = [*earlier, *([run_account] if run_account is not None else [])]
    table = goodput_table(sorted(accounts, key=lambda each: each.began_ns))
    table.warnings += [f"left out: {text}" for text in unread]
    if not table.rows:
        table.notes.append("Empty: no rank was recorded.")
    return table


def _account(folder: Path) -> Account | None:
    """With the logs of collectives, in which the steps of programs are that mark none."""
    run = Run(folder)
    return account(run.store(events=run.reads_logs))


def other_accounts(folder: Path) -> tuple[list[Account], list[str]]:
    """The wall time of the other starts of the job, and why some could not be read."""
    accounts: list[Account] = []
    unread: list[str] = []
    for attempt in lineage_of(folder):
        if attempt.resolve() == folder.resolve():
            continue
        try:
            run_account = _account(attempt)
        except NoRun as problem:
            unread.append(str(problem))
            continue
        accounts += [run_account] if run_account is not None else []
    return accounts, unread
