"""What importing costs: of commands that are recorded for it, or of runs that were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rankscope.api.import_saving import CAUSES, import_command, metering_cost, record, saving
from rankscope.api.run import NoRun, Run
from rankscope.formats.library_paths import told_directories
from rankscope.model.tables import Table, Tables, Wrong
from rankscope.questions.imports.frameworks import calls_per_framework, frameworks_compared
from rankscope.questions.imports.modules import SORTS, TREE_DEPTH, View, import_icicle, import_tree
from rankscope.questions.imports.offenders import import_offenders
from rankscope.questions.imports.search import import_loader, loaded_objects
from rankscope.questions.registry import IMPORT_QUESTIONS, QUESTIONS
from rankscope.questions.selection import Selection
from rankscope.questions.wording import ending_text

__all__ = [
    "CAUSES",
    "IMPORT_QUESTIONS",
    "SORTS",
    "TREE_DEPTH",
    "NoRun",
    "Recording",
    "Selection",
    "View",
    "icicle",
    "import_command",
    "import_tables",
    "meter",
    "metering_cost",
    "open_recording",
    "saving",
]

# the others are long
UNASKED = ("imports", "import_offenders", "import_tree", "import_causes", "import_mounts")


@dataclass(frozen=True, slots=True)
class Recording:
    """One run and what it is called."""

    name: str
    run: Run
    command: list[str]  # empty where it was recorded before
    exit_code: int = 0

    @property
    def ending(self) -> str:
        return _ending(self.name, self.exit_code)


def open_recording(folder: Path | None) -> Recording:
    """A run that was recorded before, by default the latest."""
    return _opened(Recording("", Run(folder), []))


def meter(name: str, command: list[str], folder: Path, level: str) -> Recording:
    """Record one command; one that fails is there as far as it came."""
    if folder.exists() and any(folder.iterdir()):
        raise Wrong(f"{folder}: is not empty; name another folder with --out")
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = record(command, folder, level)
    try:
        return _opened(Recording(name, Run(folder), command, done.exit_code))
    except NoRun:
        raise Wrong(f"{_ending(name, done.exit_code)}; nothing was recorded") from None


def _ending(name: str, code: int) -> str:
    ending = ending_text("signalled", None, -code) if code < 0 else f"exit code {code}"
    return f"{name} ended with {ending}"


def _opened(recording: Recording) -> Recording:
    recording.run.store()  # says if there is nothing to open
    return recording


def import_tables(
    recordings: Sequence[Recording], names: Sequence[str], selection: Selection, view: View
) -> list[Table]:
    """The tables of these names, or the most useful, of each recording; several are also put side by side."""
    pairs: list[tuple[str, Tables]] = [(recording.name, recording.run.store()) for recording in recordings]
    if len(pairs) == 1:
        return [_answer(name, pairs[0][1], selection, view) for name in names or UNASKED]
    shown = [] if names else [calls_per_framework(pairs), frameworks_compared(pairs)]
    for name in names or ("import_offenders",):
        for title, tables in pairs:
            answer = _answer(name, tables, selection, view)
            shown.append(replace(answer, name=f"{title}/{answer.name}", title=f"{title}: {answer.title}"))
    return shown


def _answer(name: str, tables: Tables, selection: Selection, view: View) -> Table:
    if name == "import_loader":
        return import_loader(tables, selection, told_directories(loaded_objects(tables)))
    if name == "import_offenders":
        return import_offenders(tables, selection, told_directories(loaded_objects(tables)))
    if name == "import_tree":
        return import_tree(tables, selection, view)
    return QUESTIONS[name].answer(tables, selection)


def icicle(recordings: Sequence[Recording], selection: Selection) -> str:
    """Nested boxes, described in docs/commands/imports.md."""
    trees = [
        {**import_icicle(recording.run.store(), selection), "name": recording.name or "all processes"}
        for recording in recordings
    ]
    document = trees[0] if len(trees) == 1 else {"format": trees[0]["format"], "name": "several", "children": trees}
    return json.dumps(document) + "\n"
