"""Runs and the pages made of them."""

from __future__ import annotations

import tarfile
from pathlib import Path

from mpis import ROOT
from rankscope.cli.report import run as report

# everything is drawn and filled in
FILLED = {"do": "wait", "code": "[...document.querySelectorAll('.rows, .picture')].every((one) => one.children.length)"}
# what is folded is opened
UNFOLDED = {
    "do": "evaluate",
    "code": "document.querySelectorAll('main details').forEach((one) => { one.open = true; })",
}
# name, head and rows of every table, all rows
TABLES = """
    document.querySelectorAll('.more:not([hidden])').forEach((button) => button.click());
    [...document.querySelectorAll('.table')].map((table) => ({
        name: table.id.replace('table-', ''),
        title: table.querySelector('h3').textContent,
        head: [...table.querySelectorAll('thead th')].map((cell) => cell.textContent),
        rows: [...table.querySelectorAll('tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent)),
    }))"""


def page_of_run(run: Path, *options: str) -> Path:
    """The page of a run, made by the command, beside the run's folder."""
    page = run.with_suffix(".html")
    assert report([str(run), "--html", str(page), *options]) == 0
    return page


def gpu_run(folder: Path) -> Path:
    """Two ranks of DistributedDataParallel on one H200."""
    with tarfile.open(ROOT / "tests" / "runs" / "h200_runs.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "ddp"


def text_of(table: str) -> str:
    """The code that gives the rows of one table as they are shown, by the names of the columns."""
    place = f"document.querySelector('#table-{table} table')"
    names = f"[...{place}.querySelectorAll('thead button')].map((button) => button.title.split(': ')[0])"
    cells = "names.map((name, at) => [name, row.children[at].textContent])"
    return f"((names) => [...{place}.tBodies[0].rows].map((row) => Object.fromEntries({cells})))({names})"
