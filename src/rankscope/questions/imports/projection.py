"""What do the imports of a job of N nodes ask of its file server, and how long does it take if all of it goes there?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankscope.analyse.import_counts import ImportCounts
from rankscope.model import Cell, Column, Table, Unit

NS_PER_S = 1e9
CACHES = {
    "calls": "every system call goes to the server",
    "walk": "every folder of every path is looked up at the server, every time",
    "none": "every path operation goes to the server, as one operation",
    "positive": "a process remembers what is there",
    "negative": "a process remembers what is there and what is not",
    "node": "all processes of a node share what they remember",
}
COLUMNS = (
    Column("cache", Unit.NAME, "cache"),
    Column("nodes", Unit.COUNT, "nodes"),
    Column("ranks", Unit.COUNT, "ranks"),
    Column("server_operations", Unit.COUNT, "server operations"),
    Column("latency_bound_ns", Unit.NS, "by latency"),
    Column("server_bound_ns", Unit.NS, "by the server"),
    Column("time_ns", Unit.NS, "the larger"),
    Column("at_most_ns", Unit.NS, "at most"),
)


@dataclass(frozen=True, slots=True)
class Server:
    """What is known of the file server."""

    operations_per_s: float
    latency_ns: float = 0.0


@dataclass(frozen=True, slots=True)
class Projected:
    """One size of job with one kind of cache."""

    server_operations: int
    latency_bound_ns: float
    server_bound_ns: float

    @property
    def time_ns(self) -> float:
        return max(self.latency_bound_ns, self.server_bound_ns)

    @property
    def at_most_ns(self) -> float:
        return self.latency_bound_ns + self.server_bound_ns


def projected(counts: ImportCounts, cache: str, nodes: int, ranks_per_node: int, server: Server) -> Projected | None:
    """None where a count that the cache needs is not known."""
    of_node, of_rank = counts.of_node(cache, ranks_per_node), counts.of_rank(cache)
    if of_node is None or of_rank is None:
        return None
    total = nodes * of_node
    return Projected(total, of_rank * server.latency_ns, total / server.operations_per_s * NS_PER_S)


def projection(
    counts: ImportCounts, caches: Sequence[str], nodes: Sequence[int], ranks_per_node: int, server: Server
) -> Table:
    """A row for each cache and number of nodes."""
    rows: list[tuple[Cell, ...]] = []
    unknown = []
    for cache in caches:
        found = [(count, projected(counts, cache, count, ranks_per_node, server)) for count in nodes]
        if any(one is None for _, one in found):
            unknown.append(cache)
        rows += [_row(cache, count, ranks_per_node, one) for count, one in found if one is not None]
    made = Table("import_projection", "Imports on a file server, if all of it goes there", COLUMNS, rows)
    made.notes = [f"{cache}: {CACHES[cache]}" for cache in caches if cache not in unknown]
    made.notes.append("the time lies between the larger and the sum of both; what is asked of open files is not in it")
    made.notes += [f"{cache}: left out, for it needs the paths (--imports paths)" for cache in unknown]
    return made


def _row(cache: str, nodes: int, ranks_per_node: int, one: Projected) -> tuple[Cell, ...]:
    bounds = (one.latency_bound_ns, one.server_bound_ns, one.time_ns, one.at_most_ns)
    return (cache, nodes, nodes * ranks_per_node, one.server_operations, *bounds)
