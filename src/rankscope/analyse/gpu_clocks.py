"""How far is the clock of a rank's GPU records from the host's, how fast does it drift, and how well is that known?"""

from __future__ import annotations

from collections.abc import Mapping

from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged

COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("devices", Unit.NAME, "GPUs"),
    Column("offset_ns", Unit.NS, "Ahead by"),
    Column("error_ns", Unit.NS, "±"),
    Column("drift_ppm", Unit.NUMBER, "Drift (ppm)"),
    Column("drift_error_ppm", Unit.NUMBER, "± (ppm)"),
    Column("span_ns", Unit.NS, "Over"),
    Column("by", Unit.NAME, "By"),
)
TICKS_NS = 1_000.0  # ticks become Unix time to about this
ASSUMED_NS = 10_000.0  # of a reading whose length is not recorded
SHORTEST_NS = 500_000_000.0  # over less than this no drift is told
STEEPEST_PPM = 1_000.0
MEASURED, ASSUMED = "readings", "readings of unknown length"
SQL = """
    SELECT rank, host, devices, name, value FROM figures JOIN ranks USING (process)
    WHERE series = 'CUPTI clock' AND {condition} ORDER BY rank"""


def gpu_clocks(tables: Tables, selection: Selection = ALL) -> Table:
    """Offset and drift of the clock that GPU records are in, against the host's, rank by rank."""
    found: dict[tuple[Cell, ...], dict[str, float]] = {}
    for rank, host, devices, name, value in tables.query(SQL.format(condition=selection.condition)):
        found.setdefault((rank, host, devices), {})[name] = value
    table = Table("gpu_clocks", "Clocks of the GPU records", COLUMNS, [])
    for who, told in found.items():
        cells = _cells(told)
        table.rows.append((*who, *cells))
        if isinstance(cells[2], float) and abs(cells[2]) > STEEPEST_PPM:
            table.warnings.append(f"Rank {who[0]}: the clock of its GPU records does not run evenly; no rate is used.")
    if any(row[-1] == ASSUMED for row in table.rows):
        table.notes.append(f"{ASSUMED}: recorded without it; 10 µs are assumed.")
    return arranged(table, selection)


def _cells(told: Mapping[str, float]) -> tuple[Cell, ...]:
    errors = [told.get(f"{which} error", ASSUMED_NS) + TICKS_NS for which in ("first", "last")]
    by = MEASURED if "first error" in told else ASSUMED
    first, last, span_ns = told["first offset"], told.get("last offset"), told.get("span", 0.0)
    if last is None:
        return first, errors[0], None, None, None, by
    offset = (first + last) / 2
    if span_ns < SHORTEST_NS:
        return offset, max(errors) + abs(last - first) / 2, None, None, span_ns, by
    return offset, max(errors), (last - first) / span_ns * 1e6, sum(errors) / span_ns * 1e6, span_ns, by
