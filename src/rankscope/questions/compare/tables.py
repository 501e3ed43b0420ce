"""A comparison as tables, and in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.model.tables import Cell, Column, Table, Unit
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
CHANCE = (
    "share of the exchanges of runs between the sides that shift any metric of the table as much; of the headline "
    "metric: probability that as many pairs of runs agree on the sign if nothing changed (Mann-Whitney, two-sided)"
)
LOW = "lower end of the 95 % interval of `change`: over all pairs of runs, or over resampled steps"
HIGH = "upper end of the 95 % interval of `change`: over all pairs of runs, or over resampled steps"
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
    Column("low", Unit.SHARE, "From", LOW),
    Column("high", Unit.SHARE, "To", HIGH),
    Column("verdict", Unit.NAME, "Verdict"),
    Column(
        "chance",
        Unit.NUMBER,
        "Chance",
        CHANCE,
    ),
)
MEMORY = (
    Column("metric", Unit.NAME, "Metric"),
    Column("before_bytes", Unit.BYTES, "Before", "median of the metric over the runs of the first side"),
    Column("after_bytes", Unit.BYTES, "After", "median of the metric over the runs of the other side"),
    Column("change", Unit.SHARE, "Change", "median of the other side ÷ median of the first side − 1"),
    Column("low", Unit.SHARE, "From", LOW),
    Column("high", Unit.SHARE, "To", HIGH),
    Column("verdict", Unit.NAME, "Verdict"),
    Column(
        "chance",
        Unit.NUMBER,
        "Chance",
        CHANCE,
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
        hosts = {host for run in runs for host in run.hosts}
        text = "; ".join(sorted({command for run in runs for command in run.commands})[:MOST_NAMED])
        numbers = (_span([run.ranks for run in runs]), len(hosts), _span([run.steps for run in runs]))
        table.rows.append((side.name, len(runs), numbers[0], numbers[1], numbers[2], text))
    return table


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}–{high}"


def changes_table(comparison: Comparison, selection: Selection = ALL) -> Table:
    """What changed for sure first, then by kind, the largest differences first."""
    changes = [change for change in comparison.changes if change.metric.name != "memory"]
    changes.sort(key=lambda change: (not change.changed, KINDS.index(change.metric.kind), -abs(change.difference)))
    table = Table("changes", headline(comparison), CHANGES, [_row(change) for change in changes])
    table.notes += [*_method(comparison), *_only(comparison)]
    return arranged(table, selection)


def _row(change: Change) -> tuple[Cell, ...]:
    interval = change.interval() if change.bounds else (None, None)
    numbers = (change.before, change.after, change.difference, change.change)
    return (str(change.metric), change.metric.kind, *numbers, *interval, change.verdict, change.chance)


def memory_table(comparison: Comparison) -> Table:
    """The largest rank's resident memory."""
    rows: list[tuple[Cell, ...]] = []
    for change in comparison.changes:
        if change.metric.name == "memory":
            row = _row(change)
            rows.append((row[0], change.before, change.after, *row[5:]))
    return Table("memory", "Memory of the largest rank", MEMORY, rows)


def limits_table(limit_outcomes: Sequence[LimitOutcome]) -> Table:
    """What --fail-if asked for."""
    table = Table(
        "limits",
        "Limits",
        LIMITS,
        [(limit_outcome.limit.text, limit_outcome.verdict, limit_outcome.why) for limit_outcome in limit_outcomes],
    )
    table.warnings += [
        f"{limit_outcome.limit.text}: {limit_outcome.why}"
        for limit_outcome in limit_outcomes
        if limit_outcome.verdict in (EXCEEDED, UNTOLD)
    ]
    return table


def headline(pair: Comparison) -> str:
    """The comparison in one sentence."""
    change = pair.headline
    if change is None:
        return f"Cannot compare {pair.after.name} with {pair.before.name}: neither steps nor an elapsed time in both"
    by = f"{change.metric} {signed(change.change)}"
    by += f" ({interval_of(change)})" if change.bounds else ""
    if change.changed:
        return f"{pair.after.name} is {change.verdict} than {pair.before.name}: {by}{_where(pair, change)}"
    verdict = f"{pair.after.name} and {pair.before.name} are equal within ±{100 * pair.options.equal:g} %"
    if change.verdict == CANNOT_TELL:
        verdict = f"Cannot tell {pair.after.name} from {pair.before.name}"
    return f"{verdict}: {by}{_where(pair, change)}"


def _where(comparison: Comparison, primary: Change) -> str:
    """The parts, or else phases, operations and kernels that changed for sure."""
    for kinds in (("part",), ("phase",), ("operation", "kernel", "range", "layer")):
        changes = [change for change in comparison.changes if change.metric.kind in kinds and change.changed]
        changes.sort(key=lambda change: -abs(change.difference))
        if changes:
            named = ", ".join(f"{change.metric} {signed(change.change)}" for change in changes[:MOST_NAMED])
            return f"; {'' if primary.changed else 'but '}{named}"
    return ""


def interval_of(change: Change) -> str:
    low, high = change.interval()
    return f"{signed(low)} … {signed(high)}"


def signed(share: float) -> str:
    if abs(share) < 0.0005:
        return "0.0 %"
    return f"{100 * share:+.1f} %" if abs(share) < 10 else f"{100 * share:+,.0f} %"


def _method(pair: Comparison) -> list[str]:
    """How sure the verdicts are, and what they rest on."""
    alone, both = pair.headline, f"{len(pair.before.runs)} + {counted(len(pair.after.runs), 'run')}"
    headline = f"{alone.metric} is tested alone, the other metrics together: " if alone else ""
    if pair.by == "repeats":
        notes = [
            f"Medians over {both}; 95 % intervals from all pairs of runs. {headline}each raises a false alarm in "
            f"fewer than {100 * LEVEL:.0f} % of comparisons. Equal: the interval lies within "
            f"±{100 * pair.options.equal:g} %."
        ]
    elif pair.by == "steps":
        notes = [
            f"{both}: too few to estimate run-to-run noise. Intervals come from resampled steps, widened by the "
            "largest "
            f"of: {100 * pair.options.run_to_run:g} % (--run-to-run), the spread of each side's runs, the share of "
            "the step in which ranks had no CPU. With 4 runs per side nothing has to be assumed."
        ]
    else:
        notes = [f"{both} with too few steps: no verdict is possible. Record at least 4 runs a side."]
    notes.append("All values are per rank; parts, layers and calls are per steady step if there are steps.")
    if pair.too_small:
        notes.append(f"{counted(pair.too_small, 'metric')} below 0.5 % of the step or of the run: not judged.")
    return notes


def _only(comparison: Comparison) -> list[str]:
    notes = []
    for name, metrics in comparison.only.items():
        if metrics:
            more = f" and {len(metrics) - 8} more" if len(metrics) > 8 else ""
            notes.append(f"Only in {name}: {', '.join(str(metric) for metric in metrics[:8])}{more}.")
    return notes


def warnings_of(comparison: Comparison) -> list[str]:
    """What makes the two sides hard to compare."""
    warnings = []
    before, after = comparison.before, comparison.after
    for what, name in (("ranks", "ranks"), ("hosts", "hosts"), ("commands", "commands"), ("versions", "versions")):
        ours, theirs = ({getattr(run, what) for run in side.runs} for side in (before, after))
        if ours != theirs:
            warnings.append(f"{before.name} and {after.name} differ in {name}")
        elif len(ours) > 1 and what == "ranks":
            warnings.append("the runs of a side differ in ranks")
    if len({run.steps for side in (before, after) for run in side.runs}) > 1:
        warnings.append("the runs differ in number of steps, so elapsed and phase.steps are left out")
    for side in (before, after):
        bad = sum(run.ended_badly for run in side.runs)
        if bad:
            warnings.append(f"{side.name}: {counted(bad, 'rank')} failed or still running")
        if no_cpu_share(side) > SHARED_CPUS:
            lacked = f"{side.name}: ranks had no CPU for {100 * no_cpu_share(side):.0f} % of the step"
            warnings.append(f"{lacked}: these times reflect the machine's load as much as the program")
        lost = sum(run.lost_files for run in side.runs)
        if lost:
            warnings.append(f"{side.name}: {counted(lost, 'file')} could not be read")
    if _one_after_the_other(before, after):
        warnings.append(
            "all runs of one side were recorded before those of the other: a machine that slowed down meanwhile looks "
            "like a change; interleave them"
        )
    return warnings


def _one_after_the_other(before: Side, after: Side) -> bool:
    if min(len(before.runs), len(after.runs)) < 2:
        return False
    ours, theirs = (sorted(run.started_ns for run in side.runs) for side in (before, after))
    return ours[-1] < theirs[0] or theirs[-1] < ours[0]


def is_quiet(comparison: Comparison) -> bool:
    """Whether nothing is said to have changed."""
    return all(change.verdict in (EQUAL, CANNOT_TELL) for change in comparison.changes)
