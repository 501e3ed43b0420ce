"""Which workers of a job do which work, and who waits for whom?"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from rankscope.model.records import Role
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.selection import ALL, Selection, arranged

# What workers are asked to do, by the words in the names of functions; the first that fits.
WORK = {
    "sync": re.compile(r"sync|weight|broadcast|state_?dict|(get|set|pull|push|fetch|update)_?param", re.IGNORECASE),
    "generate": re.compile(r"generat|roll_?out|sampl|infer|predict|collect|play|episode|act(ion)?s?$", re.IGNORECASE),
    "data": re.compile(r"data|batch|load|fetch|read|preprocess|token", re.IGNORECASE),
    "train": re.compile(r"train|learn|fit|step|forward|backward|grad|optim|loss|update", re.IGNORECASE),
}
NUMBERED = re.compile(r"[-_:.# ]?\d+$")  # worker3, trainer_1
ROLES_COLUMNS = (
    Column(
        "role",
        Unit.NAME,
        "Role",
        "the worker's name by torch RPC without its number, or the class of a Ray actor; of other processes: trainer "
        "(it has steps), rank, or driver (it started the others)",
    ),
    Column("processes", Unit.COUNT, "Processes", "number of processes with the role"),
    Column("ranks", Unit.NAME, "Ranks", "those that are ranks"),
    Column("elapsed_ns", Unit.NS, "Elapsed", "mean over its processes, from process start to end"),
    Column(
        "startup_ns",
        Unit.NS,
        "Start-up",
        "mean: until initialisation has ended, else until the first step, or the constructor of an actor",
    ),
    Column(
        "train_ns",
        Unit.NS,
        "Train",
        "mean: the larger of the steps' time without `data_ns` and exposed communication, and calls executed for "
        "others that are named after training",
    ),
    Column("generate_ns", Unit.NS, "Generate", "mean: calls executed for others that are named after generating"),
    Column("sync_ns", Unit.NS, "Weight sync", "mean: calls executed for others that are named after weights"),
    Column("data_ns", Unit.NS, "Data", "mean: data loading of steps, and calls executed for others named after data"),
    Column("other_ns", Unit.NS, "Other calls", "mean: all other calls executed for others"),
    Column(
        "wait_ns", Unit.NS, "Wait", "mean: waiting for calls to other workers, and exposed communication of the steps"
    ),
    Column("waits_for", Unit.NAME, "Waits for", "the role that it waits for longest"),
    Column(
        "idle_ns",
        Unit.NS,
        "Idle",
        "mean: `elapsed_ns` − all of the above, at least 0: it had no work, or what it did is not recorded; calls "
        "that are executed at the same time by several threads count each",
    ),
)
PROCESSES_SQL = f"""
    SELECT process, rank, role, worker, ended_steps, started_ns, ended_ns FROM ranks
    WHERE tool = '' AND started_ns IS NOT NULL AND ended_ns IS NOT NULL AND ending <> 'replaced'
        AND (role = '{Role.RANK}' OR worker <> '' OR process IN (
            SELECT process FROM groups WHERE kind = 'worker')) ORDER BY rank, process"""
STEPS_SQL = """
    SELECT process, sum(end_ns - begin_ns)::BIGINT, sum(data_ns)::BIGINT, sum(exposed_ns)::BIGINT FROM steps
    GROUP BY process"""
CALLS_SQL = """
    SELECT process, groups.kind, groups.name, tallies.name, sum(calls)::BIGINT, sum(total_ns), max(max_ns)
    FROM tallies JOIN groups USING (process)
    WHERE tallies."group" = groups.name AND groups.kind IN ('worker', 'served') AND layer = 'torch' GROUP BY ALL"""
INITIALISED = ("init_end", "first_step_begin")
MARKS_SQL = f"SELECT process, name, at_ns FROM marks WHERE name IN {sql_list(INITIALISED)}"


@dataclass(slots=True)
class Worker:
    """One process and what it did."""

    rank: int | None
    role: str
    started_ns: int
    elapsed_ns: int
    startup_ns: int = 0
    work: Counter[str] = field(default_factory=Counter)  # ns by kind: train, generate, sync, data, other
    waits: Counter[str] = field(default_factory=Counter)  # ns by role

    @property
    def idle_ns(self) -> float:
        return max(0.0, self.elapsed_ns - self.startup_ns - sum(self.work.values()) - sum(self.waits.values()))


def role_of(worker: str, role: str, steps: int) -> str:
    """What a process is called, without its number among its like."""
    if worker:
        return NUMBERED.sub("", worker).rstrip("-_:.# ") or worker
    return "trainer" if steps else "driver" if role == Role.LAUNCHER else str(role)


def kind_of(function: str) -> str:
    """What a function does, by its name."""
    return next((kind for kind, words in WORK.items() if words.search(function.rpartition(".")[2])), "other")


def roles(tables: Tables, selection: Selection = ALL) -> Table:
    """What the processes of each role did with their time, where workers of several roles call each other."""
    table = Table("roles", "Roles", ROLES_COLUMNS, [])
    by_role: dict[str, list[Worker]] = {}
    for worker in _workers(tables).values():
        by_role.setdefault(worker.role, []).append(worker)
    for role, workers in (
        by_role.items() if tables.query("SELECT 1 FROM groups WHERE kind IN ('worker', 'served')") else ()
    ):
        table.rows.append(_row(role, workers))
    if table.rows:
        table.notes.append("The purpose of a call is taken from its name: train, generate, weights, data.")
    return arranged(table, selection)


def _row(role: str, workers: list[Worker]) -> tuple[Cell, ...]:
    def average(values: list[float]) -> float | None:
        return sum(values) / len(values) or None

    waits: Counter[str] = sum((worker.waits for worker in workers), Counter())
    ranks = ", ".join(str(worker.rank) for worker in workers[:8] if worker.rank is not None)
    return (
        *(role, len(workers), ranks, average([worker.elapsed_ns for worker in workers])),
        average([worker.startup_ns for worker in workers]),
        *(
            average([worker.work[kind] for worker in workers])
            for kind in ("train", "generate", "sync", "data", "other")
        ),
        average([float(sum(worker.waits.values())) for worker in workers]),
        max(waits, key=lambda peer: waits[peer], default=""),
        average([worker.idle_ns for worker in workers]),
    )


def _workers(tables: Tables) -> dict[int, Worker]:
    workers: dict[int, Worker] = {}
    for process, rank, role, worker, steps, started, ended in tables.query(PROCESSES_SQL):
        workers[process] = Worker(rank, role_of(worker, role, steps), started, max(0, ended - started))
    marks: dict[int, dict[str, int]] = {}
    for process, name, at_ns in tables.query(MARKS_SQL):
        marks.setdefault(process, {})[name] = at_ns
    for process, known_worker in workers.items():
        known = [marks[process][name] for name in INITIALISED if name in marks.get(process, {})]
        known_worker.startup_ns = max(0, known[0] - known_worker.started_ns) if known else 0
    for process, step_ns, data, exposed in tables.query(STEPS_SQL):
        if process in workers:
            workers[process].work.update({"train": max(0, step_ns - data - exposed), "data": data})
            workers[process].waits["collectives"] += exposed
    _add_calls(tables, workers)
    return workers


def _add_calls(tables: Tables, workers: dict[int, Worker]) -> None:
    """Calls for others, and waits for others: those within steps are in their exposed time already."""
    named: dict[int, Counter[str]] = {}
    for process, kind, peer, function, _, total_ns, _ in tables.query(CALLS_SQL):
        worker = workers.get(process)
        if worker is None:
            continue
        if kind == "worker":
            role = role_of(peer, "", 0)
            shared = min(worker.waits["collectives"], total_ns)
            worker.waits["collectives"] -= shared
            worker.waits[role] += total_ns
        elif function.endswith("__init__"):
            worker.startup_ns = max(worker.startup_ns, int(total_ns))
        else:
            named.setdefault(process, Counter())[kind_of(function)] += total_ns
    for process, work in named.items():
        steps_ns = workers[process].work["train"] + workers[process].work["data"]
        work["train"] = max(0, work["train"] - steps_ns)  # a method that trains makes the steps
        workers[process].work.update(work)
        workers[process].waits += Counter()  # drops what has become 0


# ---------------------------------------------------------------- role_waits
WAITS_COLUMNS = (
    Column("waiting", Unit.NAME, "Waiting role", "role of the worker that calls and waits"),
    Column("for_role", Unit.NAME, "For", "role of the worker that is called"),
    Column("function", Unit.NAME, "Function", "what it is asked to do"),
    Column("calls", Unit.COUNT, "Calls", "number of calls that were waited for"),
    Column(
        "wait_ns", Unit.NS, "Wait", "time in which a thread waited for the calls, summed over all workers of the role"
    ),
    Column(
        "share", Unit.SHARE, "% of elapsed", "`wait_ns` ÷ the sum of the elapsed time of the waiting role's processes"
    ),
    Column("mean_ns", Unit.NS, "Mean", "`wait_ns` ÷ `calls`"),
    Column("max_ns", Unit.NS, "Max", "longest wait"),
)


def role_waits(tables: Tables, selection: Selection = ALL) -> Table:
    """Which role waits for which other, in which calls, longest first."""
    workers = _workers(tables)
    elapsed: Counter[str] = Counter()
    for worker in workers.values():
        elapsed[worker.role] += worker.elapsed_ns
    sums: dict[tuple[str, str, str], tuple[int, float, float]] = {}
    for process, kind, peer, function, calls, total_ns, max_ns in tables.query(CALLS_SQL):
        if kind == "worker" and process in workers:
            key = workers[process].role, role_of(peer, "", 0), function
            before = sums.get(key, (0, 0.0, 0.0))
            sums[key] = before[0] + calls, before[1] + total_ns, max(before[2], max_ns)
    rows = [
        (*key, calls, total_ns, total_ns / (elapsed[key[0]] or 1), total_ns / calls, max_ns)
        for key, (calls, total_ns, max_ns) in sorted(sums.items(), key=lambda item: -item[1][1])
    ]
    return arranged(Table("role_waits", "Waits between roles", WAITS_COLUMNS, list(rows)), selection)
