"""Exposed communication takes much of the step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.model.tables import Tables
from rankscope.questions.collectives.matching import CollectiveLog
from rankscope.questions.collectives.wait_and_transfer import Split, collectives_of, usually_asked
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.gpu.steps import device_steps_of
from rankscope.questions.parallelism.bubbles import bubbles_of
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.steps.waits import waits_per_step
from rankscope.questions.whatif.changes import Change

# ---------------------------------------------------------------- many tiny collectives where few larger ones would do
TINY_BYTES = 4096
NEGOTIATION_BYTES = 64
TINY_COLLECTIVES_FEWEST = 200
A_STEP = 8.0
NOTICEABLE = 0.02  # of the elapsed time of the collectives
FUSED = 8.0  # so many in one would be as fast as one


@dataclass(slots=True)
class _Tiny:
    """Of one split: how many, how long they move data, and the span of all its collectives."""

    count: int
    negotiations: int
    moving_ns: float
    names: Counter[str]
    first_ns: float
    last_ns: float


@usually_asked
def _tiny(log: CollectiveLog, split: Split) -> _Tiny:
    size = split.group.bytes.max(axis=1)
    tiny = (size > 0) & (size <= TINY_BYTES)
    return _Tiny(
        int(tiny.sum()),
        int((tiny & (size <= NEGOTIATION_BYTES)).sum()),
        float(np.median(split.moving_ns[tiny], axis=1).sum()) if tiny.any() else 0.0,
        Counter(log.names[code] for code in split.group.name[tiny].tolist()),
        float(split.enter_ns.min()),
        float(split.enter_ns.max()),
    )


def tiny_collectives(tables: Tables) -> list[Finding]:
    """By the moving of data alone: what is waiting would be waited elsewhere."""
    known = collectives_of(tables)
    answers = known.of_each(_tiny)
    count, negotiations = sum(answer.count for answer in answers), sum(answer.negotiations for answer in answers)
    moving = sum(answer.moving_ns for answer in answers)
    first, last = (
        min((answer.first_ns for answer in answers), default=np.inf),
        max((answer.last_ns for answer in answers), default=-np.inf),
    )
    names: Counter[str] = Counter()
    for answer in answers:
        names.update(answer.names)
    steps = max((len(rank_steps.number) for rank_steps in steps_of(tables).ranks), default=0)
    saved = moving * (1 - 1 / FUSED)
    if count < TINY_COLLECTIVES_FEWEST or count < A_STEP * steps or saved < NOTICEABLE * (last - first):
        return []
    name = max(names, key=lambda key: names[key])
    horovod = negotiations > count / 2
    per_step = f", {count / steps:.0f} per step" if steps else ""
    return [
        Finding(
            "tiny_collectives",
            f"{count} collectives of at most 4 KiB{per_step}, mostly {name}",
            "with Horovod raise HOROVOD_CYCLE_TIME and use its response cache; else send flags and counters together, "
            "less often"
            if horovod
            else "fuse gradients into a few large buffers (DDP bucket_cap_mb, Horovod fusion threshold, one array)",
            [f"collectives: rows up to 4 KiB: transfer {seconds(moving)} per rank, {seconds(moving / count)} each"],
            saved,
            in_steps=False,
        )
    ]


# ---------------------------------------------------------------- objects are pickled where buffers could be sent
PICKLED_FEWEST = 50  # of a rank
PICKLED_NOTICEABLE = 0.01  # of the elapsed time
# mpi4py's lower-case calls send a length first, then the pickle
PAIRS = {
    "bcast": ("MPI_Bcast", "MPI_Bcast"),
    "gather": ("MPI_Gather", "MPI_Gatherv"),
    "allgather": ("MPI_Allgather", "MPI_Allgatherv"),
    "scatter": ("MPI_Scatter", "MPI_Scatterv"),
    "alltoall": ("MPI_Alltoall", "MPI_Alltoallv"),
}
LENGTH_BYTES = (4, 8)
PICKLED_SQL = """
    SELECT process, rank, thread, name, "group", coalesce(bytes, 0), start_ns,
        coalesce(end_ns, start_ns), coalesce(root, -1), elapsed_ns
    FROM untraced_events JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'mpi' AND call_ns IS NULL AND process IN ({processes})
        AND (contains(lower(executable), 'python') OR contains(lower(command), 'python'))
    ORDER BY process, thread, start_ns"""

MOST_RANKS = 128  # whose logs are looked at record by record: those that send most lengths
FIRST = tuple(sorted({name for name, _ in PAIRS.values()}))
CANDIDATES = f"""
    SELECT process FROM untraced_events
    WHERE name IN {FIRST} AND layer = 'mpi' AND bytes IN (4, 8) AND call_ns IS NULL
    GROUP BY process ORDER BY count(*) DESC, process LIMIT {MOST_RANKS}"""


def pickled_objects(tables: Tables) -> list[Finding]:
    """Pairs of a length and what has it, one right after the other, over and over: of the rank that has most."""
    best: tuple[float, int, int, str, int] | None = None
    processes = ", ".join(str(row[0]) for row in tables.query(CANDIDATES))
    for rank, elapsed_ns, calls in _by_rank(tables.query(PICKLED_SQL.format(processes=processes)) if processes else []):
        for call, (count, total_ns) in calls.items():
            if (
                count >= PICKLED_FEWEST
                and total_ns >= PICKLED_NOTICEABLE * elapsed_ns
                and (best is None or total_ns > best[0])
            ):
                best = (total_ns, count, rank, call, elapsed_ns)
    received = _received(tables)
    if best is None:
        return received
    total_ns, count, rank, call, _ = best
    return [
        Finding(
            "pickled_objects",
            f"mpi4py's {call}() pickles {count} objects: {seconds(total_ns)} on rank {rank}",
            f"send arrays as buffers: comm.{call.capitalize()}(array) needs no pickle and no length beforehand",
            [f"routines: {count} pairs of {PAIRS[call][0]} of 4 or 8 bytes and {PAIRS[call][1]} right after it"],
            total_ns,
            in_steps=False,
        )
    ]


def _by_rank(rows: list[tuple[Any, ...]]) -> Iterator[tuple[int, int, dict[str, tuple[int, float]]]]:
    """Of each rank: pairs and their time, by the call that makes them."""
    ranks: dict[int, tuple[int, dict[str, tuple[int, float]]]] = {}
    at = 0
    while at + 1 < len(rows):
        first, second = rows[at], rows[at + 1]
        call = _pair(first, second)
        _, sums = ranks.setdefault(first[1], (first[9] or 0, {}))
        if call:
            count, total = sums.get(call, (0, 0.0))
            sums[call] = (count + 1, total + (first[7] - first[6]) + (second[7] - second[6]))
        at += 2 if call else 1
    for rank, (elapsed, sums) in ranks.items():
        yield rank, elapsed, sums


def _pair(first: tuple[Any, ...], second: tuple[Any, ...]) -> str:
    same = first[:3] == second[:3] and first[4] == second[4] and first[8] == second[8]
    if not same or first[5] not in LENGTH_BYTES or second[5] == first[5]:
        return ""
    return next((call for call, names in PAIRS.items() if (first[3], second[3]) == names), "")


def _received(tables: Tables) -> list[Finding]:
    """recv() of mpi4py is a matched probe and a matched receive, as often as each other: nothing else does that."""
    sql = """
        SELECT rank, sum(calls) FILTER (contains(name, 'MPI_Mprobe')), sum(calls) FILTER (contains(name, 'MPI_Mrecv')),
            sum(total_ns) FILTER (contains(name, 'MPI_Mrecv')), any_value(elapsed_ns)
        FROM tallies JOIN ranks USING (process)
        WHERE role = 'rank' AND layer = 'mpi' AND kind = 'call' AND ranks.tool = ''
            AND (contains(lower(executable), 'python') OR contains(lower(command), 'python'))
        GROUP BY rank ORDER BY 4 DESC NULLS LAST LIMIT 1"""
    for rank, probes, receives, total_ns, elapsed_ns in tables.query(sql):
        if (
            probes
            and probes == receives
            and probes >= PICKLED_FEWEST
            and total_ns >= PICKLED_NOTICEABLE * (elapsed_ns or 0)
        ):
            sentence = f"mpi4py's recv() receives {receives} pickled objects: {seconds(total_ns)} on rank {rank}"
            action = "send and receive arrays as buffers: comm.Send(array) and comm.Recv(array)"
            evidence = [f"routines: as many MPI_Mprobe as MPI_Mrecv ({receives})"]
            return [Finding("pickled_objects", sentence, action, evidence, float(total_ns), in_steps=False)]
    return []


# ---------------------------------------------------------------------------------------------------------------------
# DataParallel copies the model to all GPUs in every step, where DistributedDataParallel would not.
DATA_PARALLEL_FEWEST = 20
# of the GPU time
DATA_PARALLEL_SQL = """
    SELECT any_value(rank), sum(calls) FILTER (what = 'broadcast')::BIGINT, sum(total_ns) FILTER (what = 'broadcast'),
        sum(calls) FILTER (what = 'reduce')::BIGINT, sum(total_ns) FILTER (what = 'reduce'),
        coalesce(sum(calls) FILTER (what = 'allreduce'), 0)::BIGINT, sum(total_ns)
    FROM ranks JOIN (
        SELECT process, calls, total_ns,
            regexp_extract(lower(name), '^nccl(dev)?(kernel)?_?(broadcast|reducescatter|reduce|allreduce)', 3) AS what
        FROM tallies WHERE layer = 'gpu') USING (process)
    GROUP BY process ORDER BY process"""


def data_parallel(tables: Tables) -> list[Finding]:
    """One process whose NCCL kernels are broadcasts and reductions and no all-reduce."""
    for rank, broadcasts, broadcast_ns, reductions, reduce_ns, allreduces, gpu_ns in tables.query(DATA_PARALLEL_SQL):
        if not broadcasts or not reductions or allreduces or min(broadcasts, reductions) < DATA_PARALLEL_FEWEST:
            continue
        total = float(broadcast_ns or 0) + float(reduce_ns or 0)
        if total < NOTICEABLE * float(gpu_ns or 0):
            continue
        devices = _devices(tables)
        sentence = f"{broadcasts} broadcasts and {reductions} reductions of NCCL in rank {rank} and no all-reduce"
        return [
            Finding(
                "data_parallel",
                f"The model is copied to the GPUs in every step, as DataParallel does ({seconds(total)} of GPU time)",
                "use DistributedDataParallel, one process for each GPU: it sends gradients only and overlaps them",
                [f"gpu: {sentence}, {100 * total / float(gpu_ns):.0f} % of GPU time"],
                total / max(1, devices),
                in_steps=False,
            )
        ]
    return []


def _devices(tables: Tables) -> int:
    sql = """SELECT count(DISTINCT "group") FROM tallies WHERE layer = 'gpu' AND "group" <> ''"""
    return int(tables.query(sql)[0][0] or 1)


# ---------------------------------------------------------------- communication
EXPOSED_NOTICEABLE = 0.15  # of the step, waiting for late ranks left out


def exposed_communication(tables: Tables) -> list[Finding]:
    """Blocked in collectives while data moved: without the waiting, which no faster network would shorten.

    Where steps are known on GPUs, these tell it better: the host only enqueues.
    """
    if device_steps_of(tables):
        return []
    steps = steps_of(tables)
    waits = waits_per_step(tables, steps)
    if not waits:
        return _blocked(tables, steps)
    moving, lengths, counts = [], [], []
    for rank_steps in steps.ranks:
        mask = steps.steady(rank_steps)
        if not mask.any() or rank_steps.rank not in waits:
            return []
        exposed = float(rank_steps.exposed_ns[mask].mean())
        moving.append(waits[rank_steps.rank].exposed(exposed)[1])
        lengths.append(float(rank_steps.length_ns[mask].mean()))
        counts.append(int(mask.sum()))
    if len(moving) < 2:
        return []
    # the rank that came last waits for nobody: what it is blocked for is no waiting by any clock
    least, each, step = float(np.min(moving)), float(np.mean(moving)), float(np.mean(lengths))
    if least < EXPOSED_NOTICEABLE * step:
        return []
    return [
        Finding(
            "exposed_communication",
            f"Exposed transfer takes {seconds(each)} of each {seconds(step)} step ({100 * each / step:.0f} %)",
            "overlap it with the backward pass (DDP buckets, nonblocking calls), send less (larger batches, gradient "
            "accumulation, lower precision), or check the bus bandwidth in the table collectives",
            [f"step_parts: exposed transfer is {seconds(least)} to {seconds(max(moving))} by rank{_hidden(steps)}"],
            each * min(counts),
            fix=Change("overlap"),
            loss_ns=each,
        )
    ]


def _blocked(tables: Tables, steps: Steps) -> list[Finding]:
    """Where no collective is in the logs of all its ranks: wait and transfer together, as nothing tells them apart."""
    steady = [(rank, steps.steady(rank)) for rank in steps.ranks]
    if not steady or not all(mask.any() for _, mask in steady) or bubbles_of(tables) is not None:
        return []
    each = min(float(rank.exposed_ns[mask].mean()) for rank, mask in steady)
    step = float(np.mean([rank.length_ns[mask].mean() for rank, mask in steady]))
    if each < EXPOSED_NOTICEABLE * step:
        return []
    return [
        Finding(
            "exposed_communication",
            f"{'Every rank is' if len(steady) > 1 else 'The rank is'} blocked in communication for at least "
            f"{seconds(each)} of each {seconds(step)} step ({100 * each / step:.0f} %)",
            "overlap it or send less: there is no other rank to wait for"
            if _is_alone(tables)
            else "overlap it, send less, or find the late rank: to tell wait from transfer, every rank must be "
            "recorded",
            [f"step_parts: no rank has less exposed communication than {seconds(each)} per step"],
            each * min(int(mask.sum()) for _, mask in steady),
        )
    ]


def _is_alone(tables: Tables) -> bool:
    """A job of one rank, as far as it says so itself."""
    (ranks, world_size), *_ = tables.query("SELECT count(*), max(world_size) FROM ranks WHERE role = 'rank'")
    return bool(ranks == 1 and world_size == 1)


def _hidden(steps: Steps) -> str:
    """What is hidden already, where it was recorded."""
    hidden = [
        float(rank_steps.of_which["hidden"][steps.steady(rank_steps)].mean())
        for rank_steps in steps.ranks
        if "hidden" in rank_steps.of_which
    ]
    if not hidden:
        return ""
    return f"; {seconds(float(np.mean(hidden)))} is overlapped" if any(hidden) else "; nothing is overlapped"
