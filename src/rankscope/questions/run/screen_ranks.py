"""How do the ranks compare, or the series of a document: the table of the first screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean, median
from typing import Any

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.questions.wording import seconds, size

Row = Mapping[str, Any]  # of an answer, by the names of its columns
Answer = Callable[[str], Table]  # by the name of its question; without rows where the run has none

COLUMN_NOTICEABLE = 0.03  # of the step: less is not worth a column of each rank
MOST_RANKS = 8
# Columns of gpu_steps and step_parts, and what the screen calls them.
IDLE = {
    "launch_ns": "idle: launching",
    "data_ns": "idle: data loading",
    "sync_ns": "idle: synchronising",
    "preempted_ns": "idle: no CPU",
    "python_ns": "idle: Python",
    "gc_ns": "idle: GC",
    "compile_ns": "idle: compiling",
    "blocked_ns": "idle: host collective",
    "checkpoint_ns": "idle: checkpoint",
    "device_ns": "idle: kernel start",
    "unknown_ns": "idle: unknown",
}
OWN = {
    "data_ns": "data loading",
    "zero_grad_ns": "zero_grad",
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "checkpoint_ns": "checkpoint",
    "compute_ns": "compute",
    "other_ns": "other",
}


def rows_of(table: Table) -> list[Row]:
    """The rows of an answer by the names of its columns; of two of a name the first counts."""
    names = [column.name for column in table.columns]
    return [dict(reversed(list(zip(names, row, strict=True)))) for row in table.rows]


def number(row: Row, name: str) -> float:
    """What is not known counts nothing."""
    value = row.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


# ---------------------------------------------------------------- ranks
WHO = Column("who", Unit.NAME, "", "which of many ranks it is: fastest, median, slowest by its own time, or an outlier")


def compared(answer: Answer) -> tuple[Table | None, str, float | None]:
    """Each rank, or of many the fastest, median and slowest; and their balance as a sentence and as a number."""
    for make in (_device_ranks, _host_ranks, _gpu_time_ranks, _plain_ranks):
        comparison = make(answer)
        if comparison is not None:
            columns, rows, own_ns, note = comparison
            table = _few(columns, rows, own_ns)
            have = len({row[0] for row in rows})
            seen = len(rows_of(answer("ranks")))
            table.notes += [f"{have:,} of {seen:,} ranks have steps"] if have < seen else []
            return table, note, _uneven(own_ns)
    figures = answer("figures")
    alone = not rows_of(answer("ranks"))  # beside ranks, figures are not what a run is about
    return _grown(figures) or (_without_scale(figures) if alone else None), "", None


Ranks = tuple[list[Column], list[tuple[Cell, ...]], list[float], str]  # by which ranks are ordered, and a sentence


def _columns(table: Table, called: Mapping[str, str]) -> list[Column]:
    """Columns of an answer by their names, under other headings where one is given."""
    by_name = {column.name: column for column in reversed(table.columns)}
    return [replace(by_name[name], title=title or by_name[name].title) for name, title in called.items()]


def _device_ranks(answer: Answer) -> Ranks | None:
    records = rows_of(answer("gpu_steps"))
    if not records:
        return None
    step = mean(number(row, "step_ns") for row in records)
    causes = [name for name in IDLE if max(number(row, name) for row in records) >= COLUMN_NOTICEABLE * step][:3]
    names = ["step_ns", "compute_ns", "exposed_ns", "wait_ns", "copy_ns", "idle_ns"]
    titles = ["Step", "Compute", "Exposed", "Wait", "Copies", "Idle"]
    called = {**dict(zip(names, titles, strict=True)), **{name: _title(IDLE[name][6:]) for name in causes}}
    columns = _columns(answer("gpu_steps"), {"rank": "Rank", "device": "GPU", **called})
    rows = [(row["rank"], row["device"], *(row.get(name) for name in (*names, *causes))) for row in records]
    own_ns = [number(row, "step_ns") - number(row, "exposed_ns") for row in records]
    return columns, rows, own_ns, _imbalance(own_ns)


def _host_ranks(answer: Answer) -> Ranks | None:
    records = rows_of(answer("step_parts"))
    if not records:
        return None
    step = mean(number(row, "step_ns") for row in records)
    parts = [name for name in OWN if max(number(row, name) for row in records) >= COLUMN_NOTICEABLE * step]
    caused = {row["rank"]: row.get("caused_share") for row in rows_of(answer("waiting"))}
    many_hosts = len({row.get("host") for row in records}) > 1
    called = {"rank": "Rank", **({"host": "Host"} if many_hosts else {}), "step_ns": "Step"}
    columns = _columns(answer("step_parts"), {**called, **{name: _title(OWN[name]) for name in parts}})
    in_stages = bool(answer("bubbles").rows)
    places = {row["rank"]: row["place"] for row in rows_of(answer("parallelism"))} if in_stages else {}
    columns[1:1] = _columns(answer("parallelism"), {"place": "Place"}) if places else []
    matched = any(row.get("exposed_wait_ns") is not None for row in records)  # else nobody knows what of it is wait
    split = {"exposed_wait_ns": "Wait", "exposed_transfer_ns": "Transfer"} if matched else {"exposed_ns": "Exposed"}
    if in_stages:  # most of it is the bubble of a pipeline, and no communication
        split = {"exposed_ns": "Blocked"}
    columns += _columns(answer("step_parts"), split)
    columns += _columns(answer("waiting"), {"caused_share": "Wait caused"}) if any(caused.values()) else []
    rows = []
    for row in records:
        where = [*([places.get(row["rank"])] if places else []), *([row["host"]] if many_hosts else [])]
        first = (row["rank"], *where, row["step_ns"], *(row[name] for name in parts))
        last = (caused.get(row["rank"]),) if any(caused.values()) else ()
        rows.append((*first, *(row[name] for name in split), *last))
    own_ns = [number(row, "step_ns") - number(row, "exposed_ns") for row in records]
    return columns, rows, own_ns, _imbalance(own_ns)


def _gpu_time_ranks(answer: Answer) -> Ranks | None:
    records = [row for row in rows_of(answer("gpu_time")) if number(row, "span_ns")]
    if not records:
        return None
    names = ["span_ns", "busy_ns", "compute_ns", "exposed_ns", "idle_ns"]
    titles = ["Active", "Busy", "Compute", "Exposed", "Idle"]
    called = {"rank": "Rank", "device": "GPU", **dict(zip(names, titles, strict=True))}
    columns = _columns(answer("gpu_time"), called)
    rows = [(row["rank"], row["device"], *(row.get(name) for name in names)) for row in records]
    own_ns = [number(row, "busy_ns") - number(row, "exposed_ns") for row in records]
    return columns, rows, own_ns, _imbalance(own_ns, "GPU time outside exposed communication")


def _plain_ranks(answer: Answer) -> Ranks | None:
    records = rows_of(answer("ranks"))
    if len(records) < 2 or not any(row.get("elapsed_ns") or row.get("mpi_elapsed_ns") for row in records):
        return None
    many_hosts = len({row.get("host") for row in records}) > 1
    names = ["mpi_elapsed_ns", "elapsed_ns", "comm_ns", "user_ns", "max_rss_bytes"]
    shown_names = [
        *(["host"] if many_hosts else []),
        *(name for name in names if any(row.get(name) for row in records)),
    ]
    columns = _columns(answer("ranks"), {"rank": "Rank", **dict.fromkeys(shown_names, "")})
    rows = [(row["rank"], *(row.get(name) for name in shown_names)) for row in records]
    own_ns = [number(row, "mpi_elapsed_ns") or number(row, "elapsed_ns") for row in records]
    own_ns = [value - number(row, "comm_ns") for value, row in zip(own_ns, records, strict=True)]
    return columns, rows, own_ns, _imbalance(own_ns, "time outside MPI")


FIGURES = (
    Column("series", Unit.NAME, "Series", "library, place or method, as the document names it"),
    Column("what", Unit.NAME, "What", "what was measured"),
    Column("least_scale", Unit.NAME, "From", "the smallest size that has a figure"),
    Column("least", Unit.NAME, "Value", "the figure at that size"),
    Column("most_scale", Unit.NAME, "To", "the largest size that has a figure"),
    Column("most", Unit.NAME, "Value", "the figure at that size"),
    Column("growth", Unit.NAME, "Growth", "the last ÷ the first"),
)


NUMBERED = ("rank", "node", "gpu")  # of a figure's scale: which one it is, not how many there are


def _grown(table: Table) -> Table | None:
    """Of a document: each series at its smallest and at its largest size."""
    series: dict[tuple[str, str, str], list[tuple[float, float, str]]] = {}
    for row in rows_of(table):
        if row.get("scale") is None or row.get("scale_name") in NUMBERED:
            continue
        for name, form in VALUES.items():
            if isinstance(row.get(name), int | float):
                of = (str(row["series"]), str(row["name"]), str(row.get("scale_name") or ""))
                series.setdefault(of, []).append((float(row["scale"]), float(row[name]), form(float(row[name]))))
    rows: list[tuple[Cell, ...]] = []
    for (of_series, what, scale), points in series.items():
        first, last = min(points), max(points)
        if last[0] > first[0]:
            growth = f"{last[1] / first[1]:,.2f} ×" if first[1] else ""
            sizes = (_size(first[0], scale), first[2], _size(last[0], scale), last[2])
            rows.append((of_series, what, *sizes, growth))
    return Table("screen_figures", "Figures", FIGURES, rows) if rows else None


WITHOUT_SCALE = (
    *FIGURES[:2],
    Column("value", Unit.NAME, "Value", "the figure; where it is one of several of a sample, their mean"),
    Column("min", Unit.NAME, "Min", "the smallest of the sample"),
    Column("max", Unit.NAME, "Max", "the largest of the sample"),
)
STATISTICS = {"": 0, "mean": 0, "trimmed mean": 0, "total": 0, "min": 1, "max": 2}  # in which column


def _without_scale(table: Table) -> Table | None:
    """Of a document that has no sizes: what it says of each thing."""
    figures: dict[tuple[str, str], list[str]] = {}
    for row in rows_of(table):
        place = STATISTICS.get(str(row.get("statistic") or ""))
        told = next((form(float(row[name])) for name, form in VALUES.items() if row.get(name) is not None), "")
        if place is not None and told and row.get("scale") is None:
            values = figures.setdefault((str(row["series"]), str(row["name"])), ["", "", ""])
            values[place] = values[place] or told
    rows: list[tuple[Cell, ...]] = [(*key, *values) for key, values in figures.items()]
    if len({row[0] for row in rows}) == 1:  # the only series need not be named in each row
        columns = [replace(WITHOUT_SCALE[1], name="series"), *WITHOUT_SCALE[2:]]
        return Table("screen_figures", "Figures", columns, [row[1:] for row in rows])
    return Table("screen_figures", "Figures", WITHOUT_SCALE, rows) if rows else None


def _size(value: float, scale: str) -> str:
    """`1 node`, `512 nodes`, but `batch 32`."""
    if not scale.endswith("s"):
        return f"{scale} {value:,.12g}".lstrip()
    return f"{value:,.12g} {scale.removesuffix('s') if value == 1 else scale}"


def _title(label: str) -> str:
    return label[:1].upper() + label[1:]


def _imbalance(own_ns: Sequence[float], what: str = "own time") -> str:
    uneven = _uneven(own_ns)
    return f"imbalance {uneven:.2f} (largest ÷ mean {what})" if uneven is not None else ""


def _uneven(own_ns: Sequence[float]) -> float | None:
    return max(own_ns) / mean(own_ns) if len(own_ns) > 1 and mean(own_ns) else None


def _few(columns: list[Column], rows: list[tuple[Cell, ...]], own_ns: Sequence[float]) -> Table:
    """All of a few; of many the ends, the middle, and those far from it."""
    table = Table("screen_ranks", "Ranks", columns, rows)
    if len(rows) <= MOST_RANKS:
        return table
    order = sorted(range(len(rows)), key=lambda at: own_ns[at])
    middle = median(own_ns)
    spread = 1.4826 * median(abs(value - middle) for value in own_ns)
    far = [at for at in reversed(order) if spread and abs(own_ns[at] - middle) > 3.5 * spread]
    chosen = {order[0]: "fastest", order[len(order) // 2]: "median", order[-1]: "slowest"}
    for at in far[: MOST_RANKS - len(chosen)]:
        chosen.setdefault(at, "outlier")
    table.columns = [WHO, *columns]
    table.rows = [(chosen[at], *rows[at]) for at in sorted(chosen, key=lambda at: own_ns[at])]
    more = len(far) - sum(at in chosen for at in far)
    table.notes = [f"{len(rows):,} ranks" + (f", {more} more outliers" if more > 0 else "")]
    return table


VALUES: dict[str, Callable[[float], str]] = {
    "value_ns": seconds,
    "value_bytes": size,
    "value_count": lambda value: f"{value:,.0f}",
    "value_share": percent,
    "value_bytes_per_s": lambda value: f"{size(value)}/s",
    "value": lambda value: f"{value:,.3g}",
}
