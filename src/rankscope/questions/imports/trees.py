"""The modules of a run as trees: what each cost by itself and with all that it imported or started."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from rankscope.model.tables import Column, Tables, Unit
from rankscope.questions.selection import ALL, Selection

# ---------------------------------------------------------------------------------------------------------------------
# Which system calls are opens, stats, reads …: the names as strace prints them.
OPENS = ("open", "openat", "openat2", "creat")
STATS = ("stat", "lstat", "fstat", "newfstatat", "fstatat64", "statx", "stat64", "lstat64", "fstat64")
READS = ("read", "pread64", "readv", "preadv", "preadv2")
MMAPS = ("mmap", "mmap2")
# In which a thread waits for another, for a time or for a process: not what files cost.
WAITS = (
    *("futex", "futex_wait", "futex_waitv", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait"),
    *("epoll_pwait2", "nanosleep", "clock_nanosleep", "pause", "rt_sigsuspend", "rt_sigtimedwait", "wait4", "waitid"),
)
STARTS = ("fork", "vfork", "clone", "clone3")  # of threads and processes alike


def one_of(names: tuple[str, ...]) -> str:
    """The SQL condition that a row of system_calls is one of these."""
    return f"call IN ({', '.join(repr(name) for name in names)})"


def sums(prefix: str = "") -> str:
    """The SQL sums over rows of system_calls, in the order of COUNTED."""
    parts = {
        "calls": "calls",
        "opens": f"CASE WHEN {one_of(OPENS)} THEN calls END",
        "stats": f"CASE WHEN {one_of(STATS)} THEN calls END",
        "reads": f"CASE WHEN {one_of(READS)} THEN calls END",
        "mmaps": f"CASE WHEN {one_of(MMAPS)} THEN calls END",
        "failed": "failed",
        "missing": "missing",
        "read_bytes": f"CASE WHEN {one_of(READS)} THEN bytes END",
        "call_ns": f"CASE WHEN NOT {one_of(WAITS)} THEN total_ns END",
    }
    return ", ".join(f"coalesce(sum({sql}), 0)::BIGINT AS {prefix}{name}" for name, sql in parts.items())


def by_cause() -> str:
    """The SQL sums of calls by the causes that belong to modules."""
    parts = [f"CASE WHEN cause = '{cause}' THEN calls END" for cause in ("search", "code", "loader", "module")]
    return ", ".join(f"coalesce(sum({sql}), 0)::BIGINT" for sql in parts)


COUNTED = ("calls", "opens", "stats", "reads", "mmaps", "failed", "missing", "read_bytes", "call_ns")
CALL_COLUMNS = (
    Column("calls", Unit.COUNT, "Calls", "number of system calls"),
    Column("opens", Unit.COUNT, "Opens", "calls of open, openat, openat2, creat"),
    Column("stats", Unit.COUNT, "Stats", "calls of stat, lstat, fstat, newfstatat, statx"),
    Column("reads", Unit.COUNT, "Reads", "calls of read, pread64, readv, preadv, preadv2"),
    Column("mmaps", Unit.COUNT, "Mmaps", "calls of mmap"),
    Column("failed", Unit.COUNT, "Failed", "calls that returned an error"),
)


# ---------------------------------------------------------------- trees
START_ERROR_NS = 20_000_000  # a process's start is known to a tick of the kernel, 10 ms, and so is its parent's


@dataclass(slots=True)
class Counts:
    """Sums over system calls, and the shared objects that were loaded."""

    calls: int = 0
    opens: int = 0
    stats: int = 0
    reads: int = 0
    mmaps: int = 0
    failed: int = 0
    missing: int = 0
    read_bytes: int = 0
    call_ns: int = 0
    search_calls: int = 0  # by cause; the rest is the interpreter's
    code_calls: int = 0
    loader_calls: int = 0
    module_calls: int = 0
    shared_objects: int = 0

    def add(self, other: Counts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True, eq=False)
class Node:
    """A process or a module: `own` without, `whole` with what it imported, and the processes it started."""

    name: str
    process: int
    module: int = 0  # 0: the process itself, before, after and between its imports
    thread: int = 0
    begin_ns: int = 0
    wall_ns: int = 0
    self_wall_ns: int = 0
    cpu_ns: int = 0
    self_cpu_ns: int = 0
    failed: bool = False
    own: Counts = field(default_factory=Counts)
    whole: Counts = field(default_factory=Counts)
    children: list[Node] = field(default_factory=list)
    merged: int = 1  # how many nodes of equal name this stands for

    @property
    def is_process(self) -> bool:
        return self.module == 0

    def walk(self) -> Iterator[Node]:
        """This and all below, each before what is below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)


@dataclass(frozen=True, slots=True)
class Image:
    """One program that a process was."""

    process: int
    command: str
    host: str
    pid: int | None
    parent_pid: int | None
    started_ns: int | None  # of the process
    elapsed_ns: int  # from the start of the process to the end of this program
    cpu_ns: int  # likewise


Pid = tuple[str, int]  # with its host
MODULES_SQL = """
    SELECT process, module, parent, name, thread, begin_ns, wall_ns, self_wall_ns, cpu_ns, self_cpu_ns, failed,
        shared_objects
    FROM modules JOIN ranks USING (process) WHERE {condition} AND module > 0 ORDER BY process, module"""
CALLS_SQL = f"""
    SELECT process, module, {sums()}, {by_cause()} FROM system_calls JOIN ranks USING (process) WHERE {{condition}}
    GROUP BY process, module"""
PROCESSES_SQL = """
    SELECT process, command, host, pid, parent_pid, started_ns, coalesce(elapsed_ns, 0),
        coalesce(user_ns, 0) + coalesce(system_ns, 0) FROM ranks
    WHERE {condition} AND (process IN (SELECT process FROM modules) OR process IN (SELECT process FROM system_calls))
    ORDER BY started_ns NULLS FIRST, process"""


def chosen(selection: Selection) -> str:
    """The SQL condition on the table ranks: all processes of the run, or those of the chosen ranks, helpers too."""
    if selection.ranks is None:
        return "true"
    return f"rank IN ({', '.join(str(int(rank)) for rank in sorted(selection.ranks)) or 'NULL'})"


def has_calls(tables: Tables) -> bool:
    """Whether system calls were recorded, and not the times of modules alone."""
    return bool(tables.query("SELECT 1 FROM system_calls LIMIT 1"))


def import_trees(tables: Tables, selection: Selection = ALL) -> list[Node]:
    """One tree for each process that nobody of the run started, or of which it is not known who did."""
    condition = chosen(selection)
    images = [Image(*row) for row in tables.query(PROCESSES_SQL.format(condition=condition))]
    roots = {
        image.process: Node(image.command, image.process, cpu_ns=image.cpu_ns, wall_ns=image.elapsed_ns)
        for image in images
    }
    nodes = {(process, 0): root for process, root in roots.items()}
    by_pid = _without_predecessors(images, roots)
    _add_modules(tables, condition, nodes)
    _count_calls(tables, condition, nodes)
    for root in roots.values():
        _finish_process(root)
    started = _attach(tables, images, by_pid, roots)
    tops = [root for process, root in roots.items() if process not in started]
    for top in tops:
        _add_up(top)
    return tops


def _add_modules(tables: Tables, condition: str, nodes: dict[tuple[int, int], Node]) -> None:
    rows = tables.query(MODULES_SQL.format(condition=condition))
    for process, module, _, name, thread, begin, wall, self_wall, cpu, self_cpu, failed, objects in rows:
        own_counts = Counts(shared_objects=objects or 0)
        times = (begin, wall or 0, self_wall or 0, cpu or 0, self_cpu or 0)
        nodes[process, module] = Node(name, process, module, thread, *times, bool(failed), own_counts)
    for process, module, parent, *_ in rows:
        above = nodes.get((process, parent)) or nodes[process, 0]
        above.children.append(nodes[process, module])


def _count_calls(tables: Tables, condition: str, nodes: dict[tuple[int, int], Node]) -> None:
    for process, module, *counts in tables.query(CALLS_SQL.format(condition=condition)):
        node = nodes.get((process, module)) or nodes[process, 0]
        node.own.add(Counts(*counts))


def _finish_process(root: Node) -> None:
    """What a process does outside its imports is what is left of it; imports of threads run beside that."""
    first = root.children[0].thread if root.children else 0
    mine = [child for child in root.children if child.thread == first]
    root.self_wall_ns = max(0, root.wall_ns - sum(child.wall_ns for child in mine))
    root.self_cpu_ns = max(0, root.cpu_ns - sum(child.cpu_ns for child in root.children))


def _without_predecessors(images: list[Image], roots: dict[int, Node]) -> dict[Pid, list[Image]]:
    """The programs that a process was, one after the other by exec; the times of the earlier ones are left out."""
    by_pid: dict[Pid, list[Image]] = {}
    for image in sorted(images, key=lambda image: image.elapsed_ns):
        if image.pid is not None:
            by_pid.setdefault((image.host, image.pid), []).append(image)
    for sequence in by_pid.values():
        for before, after in pairwise(sequence):
            roots[after.process].wall_ns -= before.elapsed_ns
            roots[after.process].cpu_ns = max(0, after.cpu_ns - before.cpu_ns)
    return by_pid


def _attach(tables: Tables, images: list[Image], by_pid: dict[Pid, list[Image]], roots: dict[int, Node]) -> set[int]:
    """Put each process under the module that was being imported when it began; returns those that have a place."""
    sql = f"SELECT DISTINCT process, module FROM system_calls WHERE {one_of(STARTS)}"
    starters = {(row[0], row[1]) for row in tables.query(sql)}
    placed: set[int] = set()
    for image in images:
        above = [other for other in by_pid.get((image.host, image.parent_pid or 0), ()) if other.pid != image.pid]
        if not above or image.started_ns is None or above[0].started_ns is None:
            continue
        at_ns = image.started_ns - above[0].started_ns
        parent = next((other for other in above if other.elapsed_ns >= at_ns), above[-1])
        place = _starter(roots[parent.process], at_ns, starters)
        if not _is_below(place, roots[image.process]):
            place.children.append(roots[image.process])
            placed.add(image.process)
    return placed


def _starter(parent: Node, at_ns: int, starters: set[tuple[int, int]]) -> Node:
    """The innermost module that ran then and that did start something; else the process itself."""
    best, shortest = parent, None
    for node in parent.walk():
        if node.process != parent.process or node.is_process or (node.process, node.module) not in starters:
            continue
        inside = node.begin_ns - START_ERROR_NS <= at_ns <= node.begin_ns + node.wall_ns + START_ERROR_NS
        if inside and (shortest is None or node.wall_ns < shortest):
            best, shortest = node, node.wall_ns
    return best


def _is_below(node: Node, root: Node) -> bool:
    return any(child is node for child in root.walk())


def _add_up(top: Node) -> None:
    """`whole` of all nodes, from the leaves up, with the processor time of the processes they started."""
    started_ns: dict[int, int] = {}
    for node in reversed(list(top.walk())):
        node.whole = Counts()
        node.whole.add(node.own)
        more = 0
        for child in node.children:
            node.whole.add(child.whole)
            more += child.cpu_ns if child.is_process else started_ns[id(child)]
        started_ns[id(node)] = more
        node.cpu_ns += more


def merged(trees: Iterable[Node], key: Callable[[Node], str]) -> list[Node]:
    """The trees as one, nodes of equal name under equal parents added up: ranks that import the same."""
    together: dict[str, list[Node]] = {}
    for tree in trees:
        together.setdefault(key(tree), []).append(tree)
    return [_one(name, nodes, key) for name, nodes in together.items()]


def _one(name: str, nodes: list[Node], key: Callable[[Node], str]) -> Node:
    joined = Node(name, nodes[0].process, nodes[0].module, nodes[0].thread, min(node.begin_ns for node in nodes))
    for time in ("wall_ns", "self_wall_ns", "cpu_ns", "self_cpu_ns"):
        setattr(joined, time, sum(getattr(node, time) for node in nodes))
    joined.failed = all(node.failed for node in nodes)
    for node in nodes:
        joined.own.add(node.own)
        joined.whole.add(node.whole)
    joined.children = merged((child for node in nodes for child in node.children), key)
    joined.merged = sum(node.merged for node in nodes)
    return joined


# ---------------------------------------------------------------------------------------------------------------------
# What the processes and modules of an import tree are called.
LONGEST = 40


def node_name(node: Node) -> str:
    """A module's name, or a process's command in short."""
    return command_name(node.name) if node.is_process else node.name


def command_name(command: str) -> str:
    """python -c 'import torch' for /long/path/to/python -c 'import torch'."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if not words:
        return "(process)"
    text = shlex.join([os.path.basename(words[0]), *words[1:]])
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
