"""A comparison as tables, and in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.model import Cell, Column, Table, Unit
from rankscope.questions.compare.verdicts import (
    CANNOT_TELL,
    EQUAL,
    EXCEEDED,
    LEVEL,
    Change,
    Comparison,
    LimitOutcome,
    Side,
    no_cpu_share,
)
from rankscope.questions.compare.verdicts import UNDECIDED as UNTOLD
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import counted

KINDS = ("total", "step", "part", "phase", "layer", "operation", "kernel", "range")
SIDES = (
    Column("side", Unit.NAME, "Side"),
    Column("runs", Unit.COUNT, "Runs", "number of runs of the side"),
    Column("ranks", Unit.NAME, "Ranks"),
    Column("hosts", Unit.NAME, "Hosts"),
    Column("steps", Unit.NAME, "Steps"),
    Column("command", Unit.NAME, "Command"),
)
CHANGES = (
    Column("metric", Unit.NAME, "Metric"),
    Column("kind", Unit.NAME, "Kind"),
    Column("before_ns", Unit.NS, "Before", "median of the metric over the runs of the first side"),
    Column("after_ns", Unit.NS, "After", "median of the metric over the runs of the other side"),
    Column("difference_ns", Unit.NS, "Difference", "`after_ns` − `before_ns`"),
    Column("change", Unit.SHARE, "Change", "median of the other side ÷ median of the first side − 1"),
    Column("low", Unit.SHARE, "From", "lower end of the 95 % interval of `change`"),
    Column("high", Unit.SHARE, "To", "upper end of the 95 % interval of `change`"),
    Column("verdict", Unit.NAME, "Verdict"),
    Column(
        "chance",
        Unit.NUMBER,
        "Chance",
        "share of the exchanges of runs between the sides that shift the metric as much, with all metrics of "
        "the table looked at together",
    ),
)
MEMORY = (
    Column("metric", Unit.NAME, "Metric"),
    Column("before_bytes", Unit.BYTES, "Before", "median of the metric over the runs of the first side"),
    Column("after_bytes", Unit.BYTES, "After", "median of the metric over the runs of the other side"),
    Column("change", Unit.SHARE, "Change", "median of the other side ÷ median of the first side − 1"),
    Column("low", Unit.SHARE, "From", "lower end of the 95 % interval of `change`"),
    Column("high", Unit.SHARE, "To", "upper end of the 95 % interval of `change`"),
    Column("verdict", Unit.NAME, "Verdict"),
    Column(
        "chance",
        Unit.NUMBER,
        "Chance",
        "share of the exchanges of runs between the sides that shift the metric as much, with all metrics of "
        "the table looked at together",
    ),
)
LIMITS = (
    Column("limit", Unit.NAME, "Fails if"),
    Column("verdict", Unit.NAME, "Verdict"),
    Column("why", Unit.NAME, "Because"),
)
MOST_NAMED = 3
SHARED_CPUS = 0.1  # of the step without a CPU


def sides_table(sides: Sequence[Side]) -> Table:
    """What is compared."""
    table = Table("sides", "Compared", SIDES, [])
    for side in sides:
        runs = side.runs
        hosts = {host for one in runs for host in one.hosts}
        told = "; ".join(sorted({command for one in runs for command in one.commands})[:MOST_NAMED])
        numbers = (_span([one.ranks for one in runs]), len(hosts), _span([one.steps for one in runs]))
        table.rows.append((side.name, len(runs), numbers[0], numbers[1], numbers[2], told))
    return table


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def changes_table(made: Comparison, selection: Selection = ALL) -> Table:
    """What changed for sure first, then by kind, the largest differences first."""
    changes = [change for change in made.changes if change.metric.name != "memory"]
    changes.sort(key=lambda one: (not one.changed, KINDS.index(one.metric.kind), -abs(one.difference)))
    table = Table("changes", headline(made), CHANGES, [_row(change) for change in changes])
    table.notes += [*_method(made), *_only(made)]
    return arranged(table, selection)


def _row(one: Change) -> tuple[Cell, ...]:
    interval = (one.low, one.high) if one.draws is not None else (None, None)
    numbers = (one.before, one.after, one.difference, one.change)
    return (str(one.metric), one.metric.kind, *numbers, *interval, one.verdict, one.chance)


def memory_table(made: Comparison) -> Table:
    """The largest rank's resident memory."""
    rows: list[tuple[Cell, ...]] = []
    for one in made.changes:
        if one.metric.name == "memory":
            row = _row(one)
            rows.append((row[0], one.before, one.after, *row[5:]))
    return Table("memory", "Memory of the largest rank", MEMORY, rows)


def limits_table(told: Sequence[LimitOutcome]) -> Table:
    """What --fail-if asked for."""
    table = Table("limits", "Limits", LIMITS, [(one.limit.text, one.verdict, one.why) for one in told])
    table.warnings += [f"{one.limit.text}: {one.why}" for one in told if one.verdict in (EXCEEDED, UNTOLD)]
    return table


def headline(made: Comparison) -> str:
    """The comparison in one sentence."""
    one = made.primary
    if one is None:
        return f"Cannot compare {made.after.name} with {made.before.name}: neither steps nor an elapsed time in both"
    by = f"{one.metric} {signed(one.change)}"
    by += f" ({signed(one.low)} … {signed(one.high)})" if one.draws is not None else ""
    if one.changed:
        return f"{made.after.name} is {one.verdict} than {made.before.name}: {by}{_where(made, one)}"
    verdict = f"{made.after.name} and {made.before.name} are equal within ±{100 * made.options.equal:g} %"
    if one.verdict == CANNOT_TELL:
        verdict = f"Cannot tell {made.after.name} from {made.before.name}"
    return f"{verdict}: {by}{_where(made, one)}"


def _where(made: Comparison, primary: Change) -> str:
    """The parts, or else phases, operations and kernels that changed for sure."""
    for kinds in (("part",), ("phase",), ("operation", "kernel", "range", "layer")):
        found = [one for one in made.changes if one.metric.kind in kinds and one.changed]
        found.sort(key=lambda one: -abs(one.difference))
        if found:
            named = ", ".join(f"{one.metric} {signed(one.change)}" for one in found[:MOST_NAMED])
            return f"; {'' if primary.changed else 'but '}{named}"
    return ""


def signed(share: float) -> str:
    return f"{100 * share:+.1f} %"


def _method(made: Comparison) -> list[str]:
    band = f"±{100 * made.options.equal:g} %"
    counts = f"{len(made.before.runs)} and {counted(len(made.after.runs), 'run')}"
    if made.by == "repeats":
        sure = f"over all of them a false alarm is rarer than {LEVEL:.0%}"
        told = [
            f"Medians of {counts}; 95 % intervals by bootstrap. Chance: of such a difference anywhere in this table if "
            f"nothing had changed; {sure}. Equal: the interval lies within {band}."
        ]
    elif made.by == "steps":
        told = [
            f"{counts.capitalize()} are too few to see how runs differ by themselves: intervals are of the steps "
            "(block bootstrap, as neighbours are alike), wider by what is assumed from run to run: "
            f"{100 * made.options.run_to_run:g} % (--run-to-run), what the runs of a side differ by, or how long ranks "
            "had no CPU, if more. With 4 runs a side nothing has to be assumed."
        ]
    else:
        told = [f"{counts.capitalize()} with too few steps: nothing can be said for sure. Record at least 4 a side."]
    told.append("Of a rank; parts, layers and calls of a step where there are steps, warm-up left out.")
    if made.too_small:
        told.append(f"{counted(made.too_small, 'metric')} below 0.5 % of the step or of the whole: not judged.")
    return told


def _only(made: Comparison) -> list[str]:
    told = []
    for name, metrics in made.only.items():
        if metrics:
            more = f" and {len(metrics) - 8} more" if len(metrics) > 8 else ""
            told.append(f"Only in {name}: {', '.join(str(metric) for metric in metrics[:8])}{more}.")
    return told


def warnings_of(made: Comparison) -> list[str]:
    """What makes the two sides hard to compare."""
    told = []
    before, after = made.before, made.after
    for what, name in (("ranks", "ranks"), ("hosts", "hosts"), ("commands", "command"), ("versions", "versions")):
        ours, theirs = ({getattr(one, what) for one in side.runs} for side in (before, after))
        if ours != theirs:
            told.append(f"{name}: not the same in {before.name} and {after.name}")
        elif len(ours) > 1 and what == "ranks":
            told.append("ranks: not the same in all runs of a side")
    if len({one.steps for side in (before, after) for one in side.runs}) > 1:
        told.append("steps: not as many in all runs, so elapsed and phase.steps are left out")
    for side in (before, after):
        bad = sum(one.ended_badly for one in side.runs)
        if bad:
            told.append(f"{side.name}: {counted(bad, 'rank')} did not end well, or still run")
        if no_cpu_share(side) > SHARED_CPUS:
            lacked = f"{side.name}: ranks had no CPU for {no_cpu_share(side):.0%} of the step"
            told.append(f"{lacked}: these times are the machine's as much as the program's")
        lost = sum(one.lost_files for one in side.runs)
        if lost:
            told.append(f"{side.name}: {counted(lost, 'file')} could not be read")
    if _one_after_the_other(before, after):
        told.append(
            "all runs of one side came before those of the other: a machine that got slower meanwhile looks the same "
            "as a change; record them in turn"
        )
    return told


def _one_after_the_other(before: Side, after: Side) -> bool:
    if min(len(before.runs), len(after.runs)) < 2:
        return False
    ours, theirs = (sorted(one.started_ns for one in side.runs) for side in (before, after))
    return ours[-1] < theirs[0] or theirs[-1] < ours[0]


def is_quiet(made: Comparison) -> bool:
    """Whether nothing is said to have changed."""
    return all(one.verdict in (EQUAL, CANNOT_TELL) for one in made.changes)
