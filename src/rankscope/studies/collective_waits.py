"""Of the recorded time in collectives, how much was waiting for the last rank and how much was moving data?"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.analyse.operations import operation_of
from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.studies.outcome import Outcome
from rankscope.studies.rows import by_place

PLACE = (Column("backend", Unit.NAME, "Backend"), Column("ranks", Unit.COUNT, "Ranks"))
PARTS = ("wait_ns", "transfer_ns", "leaving_ns")
SHARES = (
    *PLACE,
    Column("collectives", Unit.COUNT, "Collectives"),
    Column("wait_ns", Unit.NS, "Waiting"),
    Column("transfer_ns", Unit.NS, "Moving"),
    Column("leaving_ns", Unit.NS, "Leaving"),
    Column("wait_share", Unit.SHARE, "Wait share"),
    Column("awaited", Unit.NAME, "Waited for"),
)
SIZES = (
    *PLACE,
    Column("name", Unit.NAME, "Recorded as"),
    Column("up_to_bytes", Unit.BYTES, "Up to"),
    Column("collectives", Unit.COUNT, "Collectives"),
    Column("wait_ns", Unit.NS, "Waiting"),
    Column("transfer_ns", Unit.NS, "Moving"),
    Column("leaving_ns", Unit.NS, "Leaving"),
    Column("wait_share", Unit.SHARE, "Wait share"),
    Column("bus_rate", Unit.RATE, "Bus bw, moving"),
    Column("naive_rate", Unit.RATE, "Naive bw"),
)


def waits(outcomes: Sequence[Outcome], operation: str) -> list[Table]:
    """Sums by backend and scale, and by size; the recorder's, over the first repeat of each."""
    shares = Table("waits", "Waiting against moving data", SHARES, [])
    sizes = Table("waits_by_size", "Waiting against moving data, by size", SIZES, [])
    unseen: dict[str, list[str]] = {}
    for (backend, ranks), repeats in by_place(outcomes, "backend").items():
        if ranks == 1:
            continue
        by_size = recorded_sizes(repeats[0], operation, int(ranks))
        if not by_size:
            unseen.setdefault(str(backend), []).append(str(ranks))
            continue
        sizes.rows += [(backend, ranks, *row) for row in by_size]
        shares.rows.append((backend, ranks, *sums(repeats[0])))
    shares.notes.append(
        "From the recorded run: all its collectives, first calls and warm-up included, summed over the ranks; what "
        "each column means: docs/metrics.md, collectives and waiting."
    )
    for backend, scales in unseen.items():
        told = f"{backend}: the recorder saw no {operation} of it on {', '.join(scales)} ranks, so nothing is shown"
        shares.warnings.append(f"{told} (docs/backends.md says what is seen of which backend)")
    return [shares, sizes]


def recorded_sizes(outcome: Outcome, operation: str, ranks: int) -> list[tuple[Value, ...]]:
    """Of the studied operation only, in the order of sizes."""
    answer = outcome.run.table("collectives")
    wanted = operation_of("", operation)
    found = []
    for row in answer.rows:
        told = dict(zip(answer.columns, row, strict=True))
        if told["members"] == ranks and operation_of("", str(told["name"])) == wanted:
            found.append(tuple(told[column.name] for column in SIZES[2:]))
    return sorted(found, key=lambda row: (str(row[0]), row[1] or 0))


def sums(outcome: Outcome) -> tuple[Value, ...]:
    answer = outcome.run.table("waiting")
    told = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    wait, moving, leaving = (sum(float(str(row[part] or 0)) for row in told) for part in PARTS)
    progress = sum(float(str(row["progress_wait_ns"] or 0)) for row in told)
    total = wait + moving + leaving
    named = next((f"rank {row['rank']}" for row in told if row["verdict"] == "waited for"), "")
    count = max((int(str(row["collectives"])) for row in told), default=0)
    if not total and progress:  # all of them nonblocking: what they wait is no cost by itself
        return count, progress, None, None, None, named
    return count, wait, moving, leaving, wait / total if total else None, named
