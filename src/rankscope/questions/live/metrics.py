"""Which numbers of a job should be watched from outside, and what are they now?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankscope.model.metrics import Histogram, Kind, Metric, Point, Snapshot
from rankscope.model.tables import Cell, Tables
from rankscope.questions.collectives.wait_and_transfer import Collectives, collectives_of
from rankscope.questions.collectives.waiting import AWAITED, straggler, sums
from rankscope.questions.live.hang import HANGS, OVER, Verdict
from rankscope.questions.live.standing import RankPace, Standing, mean
from rankscope.questions.live.top import slowest_rank, slowest_rank_of_many
from rankscope.questions.ranks.behaviour import Behaviour
from rankscope.questions.run.coverage import overhead
from rankscope.questions.run.goodput import USEFUL, Account, account, goodput_table
from rankscope.questions.steps.arrays import RankSteps, some_of
from rankscope.questions.steps.data import PARTS, Steps, steps_of
from rankscope.questions.steps.slowdowns import slowdowns_of
from rankscope.questions.steps.steps import step_parts

GAUGE, COUNTER, HISTOGRAM = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM
RANK = ("rank", "host")

INFO = Metric(
    "rankscope.run.info", "{run}", GAUGE, "1; what recorded and what started the job", ("version", "launcher")
)
RANKS = Metric(
    "rankscope.ranks",
    "{rank}",
    GAUGE,
    "ranks by state: running, exited, failed, missing (expected, without a file)",
    ("state",),
)
EXPECTED = Metric("rankscope.expected_ranks", "{rank}", GAUGE, "ranks that the job should have")
STEPS = Metric("rankscope.steps", "{step}", COUNTER, "steps that every rank has completed")
STEP = Metric("rankscope.step.duration", "s", HISTOGRAM, "lengths of steps, each rank's steps counted")
STEP_MEAN = Metric(
    "rankscope.step.mean",
    "s",
    GAUGE,
    "mean length of the steps since the last reading, over all ranks; at the end, of all steady steps",
)
STEP_P50 = Metric("rankscope.step.p50", "s", GAUGE, "median length of the steady steps so far, over all ranks")
STEP_P99 = Metric("rankscope.step.p99", "s", GAUGE, "99th percentile of the same")
PART = Metric(
    "rankscope.step.part",
    "s",
    GAUGE,
    "mean time of a step in each part, of the same steps; parts exclude what was blocked in collectives, which is "
    "exposed_communication",
    ("part",),
)
WAIT = Metric(
    "rankscope.communication.wait",
    "1",
    GAUGE,
    "share of the time since the last reading in which a rank waits in collectives for others, mean over the "
    "ranks; at "
    "the end, exposed wait ÷ step",
)
TRANSFER = Metric(
    "rankscope.communication.transfer",
    "1",
    GAUGE,
    "share of the time since the last reading in which a rank communicates and waits for nobody, mean over the "
    "ranks; at "
    "the end, exposed transfer ÷ step",
)
COLLECTIVES = Metric("rankscope.collectives", "{collective}", COUNTER, "collectives entered, summed over the ranks")
CPU = Metric(
    "rankscope.cpu.utilization", "1", GAUGE, "CPU time ÷ time, mean over the ranks of this host; 2 means two CPUs"
)
STRAGGLER = Metric(
    "rankscope.straggler.rank",
    "{rank}",
    GAUGE,
    "number of the rank that the others wait for; absent if none stands out",
)
CAUSED = Metric("rankscope.straggler.wait_caused", "1", GAUGE, "share of all wait in collectives that this rank causes")
HANG = Metric("rankscope.hang", "{hang}", GAUGE, "1 while the job hangs, by the rules of `rankscope hang`, else 0")
SLOWDOWN = Metric(
    "rankscope.slowdown", "1", GAUGE, "step time ÷ step time before the ongoing slow-down; 1 if there is none"
)
GOODPUT = Metric(
    "rankscope.goodput", "1", GAUGE, "share of the wall time that went into steps that count, over all restarts"
)
WALL = Metric(
    "rankscope.wall_time",
    "s",
    GAUGE,
    "wall time by what it went into, as `rankscope goodput` has it; all kinds add up to the wall time",
    ("kind",),
)
RESTARTS = Metric("rankscope.restarts", "{restart}", COUNTER, "how often the job was started again")
MEMORY = Metric("rankscope.memory.peak", "By", GAUGE, "largest resident memory of any rank so far")
GPU_BUSY = Metric(
    "rankscope.gpu.busy",
    "1",
    GAUGE,
    "share of the newest steps in which the GPU computes, communicates or copies, mean over the ranks",
)
GPU_PART = Metric(
    "rankscope.gpu.time",
    "1",
    GAUGE,
    "share of the newest steps on the GPU's clock by part, mean over the ranks",
    ("part",),
)
OVERHEAD = Metric("rankscope.overhead", "1", GAUGE, "measured cost of recording ÷ time, on the rank that it costs most")
LOST = Metric(
    "rankscope.lost_records", "{record}", COUNTER, "calls and events that did not fit in a rank file, over all ranks"
)
OF_JOB = (
    *(INFO, RANKS, EXPECTED, STEPS, STEP, STEP_MEAN, STEP_P50, STEP_P99, PART, WAIT, TRANSFER, STRAGGLER, CAUSED),
    *(COLLECTIVES, HANG, SLOWDOWN, GOODPUT, WALL, RESTARTS, CPU, GPU_BUSY, GPU_PART, MEMORY, OVERHEAD, LOST),
)

RANK_RUNNING = Metric("rankscope.rank.running", "{rank}", GAUGE, "1 while the rank runs, else 0", RANK)
RANK_STEPS = Metric("rankscope.rank.steps", "{step}", COUNTER, "steps that the rank has completed", RANK)
RANK_STEP = Metric(
    "rankscope.rank.step.mean",
    "s",
    GAUGE,
    "mean length of its newest steps, eight at most",
    RANK,
)
RANK_WAIT = Metric(
    "rankscope.rank.communication.wait",
    "1",
    GAUGE,
    "share of the time in which it waits in collectives for others",
    RANK,
)
RANK_TRANSFER = Metric(
    "rankscope.rank.communication.transfer",
    "1",
    GAUGE,
    "share of the time in which it communicates and waits for nobody",
    RANK,
)
RANK_CAUSED = Metric("rankscope.rank.wait_caused", "1", GAUGE, "share of all wait in collectives that it causes", RANK)
RANK_CPU = Metric("rankscope.rank.cpu.utilization", "1", GAUGE, "its CPU time ÷ time", RANK)
RANK_GPU = Metric("rankscope.rank.gpu.busy", "1", GAUGE, "share of its newest steps in which its GPU is busy", RANK)
RANK_MEMORY = Metric("rankscope.rank.memory.peak", "By", GAUGE, "its largest resident memory so far", RANK)
OF_RANK = (
    *(RANK_RUNNING, RANK_STEPS, RANK_STEP, RANK_WAIT, RANK_TRANSFER, RANK_CAUSED, RANK_CPU, RANK_GPU, RANK_MEMORY),
)
METRICS = (*OF_JOB, *OF_RANK)

# 1, 2, 5 in each decade: steps take from a millisecond to some minutes.
BOUNDS_S = (*(round(m * 10.0**e, 4) for e in range(-4, 3) for m in (1, 2, 5)), 1000.0)
BUSY_PARTS = ("compute", "exposed", "copy")
MOST_WINDOWS = 500  # points of the history of a run


# ---------------------------------------------------------------------------------------------------------------------
# What the ranks are doing, from two looks at their files.
@dataclass(frozen=True, slots=True)
class Look:
    """A job between two moments."""

    now: Standing
    verdict: Verdict
    pace: Mapping[int, RankPace]
    behaviour: Behaviour | None = None  # of many ranks


def look_points(look: Look) -> Iterator[Point]:
    """Ranks, hang, steps, and who waits for whom."""
    now, pace = look.now, look.pace.values()
    for state, count in _states(now).items():
        yield Point(RANKS, count, (state,))
    yield Point(EXPECTED, len(now.ranks) + len(now.missing))
    yield Point(HANG, int(look.verdict.kind in HANGS and look.verdict.kind not in OVER))
    moments = now.ranks.values()
    yield Point(COLLECTIVES, sum(group.collectives for moment in moments for group in moment.groups))
    yield Point(LOST, sum(moment.facts.lost_calls + moment.facts.lost_trace_events for moment in moments))
    yield from _known(MEMORY, max((moment.facts.max_rss_bytes or 0 for moment in moments), default=0) or None)
    yield from _known(WAIT, mean(rank_pace.waiting for rank_pace in pace))
    yield from _known(TRANSFER, mean(rank_pace.transferring for rank_pace in pace))
    yield from _known(CPU, mean(rank_pace.cpu for rank_pace in pace))
    yield from _gpu_points(now)
    late = slowest_rank(look.pace) if look.behaviour is None else slowest_rank_of_many(look.behaviour, look.pace)
    if late is not None:
        yield Point(STRAGGLER, late)
        yield from _known(CAUSED, look.pace[late].waited_for)


def _states(now: Standing) -> dict[str, int]:
    counts = Counter({"running": 0, "exited": 0, "failed": 0, "missing": len(now.missing)})
    for moment in now.ranks.values():
        facts = moment.facts
        well = facts.ending == "exited" and not facts.exit_code
        counts["running" if facts.ending == "running" else "exited" if well else "failed"] += 1
    return dict(counts)


def _known(metric: Metric, value: float | None, words: tuple[str, ...] = ()) -> Iterator[Point]:
    if value is not None:
        yield Point(metric, value, words)


def _gpu_points(now: Standing) -> Iterator[Point]:
    shares = [moment.device_shares for moment in now.ranks.values() if moment.device_shares]
    for part in sorted({part for share in shares for part in share}):
        yield Point(GPU_PART, sum(share.get(part, 0.0) for share in shares) / len(shares), (part.replace(" ", "_"),))
    yield from _known(GPU_BUSY, mean(_busy(share) for share in shares))


def _busy(shares: Mapping[str, float]) -> float | None:
    return sum(shares.get(part, 0.0) for part in BUSY_PARTS) if shares else None


def steps_done(now: Standing) -> int | None:
    """How many steps all ranks have completed, where they are recorded."""
    done = [moment.steps for moment in now.ranks.values()]
    return min((count or 0 for count in done), default=None) if any(count is not None for count in done) else None


def rank_points(look: Look) -> Iterator[Point]:
    """The same of every rank: as many series as there are ranks, of each metric."""
    for rank, moment in sorted(look.now.ranks.items()):
        words, rank_pace = (str(rank), moment.facts.host), look.pace.get(rank, RankPace(rank))
        yield Point(RANK_RUNNING, int(moment.facts.ending == "running"), words)
        yield from _known(RANK_STEPS, moment.steps, words)
        yield from _known(RANK_STEP, moment.step_ns / 1e9 if moment.step_ns is not None else None, words)
        yield from _known(RANK_WAIT, rank_pace.waiting, words)
        yield from _known(RANK_TRANSFER, rank_pace.transferring, words)
        yield from _known(RANK_CAUSED, rank_pace.waited_for, words)
        yield from _known(RANK_CPU, rank_pace.cpu, words)
        yield from _known(RANK_GPU, _busy(moment.device_shares), words)
        yield from _known(RANK_MEMORY, moment.facts.max_rss_bytes or None, words)


# ---------------------------------------------------------------------------------------------------------------------
# Where its steps and its wall time go, from all that was recorded so far.
class StepSums:
    """Every step is counted once, however often the run is read."""

    def __init__(self) -> None:
        # The middle of the newest step counted, by rank: the Unix time of its ends is known better with each reading,
        # and numbers begin anew with an attempt, and with a log that has lost its oldest collectives.
        self._newest_ns: dict[int, float] = {}
        self._done: dict[int, int] = {}  # counted, by rank
        self._counts, self._total_s = np.zeros(len(BOUNDS_S) + 1, np.int64), 0.0
        self._parts: list[Point] = []

    def add(self, steps: Steps) -> None:
        """What has been recorded since the last time."""
        sums: dict[str, float] = {}
        count = 0
        for rank_steps in steps.ranks:
            begins = rank_steps.begin_ns
            first = int(np.searchsorted(begins, self._newest_ns.get(rank_steps.rank, -1), side="right"))
            if first == len(begins):
                continue
            seen = self._done.get(rank_steps.rank, 0) + len(begins) - first
            self._done[rank_steps.rank] = max(seen, int(rank_steps.number[-1])) if steps.source == "recorded" else seen
            lengths_s = some_of(rank_steps.values, "length_ns", first, len(begins)) / 1e9
            self._newest_ns[rank_steps.rank] = float(begins[-1]) + 1e9 * float(lengths_s[-1]) / 2
            self._counts += np.bincount(np.searchsorted(BOUNDS_S, lengths_s), minlength=len(self._counts))
            self._total_s += float(lengths_s.sum())
            count += len(lengths_s)
            for name, values in _parts_of(rank_steps).items():
                sums[name] = sums.get(name, 0.0) + float(some_of(rank_steps.values, values, first, len(begins)).sum())
        if count:
            self._parts = [*_mean_points(sums, count)]

    @property
    def done(self) -> int | None:
        """Steps that every rank has completed."""
        return min(self._done.values(), default=None)

    def points(self, has_ended: bool) -> Iterator[Point]:
        """All lengths, and the means of the newest steps while there may be more."""
        if self._counts.any():
            yield Point(STEP, Histogram(BOUNDS_S, self._counts.tolist(), self._total_s))
        yield from () if has_ended else self._parts


def _parts_of(rank_steps: RankSteps) -> dict[str, str]:
    """The columns whose means are published, by the word for them."""
    own_parts = {part: f"own {part}" for part in PARTS if part in rank_steps.own}
    return {"": "length_ns", **own_parts, "exposed_communication": "exposed_ns"}


def _mean_points(sums_ns: Mapping[str, float], count: float) -> Iterator[Point]:
    for part, sum_ns in sums_ns.items():
        if part == "":
            yield Point(STEP_MEAN, sum_ns / count / 1e9)
        elif sum_ns > 0:
            yield Point(PART, sum_ns / count / 1e9, (part,))


def run_points(tables: Tables, others: Sequence[Account]) -> Iterator[Point]:
    """Of a run so far: its steps, slow-downs, goodput over all its starts, and what recording cost."""
    steps = steps_of(tables)
    lengths_ns = steps.pooled(steps.ranks, lambda rank_steps: rank_steps.length_ns)
    if len(lengths_ns):
        p50_ns, p99_ns = np.quantile(lengths_ns, (0.5, 0.99)).tolist()
        yield Point(STEP_P50, p50_ns / 1e9)
        yield Point(STEP_P99, p99_ns / 1e9)
        slow = [slowdown for slowdown in slowdowns_of(tables) if slowdown.goes_on and slowdown.before_ns]
        yield Point(SLOWDOWN, slow[-1].after_ns / slow[-1].before_ns if slow else 1.0)
    yield from _goodput_points(tables, others)
    yield from _known(
        OVERHEAD, max((float(row[3]) for row in overhead(tables).rows if row[3] is not None), default=None)
    )
    version, launcher = tables.query("SELECT rankscope_version, launcher FROM run")[0]
    yield Point(INFO, 1, (version or "", launcher or ""))


def _goodput_points(tables: Tables, others: Sequence[Account]) -> Iterator[Point]:
    run_account = account(tables)
    if run_account is None:
        return
    accounts = sorted([*others, run_account], key=lambda each: each.began_ns)
    yield Point(RESTARTS, sum(each.attempts for each in accounts) - 1)
    shares = {str(kind): (float(ns or 0), share) for kind, ns, share, _ in goodput_table(accounts).rows}
    for kind, (ns, _) in shares.items():
        yield Point(WALL, ns / 1e9, (kind.replace(" ", "_"),))
    if any(each.useful or each.lost for each in accounts):
        yield Point(GOODPUT, float(shares[USEFUL][1] or 0.0) if USEFUL in shares else 0.0)


def ended_points(tables: Tables, per_rank: bool) -> Iterator[Point]:
    """Of a run that has ended: its steady steps in place of those since the last reading, and its straggler."""
    table = step_parts(tables)
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    columns = {"": "step_ns", **{part: f"{part}_ns" for part in PARTS}, "exposed_communication": "exposed_ns"}
    sums_ns = {part: sum(_number(row[name]) for row in rows) for part, name in columns.items()}
    yield from _mean_points(sums_ns, len(rows)) if rows else ()
    for metric, of_rank, name in (
        (WAIT, RANK_WAIT, "exposed_wait_ns"),
        (TRANSFER, RANK_TRANSFER, "exposed_transfer_ns"),
    ):
        matched = [row for row in rows if row[name] is not None and row["step_ns"]]
        shares = [_number(row[name]) / _number(row["step_ns"]) for row in matched]
        yield from _known(metric, mean(shares))
        for row, share in zip(matched, shares, strict=True) if per_rank else ():
            yield Point(of_rank, share, (str(row["rank"]), str(row["host"])))
    yield from _straggler_points(collectives_of(tables))


def _number(cell: Cell) -> float:
    return float(cell or 0.0)


def _straggler_points(known: Collectives) -> Iterator[Point]:
    waiting_sums = sums(known)
    place, verdict = straggler(known, waiting_sums)
    if place is not None and verdict == AWAITED:
        yield Point(STRAGGLER, int(known.log.ranks[place]))
        yield Point(CAUSED, float(waiting_sums.caused_ns[place]) / waiting_sums.all_caused_ns)


def history(tables: Tables, run: str, started_ns: int) -> list[Snapshot]:
    """The steps of a run one after the other, with their parts: means over windows of them, so many at most."""
    ranks = [rank_steps for rank_steps in steps_of(tables).ranks if len(rank_steps.number)]
    if not ranks:
        return []
    first, last = (
        min(int(rank_steps.number[0]) for rank_steps in ranks),
        max(int(rank_steps.number[-1]) for rank_steps in ranks),
    )
    wide = -(-(last - first + 1) // MOST_WINDOWS)
    windows = (last - first) // wide + 1
    counts, ends = np.zeros(windows), np.zeros(windows)
    sums_ns: dict[str, np.ndarray] = {}
    for rank_steps in ranks:
        at = (rank_steps.number - first) // wide
        counts += np.bincount(at, minlength=windows)
        np.maximum.at(ends, at, np.asarray(rank_steps.begin_ns + rank_steps.length_ns, np.float64))
        for name, column in _parts_of(rank_steps).items():
            sums_ns[name] = sums_ns.get(name, np.zeros(windows)) + np.bincount(at, rank_steps.values[column], windows)
    return [
        Snapshot(
            *(run, started_ns, int(ends[at]), min(last, first + (at + 1) * wide - 1)),
            list(_mean_points({name: float(values[at]) for name, values in sums_ns.items()}, float(counts[at]))),
        )
        for at in np.flatnonzero(counts).tolist()
    ]
