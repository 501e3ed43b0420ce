"""Of the recorded time in collectives, how much was waiting for the last rank and how much was moving data?"""

from __future__ import annotations

from collections.abc import Sequence

from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.questions.collectives.operations import operation_of
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
        by_size = recorded(repeats[0], operation, int(ranks))
        if not by_size:
            unseen.setdefault(str(backend), []).append(str(ranks))
            continue
        sizes.rows += [(backend, ranks, *(told[column.name] for column in SIZES[2:])) for told in by_size]
        shares.rows.append((backend, ranks, *sums(by_size), awaited(repeats[0])))
    shares.notes.append(
        "From the recorded run: first calls and warm-up included, summed over the ranks; what each column means: "
        "docs/metrics.md, collectives."
    )
    for backend, scales in unseen.items():
        told = f"{backend}: the recorder saw no {operation} of it on {', '.join(scales)} ranks, so nothing is shown"
        shares.warnings.append(f"{told} (docs/backends.md says what is seen of which backend)")
    return [shares, sizes]


def recorded(outcome: Outcome, operation: str, ranks: int) -> list[dict[str, Value]]:
    """Of the studied operation only, in the order of sizes."""
    answer = outcome.run.table("collectives")
    wanted = operation_of("", operation)
    told = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
    ours = [one for one in told if one["members"] == ranks and operation_of("", str(one["name"])) == wanted]
    return sorted(ours, key=lambda one: (str(one["name"]), int(str(one["up_to_bytes"] or 0))))


def sums(told: Sequence[dict[str, Value]]) -> tuple[Value, ...]:
    count = sum(int(str(one["collectives"])) for one in told)
    wait, moving, leaving = (sum(float(str(one[part] or 0)) for one in told) for part in PARTS)
    total = wait + moving + leaving
    return count, wait, moving, leaving, wait / total if total else None


def awaited(outcome: Outcome) -> str:
    """The rank that the others wait for, if one stands out."""
    answer = outcome.run.table("waiting")
    rank, verdict = answer.columns.index("rank"), answer.columns.index("verdict")
    return next((f"rank {row[rank]}" for row in answer.rows if row[verdict] == "waited for"), "")
