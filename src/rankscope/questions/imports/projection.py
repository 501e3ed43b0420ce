"""What do the imports of a job of N nodes ask of its file server, and how long does it take if all of it goes there?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankscope.model.imports import PathOperation
from rankscope.model.tables import Cell, Column, Table, Tables, Unit


# ---------------------------------------------------------------------------------------------------------------------
# How many names does a client look up that walks paths folder by folder, with each kind of cache?
def lookups(operations: Sequence[PathOperation], folder: str, cache: str) -> int:
    """Names asked for below the folder, which is where the client is mounted.

    Without a cache every operation asks for every folder on its way; what a link leads to is not followed.
    """
    existing = existing_paths(operations, folder)
    known: set[str] = set()
    count = 0
    for operation in operations:
        walked = list(walk(operation.path, folder, existing))
        for _ in range(operation.times):
            fresh = [path for path in walked if path not in known]
            count += len(fresh)
            if cache == "none":
                continue
            known.update(path for path in fresh if path in existing or cache == "negative")
            if not fresh or all(path in known for path in fresh):
                break  # the same again asks nothing more
    return count


def existing_paths(operations: Sequence[PathOperation], folder: str) -> set[str]:
    """What must be there, because an operation on it or below it went well."""
    good = {operation.path for operation in operations if operation.result in ("ok", "")}
    return {prefix for path in good for prefix in prefixes(path, folder)}


def walk(path: str, folder: str, existing: set[str]) -> Iterator[str]:
    """The names on the way, up to the first that is not there."""
    for prefix in prefixes(path, folder):
        yield prefix
        if prefix not in existing:
            return


def is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def prefixes(path: str, folder: str) -> Iterator[str]:
    top = folder.rstrip("/")
    if not is_below(path, folder):
        return
    prefix = top
    for name in path[len(top) + 1 :].split("/"):
        if name and name != ".":
            prefix = f"{prefix}/{name}"
            yield prefix


# ---------------------------------------------------------------------------------------------------------------------
# What does one rank's import ask of a file server, for each kind of client cache?
OF_OPENING = {"open": 1, "exec": 1, "list": 3}  # a folder is opened, read, and read again to find its end
PATH_CALLS = (
    "open", "openat", "openat2", "stat", "lstat", "newfstatat", "fstatat64", "statx", "access", "faccessat",
    "faccessat2", "readlink", "readlinkat", "execve", "execveat",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """Counts of one rank; None: not known."""

    calls: int | None = None  # all system calls
    path_operations: int | None = None  # those that name a path
    walked: int | None = None  # names on the way of them, each folder every time
    attributes: int | None = None  # of them the ones that went well and opened nothing: asked again without a cache
    opens: int | None = None  # opens of files, and three for each folder that was listed: no cache answers those
    missing: int | None = None  # of them the ones that found nothing
    existing_names: int | None = None  # different files and folders on the way that are there
    missing_names: int | None = None  # and that are not there

    def of_rank(self, cache: str) -> int | None:
        """Server operations of a rank that shares its cache with nobody."""
        if cache == "calls":
            return self.calls
        if cache == "walk":
            return summed(self.walked, self.attributes, self.opens)
        if cache == "none":
            return self.path_operations
        absences = self.missing if cache == "positive" else self.missing_names
        return summed(self.existing_names, absences, self.opens)

    def of_node(self, cache: str, ranks: int) -> int | None:
        """Server operations of a node; the ranks of one share what they know only with the cache `node`."""
        if cache != "node":
            return None if (alone := self.of_rank(cache)) is None else ranks * alone
        if self.opens is None:
            return None
        return summed(self.existing_names, self.missing_names, ranks * self.opens)


def summed(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def counts_of(operations: Sequence[PathOperation], folder: str = "/", calls: int | None = None) -> ImportCounts:
    """The counts of the operations below a folder."""
    below = [operation for operation in operations if is_below(operation.path, folder)]
    good = [operation for operation in below if operation.result in ("ok", "")]
    existing = len(existing_paths(below, folder))
    return ImportCounts(
        calls=calls,
        path_operations=sum(operation.times for operation in below),
        walked=lookups(below, folder, "none"),
        attributes=sum(operation.times for operation in good if operation.operation not in OF_OPENING),
        opens=sum(operation.times * OF_OPENING.get(operation.operation, 0) for operation in good),
        missing=sum(operation.times for operation in below if operation.result == "ENOENT"),
        existing_names=existing,
        missing_names=lookups(below, folder, "negative") - existing,
    )


def recorded_counts(tables: Tables, process: int, folder: str = "/") -> ImportCounts:
    """The counts of one process of a run; without the table `paths` nothing is known of different names."""
    names = ", ".join(f"'{name}'" for name in PATH_CALLS)
    where = f"FROM system_calls WHERE process = {process}"
    (calls,) = tables.query(f"SELECT sum(calls) {where}")[0]
    (named, missing) = tables.query(f"SELECT sum(calls), sum(missing) {where} AND call IN ({names})")[0]
    paths = f"SELECT operation, path, result, times, bytes FROM paths WHERE process = {process}"
    if rows := tables.query(paths) if has_table(tables, "paths") else []:
        return counts_of([PathOperation(*row) for row in rows], folder, calls=int(calls or 0))
    return ImportCounts(calls=int(calls or 0), path_operations=int(named or 0), missing=int(missing or 0))


def has_table(tables: Tables, name: str) -> bool:
    """Runs of older recorders do not have every table."""
    return bool(tables.query("SELECT 1 FROM information_schema.tables WHERE table_name = ?", (name,)))


# ---------------------------------------------------------------- projection
NS_PER_S = 1e9
CACHES = {
    "calls": "every system call goes to the server",
    "walk": "every folder of every path is looked up at the server, every time",
    "none": "every path operation goes to the server, as one operation",
    "positive": "a process caches existing names",
    "negative": "a process caches existing and missing names",
    "node": "all processes of a node share one cache",
}
COLUMNS = (
    Column("cache", Unit.NAME, "cache"),
    Column("nodes", Unit.COUNT, "nodes", "number of nodes"),
    Column("ranks", Unit.COUNT, "ranks", "number of ranks: nodes × ranks of a node"),
    Column("server_operations", Unit.COUNT, "server operations", "operations that reach the server with that cache"),
    Column("latency_bound_ns", Unit.NS, "by latency", "operations of one rank × latency"),
    Column(
        "server_bound_ns", Unit.NS, "by the server", "`server_operations` ÷ operations that the server does a second"
    ),
    Column("time_ns", Unit.NS, "the larger", "the larger of `latency_bound_ns` and `server_bound_ns`"),
    Column("at_most_ns", Unit.NS, "at most", "`latency_bound_ns` + `server_bound_ns`"),
)


@dataclass(frozen=True, slots=True)
class FileServer:
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


def projected(
    counts: ImportCounts, cache: str, nodes: int, ranks_per_node: int, server: FileServer
) -> Projected | None:
    """None where a count that the cache needs is not known."""
    of_node, of_rank = counts.of_node(cache, ranks_per_node), counts.of_rank(cache)
    if of_node is None or of_rank is None:
        return None
    total = nodes * of_node
    return Projected(total, of_rank * server.latency_ns, total / server.operations_per_s * NS_PER_S)


def projection(
    counts: ImportCounts, caches: Sequence[str], nodes: Sequence[int], ranks_per_node: int, server: FileServer
) -> Table:
    """A row for each cache and number of nodes."""
    rows: list[tuple[Cell, ...]] = []
    unknown = []
    for cache in caches:
        projections = [(count, projected(counts, cache, count, ranks_per_node, server)) for count in nodes]
        if any(projected_time is None for _, projected_time in projections):
            unknown.append(cache)
        rows += [
            _row(cache, count, ranks_per_node, projected_time)
            for count, projected_time in projections
            if projected_time is not None
        ]
    table = Table("import_projection", "Imports on a file server, if every operation reaches it", COLUMNS, rows)
    table.notes = [f"{cache}: {CACHES[cache]}" for cache in caches if cache not in unknown]
    table.notes.append(
        "the time lies between the larger and the sum of both; operations on open files are not included"
    )
    table.notes += [f"{cache}: left out: it needs the paths (--imports paths)" for cache in unknown]
    return table


def _row(cache: str, nodes: int, ranks_per_node: int, projected_time: Projected) -> tuple[Cell, ...]:
    bounds = (
        projected_time.latency_bound_ns,
        projected_time.server_bound_ns,
        projected_time.time_ns,
        projected_time.at_most_ns,
    )
    return (cache, nodes, nodes * ranks_per_node, projected_time.server_operations, *bounds)
