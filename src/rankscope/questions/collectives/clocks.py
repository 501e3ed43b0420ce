"""How far apart are the clocks of the hosts, and how well is that known?"""

from __future__ import annotations

import numpy as np

from rankscope.model.gpu import GpuClock
from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.collectives.clock_offsets import Clocks, HostClock
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import ranges

# ---------------------------------------------------------------------------------------------------------------------
# How far is the clock of a rank's GPU records from the host's, how fast does it drift, and how well is that known?
GPU_CLOCKS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("devices", Unit.NAME, "GPUs", "its GPUs, which CUPTI puts on one clock"),
    Column(
        "offset_ns",
        Unit.NS,
        "Ahead by",
        "CUPTI's clock − the host's, in the middle between first and last reading; negative: behind",
    ),
    Column(
        "error_ns",
        Unit.NS,
        "±",
        "half the length of the longer reading (10 µs where the recorder did not keep it) + 1 µs for the conversion"
        " of ticks; where no drift is given, also half the difference between the two readings",
    ),
    Column(
        "drift_ppm",
        Unit.NUMBER,
        "Drift (ppm)",
        "(last − first offset) ÷ the time between them, in millionths; empty below 0.5 s",
    ),
    Column(
        "drift_error_ppm",
        Unit.NUMBER,
        "± (ppm)",
        "the sum of the errors of both readings ÷ the time between them, in millionths",
    ),
    Column("span_ns", Unit.NS, "Over", "time between the readings; empty with a single reading"),
    Column("by", Unit.NAME, "By", "readings; readings of unknown length: files of earlier recorders"),
)
TICKS_NS = 1_000.0  # ticks become Unix time to about this
ASSUMED_NS = 10_000.0  # of a reading whose length is not recorded
SHORTEST_NS = 500_000_000.0  # over less than this no drift is told
STEEPEST_PPM = 1_000.0
MEASURED, ASSUMED = "readings", "readings of unknown length"
SQL = """
    SELECT rank, host, devices, first_offset_ns, first_error_ns, last_offset_ns, last_error_ns, span_ns
    FROM gpu_clocks JOIN ranks USING (process) WHERE {condition} ORDER BY rank"""


def gpu_clocks(tables: Tables, selection: Selection = ALL) -> Table:
    """Offset and drift of the clock that GPU records are in, against the host's, rank by rank."""
    table = Table("gpu_clocks", "Clocks of the GPU records", GPU_CLOCKS_COLUMNS, [])
    for rank, host, devices, *readings in tables.query(SQL.format(condition=selection.condition)):
        cells = _cells(GpuClock(*readings))
        table.rows.append((rank, host, devices, *cells))
        if isinstance(cells[2], float) and abs(cells[2]) > STEEPEST_PPM:
            table.warnings.append(f"Rank {rank}: the clock of its GPU records is not steady; no rate is used.")
    if any(row[-1] == ASSUMED for row in table.rows):
        table.notes.append(f"{ASSUMED}: their length was not recorded; 10 µs is assumed.")
    return arranged(table, selection)


def _cells(clock: GpuClock) -> tuple[Cell, ...]:
    known = (clock.first_error_ns, clock.last_error_ns)
    errors = [(ASSUMED_NS if error is None else error) + TICKS_NS for error in known]
    by = MEASURED if clock.first_error_ns is not None else ASSUMED
    first, last, span_ns = clock.first_offset_ns, clock.last_offset_ns, float(clock.span_ns or 0)
    if last is None:
        return first, errors[0], None, None, None, by
    offset = (first + last) / 2
    if span_ns < SHORTEST_NS:
        return offset, max(errors) + abs(last - first) / 2, None, None, span_ns, by
    return offset, max(errors), (last - first) / span_ns * 1e6, sum(errors) / span_ns * 1e6, span_ns, by


# ---------------------------------------------------------------- clocks
CLOCKS_COLUMNS = (
    Column(
        "host",
        Unit.NAME,
        "Host",
        "name of the host, with the rank where its ranks do not share a clock; only runs on several hosts have this"
        " table",
    ),
    Column("ranks", Unit.NAME, "Ranks", "the ranks that share the clock"),
    Column(
        "offset_ns", Unit.NS, "Ahead by", "its clock − the reference's, in the middle of the span; negative: behind"
    ),
    Column(
        "error_ns",
        Unit.NS,
        "±",
        "largest error of the estimate within the span, those of the hosts between it and the reference added",
    ),
    Column(
        "drift_ppm",
        Unit.NUMBER,
        "Drift (ppm)",
        "how much faster its clock is than the one it was compared with, in millionths: − b of the longest part",
    ),
    Column(
        "drift_error_ppm",
        Unit.NUMBER,
        "± (ppm)",
        "largest error of `drift_ppm`: to the steepest and flattest line of the polygon; of the second estimate at "
        "most 2 × its error ÷ the span",
    ),
    Column(
        "bound_ns",
        Unit.NS,
        "Proven to ±",
        "half the room that the proof leaves: the largest error of the polygon's centre, against the host it was "
        "compared with",
    ),
    Column(
        "by",
        Unit.NAME,
        "By",
        "reference; bounds: the proof; leaving together: ranks leave the shortest collectives at about one time; "
        "unknown: it could not be determined",
    ),
    Column("compared_with", Unit.NAME, "Compared with", "the host it was compared with"),
    Column("collectives", Unit.COUNT, "Collectives", "number of collectives that were used"),
    Column("contradicting", Unit.COUNT, "Contradicting", "number of collectives that were left out"),
    Column("jumps", Unit.COUNT, "Jumps", "number of times that the clock jumped"),
)
BOUNDS, LEAVING, REFERENCE, UNKNOWN = "bounds", "leaving together", "reference", "unknown"


def clocks(tables: Tables, selection: Selection = ALL) -> Table:
    """Offset and drift of every host against that of the lowest rank; nothing where all ranks share one clock."""
    known = collectives_of(tables)
    table = Table("clocks", "Clocks of the hosts", CLOCKS_COLUMNS, [])
    if len(known.clocks.clocks) > 1 and known.splits:
        table.rows = [row for clock in known.clocks.clocks for row in _rows(clock, selection)]
        table.warnings += _warnings(known.clocks, known.log.base_ns)
        if any(part.together for clock in known.clocks.clocks for part in clock.parts):
            table.notes.append(
                "leaving together: what the log proves leaves more room than this; the estimate assumes that ranks "
                "leave the shortest collectives at about one time."
            )
    return arranged(table, selection)


def _rows(clock: HostClock, selection: Selection) -> list[tuple[Cell, ...]]:
    if selection.ranks is not None and not selection.ranks & set(clock.ranks):
        return []
    label = (clock.name, ranges(clock.ranks))
    if clock.compared_with is None:
        return [(*label, None, None, None, None, None, REFERENCE if clock.known else UNKNOWN, "", None, None, None)]
    first, last = clock.parts[0], clock.parts[-1]
    middle = np.array([(first.from_ns + last.to_ns) / 2, first.from_ns, last.to_ns])
    moved, error = clock.to_reference(middle)
    by = LEAVING if any(part.together for part in clock.parts) else BOUNDS
    longest = max(clock.parts, key=lambda part: part.to_ns - part.from_ns)
    return [(
        *label, float(middle[0] - moved[0]), float(error.max()), -longest.slope * 1e6, longest.slope_error * 1e6,
        max(part.bound_ns for part in clock.parts), by, clock.compared_with.name,
        sum(part.used for part in clock.parts), sum(part.dropped for part in clock.parts), len(clock.parts) - 1,
    )]  # fmt: skip


def _warnings(known: Clocks, base_ns: int) -> list[str]:
    warnings = []
    for host in known.split_hosts:
        warnings.append(f"The ranks of {host} contradict each other: each gets its own clock.")
    for clock in known.clocks:
        for before, after in zip(clock.parts, clock.parts[1:], strict=False):
            by_ms = (before.offset(after.from_ns) - after.offset(after.from_ns)) / 1e6
            when = (after.from_ns - clock.parts[0].from_ns) / 1e9
            warnings.append(f"The clock of {clock.name} jumps by {by_ms:.3g} ms after {when:.3g} s of collectives.")
        if not clock.known:
            warnings.append(f"The clock of {clock.name} cannot be compared: no shared collectives, or they contradict.")
    return warnings
