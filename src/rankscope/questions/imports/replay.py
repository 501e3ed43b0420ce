"""How long did clients need for the replayed path operations of an import, and how fast did the server answer?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankscope.model.imports import PathOperation
from rankscope.model.tables import Cell, Column, Table, Unit

Array = Any
NS_PER_S = 1e9
LATE_NS = 20_000_000  # between the first and the last client's beginning

OVERVIEW = (
    Column(
        "nodes",
        Unit.COUNT,
        "nodes",
        "number of mounts of the slow file system, each with its own cache; 1 without `--slow`",
    ),
    Column("clients", Unit.COUNT, "clients", "number of processes, on all nodes"),
    Column("operations", Unit.COUNT, "operations", "path operations × clients; reads are not among them"),
    Column("wall_ns", Unit.NS, "wall", "last end of a client − first beginning"),
    Column("operations_per_s", Unit.NUMBER, "operations/s", "`operations` ÷ `wall_ns`"),
    Column("client_min_ns", Unit.NS, "fastest client", "shortest of the clients' end − beginning, reads included"),
    Column("client_median_ns", Unit.NS, "median", "median of the clients' end − beginning, reads included"),
    Column("client_max_ns", Unit.NS, "slowest", "longest of the clients' end − beginning, reads included"),
    Column("failed", Unit.COUNT, "failed", "operations that failed, as recorded or not"),
    Column(
        "otherwise",
        Unit.COUNT,
        "not as recorded",
        "operations that failed but succeeded when recorded, or the other way round",
    ),
    Column("read_bytes", Unit.BYTES, "read", "bytes that were read from opened files"),
)
OPERATIONS = (
    Column("operation", Unit.NAME, "operation"),
    Column("operations", Unit.COUNT, "operations", "number of operations of the kind, of all clients"),
    Column("total_ns", Unit.NS, "total", "sum of their times as the clients see them"),
    Column("mean_ns", Unit.NS, "mean", "`total_ns` ÷ `operations`"),
    Column("median_ns", Unit.NS, "median", "median over all clients"),
    Column("p90_ns", Unit.NS, "90 %", "90th percentile over all clients"),
    Column("p99_ns", Unit.NS, "99 %", "99th percentile over all clients"),
    Column("max_ns", Unit.NS, "max", "longest over all clients"),
)
SERVER = (
    Column("operation", Unit.NAME, "operation"),
    Column("count", Unit.COUNT, "count", "what the slow file system counted"),
)


def replay_overview(clients: Array, nodes: int, operations: int) -> Table:
    """One row; `clients` has the columns begin_ns, end_ns, failed, otherwise, reads, bytes."""
    own_ns = clients[:, 1] - clients[:, 0]
    wall_ns = int(clients[:, 1].max() - clients[:, 0].min())
    total = operations * len(clients)
    row: tuple[Cell, ...] = (
        nodes, len(clients), total, wall_ns, total / wall_ns * NS_PER_S,
        int(own_ns.min()), float(np.median(own_ns)), int(own_ns.max()),
        int(clients[:, 2].sum()), int(clients[:, 3].sum()), int(clients[:, 5].sum()),
    )  # fmt: skip
    table = Table("replay", "Replay of recorded path operations", OVERVIEW, [row], vertical=True)
    if otherwise := int(clients[:, 3].sum()):
        question = "is it the same folder, in the same state?"
        table.warnings.append(f"{otherwise} of {total} operations had another result than recorded: {question}")
    if (apart_ns := int(np.ptp(clients[:, 0]))) > LATE_NS:
        table.warnings.append(f"the clients began {apart_ns / 1e6:.0f} ms apart: this machine is too busy for so many")
    return table


def replay_operations(operations: Sequence[PathOperation], operation_ns: Array, read_ns: Array) -> Table:
    """A row for each kind of operation, and one for reading what was opened; arrays are clients × operations."""
    kinds = np.array([operation.operation for operation in operations])
    rows = [_row(str(kind), operation_ns[:, kinds == kind].ravel()) for kind in np.unique(kinds)]
    if (read_ns > 0).any():
        rows.append(_row("read to the end", read_ns[read_ns > 0]))
    rows.append(_row("all path operations", operation_ns.ravel()))
    return Table("replay_operations", "Time of an operation as a client sees it", OPERATIONS, rows)


def _row(name: str, ns: Array) -> tuple[Cell, ...]:
    if not ns.size:
        return (name, 0, 0, None, None, None, None, None)
    median, p90, p99 = (float(value) for value in np.percentile(ns, (50, 90, 99)))
    return (name, int(ns.size), int(ns.sum()), float(ns.mean()), median, p90, p99, int(ns.max()))


def replay_server(counters: dict[str, int]) -> Table:
    """Operations of the slow file system by all of them."""
    rows: list[tuple[Cell, ...]] = [(name, value) for name, value in counters.items() if not name.endswith("_ns")]
    return Table("replay_server", "Operations of the slow file system", SERVER, rows)
