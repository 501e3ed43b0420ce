"""What does staging cost and save, beside running in place, and where is the break-even?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median
from typing import Any

from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.questions.scaling.break_even import break_even

Report = Mapping[str, Any]


@dataclass(slots=True)
class StagingNotes:
    """One job's notes: a report of each rank and of each node's keeper."""

    ranks: list[Report] = field(default_factory=list)
    nodes: list[Report] = field(default_factory=list)


@dataclass(slots=True)
class BothWays:
    """The same command in place and staged, each maybe several times."""

    in_place: list[StagingNotes] = field(default_factory=list)
    staged: list[StagingNotes] = field(default_factory=list)


STAGING_COLUMNS = (
    Column("nodes", Unit.COUNT, "Nodes", "number of nodes"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks"),
    Column("in_place_ns", Unit.NS, "In place", "longest run of the command over the ranks, in place"),
    Column(
        "transfer_ns",
        Unit.NS,
        "Transfer",
        "longest over the nodes: from the request of the first byte until the last chunk has arrived and is verified; "
        "without finding the others (`waited_ns`) and without unpacking",
    ),
    Column(
        "unpack_ns",
        Unit.NS,
        "Unpack",
        "longest over the nodes: time that unpacking took after the end of the transfer; both run at the same "
        "time, so this is the exposed part",
    ),
    Column(
        "import_ns",
        Unit.NS,
        "Import",
        "longest run of the command over the ranks, staged; for a command that only imports, the import",
    ),
    Column(
        "total_ns",
        Unit.NS,
        "Total",
        "longest over the ranks: from the start of the process `rankscope stage` (its Python included; to 10 "
        "ms) to the end of the command",
    ),
    Column("times_faster", Unit.NUMBER, "In place ÷ total", "`in_place_ns` ÷ `total_ns`"),
    Column(
        "starts",
        Unit.COUNT,
        "Starts to break even",
        "number of starts from one kept copy after which staging pays off: (`total_ns` − `import_ns`) ÷ "
        "(`in_place_ns` − `import_ns`), rounded up; empty: never",
    ),
)
NODE_COLUMNS = (
    Column("node", Unit.NAME, "Node"),
    Column("source", Unit.NAME, "From"),
    Column("waited_ns", Unit.NS, "Waited", "from the keeper's start to the request of the first byte"),
    Column(
        "transfer_ns",
        Unit.NS,
        "Transfer",
        "from the request of the first byte until the last chunk has arrived and is verified",
    ),
    Column("unpack_ns", Unit.NS, "Unpack", "time that unpacking took after the end of the transfer"),
    Column("ready_ns", Unit.NS, "Ready", "from the keeper's start to the copy in place"),
    Column(
        "shared_bytes",
        Unit.BYTES,
        "Shared read",
        "bytes of verified chunks from the shared file, without header and manifest",
    ),
    Column("peer_bytes", Unit.BYTES, "From peers", "bytes of verified chunks from other nodes"),
    Column("sent_bytes", Unit.BYTES, "Sent to peers", "bytes sent to other nodes"),
    Column("files", Unit.COUNT, "Files", "number of files of the copy"),
    Column(
        "original_files",
        Unit.COUNT,
        "From original",
        "names outside the bundle that some process asked the original place for since the copy was made; a "
        "folder counts once, whatever is below it",
    ),
)
SPREAD_COLUMNS = (
    Column("part", Unit.NAME, "Part"),
    Column("of", Unit.NAME, "Over"),
    Column("least_ns", Unit.NS, "Least", "shortest over the nodes or ranks of the largest job, last round"),
    Column("median_ns", Unit.NS, "Median", "median over the nodes or ranks of the largest job, last round"),
    Column("most_ns", Unit.NS, "Most", "longest over the nodes or ranks of the largest job, last round"),
)


def staging(compared: Sequence[BothWays]) -> list[Table]:
    """The table of all scales, the spread, and the nodes of the largest."""
    ordered = sorted((comparison for comparison in compared if comparison.staged or comparison.in_place), key=nodes_of)
    rows = [row(comparison) for comparison in ordered]
    table = Table("staging", "Staged and in place", STAGING_COLUMNS, rows)
    table.notes += notes(rows)
    table.warnings += [warning for comparison in ordered for warning in warnings(comparison)]
    if not ordered or not ordered[-1].staged:
        return [table]
    return [table, spread(ordered[-1].staged[-1]), nodes(ordered[-1].staged[-1])]


def nodes_of(comparison: BothWays) -> int:
    return max((len(timed.nodes) for timed in comparison.staged), default=0)


def row(comparison: BothWays) -> tuple[Cell, ...]:
    """One scale: the time of the last rank or node, of several rounds the median."""
    in_place = middle([most(timed.ranks, "import_ns") for timed in comparison.in_place])
    transfer = middle([most(timed.nodes, "transfer_ns") for timed in comparison.staged])
    unpack = middle([most(timed.nodes, "unpack_ns") for timed in comparison.staged])
    importing = middle([most(timed.ranks, "import_ns") for timed in comparison.staged])
    total = middle([most_total(timed.ranks) for timed in comparison.staged])
    ranks = max((len(timed.ranks) for timed in [*comparison.in_place, *comparison.staged]), default=0)
    faster = in_place / total if in_place and total else None
    return (
        nodes_of(comparison) or None,
        ranks,
        in_place,
        transfer,
        unpack,
        importing,
        total,
        faster,
        starts(in_place, importing, total),
    )


def starts(in_place: float | None, importing: float | None, total: float | None) -> int | None:
    """After how many starts from one kept copy staging has paid; None where it never does."""
    if in_place is None or importing is None or total is None or in_place <= importing:
        return None
    return max(1, ceil((total - importing) / (in_place - importing)))


def most(reports: Sequence[Report], name: str) -> float | None:
    return max((float(report[name]) for report in reports if report.get(name) is not None), default=None)


def most_total(ranks: Sequence[Report]) -> float | None:
    return max((float(rank["waited_ns"] + rank["import_ns"]) for rank in ranks), default=None)


def middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def notes(rows: Sequence[tuple[Cell, ...]]) -> list[str]:
    """The break-even in nodes, and where it is not within what was measured."""
    points = [(int(row[0]), float(row[2]), float(row[6])) for row in rows if row[0] and row[2] and row[6]]
    if not points:
        return ["No break-even: nothing was measured both in place and staged"]
    crossing = break_even(*zip(*sorted(points), strict=True))
    return [f"Break-even: {crossing.verdict('in place', 'staging', 'nodes')}"]


def warnings(comparison: BothWays) -> list[str]:
    """What makes a row doubtful."""
    problems = []
    for timed in comparison.staged:
        failed = [node for node in timed.nodes if not node.get("staged")]
        if failed:
            reason = failed[0].get("reason")
            problems.append(f"{len(failed)} of {len(timed.nodes)} nodes ran in place: {reason}")
        alone = [node["alone_because"] for node in timed.nodes if node.get("alone_because")]
        if alone:
            problems.append(f"{len(alone)} of {len(timed.nodes)} nodes did not find the others: {alone[0]}")
        unfinished = sum(1 for node in timed.nodes if not node.get("ended"))
        if unfinished:
            problems.append(f"{unfinished} nodes had not reported what came from the original place")
    codes = {rank["exit_code"] for timed in [*comparison.in_place, *comparison.staged] for rank in timed.ranks} - {0}
    if codes:
        problems.append(f"commands ended with exit codes {', '.join(map(str, sorted(codes)))}: times may mean little")
    return problems


def spread(timed: StagingNotes) -> Table:
    """How far ranks and nodes of one job are apart."""
    rows: list[tuple[Cell, ...]] = []
    for part, of, reports, name in (
        ("transfer", "nodes", timed.nodes, "transfer_ns"),
        ("unpack", "nodes", timed.nodes, "unpack_ns"),
        ("ready", "nodes", timed.nodes, "ready_ns"),
        ("import", "ranks", timed.ranks, "import_ns"),
    ):
        values = sorted(float(report[name]) for report in reports if report.get(name) is not None)
        if values:
            rows.append((part, of, values[0], median(values), values[-1]))
    return Table("staging_spread", "Spread over nodes and ranks", SPREAD_COLUMNS, rows)


def nodes(timed: StagingNotes) -> Table:
    """Where each node got its copy from."""
    rows: list[tuple[Cell, ...]] = [
        tuple(source(node) if column.name == "source" else node.get(column.name) for column in NODE_COLUMNS)
        for node in sorted(timed.nodes, key=lambda node: str(node.get("node")))
    ]
    table = Table("staging_nodes", "Nodes", NODE_COLUMNS, rows)
    names = sorted({str(name) for node in timed.nodes for name in node.get("original_names") or []})
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        table.notes.append(f"Taken from the original place: {shown}")
    if any(node.get("original_files", 0) is None for node in timed.nodes):
        table.notes.append("Where From original is empty, the node's file system does not count it")
    return table


def source(node: Report) -> str:
    if node.get("reused"):
        return "a copy that was there"
    return "shared file" if node.get("source") == "shared" else "a peer" if node.get("source") else "nowhere"
