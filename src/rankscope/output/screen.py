"""The first screen about a run: at most 40 lines of at most 100 columns, on any terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.output.cells import filled, heading, printable, shown, time_text, unbroken
from rankscope.output.text import fitting
from rankscope.pictures import Advice, Bar, Bars, Screen

MOST_LINES = 40
WIDEST_TEXT = 100  # what is read, not looked up, is no wider on any terminal
WIDEST_BAR = 36
LEAST_PROSE = 16
INDENT = "        "  # of what stands below a finding
STYLES = {
    "title": "1",
    "dim": "2",
    "problem": "1;31",
    "HIGH": "1;31",
    "CHECK": "1;31",
    "MED": "1;33",
    "LOW": "36",
    "ONCE": "36",
    "own": "32",  # bars: computing, communicating, nothing to do
    "comm": "33",
    "idle": "31",
}
Span = tuple[str, str]  # a text and its style, "" for none
Line = list[Span]


@dataclass(frozen=True, slots=True)
class Detail:
    """How much of it is shown: less where it would not fit."""

    findings: int
    proofs: int  # findings whose proof is shown
    whole_actions: int  # findings whose advice may take two lines
    ranks: int
    parts: int  # bars of depth 1 below each other
    notes: int  # lines of what was not checked


FEW_PARTS = 2  # where no more are shown, neither are the largest kernel and collective
DETAILS = (
    Detail(4, 4, 4, 8, 6, 3),
    Detail(4, 2, 4, 8, 6, 3),
    Detail(4, 1, 2, 8, 4, 2),
    Detail(4, 1, 1, 8, 3, 2),
    Detail(3, 1, 1, 8, 3, 1),
    Detail(3, 1, 1, 8, 2, 1),
    Detail(2, 1, 1, 8, 2, 1),
    Detail(3, 1, 1, 4, 3, 1),
    Detail(2, 1, 1, 4, 2, 1),
    Detail(1, 1, 1, 4, 2, 1),
)


def to_screen(screen: Screen, width: int, colour: bool = False) -> str:
    """The screen, with less detail where it would be longer than one."""
    lines: list[Line] = []
    for detail in DETAILS:
        lines = list(_lines(screen, width, detail))
        while lines and not lines[-1]:  # a study has nothing to go on with
            lines.pop()
        if len(lines) <= MOST_LINES:
            break
    return "".join(_painted(line, colour) + "\n" for line in lines[:MOST_LINES])


def _painted(line: Line, colour: bool) -> str:
    if colour:
        return "".join(f"\x1b[{STYLES[style]}m{text}\x1b[0m" if style else text for text, style in line).rstrip()
    return "".join(text for text, _ in line).rstrip()


def _lines(screen: Screen, width: int, detail: Detail) -> Iterator[Line]:
    text_width = min(width, WIDEST_TEXT)
    yield from _head(screen, text_width)
    if screen.bars is not None:
        yield []
        yield from _bars(screen.bars, text_width, detail)
        yield from _largest(screen, text_width) if detail.parts > FEW_PARTS else ()
    if screen.run is not None:
        yield []
        yield from _in_words(screen.run, text_width)
    yield []
    yield from _advice(screen, text_width, detail)
    if screen.ranks is not None and (len(screen.ranks.rows) > 1 or screen.ranks.title != "Ranks"):
        yield []
        yield from _ranks(screen.ranks, screen.ranks_note, width, detail)
    yield []
    yield from _not_checked(screen.not_checked, text_width, detail)
    yield from _more(screen, text_width)


# ---------------------------------------------------------------- what ran, and was all of it seen?
def _head(screen: Screen, width: int) -> Iterator[Line]:
    for problem in screen.problems[:3]:
        for line in _at_most(3, printable(problem), width, ""):
            yield [(line, "problem")]
    if len(screen.problems) > 3:
        yield [(f"  {len(screen.problems) - 3} more: --table coverage", "problem")]
    facts = ", ".join(printable(fact) for fact in screen.facts)
    name = _cut(printable(screen.name), max(20, width - len(facts) - len("rankscope    ")))
    yield [("rankscope  ", ""), (name, "title"), (_cut(f"   {facts}", width - len(name) - 11), "")]
    if not screen.problems:
        yield [(_cut(screen.completeness, width), "")]


# ---------------------------------------------------------------- where does the time go?
def _bars(bars: Bars, width: int, detail: Detail) -> Iterator[Line]:
    title = f"{bars.title.upper()} "
    figures = ""
    for text in (*(_figure(*figure) for figure in bars.figures), *([f"({bars.note})"] if bars.note else [])):
        figures += f"  {text}" if len(title) + len(figures) + len(text) + 2 <= width else ""
    yield [(title, "title"), (figures, "")]
    shown_bars = _few_parts(bars.bars, detail.parts)
    labels = [
        "  " * bar.depth + printable(bar.label.removeprefix("idle: ") if bar.depth else bar.label) for bar in shown_bars
    ]
    beside = min(34, max(12, *map(len, labels))) if labels else 12
    room = min(WIDEST_BAR, width - beside - 22)
    most = max((bar.share for bar in shown_bars), default=1.0) or 1.0
    for label, bar in zip(labels, shown_bars, strict=True):
        drawn = ("▒" if bar.depth else "█") * max(1, round(room * bar.share / most))
        style = "idle" if bar.label.startswith("idle") else "comm" if bar.label in COMMUNICATION else "own"
        yield [
            (f"  {_cut(label, beside):{beside}}  ", ""),
            (f"{drawn:{room}}", style),
            (f"{time_text(bar.ns):>9}  {_percent(bar.share):>5}", ""),
        ]


def _largest(screen: Screen, width: int) -> Iterator[Line]:
    """The kernel and the collective that cost most, in one line where there is room."""
    texts = [f"{what}: {_cut(printable(name), 44)} {_percent(share).strip()}" for what, name, share in screen.largest]
    one_line = "   ".join(texts)
    for text in [one_line] if texts and len(one_line) + 2 <= width else texts:
        yield [(_cut(f"  {text}", width), "")]


def _figure(label: str, value: Cell, unit: Unit) -> str:
    """`mean 12.5 ms`, but `318 steps`."""
    if unit is Unit.COUNT:
        return f"{shown(value, unit)} {label}{'s' * (value != 1)}"
    if unit is Unit.NUMBER and isinstance(value, int | float):
        return f"{value:,.0f} {label}" if value >= 999.5 else f"{value:.3g} {label}"
    return f"{label} {shown(value, unit)}"


COMMUNICATION = ("exposed communication", "wait", "transfer")


def _few_parts(bars: Sequence[Bar], most: int) -> list[Bar]:
    few: list[Bar] = []
    below = 0
    for bar in bars:
        below = below + 1 if bar.depth else 0
        if below <= most:
            few.append(bar)
    return few


def _percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _in_words(bars: Bars, width: int) -> Iterator[Line]:
    """One line: the parts by their size, and what is left."""
    yield [(bars.title.upper(), "title")]
    text, left = " ", 1.0
    for bar in bars.bars:
        piece = f" {printable(bar.label)} {_percent(bar.share)} "
        if bar.share < 0.015 or len(text) + len(piece) > width - len("  rest 100 %"):
            break
        text, left = f"{text}{piece} ", left - bar.share
    yield [(f"{text} rest {_percent(left)}" if left >= 0.005 else text, "")]


# ---------------------------------------------------------------- what to do
def _advice(screen: Screen, width: int, detail: Detail) -> Iterator[Line]:
    yield [("WHAT TO DO", "title")]
    if not screen.advice:
        for line in _wrapped(screen.verdict, width, "  "):
            yield [(line, "")]
    for number, advice in enumerate(screen.advice[: detail.findings], 1):
        first, *others = _at_most(3, printable(advice.title), width)
        yield [(f"{number} ", ""), (f"{advice.level:5}", advice.level), (first[len(INDENT) - 1 :], "")]
        yield from ([(line, "")] for line in others)
        for line in _saving(advice, width, number <= detail.whole_actions):
            yield [(line, "")]
        if number <= detail.proofs and advice.proofs:
            yield from ([(line, "dim")] for line in _proof(advice, width))
    left = len(screen.advice) - detail.findings
    if left > 0:
        yield [(f"  {left} more: --table findings", "dim")]


def _saving(advice: Advice, width: int, in_full: bool) -> list[str]:
    """How much, and how."""
    sentence = printable(advice.action)
    if advice.saved_ns is not None:
        sentence = f"save up to {time_text(advice.saved_ns)}{_shares(advice)}: {sentence}"
    return _at_most(3 if in_full else 1, f"→ {sentence}", width)


def _shares(advice: Advice) -> str:
    """Of the steps, which a longer job has more of, and of this run."""
    shares = ((advice.steps_share, "steps"), (advice.share, "run"))
    texts = [f"{_percent(share)} of the {what}" for share, what in shares if share is not None]
    return f" ({', '.join(texts)})" if texts else ""


def _proof(advice: Advice, width: int) -> list[str]:
    """The first proof in words and the option that shows the tables."""
    (_, text), tables = advice.proofs[0], ",".join(dict.fromkeys(table for table, _ in advice.proofs))
    command = f" (--table {tables})"
    *before, last = _at_most(2, f"proof: {printable(text)}", width)
    if before:
        return [*before, _cut(last, width - len(command)) + command]
    return [last + command] if len(last + command) <= width else [last, INDENT[:-1] + command]


def _at_most(lines: int, text: str, width: int, first: str = INDENT) -> list[str]:
    """The text in so many lines; what does not fit is cut."""
    wrapped = _wrapped(text, width, first)
    if len(wrapped) > lines:
        last = wrapped[lines - 1]
        wrapped = [*wrapped[: lines - 1], (last if len(last) + 2 <= width else last.rpartition(" ")[0]) + " …"]
    return wrapped


# ---------------------------------------------------------------- ranks
def _ranks(table: Table, note: str, width: int, detail: Detail) -> Iterator[Line]:
    title, rows = table.title.upper(), table.rows[: detail.ranks]
    shown_columns = filled(table.columns, table.rows)
    cells = {at: _cells(table.columns[at], [row[at] for row in rows]) for at in shown_columns}
    widths = {at: max(len(text) for text in texts) + 2 for at, texts in cells.items()}
    prose = next((at for at in shown_columns if table.columns[at].name == "finding"), None)
    if prose is not None:  # takes what the others leave
        widths[prose] = max(LEAST_PROSE, min(widths[prose], width - 2 - sum(widths.values()) + widths[prose]))
        cells[prose] = [_cut(text, widths[prose] - 2) for text in cells[prose]]
    chosen, dropped = fitting(table.columns, widths, width - 2)
    for number in range(len(rows) + 1):
        line = "".join(_aligned(table.columns[at], cells[at][number], widths[at]) for at in chosen)
        yield [(f"  {line}", "")] if number else [(title, "title"), (f"  {line}"[len(title) :], "dim")]
    remarks = [*table.notes, note]
    left = len(table.rows) - len(rows)
    remarks += [f"{left} more{MORE_ROWS.get(table.title, '')}"] if left > 0 else []
    remarks += ["dropped: " + ", ".join(heading(table.columns[at]) for at in dropped)] if dropped else []
    if any(remarks):
        yield [(_cut("  " + "; ".join(text for text in remarks if text), min(width, WIDEST_TEXT)), "dim")]


MORE_ROWS = {"Ranks": ": --table ranks", "Figures": ": --table figures"}
LEFT = ("who", "host", "series", "what", "cell", "finding")


def _cells(column: Column, values: Sequence[Cell]) -> list[str]:
    return [_rank_heading(column), *(shown(value, column.unit) for value in values)]


def _rank_heading(column: Column) -> str:
    """The heading of the section stands for that of the first columns."""
    if column.name in ("series", "cell"):
        return " " * len("FIGURES")
    return " " * len("RANKS") if column.name == "rank" else "" if column.name == "who" else heading(column)


def _aligned(column: Column, text: str, width: int) -> str:
    if column.unit is Unit.NAME and column.name in LEFT:
        return f"  {text:{width - 2}}"
    return f"{text:>{width}}"


# ---------------------------------------------------------------- where to go on
def _not_checked(notes: Sequence[str], width: int, detail: Detail) -> Iterator[Line]:
    if not notes:
        return
    whats: list[str] = []
    for what in map(_what, notes):
        whats += [] if any(what in other for other in whats) else [what]
    summary = "; ".join(whats)
    lines = _wrapped(f"Not checked: {printable(summary)} (why: --table findings)", width, "")
    if len(lines) > detail.notes:
        summary = _cut("Not checked: " + printable(summary), width * detail.notes - len(" (why: --table findings)") - 8)
        lines = _wrapped(f"{summary} (why: --table findings)", width, "")
    yield from ([(line, "")] for line in lines)


def _what(note: str) -> str:
    """`Not checked: this and that. Why.`: the first half."""
    return note.partition(": ")[2].partition(". ")[0].rstrip(".") or note


def _more(screen: Screen, width: int) -> Iterator[Line]:
    tables = list(screen.tables)
    if not screen.tables and not screen.rank_count:  # a study
        return
    line = "More: --full | --html run.html"
    while tables and len(f"{line} | --table {','.join(tables)}") > width:
        tables.pop()
    yield [(f"{line} | --table {','.join(tables)}" if tables else line, "dim")]
    yield [("      rankscope tables | rankscope explain WORD | rankscope export (Perfetto)", "dim")]


# ---------------------------------------------------------------- words
def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)].rstrip() + "…"


def _wrapped(text: str, width: int, first: str) -> list[str]:
    """Lines of at most that width, all but the first indented as the first is."""
    indent = INDENT if first == INDENT else "  "
    lines = textwrap.wrap(unbroken(text), width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines] or [first]
