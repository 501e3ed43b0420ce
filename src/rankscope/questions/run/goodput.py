"""How often was the job started, how did each attempt end, and how much of its wall time went into steps that count?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median
from typing import Any

import numpy as np

from rankscope.model.records import Role
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import PARTS, steps_of
from rankscope.questions.steps.inferred import attempt_steps
from rankscope.questions.wording import counted, ending_text, ranges

# ---------------------------------------------------------------- attempts
ATTEMPTS_COLUMNS = (
    Column("attempt", Unit.COUNT, "Attempt", "number of the start, from 1; the last one is what the other tables show"),
    Column("ranks", Unit.COUNT, "Ranks", "number of ranks that it started"),
    Column("began_ns", Unit.NS, "Began", "first start of one of its processes − start of the run"),
    Column("elapsed_ns", Unit.NS, "Elapsed", "from the first start to the last end of its ranks"),
    Column("steps", Unit.COUNT, "Steps", "most steps completed by one of its ranks"),
    Column("ended", Unit.NAME, "Ended", "how its ranks ended: those that ended first come first"),
)
# Only its parent knows when a rank is gone: a killed one says nothing, others do so before their memory is given back.
GONE = """CASE WHEN ending <> 'exited' OR reaped_ns - ended_ns < 60e9 THEN greatest(ended_ns, reaped_ns)
        ELSE ended_ns END"""

STARTED = f"role IN {sql_list([Role.RANK, Role.ATTEMPT])} AND tool = ''"
ATTEMPTS_SQL = f"""
    SELECT coalesce(attempt, 1), ending, exit_code, end_signal, list(rank ORDER BY rank), min(started_ns),
        max({GONE}), max(ended_steps), min(ended_ns)
    FROM ranks WHERE {STARTED} GROUP BY 1, 2, 3, 4 ORDER BY 1, 9, 5"""


def attempts(tables: Tables, selection: Selection = ALL) -> Table:
    """Every start of the job's ranks and how it ended, where there was more than one."""
    by_attempt: dict[int, list[tuple[Any, ...]]] = {}
    for row in tables.query(ATTEMPTS_SQL):
        by_attempt.setdefault(row[0], []).append(row)
    table = Table("attempts", "Attempts", ATTEMPTS_COLUMNS, [])
    began = min((row[5] for rows in by_attempt.values() for row in rows if row[5] is not None), default=0)
    for attempt, rows in by_attempt.items() if len(by_attempt) > 1 else ():
        table.rows.append(_attempt(attempt, rows, _started_ns(tables) or began))
    return arranged(table, selection)


def _attempt(attempt: int, rows: list[tuple[Any, ...]], run_began_ns: int) -> tuple[Cell, ...]:
    first = min((row[5] for row in rows if row[5] is not None), default=run_began_ns)
    last = max((row[6] for row in rows if row[6] is not None), default=first)
    ended = "; ".join(f"{ending_text(*row[1:4])} on rank {ranges(row[4])}" for row in rows)
    steps, ranks = max(row[7] for row in rows), sum(len(row[4]) for row in rows)
    return attempt, ranks, max(0, first - run_began_ns), last - first, steps, ended


def _started_ns(tables: Tables) -> int | None:
    """When `rankscope run` was called."""
    started_ns: int | None = tables.query("SELECT started_ns FROM run")[0][0]
    return started_ns


# ---------------------------------------------------------------------------------------------------------------------
# Goodput: each moment from the start of the run to its end belongs to one kind, mean over the ranks of an attempt.
KINDS = {
    "useful steps": "steps that a later attempt need not repeat, at their usual length",
    "lost steps": "steps of a failed attempt since its last checkpoint, and the unfinished one, at most its usual "
    "length",
    "slowed steps": "what steps take beyond their usual length, if that is more than a quarter of it",
    "checkpoint": "writing checkpoints: torch.save, torch.distributed.checkpoint, rankscope.checkpoint()",
    "compilation": "torch.compile",
    "start-up": "from the start of an attempt to its first step, and what the first two steps take beyond the usual "
    "length",
    "hang": "from the last step of a failed attempt to its end, without the unfinished step",
    "shutdown": "from the last step of an attempt that ended well to its end",
    "restart": "between attempts of one run: no rank is there",
    "queue": "between runs of one lineage",
}
USEFUL, LOST, SLOWED, CHECKPOINT, COMPILATION, STARTUP, HANG, SHUTDOWN, RESTART, QUEUE = KINDS
SLOWED_FROM = 1.25  # times the usual length
GOODPUT_COLUMNS = (
    Column("kind", Unit.NAME, "Kind", "what the wall time went into"),
    Column(
        "time_ns",
        Unit.NS,
        "Time",
        "mean over the ranks of each attempt, summed over attempts; all add up to the wall time",
    ),
    Column(
        "share",
        Unit.SHARE,
        "% of wall time",
        "`time_ns` ÷ wall time: from the first process's start to the last rank's end",
    ),
    Column("what", Unit.NAME, "What", "what belongs to this kind"),
)
PROCESSES_SQL = f"""
    SELECT process, rank, coalesce(attempt, 1), started_ns, {GONE},
        role = '{Role.ATTEMPT}' OR (ending NOT IN ('running', 'stopped') AND NOT (ending = 'exited' AND exit_code = 0))
    FROM ranks WHERE {STARTED} AND started_ns IS NOT NULL AND ended_ns IS NOT NULL"""
STEPS_SQL = f"""
    SELECT process, number, begin_ns, end_ns, checkpoint_ns, warmup FROM steps JOIN ranks USING (process)
    WHERE {STARTED} ORDER BY process, number"""
BLOCKS_SQL = f"""
    SELECT process, first, steps, saved, median_ns, long_steps, long_ns, checkpoint_ns, step_blocks.warmup,
        {" + ".join(f"own_{part}_ns" for part in (*PARTS, "communication"))} + exposed_ns - checkpoint_ns AS length_ns
    FROM step_blocks JOIN ranks USING (process) WHERE {STARTED} ORDER BY process, first"""
FIRST_START_SQL = "SELECT min(started_ns) FROM ranks WHERE tool = ''"  # of a launcher, mostly
FIRST_SQL = "SELECT process, at_ns FROM marks WHERE name = 'first_step_begin'"
FIRST_COLLECTIVE_SQL = "SELECT process, at_ns FROM marks WHERE name = 'first_collective_end'"
CUT_LOGS_SQL = """
    SELECT process FROM ranks JOIN (SELECT process, count(*) AS kept FROM untraced_events WHERE sequence > 0 GROUP BY 1)
    USING (process) WHERE logged_collectives > kept"""
RANGES_SQL = """
    SELECT process, name = 'torch.compile', phase IN ('first_step', 'steady'), sum(total_ns) FROM tallies
    WHERE layer = 'torch' AND kind = 'call' AND (name IN ('torch.compile', 'torch.save', 'checkpoint')
        OR starts_with(name, 'torch.distributed.checkpoint.')) GROUP BY ALL"""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Steps that newer ones have overwritten, in blocks: arrays, sums of each block."""

    last: Any  # number of its last step
    steps: Any
    length_ns: Any  # without checkpoints
    median_ns: Any  # of a step
    long_steps: Any  # longer than 5/4 of that
    long_ns: Any  # what these take beyond it
    checkpoint_ns: Any
    saved: Any  # number of its last step that wrote a checkpoint; 0: none did
    warmup: Any

    @classmethod
    def of(cls, columns: Mapping[str, Any], rows: slice, before: int) -> Earlier:
        """Those before a step; of the block that it lies in, a share."""
        first, steps = (np.asarray(columns[name])[rows] for name in ("first", "steps"))
        chosen = first < before
        kept = np.minimum(steps, before - first)[chosen]
        share = kept / steps[chosen]

        def of(name: str) -> Any:
            return np.asarray(columns[name], np.float64)[rows][chosen]

        sums = (of("length_ns") * share, of("median_ns"), of("long_steps") * share, of("long_ns") * share)
        saved, warmup = of("saved"), np.asarray(columns["warmup"], bool)[rows][chosen]
        return cls(first[chosen] + kept - 1, kept, *sums, of("checkpoint_ns") * share, saved, warmup)

    def excess_ns(self, usual_ns: float) -> Any:
        """What steps of each block take beyond the usual length, those that take a quarter more."""
        whole = self.length_ns - self.steps * usual_ns
        single = self.long_ns + self.long_steps * (self.median_ns - usual_ns)
        return np.maximum(np.where(self.median_ns > SLOWED_FROM * usual_ns, whole, single), 0.0)

    def lost_share(self, saved: int | None) -> Any:
        """Of each block, the steps after the last one that was saved."""
        if saved is None:
            return np.zeros(len(self.steps))
        return np.clip(self.last - saved, 0, self.steps) / self.steps


@dataclass(slots=True)
class Life:
    """One rank in one attempt."""

    process: int
    rank: int
    attempt: int
    started_ns: int
    ended_ns: int
    failed: bool
    first_ns: int | None = None  # when its first step began
    number: Any = None  # of its steps, as arrays; None: it has none
    length_ns: Any = None  # without checkpoints
    checkpoint_ns: Any = None
    warmup: Any = None
    last_ns: int = 0  # when its last step ended
    earlier: Earlier | None = None  # steps that newer ones have overwritten
    unseen_ns: int = 0  # such of which nothing is known
    inferred: bool = False  # its steps, from collectives: which of them wrote a checkpoint is not known
    compiled_ns: tuple[float, float] = (0.0, 0.0)  # before the steps, in them
    saved_ns: float = 0.0  # by all calls that write checkpoints


@dataclass(slots=True)
class Account:
    """Where the wall time of a run went."""

    began_ns: int
    ended_ns: int
    kinds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    attempts: int = 0
    useful: int = 0  # steps
    lost: int = 0
    inferred: bool = False  # from collectives

    @property
    def wall_ns(self) -> int:
        return self.ended_ns - self.began_ns


def account(tables: Tables) -> Account | None:
    """The wall time of a run by kind; None where no rank was recorded."""
    lives = _lives(tables)
    if not lives:
        return None
    usual_ns = _usual_ns(lives)
    by_attempt: dict[int, list[Life]] = {}
    for life in lives:
        by_attempt.setdefault(life.attempt, []).append(life)
    first = min([*(life.started_ns for life in lives), *tables.query(FIRST_START_SQL)[0]])
    ledger = Account(first, max(life.ended_ns for life in lives), inferred=any(life.inferred for life in lives))
    now = ledger.began_ns
    for number in sorted(by_attempt):
        those = by_attempt[number]
        began = max(now, min(life.started_ns for life in those))
        ledger.kinds[RESTART if ledger.attempts else STARTUP] += began - now
        now = max(began, *(life.ended_ns for life in those))
        _add_attempt(ledger, those, began, now, usual_ns)
        ledger.attempts += 1
    return ledger


def _lives(tables: Tables) -> list[Life]:
    lives = {row[0]: Life(*row) for row in tables.query(PROCESSES_SQL)}
    for process, at_ns in tables.query(FIRST_SQL):
        if process in lives:
            lives[process].first_ns = at_ns
    for process, is_compile, in_steps, total_ns in tables.query(RANGES_SQL):
        if process in lives and is_compile:
            before, during = lives[process].compiled_ns
            lives[process].compiled_ns = (before, during + total_ns) if in_steps else (before + total_ns, during)
        elif process in lives:
            lives[process].saved_ns += total_ns
    _add_steps(lives, tables.columns(STEPS_SQL))
    if any(life.unseen_ns for life in lives.values()):
        _add_earlier(lives, tables.columns(BLOCKS_SQL))
    if all(life.number is None for life in lives.values()):
        _add_inferred(tables, lives)
    return list(lives.values())


def _add_inferred(tables: Tables, lives: dict[int, Life]) -> None:
    """Steps as the collectives of each attempt give them away; those overwritten in the log are known by their time."""
    first = dict(tables.query(FIRST_COLLECTIVE_SQL))
    cut = {process for (process,) in tables.query(CUT_LOGS_SQL)}
    last = max((life.attempt for life in lives.values()), default=1)
    for attempt in {life.attempt for life in lives.values()}:
        ranks = steps_of(tables).ranks if attempt == last else attempt_steps(tables, attempt)
        by_rank = {rank_steps.rank: rank_steps for rank_steps in ranks}
        for life in lives.values():
            steps = by_rank.get(life.rank) if life.attempt == attempt else None
            if steps is not None and len(steps.number):
                _infer(life, steps, first.get(life.process) if life.process in cut else None)


def _infer(life: Life, steps: RankSteps, first_ns: int | None) -> None:
    begin = np.asarray(steps.begin_ns)
    end = begin + np.asarray(steps.length_ns, np.int64)
    # as recorded ones, each begins where the one before ended: collectives that are in no pattern lie between
    life.number, life.length_ns = np.asarray(steps.number), np.diff(end, prepend=begin[0]).astype(np.float64)
    life.checkpoint_ns = np.zeros(len(begin))
    life.first_ns = min(int(begin[0]), first_ns or int(begin[0]))
    life.unseen_ns = int(begin[0]) - life.first_ns
    life.warmup = np.arange(len(begin)) < (0 if life.unseen_ns else 2)
    life.last_ns, life.inferred = int(end[-1]), True


def _add_steps(lives: dict[int, Life], columns: Any) -> None:
    process = np.asarray(columns["process"])
    edges = [0, *(np.flatnonzero(np.diff(process)) + 1).tolist(), len(process)]
    for first, last in pairwise(edges) if len(process) else ():
        life = lives.get(int(process[first]))
        if life is None:
            continue
        rows = slice(first, last)
        begin, end = np.asarray(columns["begin_ns"])[rows], np.asarray(columns["end_ns"])[rows]
        life.number, life.warmup = np.asarray(columns["number"])[rows], np.asarray(columns["warmup"], bool)[rows]
        life.checkpoint_ns = np.asarray(columns["checkpoint_ns"], np.float64)[rows]
        life.length_ns = np.maximum((end - begin) - life.checkpoint_ns, 0)
        life.first_ns = min(life.first_ns if life.first_ns is not None else int(begin[0]), int(begin[0]))
        life.last_ns, life.unseen_ns = int(end[-1]), int(begin[0]) - life.first_ns


def _add_earlier(lives: dict[int, Life], columns: Mapping[str, Any]) -> None:
    process = np.asarray(columns["process"])
    edges = [0, *(np.flatnonzero(np.diff(process)) + 1).tolist(), len(process)]
    for first, last in pairwise(edges) if len(process) else ():
        life = lives.get(int(process[first]))
        if life is None or life.number is None or life.number[0] <= columns["first"][first]:
            continue
        life.earlier = Earlier.of(columns, slice(first, last), int(life.number[0]))
        seen_ns = (life.earlier.length_ns + life.earlier.checkpoint_ns).sum()
        is_whole = columns["first"][first] == 1 and life.earlier.last[-1] == life.number[0] - 1
        life.unseen_ns = 0 if is_whole else max(0, life.unseen_ns - int(seen_ns))


def _usual_ns(lives: list[Life]) -> float:
    """The median of all steps but the first two of each rank, or of those where there are no others."""
    if any(life.earlier is not None for life in lives):
        return _usual_in_blocks_ns(lives)
    later = [life.length_ns[~life.warmup] for life in lives if life.number is not None]
    pooled = np.concatenate(later) if later else np.zeros(0)
    if not len(pooled):
        pooled = np.concatenate([life.length_ns for life in lives if life.number is not None] or [pooled])
    return float(np.median(pooled)) if len(pooled) else 0.0


def _usual_in_blocks_ns(lives: list[Life]) -> float:
    """The same where blocks of steps count as so many of their median."""
    values = [life.length_ns[~life.warmup] for life in lives if life.number is not None]
    weights = [np.ones(len(lengths)) for lengths in values]
    for life in lives:
        if life.earlier is not None:
            values.append(life.earlier.median_ns[~life.earlier.warmup])
            weights.append(life.earlier.steps[~life.earlier.warmup])
    pooled, counts = np.concatenate(values), np.concatenate(weights)
    order = np.argsort(pooled)
    return float(pooled[order][np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)])


def _add_attempt(ledger: Account, lives: list[Life], began_ns: int, ended_ns: int, usual_ns: float) -> None:
    """The mean over its ranks, each of which accounts for all of the attempt's time."""
    failed = any(life.failed for life in lives)
    saved = _last_saved(lives) if failed else None
    accounts = [_of_rank(life, began_ns, ended_ns, usual_ns, failed, saved) for life in lives]
    for kind in KINDS:
        ledger.kinds[kind] += fmean(account_of_rank.get(kind, 0.0) for account_of_rank in accounts)
    numbers = [int(life.number[-1]) for life in lives if life.number is not None]
    done = int(median(numbers)) if numbers else 0
    useful = done if saved is None else min(done, saved)
    ledger.useful, ledger.lost = ledger.useful + useful, ledger.lost + done - useful


def _last_saved(lives: list[Life]) -> int:
    """The last step whose outcome is in a checkpoint; one that is written within step n has that of step n - 1."""
    saved = 0
    for life in lives:
        if life.number is None:
            continue
        within = np.flatnonzero(life.checkpoint_ns > 0)
        if life.inferred:
            saved = max(saved, _last_slow(life) if life.saved_ns else 0)
            continue
        written_ns = life.checkpoint_ns.sum() + (life.earlier.checkpoint_ns.sum() if life.earlier else 0.0)
        after = life.saved_ns > written_ns * 1.01 + 1e6 and not life.unseen_ns
        earlier = int(life.earlier.saved.max()) - 1 if life.earlier is not None else 0
        here = int(life.number[within[-1]]) - 1 if len(within) else earlier
        saved = max(saved, int(life.number[-1]) if after else here)
    return saved


def _last_slow(life: Life) -> int:
    """Where a checkpoint was written in steps that do not tell: in one that took longer than others."""
    slow = np.flatnonzero(life.length_ns > SLOWED_FROM * float(np.median(life.length_ns)))
    return int(life.number[slow[-1]]) - 1 if len(slow) else 0


def _of_rank(
    life: Life, began_ns: int, ended_ns: int, usual_ns: float, failed: bool, saved: int | None
) -> dict[str, float]:
    """One rank's account of the time from the begin of an attempt to its end."""
    total_ns = float(ended_ns - began_ns)
    before_compiled, compiled = life.compiled_ns
    if life.number is None:
        compiling = min(before_compiled + compiled, total_ns)
        return {STARTUP: total_ns - compiling, COMPILATION: compiling}
    first = max(life.first_ns or began_ns, began_ns)
    tail, in_steps = max(0.0, float(ended_ns - life.last_ns)), float(life.last_ns - first)
    startup = max(0.0, total_ns - tail - in_steps)
    excess = np.where(life.length_ns > SLOWED_FROM * usual_ns, life.length_ns - usual_ns, 0.0)
    lost = life.number > saved if saved is not None else np.zeros(len(life.number), bool)
    net = life.length_ns - excess
    slow_first, slowed = float(excess[life.warmup].sum()), float(excess[~life.warmup].sum())
    written = float(life.checkpoint_ns.sum())
    useful_ns, lost_ns = float(net[~lost].sum()) + life.unseen_ns, float(net[lost].sum())
    if life.earlier is not None:
        earlier, beyond = life.earlier, life.earlier.excess_ns(usual_ns)
        lost_here = float(((earlier.length_ns - beyond) * earlier.lost_share(saved)).sum())
        useful_ns, lost_ns = useful_ns + float((earlier.length_ns - beyond).sum()) - lost_here, lost_ns + lost_here
        slow_first += float(beyond[earlier.warmup].sum())
        slowed += float(beyond[~earlier.warmup].sum())
        written += float(earlier.checkpoint_ns.sum())
    written_in = min(life.saved_ns, slowed) if life.inferred else written
    written_after = min(tail, max(0.0, life.saved_ns - written_in))
    slowed -= written_in if life.inferred else 0.0
    in_first, in_later = min(compiled, slow_first), min(max(0.0, compiled - slow_first), slowed)
    begun = min(tail - written_after, usual_ns) if failed else 0.0
    early = min(before_compiled, startup)
    return {
        USEFUL: useful_ns,
        LOST: lost_ns + begun,
        SLOWED: slowed - in_later,
        CHECKPOINT: written_in + written_after,
        COMPILATION: early + in_first + in_later,
        STARTUP: startup - early + slow_first - in_first,
        HANG: tail - written_after - begun if failed else 0.0,
        SHUTDOWN: 0.0 if failed else tail - written_after,
    }


def goodput(tables: Tables, selection: Selection = ALL) -> Table:
    """The wall time by kind: steps that count, and each kind of time that does not."""
    run_account = account(tables)
    return arranged(goodput_table([run_account] if run_account is not None else []), selection)


NO_STEPS = (
    "No step of the job was recorded or can be inferred from its collectives, so its goodput is unknown: all of it "
    "counts as start-up. rankscope.step() marks the end of each."
)
INFERRED = (
    "Steps are inferred from the pattern that collectives repeat: a failed attempt loses its steps since the last "
    "slow one if it wrote checkpoints, and all of them if none was seen. rankscope.step() marks the end of each."
)


def goodput_table(accounts: list[Account]) -> Table:
    """Of the runs of one lineage, in the order of time."""
    table = Table("goodput", "Goodput", GOODPUT_COLUMNS, [])
    if not accounts:
        return table
    sums = {kind: sum(account_of_run.kinds[kind] for account_of_run in accounts) for kind in KINDS}
    for before, after in pairwise(accounts):
        sums[QUEUE] += max(0, after.began_ns - before.ended_ns)
    wall = sum(sums.values())
    table.rows = [(kind, ns, ns / wall if wall else None, KINDS[kind]) for kind, ns in sums.items() if ns >= 1]
    useful, lost = (
        sum(account_of_run.useful for account_of_run in accounts),
        sum(account_of_run.lost for account_of_run in accounts),
    )
    if not useful and not lost:
        table.warnings.append(NO_STEPS)
        return table
    runs = f"{counted(len(accounts), 'run')}, " if len(accounts) > 1 else ""
    count = sum(account_of_run.attempts for account_of_run in accounts)
    share = sums[USEFUL] / wall if wall else 0.0
    what = f"{runs}{counted(count, 'attempt')}, {counted(useful, 'useful step')}, {lost} lost"
    if any(account_of_run.inferred for account_of_run in accounts):
        table.notes.append(INFERRED)
    table.notes.append(f"Goodput {share:.1%} of {wall / 1e9:.4g} s: {what}.")
    return table
