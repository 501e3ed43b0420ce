"""Where does a step go on the GPUs: what is computed, communicated and copied, and why is there nothing to do?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.records import Layer
from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.gpu.windows import windows_note
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.data import steps_of, warmup_steps
from rankscope.questions.wording import counted

CAUSES = ("launch", "data", "sync", "gc", "compile", "blocked", "checkpoint", "python", "unknown", "device")
PREEMPTED = "preempted"  # told by the scheduler for a step as a whole: taken from what the host was doing by itself
BY_ITSELF = ("launch", "python")
BUSY = ("compute", "exposed", "copy")
COUNTS = ("kernels", "kernel_ns", "copies", "copy_bytes", "pageable_bytes", "sync_calls", "sync_ns")
GPU_STEPS_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("device", Unit.NAME, "GPU", "the GPU's number in that process"),
    Column(
        "steps",
        Unit.COUNT,
        "Steps",
        "steady steps of which the device's time is known; of windows without those longer than three medians",
    ),
    Column(
        "step_ns",
        Unit.NS,
        "Step",
        "from the end of the last kernel of the step before to the end of its own last one, mean: `compute_ns` + "
        "`exposed_ns` + `copy_ns` + `idle_ns`",
    ),
    Column("compute_ns", Unit.NS, "Compute", "at least one kernel computes"),
    Column("exposed_ns", Unit.NS, "Exposed comm.", "exposed communication: a kernel communicates and none computes"),
    Column("exposed_share", Unit.SHARE, "Exposed share", "`exposed_ns` ÷ `step_ns`"),
    Column(
        "wait_ns", Unit.NS, "Exposed wait", "`exposed_ns` × wait ÷ stay of the rank's matched collectives on devices"
    ),
    Column("copy_ns", Unit.NS, "Copies", "copies and memsets, and no kernel"),
    Column("idle_ns", Unit.NS, "Idle", "nothing runs; the columns from `launch_ns` to `unknown_ns` add up to it"),
    Column("idle_share", Unit.SHARE, "Idle share", "`idle_ns` ÷ `step_ns`"),
    Column(
        "overlapped_ns",
        Unit.NS,
        "Overlapped comm.",
        "overlapped communication: a kernel communicates while one computes, within `compute_ns`",
    ),
    Column(
        "launch_ns",
        Unit.NS,
        "Idle: launching",
        "idle while the loop's thread is in zero_grad, forward, backward or optimizer",
    ),
    Column("data_ns", Unit.NS, "Idle: data loading", "idle while it waits for the data loader"),
    Column("sync_ns", Unit.NS, "Idle: synchronising", "idle while it is inside a CUDA call that waits for the device"),
    Column(
        "preempted_ns",
        Unit.NS,
        "Idle: no CPU",
        "of what would be `launch_ns` and `python_ns`: the smaller of them and the time in which the thread had no CPU",
    ),
    Column("python_ns", Unit.NS, "Idle: Python", "idle while it is outside all parts of the step"),
    Column("gc_ns", Unit.NS, "Idle: GC", "idle while Python collects garbage"),
    Column("compile_ns", Unit.NS, "Idle: compiling", "idle while torch compiles"),
    Column("blocked_ns", Unit.NS, "Idle: host collective", "idle while it is blocked in a collective"),
    Column("checkpoint_ns", Unit.NS, "Idle: checkpoint", "idle while it writes a checkpoint"),
    Column(
        "device_ns",
        Unit.NS,
        "Idle: kernel start",
        "idle gaps under 3 µs, in which the device starts the next kernel",
    ),
    Column("unknown_ns", Unit.NS, "Idle: unknown", "idle while what the thread did is not known"),
    Column("p50_ns", Unit.NS, "Step p50", "median length of these steps on the device"),
    Column("p99_ns", Unit.NS, "Step p99", "99th percentile of it, linear between neighbours"),
    Column("kernels", Unit.NUMBER, "Kernels per step", "kernels that a step launches, mean"),
    Column("kernel_ns", Unit.NS, "Mean kernel", "mean length of those kernels"),
)
# The step's time without a CPU, as far as the host could have given the device work in it.
WITHOUT_CPU = "least(coalesce(s.runnable_ns, 0), d.idle_launch_ns + d.idle_python_ns)"
LEFT = f"(1 - coalesce({WITHOUT_CPU} / nullif(d.idle_launch_ns + d.idle_python_ns, 0), 0))"
IDLE = {cause: f"d.idle_{cause}_ns{f' * {LEFT}' if cause in BY_ITSELF else ''}" for cause in CAUSES}
IDLE[PREEMPTED] = WITHOUT_CPU
PAUSE = 3.0  # median steps: a longer one in a window is a pause, which windows do not have as often as the run
STEADY = f"""
    WITH steady AS (
        SELECT rank, d.*, d.end_ns - d.begin_ns AS length_ns, coalesce(r.windows, 0) > 0 AS sampled
        FROM device_steps d JOIN ranks USING (process) LEFT JOIN gpu_recordings r USING (process)
        WHERE role = 'rank' AND NOT d.cut AND d.number >= ?),
    usual AS (
        SELECT rank, device, quantile_cont(length_ns, 0.5) * {PAUSE} AS most_ns FROM steady GROUP BY rank, device)"""
SQL = f"""{STEADY}
    SELECT rank, device, count(*), avg(length_ns), avg(d.overlapped_ns),
        {", ".join(f"avg(d.{name}_ns)" for name in BUSY)}, {", ".join(f"avg({idle})" for idle in IDLE.values())},
        {", ".join(f"avg(d.{name})" for name in COUNTS)},
        quantile_cont(length_ns, 0.5), quantile_cont(length_ns, 0.99)
    FROM steady d JOIN usual USING (rank, device) LEFT JOIN steps s USING (process, number)
    WHERE NOT sampled OR length_ns <= most_ns GROUP BY rank, device ORDER BY rank, device"""
PAUSES = f"{STEADY} SELECT count(*) FROM steady JOIN usual USING (rank, device) WHERE sampled AND length_ns > most_ns"
CUT = "SELECT count(*) FROM device_steps WHERE cut"
LENGTHS = "SELECT number, max(end_ns - begin_ns) FROM device_steps WHERE NOT cut GROUP BY number ORDER BY number"


@dataclass(slots=True)
class DeviceSteps:
    """The mean of one device's steady steps, in ns, and the wait share of its rank's collectives."""

    rank: int
    device: int
    steps: int  # steady ones that are known
    step_ns: float
    busy: dict[str, float]
    overlapped_ns: float
    idle: dict[str, float]  # by cause
    counts: dict[str, float]
    p50_ns: float
    p99_ns: float
    wait_share: float | None

    @property
    def idle_ns(self) -> float:
        """Nothing to do, whatever the cause."""
        return sum(self.idle.values())

    @property
    def busy_ns(self) -> float:
        """At least one activity."""
        return sum(self.busy.values())

    @property
    def mean_kernel_ns(self) -> float | None:
        """Of the kernels of all these steps."""
        return self.counts["kernel_ns"] / self.counts["kernels"] if self.counts["kernels"] else None


_KEPT: WeakKeyDictionary[Tables, list[DeviceSteps]] = WeakKeyDictionary()


def device_steps_of(tables: Tables) -> list[DeviceSteps]:
    """Of every device of every rank that has steps on it, in the order of ranks; worked out once for each open run."""
    if tables not in _KEPT:
        _KEPT[tables] = _device_steps(tables)
    return _KEPT[tables]


def _device_steps(tables: Tables) -> list[DeviceSteps]:
    rows = tables.query(SQL, (_first_steady(tables),))
    shares = _wait_shares(tables) if rows else {}
    return [_of_row(row, shares.get(row[0])) for row in rows]


def _first_steady(tables: Tables) -> int:
    """As for the host; where the host's first steps are overwritten and the device's are not, by the device's own."""
    known = steps_of(tables)
    lengths = tables.query(LENGTHS)
    host_first = min((int(rank.number[0]) for rank in known.ranks if len(rank.number)), default=0)
    if not lengths or lengths[0][0] >= host_first:
        return known.first_steady
    left_out = warmup_steps(np.array([row[1] for row in lengths], float), np.zeros(len(lengths), bool))
    return int(lengths[min(left_out, len(lengths) - 1)][0])


def _of_row(row: Sequence[Any], share: float | None) -> DeviceSteps:
    rank, device, steps, step_ns, overlapped_ns, *means, p50_ns, p99_ns = row
    given = iter(means)
    busy, idle, counts = ({name: float(next(given)) for name in names} for names in (BUSY, IDLE, COUNTS))
    return DeviceSteps(rank, device, steps, step_ns, busy, overlapped_ns, idle, counts, p50_ns, p99_ns, share)


def _wait_shares(tables: Tables) -> dict[int, float]:
    """Of each rank: how much of its matched collectives on devices is waiting for the last one to come."""
    known = collectives_of(tables)
    waits: dict[int, list[float]] = {}
    for split in known.splits:
        if split.group.layer == Layer.NCCL:
            for column, place in enumerate(split.group.members.tolist()):
                sums = waits.setdefault(known.log.ranks[place], [0.0, 0.0])
                sums[0] += float(split.wait_ns[:, column].sum())
                sums[1] += float(split.stay_ns[:, column].sum())
    return {rank: wait / stay for rank, (wait, stay) in waits.items() if stay > 0}


def gpu_steps(tables: Tables, selection: Selection = ALL) -> Table:
    """The mean steady step on each GPU: compute, exposed communication, copies and idle time add up to it."""
    table = Table("gpu_steps", "Steps on the GPUs, mean", GPU_STEPS_COLUMNS, [])
    for device_steps in device_steps_of(tables):
        if selection.ranks is None or device_steps.rank in selection.ranks:
            table.rows.append(_row(device_steps))
    cut = tables.query(CUT)[0][0]
    if cut:
        text = f"{counted(cut, 'step')} of a device left out: what it or its host did then is no longer known."
        table.notes.append(text)
    pauses = tables.query(PAUSES, (_first_steady(tables),))[0][0]
    if pauses:
        table.notes.append(
            f"{counted(pauses, 'step')} of more than {PAUSE:.0f} medians left out: windows are samples, and a pause in "
            "one of them would count for the whole run."
        )
    table.notes += windows_note(tables)
    return arranged(table, selection)


def _row(device_steps: DeviceSteps) -> tuple[Cell, ...]:
    exposed = device_steps.busy["exposed"]
    wait = exposed * device_steps.wait_share if device_steps.wait_share is not None else None
    of_step = 1 / device_steps.step_ns if device_steps.step_ns else 0.0
    idle = (device_steps.idle[cause] for cause in ("launch", "data", "sync", PREEMPTED, "python", "gc", "compile"))
    rest = (device_steps.idle[cause] for cause in ("blocked", "checkpoint", "device", "unknown"))
    return (
        *(
            device_steps.rank,
            device_steps.device,
            device_steps.steps,
            device_steps.step_ns,
            device_steps.busy["compute"],
        ),
        *(
            exposed,
            exposed * of_step,
            wait,
            device_steps.busy["copy"],
            device_steps.idle_ns,
            device_steps.idle_ns * of_step,
        ),
        *(
            device_steps.overlapped_ns,
            *idle,
            *rest,
            device_steps.p50_ns,
            device_steps.p99_ns,
            device_steps.counts["kernels"],
            device_steps.mean_kernel_ns,
        ),
    )
