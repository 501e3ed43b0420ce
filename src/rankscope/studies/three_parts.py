"""Host time and calls, device time and calls, memory bytes and calls: the backends side by side, by scale."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rankscope.analyse.iprof import DEVICE, iprof_parts
from rankscope.model import Cell as Value
from rankscope.model import Column, Table, Unit
from rankscope.studies.outcome import Outcome
from rankscope.studies.rows import by_place

COUNTED = ("Hostnames", "Processes", "Threads", "Devices", "Subdevices")
COUNTS = (
    Column("backend", Unit.NAME, "Backend"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("part", Unit.NAME, "Part"),
    *(Column(name.lower(), Unit.COUNT, name) for name in COUNTED),
    Column("max_rss_bytes", Unit.BYTES, "Largest process"),
)
HOST = "Part 1: CPU host profiling, total time and total number of calls"
GPU = "Part 2: GPU profiling, total time and total number of calls"
COPIED = "Part 3: Memory profiling, total memory and total number of calls: copies and sets on devices"
SENT = "Part 3: Memory profiling, total memory and total number of calls: messages"
ABSENT = "Absent: no device was used, or none that the recorder knows."
MESSAGES = """
    SELECT sum(bytes)::BIGINT, sum(calls)::BIGINT FROM tallies JOIN ranks USING (process)
    WHERE layer IN ('mpi', 'gloo', 'nccl') AND bytes > 0 AND coalesce(within, '') = '' AND role = 'rank'"""
COPIES = """
    SELECT sum(bytes)::BIGINT, sum(calls)::BIGINT FROM tallies JOIN ranks USING (process)
    WHERE layer = 'gpu' AND bytes > 0 AND coalesce(within, '') = '' AND role = 'rank'"""
Pair = tuple[Value, Value]  # time or bytes, and calls
NOTHING: Pair = (None, None)


def three_parts(outcomes: Sequence[Outcome]) -> list[Table]:
    """The header's counts, then the parts; a part that no cell has is said to be absent."""
    first = {place: repeats[0] for place, repeats in by_place(outcomes, "backend").items()}
    host = part(first, "host", HOST, ("Total CPU Time", "Total CPU calls"), Unit.NS, host_total)
    host.notes.append("All intercepted calls of the host, summed over the ranks: MPI, Gloo, NCCL, CUDA's interface.")
    device = part(first, "device", GPU, ("Total GPU Time", "Total GPU calls"), Unit.NS, device_total)
    headings = ("Total Mem Bytes", "Total Mem calls")
    copied = part(first, "copied", COPIED, headings, Unit.BYTES, lambda one: carried(one, COPIES))
    sent = part(first, "sent", SENT, headings, Unit.BYTES, lambda one: carried(one, MESSAGES))
    sent.notes.append("What the ranks give to intercepted calls of MPI, Gloo and NCCL, summed over the ranks.")
    for one in (device, copied):
        one.notes += [ABSENT] * (not one.rows)
    return [counts(first), host, device, copied, sent]


def part(
    found: dict[tuple[str | int, ...], Outcome],
    name: str,
    title: str,
    headings: tuple[str, str],
    unit: Unit,
    total: Callable[[Outcome], Pair],
) -> Table:
    """Rows by scale; of each backend its name, the total and the calls."""
    backends = list(dict.fromkeys(str(place[0]) for place in found))
    columns = [Column("ranks", Unit.COUNT, "")]
    for backend in backends:
        columns.append(Column(f"{backend}_backend", Unit.NAME, " "))
        columns.append(Column(f"{backend}_{name}_{'bytes' if unit is Unit.BYTES else 'ns'}", unit, headings[0]))
        columns.append(Column(f"{backend}_{name}_calls", Unit.COUNT, headings[1]))
    made = Table(name, title, columns, [])
    for ranks in sorted({int(place[1]) for place in found}):
        pairs = [total(found[one, ranks]) if (one, ranks) in found else NOTHING for one in backends]
        if any(pair != NOTHING for pair in pairs):
            made.rows.append((ranks, *(cell for one, two in zip(backends, pairs, strict=True) for cell in (one, *two))))
    return made


def host_total(outcome: Outcome) -> Pair:
    totals = [totals_of(one) for one in iprof_parts(outcome.run.store()) if one.name.startswith("BACKEND_")]
    return (sum(one[0] for one in totals), sum(one[1] for one in totals)) if totals else NOTHING


def device_total(outcome: Outcome) -> Pair:
    return next((totals_of(one) for one in iprof_parts(outcome.run.store()) if one.name == DEVICE), NOTHING)


def carried(outcome: Outcome, asked: str) -> Pair:
    size, calls = outcome.run.store().query(asked)[0]
    return (size, calls) if calls else NOTHING


def totals_of(table: Table) -> tuple[float, int]:
    """Of the last row, which is the sum."""
    told = table.rows[-1]
    return float(str(told[1])), int(str(told[3]))


def counts(found: dict[tuple[str | int, ...], Outcome]) -> Table:
    """How many hosts, processes, threads and devices each part was seen on."""
    made = Table("counts", "What was seen of each backend", COUNTS, [])
    for (backend, ranks), outcome in found.items():
        largest = outcome.run.store().query("SELECT max(max_rss_bytes) FROM ranks WHERE role = 'rank'")[0][0]
        for one in iprof_parts(outcome.run.store()):
            if one.name.startswith("BACKEND_") or one.name == DEVICE:
                told = {name: int(count) for count, name in re.findall(r"(\d+) (\w+) \|", one.title)}
                made.rows.append((backend, ranks, one.name, *(told.get(name) for name in COUNTED), largest))
    return made
