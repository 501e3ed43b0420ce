"""What a recorded run did, in nvprof's columns: activities of GPUs; without any, parts of steps and collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.api.run import Run
from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.gpu.activities import COMMUNICATION, COMPUTE, COPY, SET, kind_of

GPU, KINDS, PARTS, COLLECTIVES = "GPU activities", "GPU time", "Step parts", "Collectives"
BLOCKED = "blocked in collectives"
KIND_NAMES = {COMPUTE: "computing", COMMUNICATION: "NCCL", COPY: "copies", SET: "sets"}
COLUMNS = (
    Column("type", Unit.NAME, "Type"),
    Column("share", Unit.SHARE, "Time(%)"),
    Column("total_ns", Unit.NS, "Time"),
    Column("calls", Unit.COUNT, "Calls"),
    Column("mean_ns", Unit.NS, "Avg"),
    Column("min_ns", Unit.NS, "Min"),
    Column("max_ns", Unit.NS, "Max"),
    Column("name", Unit.NAME, "Name"),
)
STEP_PARTS = (
    "data",
    "zero_grad",
    "forward",
    "backward",
    "optimizer",
    "communication",
    "checkpoint",
    "compute",
    "other",
)
STEPS = "steps JOIN ranks USING (process) WHERE role = 'rank' AND number > ? AND {condition}"
EVENTS = """
    SELECT name, count(*)::BIGINT, sum(end_ns - start_ns), min(end_ns - start_ns), max(end_ns - start_ns)
    FROM events JOIN ranks USING (process)
    JOIN (SELECT process, min(begin_ns) AS first_ns, max(steps.end_ns) AS last_ns FROM steps WHERE number > ?
          GROUP BY process) USING (process)
    WHERE layer = 'gloo' AND role = 'rank' AND end_ns IS NOT NULL AND {condition}
    AND start_ns >= first_ns AND start_ns < last_ns
    GROUP BY name ORDER BY 3 DESC"""
IN_OPTIMIZER = """
    SELECT name, sum(calls)::BIGINT, sum(total_ns), min(min_ns), max(max_ns)
    FROM range_tallies JOIN ranks USING (process)
    WHERE layer = 'gpu' AND kind = 'call' AND role = 'rank' AND {condition}
    AND len([one FOR one IN string_split(within, chr(31)) IF ends_with(one, '/optimizer')]) > 0
    GROUP BY name"""


@dataclass(frozen=True, slots=True)
class ProfiledActivity:
    """One row."""

    kind: str
    name: str
    calls: int
    total_ns: float
    min_ns: float | None
    max_ns: float | None


def activities(run: Run, first_step: int, rank: int | None = None) -> list[ProfiledActivity]:
    """Of one rank or all together. GPUs: the whole run. Else: steps after the first ones, and collectives in them."""
    on_gpu = run.table("gpu", ranks=None if rank is None else [rank])
    if len(on_gpu):
        return gpu_activities(run, rank)
    return [*step_parts(run, first_step, rank), *collectives(run, first_step, rank)]


def gpu_activities(run: Run, rank: int | None = None) -> list[ProfiledActivity]:
    frame = run.table("gpu", ranks=None if rank is None else [rank], names="short")
    at = {column.name: place for place, column in enumerate(frame.table.columns)}
    wanted = [at[name] for name in ("name", "calls", "total_ns", "min_ns", "max_ns")]
    by_name: dict[str, list[ProfiledActivity]] = {}
    for row in frame.rows:
        activity = ProfiledActivity(GPU, *(row[place] for place in wanted))  # type: ignore[arg-type]
        by_name.setdefault(activity.name, []).append(activity)
    rows = [together(GPU, name, same) for name, same in by_name.items()]  # kernels whose short names are the same
    by_kind = {kind: [activity for activity in rows if kind_of(activity.name) == kind] for kind in KIND_NAMES}
    kinds = [together(KINDS, KIND_NAMES[kind], own_rows) for kind, own_rows in by_kind.items() if own_rows]
    inside = [
        ProfiledActivity(GPU, str(row[0]), *map(_number, row[1:]))  # type: ignore[arg-type]
        for row in run.query(IN_OPTIMIZER.format(condition=of_rank(rank))).rows
        if kind_of(str(row[0])) == COMPUTE
    ]
    if inside:
        kinds.append(together(KINDS, "of computing: optimizer", inside))
    return [*kinds, *rows]


def together(kind: str, name: str, profiled: Sequence[ProfiledActivity]) -> ProfiledActivity:
    """Their sum."""
    calls, total_ns = (
        sum(profiled_activity.calls for profiled_activity in profiled),
        sum(profiled_activity.total_ns for profiled_activity in profiled),
    )
    shortest = min(
        (profiled_activity.min_ns for profiled_activity in profiled if profiled_activity.min_ns is not None),
        default=None,
    )
    longest = max(
        (profiled_activity.max_ns for profiled_activity in profiled if profiled_activity.max_ns is not None),
        default=None,
    )
    return ProfiledActivity(kind, name, calls, total_ns, shortest, longest)


def step_parts(run: Run, first_step: int, rank: int | None = None) -> list[ProfiledActivity]:
    """Each without what it was blocked in collectives, which is a row of its own; they add up to the steps."""
    own_parts = {part.replace("_", " "): f"{part}_ns - blocked_{part}_ns" for part in STEP_PARTS}
    columns = {**own_parts, BLOCKED: "exposed_ns"}
    sums = ", ".join(f"count(*), sum({column}), min({column}), max({column})" for column in columns.values())
    run.store(events=True)  # once, for the collectives as well
    row = run.query(f"SELECT {sums} FROM {STEPS.format(condition=of_rank(rank))}", [first_step]).rows[0]
    parts = []
    for place, name in enumerate(columns):
        calls, *times = (float(str(value)) if value is not None else 0.0 for value in row[4 * place : 4 * place + 4])
        if times[0]:
            parts.append(ProfiledActivity(PARTS, name, int(calls), *times))
    return sorted(parts, key=lambda part: -part.total_ns)


def collectives(run: Run, first_step: int, rank: int | None = None) -> list[ProfiledActivity]:
    rows = run.query(EVENTS.format(condition=of_rank(rank)), [first_step]).rows
    return [ProfiledActivity(COLLECTIVES, str(row[0]), *map(_number, row[1:])) for row in rows]  # type: ignore[arg-type]


def _number(value: object) -> float:
    return int(str(value)) if str(value).isdigit() else float(str(value))


def of_rank(rank: int | None) -> str:
    return "true" if rank is None else f"rank = {rank}"


def shares(profiled: Sequence[ProfiledActivity]) -> list[float | None]:
    """Of the time of all rows of the same kind, as nvprof has it."""
    sums: dict[str, float] = {}
    for profiled_activity in profiled:
        if not profiled_activity.name.startswith("of "):
            sums[profiled_activity.kind] = sums.get(profiled_activity.kind, 0.0) + profiled_activity.total_ns
    return [
        profiled_activity.total_ns / sums[profiled_activity.kind] if sums.get(profiled_activity.kind) else None
        for profiled_activity in profiled
    ]


def rows(profiled: Sequence[ProfiledActivity], least: float = 0.0) -> tuple[list[tuple[Value, ...]], int]:
    """In nvprof's columns, the kind told once; and how many rows below the least share were left out."""
    lines: list[tuple[Value, ...]] = []
    before, left_out = "", 0
    for profiled_activity, share in zip(profiled, shares(profiled), strict=True):
        if share is not None and share < least:
            left_out += 1
            continue
        kind = f"{profiled_activity.kind}:" if profiled_activity.kind != before else ""
        before = profiled_activity.kind
        mean_ns = profiled_activity.total_ns / profiled_activity.calls if profiled_activity.calls else None
        lines.append(
            (
                kind,
                share,
                profiled_activity.total_ns,
                profiled_activity.calls,
                mean_ns,
                profiled_activity.min_ns,
                profiled_activity.max_ns,
                profiled_activity.name,
            )
        )
    return lines, left_out


def profile(name: str, title: str, profiled: Sequence[ProfiledActivity], least: float = 0.02) -> Table:
    """A cell's profile; small rows are counted and not shown, as the old documents have it."""
    lines, left_out = rows(profiled, least)
    table = Table(name, title, COLUMNS, lines)
    if left_out:
        table.notes.append(f"{left_out} rows of less than {100 * least:g} % are not shown.")
    return table
