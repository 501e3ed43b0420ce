"""Runs, or sets of repeats, held against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from os import PathLike
from pathlib import Path

from rankscope.api.frame import Frame
from rankscope.api.run import NoRun, Run
from rankscope.model.tables import Table, Wrong
from rankscope.output.html import to_html
from rankscope.pictures import Screen
from rankscope.questions.compare.measures import measures
from rankscope.questions.compare.page import comparison_page
from rankscope.questions.compare.tables import (
    changes_table,
    headline,
    limits_table,
    memory_table,
    sides_table,
    warnings_of,
)
from rankscope.questions.compare.verdicts import (
    EXCEEDED,
    BadLimit,
    CompareOptions,
    Comparison,
    LimitOutcome,
    Side,
    compare,
    outcomes,
    parse_limit,
)
from rankscope.questions.compare.verdicts import UNDECIDED as CANNOT_TELL
from rankscope.questions.selection import ALL, Selection
from rankscope.store.folder import DATE, find_run, is_run

__all__ = ["BadLimit", "CompareOptions", "Compared", "compared", "parse_limit", "side_of"]

Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Compared:
    """Every side against the first, and what came of the limits."""

    sides: list[Side]
    comparisons: list[Comparison]
    outcomes: list[LimitOutcome]

    def tables(self, selection: Selection = ALL) -> list[Table]:
        """What is compared, what changed, and the limits."""
        first = sides_table(self.sides)
        first.warnings += unquoted_pattern([run.source for side in self.sides for run in side.runs], len(self.sides))
        for comparison in self.comparisons:
            first.warnings += [text for text in warnings_of(comparison) if text not in first.warnings]
        tables = [first]
        for comparison in self.comparisons:
            tables += [changes_table(comparison, selection), memory_table(comparison)]
        return [*tables, *([limits_table(self.outcomes)] if self.outcomes else [])]

    def page_text(self) -> str:
        """The comparison as one HTML file that works offline."""
        screens = {side.name: [_screen(run.source) for run in side.runs] for side in self.sides}
        return to_html(comparison_page(self.comparisons, screens, self.tables()))

    def changes(self) -> Frame:
        """The changes of the second side."""
        return Frame(changes_table(self.comparisons[0]))

    def headlines(self) -> list[str]:
        return [headline(comparison) for comparison in self.comparisons]

    @property
    def exit_code(self) -> int:
        """1: a limit is exceeded; 2: of one it cannot be told; 0: neither."""
        verdicts = {outcome.verdict for outcome in self.outcomes}
        return 1 if EXCEEDED in verdicts else 2 if CANNOT_TELL in verdicts else 0

    @property
    def metrics(self) -> list[str]:
        return list(
            dict.fromkeys(str(change.metric) for comparison in self.comparisons for change in comparison.changes)
        )

    def __repr__(self) -> str:
        return "\n".join(self.headlines())


def compared(
    sides: Sequence[str | PathLike[str]],
    options: CompareOptions | None = None,
    fail_if: Sequence[str] = (),
    report: Told = lambda done, total: None,
) -> Compared:
    """Each side is a run, a folder of runs, a pattern, or several separated by commas; NAME= may come first."""
    if len(sides) < 2:
        raise Wrong("name at least two runs or sets of runs")
    limits = [parse_limit(text) for text in fail_if]
    given = options or CompareOptions()
    chosen = CompareOptions(given.equal, given.run_to_run, len(sides) - 1)
    named = [side_of(str(text)) for text in sides]
    names = _distinct([name for name, _ in named])
    total, done = sum(len(folders) for _, folders in named), 0
    loaded_sides = []
    for name, (_, folders) in zip(names, named, strict=True):
        runs = []
        for folder in folders:
            runs.append(measures(Run(folder).store(events=True), str(folder)))
            done += 1
            report(done, total)
        loaded_sides.append(Side(name, runs))
    comparisons = [compare(loaded_sides[0], other, chosen) for other in loaded_sides[1:]]
    return Compared(loaded_sides, comparisons, [outcome for each in comparisons for outcome in outcomes(each, limits)])


def _screen(folder: str) -> Screen:
    run = Run(folder)
    return run.screen(logs=run.reads_logs)


def side_of(text: str) -> tuple[str, list[Path]]:
    """The name of a side and the folders of its runs."""
    name, equals, rest = text.partition("=")
    if not equals or Path(text).exists() or "/" in name:
        name, rest = "", text
    parts = [rest] if Path(rest).exists() else [part for part in rest.split(",") if part]
    folders = list(dict.fromkeys(folder for part in parts for folder in _runs_of(part)))
    if not folders:
        raise NoRun(f"{text}: no run found: give a run's folder, a folder of runs, or a quoted pattern")
    return name or _short(rest, folders), folders


def _short(text: str, folders: Sequence[Path]) -> str:
    if len(folders) == 1:
        return folders[0].resolve().name
    return Path(text.rstrip("/*,-_.")).name or text


def _runs_of(part: str) -> list[Path]:
    places = [Path(part)] if Path(part).exists() else [Path(path) for path in sorted(glob(part))]
    if not places:
        with suppress(NoRun):  # then it is the name or the number of no run either
            places = [find_run(Path(part))]
    runs: list[Path] = []
    for place in places:
        if is_run(place):
            runs.append(place)
        elif place.is_dir():
            runs += [path for path in sorted(place.iterdir()) if is_run(path) and not path.is_symlink()]
    return runs


def unquoted_pattern(runs: Sequence[str], sides: int) -> list[str]:
    """What to type instead where a shell seems to have made a side of every repeat."""
    alike: dict[str, int] = {}
    for path in map(Path, runs):
        name = DATE.sub("*-", path.name, count=1)
        numbered = name.rstrip("0123456789")
        pattern = str(path.parent / (name if numbered == name else f"{numbered}*"))
        alike[pattern] = alike.get(pattern, 0) + 1
    if sides < 3 or len(runs) > sides or max(alike.values()) < 2:
        return []
    patterns = " ".join(f"'{pattern}'" for pattern in alike)
    return [f"{sides} sides of one run each. Repeats of one job are one side: quote their pattern, as in {patterns}"]


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that can be told apart: as they are, or with their number."""
    return [f"{name}#{at + 1}" if names.count(name) > 1 else name for at, name in enumerate(names)]
