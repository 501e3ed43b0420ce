"""The steps of a run as arrays, one set per rank: as recorded, or else as the log of collectives gives them away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Tables
from rankscope.questions.collectives.matching import WHO
from rankscope.questions.disk_matrix import in_threads
from rankscope.questions.steps.arrays import RankSteps, Same, StepFile
from rankscope.questions.steps.inferred import pattern_steps
from rankscope.questions.steps.traced import SAID
from rankscope.questions.wording import rank_words

# ---------------------------------------------------------------- which of the first steps are warm-up?
WARMUP_STEPS = 2  # as the recorder has it
WINDOW = 3  # steps that must be at the steady level one after the other
SPREADS = 5.0  # in MADs of the second half
NOTICEABLE = 0.2  # of the steady level
FEWEST = 8  # fewer steps tell no level


def warmup_steps(length_ns: Any, flagged: Any) -> int:
    """How many to leave out: those flagged by the recorder, then those before the step time reaches its later level."""
    warmup = int(np.flatnonzero(flagged)[-1]) + 1 if flagged.any() else 0
    count = len(length_ns)
    if count - warmup < FEWEST:
        return min(warmup, count - 1) if count else 0
    later = length_ns[warmup + (count - warmup) // 2 :]
    level = float(np.median(later))
    spread = 1.4826 * float(np.median(np.abs(later - level)))
    bound = level + max(SPREADS * spread, NOTICEABLE * level)
    for first in range(warmup, warmup + (count - warmup) // 2):
        if (length_ns[first : first + WINDOW] <= bound).sum() >= min(WINDOW - 1, count - first) and (
            length_ns[first] <= bound
        ):
            return first
    return warmup


# ---------------------------------------------------------------------------------------------------------------------
# The steps that ranks have recorded: at once, or of a large run some ranks at a time, with the values left on disk.
Array = Any  # of numpy
PARTS = ("data", "zero_grad", "forward", "backward", "optimizer", "checkpoint", "compute", "other")
COMPILED = "compute"  # only of programs that JAX has compiled
COUNTS = ("minor_faults", "major_faults", "involuntary_switches", "voluntary_switches")
OF_WHICH = ("hidden", "gc", "runnable", "cpu", "process_cpu")
TIMES = ("begin_ns", "end_ns", "communication_ns", "blocked_communication_ns", "exposed_ns")
NEEDED = (
    *("process", "number", *TIMES),
    *(f"{part}_ns" for part in PARTS),
    *(f"blocked_{part}_ns" for part in PARTS),
    *(f"{name}_ns" for name in OF_WHICH),
    *(*COUNTS, "warmup"),
)
SQL = f"""
    SELECT {", ".join(f"steps.{name}" for name in NEEDED)} FROM steps JOIN ranks USING (process)
    WHERE role = 'rank' {{}} ORDER BY rank, number"""
COUNTED = "SELECT count(*) FROM steps"
MOST_STEPS = 400_000  # that are held in memory

Part = Callable[[Sequence[str]], Mapping[str, Any]]  # these columns of the steps of some ranks
Who = Mapping[int, tuple[int, str]]  # by process: its rank and host


def recorded_steps(tables: Tables) -> list[RankSteps]:
    """Of all ranks that have any, in the order of ranks."""
    who: Who = {process: (rank, host) for process, rank, host in tables.query(WHO)}
    parts: Sequence[Part] | None = getattr(tables, "step_parts", lambda: None)()  # of a run with too many for memory
    if parts is not None:
        ranks = _on_disk(in_threads(partial(_read, who), parts))
    elif tables.query(COUNTED)[0][0] > MOST_STEPS:  # in one database with what other tools recorded
        per_process = (tables.columns(SQL.format("AND process = ?"), (process,)) for process in who)
        ranks = _on_disk(_of_part(columns, who) for columns in per_process)
    else:
        ranks = _of_part(tables.columns(SQL.format("")), who)
    same = Same()
    for rank_steps in ranks:
        rank_steps.number, rank_steps.flagged = same(rank_steps.number), same(rank_steps.flagged)
    return ranks


def _on_disk(parts: Iterable[list[RankSteps]]) -> list[RankSteps]:
    file = StepFile()
    ranks = []
    for some in parts:
        for rank_steps in some:
            rank_steps.values = file.add(rank_steps.values)
            ranks.append(rank_steps)
    return sorted(ranks, key=lambda rank_steps: rank_steps.rank)


def _read(who: Who, part: Part) -> list[RankSteps]:
    return _of_part(part(NEEDED), who)


def _of_part(columns: Mapping[str, Any], who: Who) -> list[RankSteps]:
    process = columns["process"]
    edges = np.flatnonzero(np.diff(process)) + 1
    of_ranks = np.split(np.arange(len(process)), edges) if len(process) else []
    return [_of_rows(columns, rows, *who[int(process[rows[0]])]) for rows in of_ranks if int(process[rows[0]]) in who]


def _of_rows(columns: Mapping[str, Any], rows: Array, rank: int, host: str) -> RankSteps:
    def of(name: str) -> Array:
        return np.asarray(columns[name][rows], np.float64)

    begin, end = columns["begin_ns"][rows], columns["end_ns"][rows]
    values = {"begin_ns": begin, "length_ns": (end - begin).astype(np.float64), "exposed_ns": of("exposed_ns")}
    parts = [part for part in PARTS if part != COMPILED or columns[f"{part}_ns"].any()]
    values |= {f"own {part}": np.maximum(of(f"{part}_ns") - of(f"blocked_{part}_ns"), 0) for part in parts}
    # a collective that blocks outside the other parts is a part of its own: what it was not blocked for is the host's
    values["own other"] = values["own other"] + np.maximum(of("communication_ns") - of("blocked_communication_ns"), 0)
    values |= {f"of which {name}": of(f"{name}_ns") for name in OF_WHICH}
    values |= {f"count {name}": of(name) for name in COUNTS}
    return RankSteps(rank, host, columns["number"][rows], np.asarray(columns["warmup"][rows], bool), values)


# ---------------------------------------------------------------- data
# of numpy
TITLES = {
    "data": "data loading",
    "zero_grad": "zero_grad",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "checkpoint": "checkpoint",
    "compute": "compute",
    "other": "other",
    "exposed": "exposed communication",
    "wait": "wait",
    "transfer": "transfer",
    "hidden": "overlapped communication",
    "gc": "garbage collection",
    "runnable": "waiting for a CPU",
    "cpu": "CPU time of the thread",
    "process_cpu": "CPU time of the process",
}


@dataclass(slots=True)
class Steps:
    """All ranks' steps, and which of them are the steady ones."""

    ranks: list[RankSteps]  # in the order of ranks
    source: str  # "recorded", "traced" (of a loaded trace), "pattern" or ""
    left_out: int = 0  # warm-up steps, by number: those before the first steady one
    first_steady: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        """Newer steps have overwritten the first ones of every rank, and with them the warm-up."""
        return self.source == "recorded" and all(rank_steps.number[0] > WARMUP_STEPS for rank_steps in self.ranks)

    def steady(self, rank_steps: RankSteps) -> Array:
        return rank_steps.number >= self.first_steady

    def pooled(self, ranks: Sequence[RankSteps], ask: Callable[[RankSteps], Array]) -> Array:
        """What the ranks answer of their steady steps, one after the other."""
        chosen = [self.steady(rank_steps) for rank_steps in ranks]
        values = np.empty(sum(int(mask.sum()) for mask in chosen))
        at = 0
        for rank_steps, mask in zip(ranks, chosen, strict=True):
            own_values = ask(rank_steps)[mask]
            values[at : at + len(own_values)] = own_values
            at += len(own_values)
        return values

    def all_steps(self) -> int:
        """Of the rank with most of them, also those whose records are overwritten: recorded steps count from 1."""
        counts = [(len(rank.number), int(rank.number[-1])) for rank in self.ranks if len(rank.number)]
        return max((last if self.source == "recorded" else kept for kept, last in counts), default=0)

    def all_steady_steps(self) -> int:
        """The same without warm-up."""
        return max(0, self.all_steps() - self.left_out)

    def common(self) -> Array:
        """The numbers of the steady steps that every rank has."""
        numbers_of = list({id(rank_steps.number): rank_steps.number for rank_steps in self.ranks}.values())
        shared = np.unique(numbers_of[0]) if numbers_of else np.zeros(0, np.int64)
        for numbers in numbers_of[1:]:
            shared = np.intersect1d(shared, numbers)
        return shared[shared >= self.first_steady]

    def between(self, first: int, last: int) -> Steps:
        """Only the steps of these numbers, all of them taken as steady."""
        return Steps(
            [_cut(rank_steps, (rank_steps.number >= first) & (rank_steps.number <= last)) for rank_steps in self.ranks],
            self.source,
        )


def _cut(rank_steps: RankSteps, chosen: Array) -> RankSteps:
    values = {name: column[chosen] for name, column in rank_steps.values.items()}
    return replace(rank_steps, number=rank_steps.number[chosen], flagged=rank_steps.flagged[chosen], values=values)


_KEPT: WeakKeyDictionary[Tables, Steps] = WeakKeyDictionary()


def steps_of(tables: Tables) -> Steps:
    """Worked out once for each run that is open."""
    if tables not in _KEPT:
        _KEPT[tables] = _steps_of(tables)
    return _KEPT[tables]


def _steps_of(tables: Tables) -> Steps:
    ranks = recorded_steps(tables)
    if ranks:
        traced = _traced(tables)
        notes = _losses(tables) + traced + _by_backward(tables)
        steps = Steps(ranks, "traced" if traced else "recorded", notes=notes)
    else:
        inferred, notes = pattern_steps(tables)
        steps = Steps(inferred, "pattern" if inferred else "", notes=notes)
    if steps.ranks and steps.is_cut:
        steps.first_steady = int(min(rank_steps.number[0] for rank_steps in steps.ranks))
    elif steps.ranks:
        steps.first_steady, steps.left_out = _first_steady(steps.ranks)
    return steps


def _first_steady(ranks: list[RankSteps]) -> tuple[int, int]:
    """The number of the first steady step and how many before it are left out, judged by the slowest rank of each."""
    distinct = {id(rank_steps.number): rank_steps.number for rank_steps in ranks}
    numbers = np.unique(np.concatenate(list(distinct.values())))
    places = {key: np.searchsorted(numbers, own_numbers) for key, own_numbers in distinct.items()}
    longest, flagged = np.zeros(len(numbers)), np.zeros(len(numbers), bool)
    for rank_steps in ranks:
        at = places[id(rank_steps.number)]
        longest[at] = np.maximum(longest[at], rank_steps.length_ns)
        flagged[at] |= rank_steps.flagged
    left_out = warmup_steps(longest, flagged)
    return (int(numbers[left_out]) if left_out < len(numbers) else int(numbers[-1]) + 1), left_out


def _traced(tables: Tables) -> list[str]:
    """What tells the steps of loaded traces."""
    sql = """SELECT steps_from, list(rank ORDER BY rank) FROM ranks
        WHERE role = 'rank' AND steps_from <> '' AND process IN (SELECT process FROM steps) GROUP BY 1 ORDER BY 1"""
    return [f"{SAID[source]} ({rank_words(ranks)})." for source, ranks in tables.query(sql) if source in SAID]


def _by_backward(tables: Tables) -> list[str]:
    """What tells the steps of a program that makes no optimizer."""
    sql = """SELECT list(DISTINCT rank ORDER BY rank) FROM steps JOIN ranks USING (process)
        WHERE role = 'rank' AND by_backward"""
    ranks = tables.query(sql)[0][0]
    if not ranks:
        return []
    sentence = f"Steps end with a backward run, because no optimizer was seen ({rank_words(ranks)})"
    return [f"{sentence}: if a step has several, call rankscope.step() at its end."]


def _losses(tables: Tables) -> list[str]:
    sql = """SELECT text, list(rank ORDER BY rank) FROM notes JOIN ranks USING (process)
        WHERE role = 'rank' AND contains(text, 'steps were overwritten') GROUP BY text ORDER BY text"""
    return [f"Rank {', '.join(map(str, ranks[:8]))}: {text}." for text, ranks in tables.query(sql)]
