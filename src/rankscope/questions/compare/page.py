"""The page of a comparison: which side is faster and how sure that is, where a step goes on each, and what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import mean, median

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.pictures import Advice, AnswerPage, Bar, Chart, Figure, Points, Screen, Section
from rankscope.questions.compare.measures import Measures, Metric
from rankscope.questions.compare.tables import headline, interval_of, signed
from rankscope.questions.compare.verdicts import CANNOT_TELL, PRIMARY, Change, Comparison, Side
from rankscope.questions.run.screen import LABELS, NOTICEABLE
from rankscope.questions.wording import counted, seconds, size

MOST_POINTS = 6
UNSURE = 3  # of the largest differences that may be chance, where fewer are sure
MOST_RUNS = 40  # with a bar of their own
WITHIN_STEP = ("part", "layer", "operation", "kernel", "range")
COMPARED, WHOLE_SIDES = "Where does a step go on each side?", "What was compared?"
# the labels of bars whose colour the pages of runs have settled
COLUMNS_OF_PARTS = {
    **{name: f"{name}_ns" for name in ("forward", "backward", "optimizer", "zero_grad", "other", "compute")},
    "data loading": "data_ns",
    "exposed communication": "comm_exposed_ns",
    "wait": "exposed_wait_ns",
    "transfer": "exposed_transfer_ns",
    "unmatched": "exposed_unmatched_ns",
    "overlapped": "overlap_ns",
    "copies": "copy_alone_ns",
    "idle: data loading": "data_ns",
    "idle: launching": "launch_ns",
    "idle: synchronising": "sync_ns",
    "idle: no CPU": "preempted_ns",
    "idle: Python": "python_ns",
    "idle: GC": "gc_ns",
}
PART_FORMULA = "mean over the runs of the side; in each run the mean steady step, on the clock of its first screen"
RUNS = (
    Column("run", Unit.NAME, "Run"),
    Column("side", Unit.NAME, "Side"),
    Column("order", Unit.COUNT, "Recorded", "place of the run's start among all runs of the page"),
    Column("primary_ns", Unit.NS, "Step p50", "median over the steady steps; of each step the median over the ranks"),
    Column("elapsed_ns", Unit.NS, "Elapsed", "the longest rank"),
)


def comparison_page(
    comparisons: Sequence[Comparison], screens: Mapping[str, Sequence[Screen]], tables: Sequence[Table]
) -> AnswerPage:
    """The first comparison on the first screen, all of them below; `screens` are those of each side's runs."""
    first = comparisons[0]
    sides = [first.before, *(comparison.after for comparison in comparisons)]
    step = _step_section(sides, screens)
    sections = [*([step] if step else []), *_change_sections(comparisons, tables), _sides_section(sides, tables)]
    warnings = [text for table in tables if table.name in ("sides", "limits") for text in table.warnings]
    return AnswerPage(
        "Comparison",
        f"{first.before.name} → {', '.join(side.name for side in sides[1:])}",
        _facts(sides),
        " ".join(_verdict(comparison) for comparison in comparisons),
        _figures(first, screens),
        [_changed(first), _findings(first, screens)],
        sections,
        warnings,
        step.name if step else "",
    )


def _facts(sides: Sequence[Side]) -> list[str]:
    runs = [run for side in sides for run in side.runs]
    ranks = sorted({run.ranks for run in runs})
    facts = [" and ".join(counted(len(side.runs), "run") for side in sides)]
    facts.append(counted(ranks[0], "rank") if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]} ranks")
    return [*facts, counted(len({host for run in runs for host in run.hosts}), "host")]


def _verdict(comparison: Comparison) -> str:
    """Which side is faster, by how much, and how sure that is."""
    change = comparison.headline
    if change is None:
        return f"{headline(comparison)}."
    before, after = comparison.before.name, comparison.after.name
    what = "A step" if change.metric.kind == "step" else "The run"
    apart = f"{what} takes {abs(100 * change.change):.1f} % {'more' if change.change > 0 else 'less'} time"
    if change.changed:
        low, high = sorted(abs(bound) for bound in change.interval())
        interval = f"{100 * low:.1f} … {100 * high:.1f} %"
        return f"{after} is {change.verdict} than {before}. {apart} (95 % interval: {interval})."
    interval = f" (95 % interval: {interval_of(change)})" if change.bounds else ""
    if change.verdict == CANNOT_TELL:
        more = "Record more runs of both sides, interleaved, to narrow the interval."
        return f"Cannot tell whether {after} is faster or slower than {before}. {apart}{interval}. {more}"
    return f"{after} and {before} are equal within ±{100 * comparison.options.equal:g} %. {apart}{interval}."


# ---------------------------------------------------------------- key figures
def _figures(comparison: Comparison, screens: Mapping[str, Sequence[Screen]]) -> list[Figure]:
    """Each before and after: what was compared as the table has it, else as the screens of the runs have it."""
    changes = {str(change.metric): change for change in comparison.changes}
    figures = []
    for name, label, meaning in (
        ("step_p50", "Step, p50", "median over the steady steps; of each step the median over the ranks"),
        ("step_p99", "Step, p99", "99th percentile over the steady steps; of each step the median over the ranks"),
        ("elapsed", "Elapsed", "the longest rank"),
        ("memory", "Memory", "resident memory of the largest rank"),
    ):
        if name in changes:
            metric_change = changes[name]
            shown = size if name == "memory" else seconds
            figures.append(
                Figure(
                    label, f"{shown(metric_change.before)} → {shown(metric_change.after)}", meaning, _by(metric_change)
                )
            )
    before, after = (screens.get(side.name, ()) for side in comparison.sides)
    exposed = [_share_of(some, "exposed communication") for some in (before, after)]
    figures += _pair("Exposed communication", exposed, LABELS["exposed communication"])
    idle = [_share_of(some, "idle") if _on_gpus(some) else None for some in (before, after)]
    busy = [None if share is None else 1 - share for share in idle]
    return [
        *figures,
        *_pair("GPU busy", busy, "share of the step in which at least one kernel, copy or memset is running"),
    ]


def _pair(label: str, shares: Sequence[float | None], meaning: str) -> list[Figure]:
    if any(share is None for share in shares) or not any(share and share >= NOTICEABLE for share in shares):
        return []
    words = [f"{100 * (share or 0):.0f} %" for share in shares]
    return [Figure(label, f"{words[0]} → {words[1]}", meaning, "of the step, mean of the runs")]


def _share_of(screens: Sequence[Screen], label: str) -> float | None:
    with_steps = [screen for screen in screens if screen.bars is not None and screen.step_ns]
    if not with_steps or len(with_steps) < len(screens):
        return None
    return mean(
        next((bar.share for bar in screen.bars.bars if bar.label == label), 0.0) for screen in with_steps if screen.bars
    )


def _on_gpus(screens: Sequence[Screen]) -> bool:
    return bool(screens) and all(screen.bars is not None and screen.bars.table == "gpu_steps" for screen in screens)


def _by(change: Change) -> str:
    interval = f" ({interval_of(change)})" if change.bounds else ""
    return f"{signed(change.change)}{interval}: {change.verdict}"


# ---------------------------------------------------------------- where does a step go on each side?
def _step_section(sides: Sequence[Side], screens: Mapping[str, Sequence[Screen]]) -> Section | None:
    """A bar for each side; all are told on the same clock, or not at all."""
    clocks = {
        screen.bars.table if screen.bars and screen.step_ns else ""
        for side in sides
        for screen in screens.get(side.name, ())
    }
    if clocks not in ({"gpu_steps"}, {"step_parts"}):
        return None
    unsplit = {label for side in sides for screen in screens[side.name] for label in _without_parts(screen)}
    parts = {side.name: _mean_parts(screens[side.name], unsplit) for side in sides}
    labels = list(dict.fromkeys(label for part in parts.values() for label in part))
    names = {label: COLUMNS_OF_PARTS.get(label, f"{label.replace(':', '').replace(' ', '_')}_ns") for label in labels}
    columns = [Column("side", Unit.NAME, "Side"), Column("step_ns", Unit.NS, "Step", "sum of its parts")]
    columns += [Column(names[label], Unit.NS, label.capitalize(), PART_FORMULA) for label in labels]
    rows: list[tuple[Cell, ...]] = [
        (name, sum(times.values()), *(times.get(label, 0.0) for label in labels)) for name, times in parts.items()
    ]
    clock = "the GPUs' clock" if clocks == {"gpu_steps"} else "the hosts' clock"
    table = Table("step_sides", f"Where a step goes on each side, on {clock}", columns, rows)
    chart = Chart(
        *("bars", table.name, _step_title(sides, parts), "side", tuple(names[label] for label in labels)),
        value_axis="mean step",
    )
    return Section("steps", COMPARED, [table], [chart], group="Steps")


def _without_parts(screen: Screen) -> list[str]:
    """The bars of a run that are not split: then they are not on any side, as equals have to be compared."""
    bars = screen.bars.bars if screen.bars else ()
    followed = [*(bar.depth for bar in bars[1:]), 0]
    return [bar.label for bar, next_depth in zip(bars, followed, strict=True) if bar.depth == next_depth == 0]


def _mean_parts(screens: Sequence[Screen], unsplit: set[str]) -> dict[str, float]:
    """Mean over runs of the parts that have no parts themselves, in the order of the first run."""
    means: dict[str, float] = {}
    for screen in screens:
        for label, ns in _leaves(screen.bars.bars if screen.bars else (), unsplit):
            means[label] = means.get(label, 0.0) + ns / len(screens)
    return means


def _leaves(bars: Sequence[Bar], unsplit: set[str]) -> list[tuple[str, float]]:
    """What is within another bar takes its time from that; what is left keeps its name."""
    left: list[tuple[str, float]] = []
    at = -1
    for bar in bars:
        if bar.depth == 0:
            at = len(left)
        elif left[at][0] in unsplit:
            continue
        else:
            left[at] = (left[at][0], max(0.0, left[at][1] - bar.ns))
        left.append((bar.label, bar.ns))
    total_ns = sum(ns for _, ns in left)
    return [(label, ns) for label, ns in left if ns > 1e-6 * total_ns]


def _step_title(sides: Sequence[Side], parts: Mapping[str, Mapping[str, float]]) -> str:
    lengths = ", ".join(f"{seconds(sum(parts[side.name].values()))} in {side.name}" for side in sides)
    before, after = parts[sides[0].name], parts[sides[1].name]
    apart = {label: after.get(label, 0.0) - before.get(label, 0.0) for label in {**before, **after}}
    most = sorted(apart, key=lambda label: -abs(apart[label]))[:2]
    changed = [f"{label} {_more(apart[label])}" for label in most if abs(apart[label]) > 0.01 * sum(before.values())]
    return f"The mean step takes {lengths}{': ' * bool(changed)}{', '.join(changed)}"


def _more(ns: float) -> str:
    return f"{'+' if ns > 0 else '-'}{seconds(abs(ns))}"


# ---------------------------------------------------------------- what changed most?
def _changed(comparison: Comparison) -> Points:
    """What changed for sure, the largest first; then what differs most and may be chance."""
    parts = {change.metric.name for change in comparison.changes if change.metric.kind == "part"}
    judged = [change for change in comparison.changes if change.metric not in PRIMARY and change.metric.kind != "step"]
    judged = [change for change in judged if change.metric.kind != "range" or change.metric.name not in parts]
    judged.sort(key=lambda change: (change.metric.kind not in WITHIN_STEP, -abs(change.difference)))
    sure = [change for change in judged if change.changed][:MOST_POINTS]
    unsure = [change for change in judged if change.verdict == CANNOT_TELL and change.metric.kind in WITHIN_STEP]
    known = [_point(change) for change in [*sure, *unsure[: max(0, UNSURE - len(sure))]]]
    entries = [*_of_one_side(comparison), *known]
    more = "No change is certain. Record at least 4 runs a side, interleaved, to see smaller changes."
    return Points("changed", "What changed most?", entries, more)


def _of_one_side(comparison: Comparison) -> list[Advice]:
    """What only one side has, where it is as long as what is worth a line of a step."""
    if comparison.headline is None or comparison.headline.metric.kind != "step":
        return []
    advices = []
    for side, level, least in (
        (comparison.before, "GONE", comparison.headline.before),
        (comparison.after, "NEW", comparison.headline.after),
    ):
        for metric in comparison.only.get(side.name, ()):
            value = median(run.values[metric] for run in side.runs)
            if metric.kind == "part" and value >= NOTICEABLE * least:
                words = f"{seconds(value)} in {side.name}, absent on the other side"
                advices.append((value, Advice(level, f"{_words(metric)}: {seconds(value)}", words, [], "")))
    return [advice for _, advice in sorted(advices, key=lambda pair: -pair[0])]


def _point(change: Change) -> Advice:
    shown = size if change.metric.name == "memory" else seconds
    level = change.verdict.upper() if change.changed else "UNSURE"
    sides = f"{shown(change.before)} before, {shown(change.after)} after"
    interval = f"; 95 % interval {interval_of(change)}" if change.bounds else ""
    doubt = "" if change.changed else "; may be noise: record more runs of both sides, interleaved"
    title = f"{_words(change.metric)} {signed(change.change)} ({_more(change.difference)})"
    if change.metric.name == "memory":
        title = f"{_words(change.metric)} {signed(change.change)}"
    return Advice(level, title, f"{sides}{interval}{doubt}", [], "")


PARTS = {
    "data": "data loading",
    "other": "other time",
    "cpu": "CPU time",
    "gc": "garbage collection",
    "runnable": "time without a CPU",
}


def _words(metric: Metric) -> str:
    if metric.kind == "part":
        return f"{PARTS.get(metric.name, metric.name)} of a step"
    kinds = {"phase": "(phase)", "kernel": "(kernel)", "range": "(range)", "layer": "calls"}
    return f"{metric.name} {kinds[metric.kind]}" if metric.kind in kinds else metric.name


def _findings(comparison: Comparison, screens: Mapping[str, Sequence[Screen]]) -> Points:
    """Findings of more than half of a side's runs: gone, new, and still there."""
    before, after = (_common(screens.get(side.name, ())) for side in comparison.sides)
    entries = [_finding("NEW", after[rule], None) for rule in after if rule not in before]
    entries += [_finding("GONE", before[rule], None) for rule in before if rule not in after]
    entries += [_finding("STILL", after[rule], before[rule]) for rule in after if rule in before]
    return Points("findings", "Findings: new and gone", entries, "No findings on either side.")


def _common(screens: Sequence[Screen]) -> dict[str, Advice]:
    """By rule: what the first run that has it says, with the median of what all could save."""
    count = Counter(rule for screen in screens for rule in {advice.rule for advice in screen.advice})
    by_rule: dict[str, list[Advice]] = {}
    for advice in (advice for screen in screens for advice in screen.advice):
        if 2 * count[advice.rule] > len(screens):
            by_rule.setdefault(advice.rule, []).append(advice)
    return {
        rule: replace(some[0], saved_ns=_median([advice.saved_ns for advice in some])) for rule, some in by_rule.items()
    }


def _finding(level: str, advice: Advice, was: Advice | None) -> Advice:
    action = advice.action
    if was is not None and was.saved_ns is not None and advice.saved_ns is not None:
        action = f"could save {seconds(was.saved_ns)} before and {seconds(advice.saved_ns)} after; {action}"
    elif advice.saved_ns is not None:
        action = f"could save {seconds(advice.saved_ns)}; {action}"
    return Advice(level, advice.title, action, [], advice.rule)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


# ---------------------------------------------------------------- the tables below
def _change_sections(comparisons: Sequence[Comparison], tables: Sequence[Table]) -> list[Section]:
    """For each side but the first its changes and memory; names of tables are told apart by their number."""
    sections = []
    pairs = zip(*([table for table in tables if table.name == name] for name in ("changes", "memory")), strict=True)
    for at, (comparison, (changes, memory)) in enumerate(zip(comparisons, pairs, strict=True)):
        end = f"_{at + 1}" if at else ""
        named = [replace(table, name=f"{table.name}{end}") for table in (changes, memory) if table.rows]
        named = [replace(table, title="Changes") if table.title == changes.title else table for table in named]
        question = "What changed, and how certain is it?"
        if len(comparisons) > 1:
            question = f"What changed from {comparison.before.name} to {comparison.after.name}, and how certain is it?"
        charts = [
            _intervals(comparison, table) for table in named if "before_ns" in {column.name for column in table.columns}
        ]
        sections.append(Section(f"changes{end}", question, named, charts, group="Changes"))
    return sections


def _intervals(comparison: Comparison, table: Table) -> Chart:
    sure = sum(change.changed for change in comparison.changes)
    text = f"{sure} of {counted(len(comparison.changes), 'metric')} changed with certainty; slower is to the right"
    parts = ("change", "low", "high", "verdict", "before_ns", "after_ns")
    return Chart("intervals", table.name, text, "metric", parts)


def _sides_section(sides: Sequence[Side], tables: Sequence[Table]) -> Section:
    """Every run in the order of recording: a machine that drifts is seen there."""
    side_tables = [replace(table, warnings=[]) for table in tables if table.name in ("sides", "limits")]
    everyone = [(side, run) for side in sides for run in side.runs]
    starts = sorted(run.started_ns for _, run in everyone)
    rows: list[tuple[Cell, ...]] = [_run_row(side, run, starts) for side, run in everyone]
    table = Table("compared_runs", "Runs", RUNS, sorted(rows, key=lambda row: (row[2], row[0])))
    known = [row for row in table.rows if row[3] is not None]
    if len(known) < 2 or len(known) < len(rows) or len(rows) > MOST_RUNS:
        return Section("sides", WHOLE_SIDES, [*side_tables, table], group="Runs")
    return Section(
        "sides", WHOLE_SIDES, [*side_tables, *_drawn_runs(sides, table)], [_run_chart(sides, table)], group="Runs"
    )


def _run_row(side: Side, measures: Measures, starts: Sequence[int]) -> tuple[Cell, ...]:
    step, elapsed = (measures.values.get(metric) for metric in PRIMARY)
    name = measures.source.rstrip("/").rpartition("/")[2]
    return name, side.name, starts.index(measures.started_ns) + 1, step, elapsed


def _drawn_runs(sides: Sequence[Side], table: Table) -> list[Table]:
    """A column for each side, so that a side has a colour."""
    columns = [
        *table.columns,
        *(Column(f"side_{at}_ns", Unit.NS, side.name, RUNS[3].formula) for at, side in enumerate(sides)),
    ]
    rows = [(*row, *(row[3] if row[1] == side.name else None for side in sides)) for row in table.rows]
    return [replace(table, columns=columns, rows=rows)]


def _run_chart(sides: Sequence[Side], table: Table) -> Chart:
    lengths = [float(str(row[3])) for row in table.rows]
    span = f"{seconds(min(lengths))} to {seconds(max(lengths))}"
    text = f"Steps of {counted(len(lengths), 'run')} in the order of recording: {span}"
    parts = tuple(f"side_{at}_ns" for at in range(len(sides)))
    return Chart("bars", table.name, text, "run", parts, "step, p50")
