"""What a what-if changes in the durations of a program: one rank as fast as the others, no waiting for data, …"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.model.tables import Wrong
from rankscope.questions.whatif.passes import as_other_stages, share_evenly
from rankscope.questions.whatif.program import Durations, Program
from rankscope.questions.wording import rank_words

Array = Any  # of numpy
CELLS = 1 << 22  # that are worked on at a time
POOL = 1 << 14  # operations of peers that tell how long such a one takes
# by cause: what operations of a table are called that are nothing but it
KINDS = {
    "data": re.compile(r"data|load", re.I),
    "gc": re.compile(r"^gc$", re.I),
    "checkpoint": re.compile(r"checkpoint|save", re.I),
}
PASS = re.compile(r"forward|backward|^fwd|^bwd", re.I)
CAUSES = ("data", "gc", "preemption", "checkpoint", "sync", "launch")


@dataclass(frozen=True, slots=True)
class Change:
    """One what-if: what is different, by its kind and its operand."""

    kind: str  # rank, stage, cause, balance, even, bandwidth, overlap, ideal; typical, which only tests a model
    ranks: tuple[int, ...] = ()
    stages: tuple[int, ...] = ()
    cause: str = ""
    factor: float = 1.0
    even: bool = False  # ideal: micro-batches, too

    @property
    def words(self) -> str:
        """As a row of the answer calls it."""
        return {
            "rank": f"{rank_words(self.ranks)} as fast as {'its' if len(self.ranks) == 1 else 'their'} peers"
            if self.ranks
            else "",
            "stage": f"stage {', '.join(map(str, self.stages))} with no more work than the median stage",
            "cause": f"no {'preemption' if self.cause == 'preemption' else self.cause + ' time'}",
            "balance": "all work shared evenly by stages",
            "even": "all micro-batches alike",
            "bandwidth": f"{self.factor:g} × the bandwidth",
            "overlap": "all transfer overlapped",
            "typical": "every transfer as usual",
            "ideal": "ideal: no rank ever late"
            + ("" if not self.stages else ", the same work shared evenly by stages")
            + (" and micro-batches" if self.even else ""),
        }[self.kind]

    def applied(self, program: Program, time: Durations) -> Durations:
        """The durations with this change; those given stay as they are."""
        return {
            "rank": self._rank,
            "stage": self._stage,
            "cause": self._cause,
            "balance": self._balance,
            "even": self._even,
            "bandwidth": self._bandwidth,
            "overlap": self._overlap,
            "ideal": self._ideal,
            "typical": self._typical,
        }[self.kind](program, time)

    def _rank(self, program: Program, time: Durations) -> Durations:
        """Each operation of these ranks as long as its peers' usually are, else as those of other stages."""
        places = [at for at, rank in enumerate(program.ranks) if rank in self.ranks]
        mine = np.isin(program.rank, places)
        return _as_others(program, time, mine, program.peers, program.peers_of_stages)

    def _stage(self, program: Program, time: Durations) -> Durations:
        return _as_others(program, time, np.isin(program.stage, self.stages), None, program.peers_of_stages)

    def _cause(self, program: Program, time: Durations) -> Durations:
        if self.cause in program.causes:
            return _without(program, time, self.cause)
        pattern = KINDS.get(self.cause)
        named = np.array([bool(pattern and pattern.search(part)) for part in program.parts])
        mine = named[program.part] & ~program.transfers
        return Durations(time.gap_ns, np.where(mine[:, None], 0.0, time.own_ns))

    def _balance(self, program: Program, time: Durations) -> Durations:
        """Work of each kind shared evenly: by the mean of the stages over the median of the own stage."""
        if program.passes is not None:
            return share_evenly(program, time)
        mine = (program.stage >= 0) & ~program.transfers
        own_ns = time.own_ns.copy()
        rows = np.flatnonzero(mine)
        balanced, of_stage = _of_stages(program, time.own_ns, rows)
        own_ns[rows] *= np.where(of_stage > 0, balanced / np.where(of_stage > 0, of_stage, 1.0), 1.0)
        return Durations(time.gap_ns, own_ns)

    @staticmethod
    def _even(program: Program, time: Durations) -> Durations:
        """Each forward and backward pass as long as the mean of its step, over the ranks of its stage."""
        own_ns = time.own_ns.copy()
        rows = micro_batch_rows(program)
        if not len(rows):
            return time
        of_kind = np.unique(program.stage[rows] * len(program.parts) + program.part[rows], return_inverse=True)[1]
        sums = np.zeros((int(of_kind.max()) + 1, own_ns.shape[1]))
        np.add.at(sums, of_kind, own_ns[rows])
        own_ns[rows] = (sums / np.bincount(of_kind)[:, None])[of_kind]
        return Durations(time.gap_ns, own_ns)

    def _bandwidth(self, program: Program, time: Durations) -> Durations:
        return Durations(time.gap_ns, np.where(program.transfers[:, None], time.own_ns / self.factor, time.own_ns))

    def _overlap(self, program: Program, time: Durations) -> Durations:
        return Durations(time.gap_ns, np.where(program.transfers[:, None], 0.0, time.own_ns))

    def _typical(self, program: Program, time: Durations) -> Durations:
        """Every transfer as long as it is in the median step."""
        own_ns = time.own_ns.copy()
        rows = np.flatnonzero(program.transfers)
        if program.places is None:
            own_ns[rows] = np.median(time.own_ns[rows], axis=1, keepdims=True)
        elif len(rows):
            codes = program.places.astype(np.int64) * len(program.ranks) + program.rank
            known, middle = _medians(time.own_ns, codes, rows)
            own_ns[rows] = middle[np.searchsorted(known, codes[rows])]
        return Durations(time.gap_ns, own_ns)

    def _ideal(self, program: Program, time: Durations) -> Durations:
        """All ranks (of a stage) as its median rank is, step by step; then work shared evenly between stages."""
        changed = _as_median_rank(program, time)
        if program.passes is not None:
            return share_evenly(program, changed)
        own_ns = changed.own_ns
        rows = np.flatnonzero((program.stage >= 0) & ~program.transfers)
        if len(rows) and len(np.unique(program.stage[rows])) > 1:
            changed.own_ns[rows] = _of_stages(program, own_ns, rows)[0]
        return changed


def micro_batch_rows(program: Program) -> Array:
    """The passes of micro-batches, which only tables of operations have one by one."""
    if program.step is not None or program.passes is not None:
        return np.zeros(0, np.int64)
    is_pass = np.array([bool(PASS.search(part)) for part in program.parts])
    return np.flatnonzero(is_pass[program.part] & ~program.transfers)


def least_step_ns(program: Program, changes: Sequence[Change], time: Durations) -> Array:
    """S: what a step takes at least when transfer is overlapped: the transfer of the rank that has most."""
    if not any(change.kind == "overlap" for change in changes):
        return np.zeros(len(program.numbers))
    factor = np.prod([change.factor for change in changes if change.kind == "bandwidth"] or [1.0])
    own_ns = np.where(program.transfers[:, None], program.time.own_ns, 0.0) / factor
    ranks = len(program.ranks)
    if program.step is None:
        sums = np.stack([np.bincount(program.rank, column, minlength=ranks) for column in own_ns.T])
    else:
        inside = program.step >= 0
        key = program.step[inside] * ranks + program.rank[inside]
        sums = np.bincount(key, own_ns[inside, 0], minlength=ranks * len(program.numbers)).reshape(-1, ranks)
    return sums.max(axis=1)


# ---------------------------------------------------------------------------------------------------------------------
def _medians(values: Array, codes: Array, rows: Array) -> tuple[Array, Array]:
    """Of these rows: the codes that there are, in order, and of each the (lower) median of its rows."""
    own_codes = codes[rows]
    if len(own_codes) and (np.diff(own_codes) < 0).any():
        order = np.argsort(own_codes, kind="stable")
        rows, own_codes = rows[order], own_codes[order]
    first = np.flatnonzero(np.diff(own_codes, prepend=own_codes[:1] - 1))
    sizes = np.diff(np.append(first, len(own_codes)))
    medians = np.empty((len(first), values.shape[1]), values.dtype)
    for size in np.unique(sizes).tolist():
        alike = np.flatnonzero(sizes == size)
        for some in np.array_split(alike, max(1, len(alike) * size * values.shape[1] // CELLS)):
            at = rows[first[some][:, None] + np.arange(size)]
            middle = (size - 1) // 2  # the lower of two: of two ranks that is the one that is not late
            medians[some] = values[at[:, 0]] if size == 1 else np.partition(values[at], middle, axis=1)[:, middle]
    return own_codes[first], medians


def _as_median_rank(program: Program, time: Durations) -> Durations:
    """Each operation as long as on the rank of its stage whose own time in all steps is the (lower) median.

    The transfer of a collective stays, as it is no rank's own. So does a rank's own noise, once for all ranks: the
    shortest of many would be faster than any of them.
    """
    work = time.gap_ns.sum(axis=1, dtype=np.float64) + np.where(program.transfers, 0.0, time.own_ns.sum(axis=1))
    totals = np.bincount(program.rank, work, minlength=len(program.ranks))
    stage_of = np.full(len(program.ranks), -1)
    stage_of[program.rank] = program.stage
    chosen = np.zeros(len(program.ranks), bool)
    for stage in np.unique(stage_of):
        ranks = np.flatnonzero(stage_of == stage)
        chosen[ranks[np.argsort(totals[ranks], kind="stable")[(len(ranks) - 1) // 2]]] = True
    rows = np.flatnonzero(chosen[program.rank])
    if not len(rows):  # those have done nothing in these steps
        return time
    rows = rows[np.argsort(program.peers[rows], kind="stable")]
    known = program.peers[rows]
    # operations with one code mostly stand together
    runs = np.flatnonzero(np.diff(program.peers, prepend=program.peers[:1] - 1))
    at = np.minimum(np.searchsorted(known, program.peers[runs]), len(known) - 1)
    at = np.where(known[at] == program.peers[runs], rows[at], -1)
    at = np.repeat(at, np.diff(np.append(runs, len(program.peers))))
    durations = Durations(time.gap_ns[at], time.own_ns[at])
    if (missing := at < 0).any():
        durations.gap_ns[missing] = time.gap_ns[missing]
    missing |= program.shared
    durations.own_ns[missing] = time.own_ns[missing]
    return durations


def _as_others(program: Program, time: Durations, mine: Array, peers: Array | None, of_stages: Array) -> Durations:
    """The chosen operations as long as the others with the same code: as peers usually are, else as other stages are.

    What lies before an operation is another matter in another stage, where something else comes before: it stays.
    """
    gap, own_ns, left = time.gap_ns.copy(), time.own_ns.copy(), mine.copy()
    if peers is not None:
        codes = peers if program.places is None else program.places  # the same in all steps
        chosen = np.flatnonzero(mine)
        others = np.flatnonzero(~mine & np.isin(codes, codes[chosen]))
        rows = chosen[np.isin(codes[chosen], codes[others])]
        _as_peers(gap, codes, program.rank, rows, others)
        shared_ns = own_ns[rows]
        _as_peers(own_ns, codes, program.rank, rows, others)
        own_ns[rows] = np.where(program.shared[rows][:, None], shared_ns, own_ns[rows])
        left[rows] = False
    chosen = np.flatnonzero(left & ~program.transfers)
    others = np.flatnonzero(~mine & np.isin(of_stages, of_stages[chosen])) if len(chosen) else chosen
    if len(others):
        known, middle = _medians(time.own_ns, of_stages, others)
        at = np.minimum(np.searchsorted(known, of_stages[chosen]), len(known) - 1)
        has = known[at] == of_stages[chosen]
        own_ns[chosen[has]] = middle[at[has]]
    if program.passes is not None:
        alone = mine & (program.stage >= 0) & ~np.isin(program.stage, program.stage[~mine])
        others = np.unique(program.rank[(program.stage >= 0) & ~mine]).tolist()
        as_other_stages(program, gap, np.unique(program.rank[alone]).tolist(), others)
    return Durations(gap, own_ns)


def _as_peers(values: Array, codes: Array, rank: Array, rows: Array, others: Array) -> None:
    """Give these rows the durations that others with the same code have in all steps, each rank in its own order.

    The shortest of the rank becomes the shortest of its peers, its median their median, and so on. So it varies as they
    do, and is slow in the steps in which it was slow: with a median in every step it would be steadier than any rank,
    and would hold up nobody.
    """
    others = others[np.argsort(codes[others], kind="stable")]
    of_code = codes[others]
    rows = rows[np.lexsort((rank[rows], codes[rows]))]
    edges = np.flatnonzero(np.diff(codes[rows], prepend=-1) | np.diff(rank[rows], prepend=-1))
    for some in np.split(rows, edges[1:]) if len(rows) else ():
        low, high = np.searchsorted(of_code, [codes[some[0]], codes[some[0]] + 1]).tolist()
        pool = values[others[low : high : max(1, (high - low) // POOL)]].reshape(-1)
        pool.sort()
        own_values = values[some].reshape(-1)
        order = np.argsort(np.argsort(own_values, kind="stable"), kind="stable")
        middles = (order + 0.5) * (len(pool) / len(own_values)) - 0.5
        values[some] = np.interp(middles, np.arange(len(pool)), pool).reshape(len(some), -1)


def _of_stages(program: Program, values: Array, rows: Array) -> tuple[Array, Array]:
    """Of each row: the mean over the stages that do such work of their medians, and the median of its own stage."""
    known, middle = _medians(values, program.peers, rows)
    at = np.searchsorted(known, program.peers[rows])
    one_of = np.unique(at, return_index=True)[1]
    work = program.peers_of_stages[rows][one_of]
    kinds, of_kind = np.unique(work, return_inverse=True)
    sums = np.zeros((len(kinds), values.shape[1]))
    np.add.at(sums, of_kind, middle)
    mean = sums / np.bincount(of_kind)[:, None]
    return mean[of_kind[at]], middle[at]


def _without(program: Program, time: Durations, cause: str) -> Durations:
    """Take a cause out of the ranks' own time: data from the beginning of a step on, others from all of it alike."""
    assert program.step is not None
    ranks = len(program.ranks)
    inside = np.flatnonzero(program.step >= 0)
    key = program.step[inside] * ranks + program.rank[inside]
    amount = program.causes[cause].reshape(-1)
    durations = Durations(time.gap_ns.copy(), time.own_ns.copy())
    work = np.where(program.transfers, 0.0, time.own_ns[:, 0])[inside] + time.gap_ns[inside, 0]
    total = np.bincount(key, work, minlength=len(amount))
    if cause == "data":
        order = np.argsort(key, kind="stable")  # operations of a rank stand in their order
        ahead = np.cumsum(work[order])
        first = np.concatenate([[0.0], np.cumsum(total)[:-1]])[key[order]]
        left = np.clip(ahead - first - amount[key[order]], 0.0, work[order])
        share = np.empty(len(inside))
        share[order] = np.where(work[order] > 0, left / np.where(work[order] > 0, work[order], 1.0), 1.0)
    else:
        share = np.clip(1.0 - amount / np.where(total > 0, total, 1.0), 0.0, 1.0)[key]
    durations.gap_ns[inside, 0] *= share
    durations.own_ns[inside, 0] *= np.where(program.transfers[inside], 1.0, share)
    return durations


# ---------------------------------------------------------------------------------------------------------------------
def checked(change: Change, programs: Sequence[Program]) -> Change:
    """The change, or an error that says what the run has."""
    ranks = programs[0].ranks
    stages = sorted({int(stage) for program in programs for stage in np.unique(program.stage) if stage >= 0})
    if missing := [rank for rank in change.ranks if rank not in ranks]:
        raise Wrong(f"--without rank={missing[0]}: no such rank in this run, which has {rank_words(ranks)}")
    if change.kind == "rank" and len(change.ranks) >= len(ranks):
        raise Wrong("--without rank: no rank is left that these could be as fast as; name fewer")
    if change.kind == "stage" and (missing := [stage for stage in change.stages if stage not in stages]):
        known = f"it has {', '.join(map(str, stages))}" if stages else "it has no pipeline"
        raise Wrong(f"--without stage={missing[0]}: no such stage in this run: {known}")
    if change.kind == "balance" and len(stages) < 2:
        raise Wrong("--balance stage: this run has no pipeline of several stages; try --ideal")
    if change.kind == "even" and not any(len(micro_batch_rows(program)) for program in programs):
        raise Wrong("--balance micro-batches: only a table of operations has the passes of each; try --ideal")
    if change.kind == "cause" and change.cause not in known_causes(programs):
        known = ", ".join(known_causes(programs)) or "none"
        raise Wrong(f"--without cause={change.cause}: not known of this run; known are: {known}")
    if change.kind == "ideal" and len(stages) > 1:
        return Change("ideal", stages=tuple(stages), even=any(program.uneven for program in programs))
    return change


def known_causes(programs: Sequence[Program]) -> list[str]:
    """Of which this run tells how long they take."""
    names = {name for program in programs for name, ns in program.causes.items() if ns.any()}
    for program in programs:
        for name, pattern in KINDS.items():
            rows = np.array([bool(pattern.search(part)) for part in program.parts])[program.part] & ~program.transfers
            if program.step is None and program.time.own_ns[rows].any():
                names.add(name)
    return sorted(names)


BALANCES = {"stage": Change("balance"), "micro-batches": Change("even")}


def parsed(without: Sequence[str], balance: Sequence[str], bandwidth: str, overlap: bool, ideal: bool) -> list[Change]:
    """The changes that options ask for."""
    changes = [_parsed_without(text) for text in without]
    for what in balance:
        if what not in BALANCES:
            raise Wrong(f"--balance {what}: write one of {', '.join(BALANCES)}")
        changes.append(BALANCES[what])
    if bandwidth:
        changes.append(Change("bandwidth", factor=_factor(bandwidth)))
    if overlap:
        changes.append(Change("overlap"))
    return [*changes, Change("ideal")] if ideal else changes


def _parsed_without(text: str) -> Change:
    name, equals, value = text.partition("=")
    if not equals:
        return Change("cause", cause=name)
    if name == "cause":
        return Change("cause", cause=value)
    if name not in ("rank", "stage") or not re.fullmatch(r"\d{1,9}(,\d{1,9})*", value):
        raise Wrong(f"--without {text}: write rank=7, rank=3,5, stage=2, cause=data or a cause such as preemption")
    numbers = tuple(sorted({int(word) for word in value.split(",")}))
    return Change("rank", ranks=numbers) if name == "rank" else Change("stage", stages=numbers)


def _factor(text: str) -> float:
    try:
        factor = float(text.lower().removeprefix("x").removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 0 < factor < 1e6:
        raise Wrong(f"--bandwidth {text}: write a factor, as in x2")
    return factor
