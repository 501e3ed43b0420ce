"""Which ranks are data-, tensor-, pipeline-, expert- or context-parallel to each other, and what says so?

A pipeline is a chain of ranks (a ring, where each rank has several parts of the model) that send to each other both
ways equally often in every step, the first before it has received anything and every other only after it has. Other
groups are told by what their collectives do in a step, and when.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit, Wrong
from rankscope.questions.collectives.wait_and_transfer import Collectives, collectives_of
from rankscope.questions.messages import Messages, matched_messages
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.data import steps_of
from rankscope.questions.wording import counted, rank_words, size

Array = Any  # of numpy
KINDS = {"dp": "data", "pp": "pipeline", "tp": "tensor", "ep": "expert", "cp": "context"}
UNKNOWN = "unknown"
ALWAYS = 0.9  # of the steps: what holds in fewer is chance
SMALL_BYTES = 1024  # collectives up to this size are of losses, norms and flags: they tell nothing
EARLY = 0.25  # of a step: gradients are not reduced before the first forward pass, which is more than this
FEWEST_BETWEEN_TWO = 2  # messages a step each way: one is what any two ranks that exchange something send
TURNING = 0.05  # of the time a micro-batch has, at the least: what the last stage computes before it sends back
SLACK_NS = 20_000.0  # a post is stamped before its call, an end after it
# Of a group's name, word by word: what programs call them (torch's device meshes, Megatron).
NAMES = {
    **dict.fromkeys(("dp", "ddp", "fsdp", "data", "replicate", "shard"), "dp"),
    **dict.fromkeys(("pp", "pipeline", "pipe"), "pp"),
    **dict.fromkeys(("tp", "tensor"), "tp"),
    **dict.fromkeys(("ep", "expert"), "ep"),
    **dict.fromkeys(("cp", "context"), "cp"),
}
REDUCTIONS = ("allreduce", "reducescatter", "reducescatterv", "reduce")


@dataclass(frozen=True, slots=True)
class ParallelGroup:
    """Ranks that share one thing out between them, in the order of their coordinates."""

    kind: str  # one of KINDS, or UNKNOWN
    ranks: tuple[int, ...]
    evidence: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The ranks of one pipeline by their place in it, and what the pattern of their messages gives away."""

    ranks: tuple[int, ...]
    micro_batches: int  # of a step; 0 where it cannot be told
    chunks: int  # of the model on each rank; 0 where it cannot be told


@dataclass(slots=True)
class Parallelism:
    """What is known of a run."""

    ranks: list[int] = field(default_factory=list)
    groups: list[ParallelGroup] = field(default_factory=list)  # of a kind, that with the most data comes first
    pipelines: list[Pipeline] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_KEPT: WeakKeyDictionary[Tables, Parallelism] = WeakKeyDictionary()
_FLOWS: WeakKeyDictionary[Tables, Parallelism] = WeakKeyDictionary()  # what messages alone tell


def parallelism_of(tables: Tables) -> Parallelism:
    """Worked out once for each run that is open."""
    if tables not in _KEPT:
        _KEPT[tables] = _overridden(_found(tables), _given(tables))
    return _KEPT[tables]


def pipelines_of(tables: Tables) -> list[Pipeline]:
    """The same of pipelines alone: of a large run without messages that is quick."""
    inferred = _flow(tables).pipelines
    chains = [group.ranks for group in _given(tables) if group.kind == "pp"]
    known = {group.ranks: group for group in inferred}
    return [known.get(ranks, Pipeline(ranks, 0, 0)) for ranks in chains] if chains else inferred


def _given(tables: Tables) -> list[ParallelGroup]:
    return given_groups(str(getattr(tables, "parallel_groups", "")))


def _flow(tables: Tables) -> Parallelism:
    if tables not in _FLOWS:
        messages = matched_messages(tables)
        steps = StepTimes.of(tables) if len(messages) else None
        _FLOWS[tables] = _of_messages(tables, messages, steps) if steps is not None else Parallelism()
    return _FLOWS[tables]


def _found(tables: Tables) -> Parallelism:
    ranks = [row[0] for row in tables.query("SELECT rank FROM ranks WHERE role = 'rank' ORDER BY rank")]
    groups = _told_by_operations(tables)
    if groups:
        return Parallelism(ranks, groups)
    steps = StepTimes.of(tables)
    if steps is None:
        return Parallelism(ranks, notes=["No steps that all ranks have: what repeats in each of them is not known."])
    flow = _flow(tables)
    early = _before_backward(tables)
    return Parallelism(ranks, [*flow.groups, *_of_collectives(collectives_of(tables), steps, flow.groups, early)])


# ---------------------------------------------------------------- tables
PARALLELISM_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("place", Unit.NAME, "Place", "the coordinates that are known, as in (dp 3, pp 1, tp 0)"),
    *(
        Column(kind, Unit.COUNT, kind.upper(), f"place in its {word}-parallel group, from 0; empty: none is known")
        for kind, word in KINDS.items()
    ),
    Column("evidence", Unit.NAME, "Evidence", "what says so, of each of its groups; unknown: what speaks for no kind"),
)
GROUP_COLUMNS = (
    Column("kind", Unit.NAME, "Kind", "dp, pp, tp, ep, cp (data, pipeline, tensor, expert, context) or unknown"),
    Column("ranks", Unit.COUNT, "Ranks", "ranks of the group"),
    Column("members", Unit.NAME, "Members", "its ranks, in the order of their coordinates"),
    Column("evidence", Unit.NAME, "Evidence", "what says so"),
)
NOTHING = "Unknown: no rank sends to or reduces with others in a way that repeats in each step."


def parallelism(tables: Tables, selection: Selection = ALL) -> Table:
    """Each rank's place in the data-, pipeline-, tensor-, expert- and context-parallel groups, and the evidence."""
    known = parallelism_of(tables)
    table = Table("parallelism", "Parallelism", PARALLELISM_COLUMNS, [], notes=list(known.notes))
    mine: dict[int, list[ParallelGroup]] = {}
    for group in known.groups:
        for rank in group.ranks:
            mine.setdefault(rank, []).append(group)
    for rank in known.ranks if mine else ():
        if selection.ranks is None or rank in selection.ranks:
            places: dict[str, int] = {}
            for group in mine.get(rank, []):
                if group.kind in KINDS:
                    places.setdefault(group.kind, group.ranks.index(rank))
            words = ", ".join(f"{kind} {places[kind]}" for kind in KINDS if kind in places)
            evidence = "; ".join(f"{group.kind}: {group.evidence}" for group in mine.get(rank, []))
            row: tuple[Cell, ...] = (rank, f"({words})" if words else UNKNOWN)
            table.rows.append((*row, *(places.get(kind) for kind in KINDS), evidence or UNKNOWN))
    if known.ranks and not mine and not known.notes:
        table.notes.append(NOTHING)
    return arranged(table, selection)


def parallel_groups(tables: Tables, selection: Selection = ALL) -> Table:
    """The groups of ranks that share the work out between them, of which kind they are, and the evidence."""
    known = parallelism_of(tables)
    table = Table("parallel_groups", "Parallel groups", GROUP_COLUMNS, [], notes=list(known.notes))
    order = [*KINDS, UNKNOWN]
    for group in sorted(known.groups, key=lambda group: (order.index(group.kind), group.ranks)):
        if selection.ranks is None or selection.ranks & set(group.ranks):
            members = ", ".join(map(str, group.ranks[:16])) + (", …" if len(group.ranks) > 16 else "")
            table.rows.append((group.kind, len(group.ranks), members, group.evidence))
    return arranged(table, selection)


# ---------------------------------------------------------------- as the user says
GIVEN = re.compile(r"\s*(\w+)\s*=\s*(\d+(\s*-\s*\d+)?(\s*,\s*\d+(\s*-\s*\d+)?)*)\s*")


def given_groups(text: str) -> list[ParallelGroup]:
    """Of pp=0-3;pp=4-7;dp=0,4: each group with its ranks in the order of their coordinates."""
    groups = []
    for part in filter(str.strip, text.split(";")):
        matched = GIVEN.fullmatch(part)
        if matched is None or matched[1] not in KINDS:
            raise Wrong(f"--groups {part.strip()}: not KIND=RANKS as in pp=0,1,2,3 (kinds: {', '.join(KINDS)})")
        ranks = [rank for piece in matched[2].split(",") for rank in _range(piece)]
        if len(set(ranks)) != len(ranks):
            raise Wrong(f"--groups {part.strip()}: a rank is there twice")
        groups.append(ParallelGroup(matched[1], tuple(ranks), "given by --groups"))
    return groups


def _range(piece: str) -> range:
    first, _, last = piece.partition("-")
    return range(int(first), int(last or first) + 1)


def _overridden(inferred: Parallelism, given: Sequence[ParallelGroup]) -> Parallelism:
    """What is given stands for all that was inferred of its kind."""
    if absent := {rank for group in given for rank in group.ranks} - set(inferred.ranks):
        raise Wrong(f"--groups: no {rank_words(absent)} in this run")
    kinds = {group.kind for group in given}
    inferred.groups = [*given, *(group for group in inferred.groups if group.kind not in kinds)]
    return inferred


# ---------------------------------------------------------------- tables of operations carry it
OPERATIONS = """
    SELECT rank, max(stage), max(data_rank), max(tensor_rank) FROM operations AS o JOIN ranks USING (process)
    WHERE ranks.role = 'rank' GROUP BY rank ORDER BY rank"""


def _told_by_operations(tables: Tables) -> list[ParallelGroup]:
    rows = tables.query(OPERATIONS)
    groups = []
    for at, kind in enumerate(("pp", "dp", "tp")):
        alike: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for rank, *places in rows:
            if places[at] is not None and places[at] >= 0:
                rest = tuple(place for other, place in enumerate(places) if other != at)
                alike.setdefault(rest, []).append((places[at], rank))
        for members in alike.values():
            if len({place for place, _ in members}) > 1:
                ranks = tuple(rank for _, rank in sorted(members))
                groups.append(ParallelGroup(kind, ranks, "the table of operations says so"))
    return groups


# ---------------------------------------------------------------- steps on one clock
@dataclass(slots=True)
class StepTimes:
    """The steady steps that all ranks have: R ranks x S steps, times since `base_ns` on the reference's clock."""

    ranks: list[int]
    numbers: Array
    begin: Array
    end: Array
    exposed: Array
    base_ns: int
    place: dict[int, int]  # of each rank

    @classmethod
    def of(cls, tables: Tables) -> StepTimes | None:
        steps, known = steps_of(tables), collectives_of(tables)
        numbers = steps.common() if steps.ranks else ()
        place = {rank: at for at, rank in enumerate(known.log.ranks)}
        if not len(numbers) or any(each.rank not in place for each in steps.ranks):
            return None
        begins, ends, exposed = [], [], []
        for each in steps.ranks:
            at = np.searchsorted(each.number, numbers)
            begin = (each.begin_ns[at] - known.log.base_ns).astype(np.float64)
            clock = known.clocks.clocks[known.clocks.of_rank[place[each.rank]]]
            begins.append(clock.to_reference(begin)[0])
            ends.append(clock.to_reference(begin + each.length_ns[at])[0])
            exposed.append(each.exposed_ns[at])
        ranks = [each.rank for each in steps.ranks]
        place_of = {rank: at for at, rank in enumerate(ranks)}
        return cls(ranks, numbers, np.stack(begins), np.stack(ends), np.stack(exposed), known.log.base_ns, place_of)

    def step_of(self, rank: int, when: Array) -> Array:
        """In which of its steps each moment lies; -1: in none."""
        place = self.place[rank]
        at = np.searchsorted(self.begin[place], when, "right") - 1
        inside = (at >= 0) & (when < self.end[place][np.maximum(at, 0)])
        return np.where(inside, at, -1)


# ---------------------------------------------------------------- who sends to whom
@dataclass(slots=True)
class Traffic:
    """What one rank sends to another, in the steps of the sender."""

    count: int  # in the median step
    is_steady: bool  # the same number in nearly all steps
    first_sent: Array  # S: when the first was posted
    first_received: Array  # S: when the first had come


def traffic_of(messages: Messages, steps: StepTimes) -> dict[tuple[int, int], Traffic]:
    """By sender and receiver."""
    pairs, which = np.unique(np.stack([messages.sender, messages.receiver]), axis=1, return_inverse=True)
    traffic = {}
    for at, (sender, receiver) in enumerate(pairs.T.tolist()):
        if sender not in steps.place or receiver not in steps.place:
            continue
        mine = np.flatnonzero(which.reshape(-1) == at)
        sent = (messages.send_begin_ns[mine] - steps.base_ns).astype(np.float64)
        over = (messages.recv_end_ns[mine] - steps.base_ns).astype(np.float64)
        step = steps.step_of(sender, sent)
        counts = np.bincount(step[step >= 0], minlength=len(steps.numbers))
        usual = int(np.median(counts))
        steady = _is_steady(counts, usual)
        if steady and (counts != usual).any():
            step = _by_number(sent, step, counts, usual)
        in_step = step >= 0
        first_sent, first_over = (np.full(len(steps.numbers), np.inf) for _ in range(2))
        np.minimum.at(first_sent, step[in_step], sent[in_step])
        np.minimum.at(first_over, step[in_step], over[in_step])
        if usual:
            traffic[sender, receiver] = Traffic(usual, steady, first_sent, first_over)
    return traffic


def _is_steady(counts: Array, usual: int) -> bool:
    """As many in nearly all steps, where one may be late: a GPU may send when the host has gone on to the next step."""
    ahead = np.cumsum(counts - usual)
    return float((np.abs(ahead - np.median(ahead)) <= 1).mean()) >= ALWAYS


def _by_number(sent: Array, step: Array, counts: Array, usual: int) -> Array:
    """The step of each where some are late: each step has the next so many of them."""
    ahead = int(np.quantile(np.cumsum(counts - usual), ALWAYS))
    order = np.argsort(sent, kind="stable")
    order = order[step[order] >= 0]
    places = np.full(len(step), -1)
    places[order] = (np.arange(len(order)) - ahead) // usual
    return np.where(places < len(counts), places, -1)


def _of_messages(tables: Tables, messages: Messages, steps: StepTimes) -> Parallelism:
    layout = Parallelism()
    traffic = traffic_of(messages, steps)
    if not traffic:
        return layout
    names = _torch_parts(tables)
    for members in _connected(traffic):
        inside = {pair: pair_traffic for pair, pair_traffic in traffic.items() if pair[0] in members}
        chain = _chain(inside, members)
        if chain is not None and len(chain) == 2:
            chain = _opener_first(messages, chain)
        if chain is not None:
            pipeline, pattern = _pipeline(chain, inside, names)
            layout.pipelines.append(pipeline)
            layout.groups.append(ParallelGroup("pp", pipeline.ranks, pattern))
        else:
            layout.groups.append(_other(inside, members))
    layout.pipelines.sort(key=lambda pipeline: pipeline.ranks)
    return layout


def _connected(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Ranks that send to each other, directly or through others."""
    group: dict[int, set[int]] = {}
    for one, other in pairs:
        joined = group.setdefault(one, {one}) | group.setdefault(other, {other})
        for rank in joined:
            group[rank] = joined
    return sorted({tuple(sorted(members)) for members in group.values()})


def _chain(traffic: Mapping[tuple[int, int], Traffic], members: Sequence[int]) -> list[int] | None:
    """The ranks of a pipeline, the first stage first; None where this is no pipeline."""
    if not all(pair_traffic.is_steady for pair_traffic in traffic.values()):
        return None
    near: dict[int, list[int]] = {rank: [] for rank in members}
    for one, other in traffic:
        back = traffic.get((other, one))
        if back is None or back.count != traffic[one, other].count:
            return None
        near[one].append(other)
    ends = [rank for rank in members if len(near[rank]) == 1]
    if len(members) == 2:
        if max(pair_traffic.count for pair_traffic in traffic.values()) < FEWEST_BETWEEN_TWO:
            return None
        tried = [[*members], [*reversed(members)]]
    elif len(ends) == 2 and all(len(near[rank]) == 2 for rank in members if rank not in ends):
        tried = [_walk(near, end, near[end][0]) for end in ends]
        if len({pair_traffic.count for pair_traffic in traffic.values()}) > 1:
            return None
    elif not ends and all(len(some) == 2 for some in near.values()):  # a ring: it is closed by the rarer messages
        least = min(traffic, key=lambda pair: traffic[pair].count)
        rare = [pair for pair in traffic if traffic[pair].count == traffic[least].count]
        if len(rare) != 2 or len({pair_traffic.count for pair_traffic in traffic.values()}) != 2:
            return None
        tried = [_walk(near, rank_end, next(rank for rank in near[rank_end] if rank != least[1 - at]))
                 for at, rank_end in enumerate(least)]  # fmt: skip
    else:
        return None
    return next((chain for chain in tried if len(chain) == len(members) and _flows(chain, traffic)), None)


def _opener_first(messages: Messages, chain: list[int]) -> list[int]:
    """Two ranks, whose messages both ways look alike: first is who sent one of the usual size before it received any.

    On GPUs messages move after the host has ended its step, so that their places in the steps do not tell it.
    """
    mine = np.isin(messages.sender, chain) & np.isin(messages.receiver, chain)
    sizes, counts = np.unique(messages.bytes[mine], return_counts=True)
    mine &= messages.bytes == sizes[counts.argmax()]
    opened = {}
    for rank in chain:
        sent, received = (
            messages.send_posted[mine & (messages.sender == rank)],
            messages.recv_posted[mine & (messages.receiver == rank)],
        )
        opened[rank] = bool(len(sent) and len(received) and sent.min() < received.min())
    openers = [rank for rank in chain if opened[rank]]
    return sorted(chain, key=lambda rank: rank != openers[0]) if len(openers) == 1 else chain


def _walk(near: Mapping[int, Sequence[int]], first: int, second: int) -> list[int]:
    path = [first, second]
    while len(path) < len(near):
        further = [rank for rank in near[path[-1]] if rank not in path]
        if not further:
            break
        path.append(further[0])
    return path


def _flows(chain: Sequence[int], traffic: Mapping[tuple[int, int], Traffic]) -> bool:
    """Whether every rank but the first sends on only after it has received, and the first before: in nearly all steps.

    Neighbours that exchange their edges send before they receive.
    """

    def usually(earlier: Array, later: Array) -> bool:
        known = np.isfinite(earlier) & np.isfinite(later)
        return bool(known.any()) and float((earlier <= later + SLACK_NS)[known].mean()) >= ALWAYS

    there = list(pairwise(chain))
    for before, after in pairwise(there):
        if not usually(traffic[before].first_received, traffic[after].first_sent):
            return False
    last = there[-1]
    first_back = traffic[last[1], last[0]]
    return usually(traffic[there[0]].first_sent, traffic[there[0][::-1]].first_received) and usually(
        traffic[last].first_received + _turning_ns(chain, traffic[last]), first_back.first_sent
    )


def _turning_ns(chain: Sequence[int], last: Traffic) -> float:
    """The last stage computes both passes before it sends back; who only takes turns in exchanging does not."""
    apart = np.diff(last.first_received[np.isfinite(last.first_received)])
    return TURNING * float(np.median(apart)) / (last.count + len(chain)) if len(apart) else 0.0


TORCH_PARTS = r"""
    SELECT count(DISTINCT regexp_extract(name, 'F(\d+)$', 1)), count(DISTINCT regexp_extract(name, '^PP:(\d+)F', 1))
    FROM tallies JOIN ranks USING (process) WHERE role = 'rank' AND regexp_matches(name, '^PP:\d+F\d+$')"""


def _torch_parts(tables: Tables) -> tuple[int, int]:
    """Micro-batches and stages, by the names that torch gives to what a rank with several stages does."""
    [(micro_batches, stages)] = tables.query(TORCH_PARTS)
    return int(micro_batches), int(stages)


def _pipeline(
    chain: Sequence[int], traffic: Mapping[tuple[int, int], Traffic], names: tuple[int, int]
) -> tuple[Pipeline, str]:
    forward = traffic[chain[0], chain[1]].count
    closing = traffic.get((chain[-1], chain[0]))
    micro_batches, chunks = forward, 1
    if len(chain) == 2:
        stages = names[1]
        if stages > 2 and stages % 2 == 0:  # both ways carry activations and gradients: counts alone do not tell
            micro_batches, chunks = names[0], stages // 2
    elif closing is not None:
        micro_batches = forward - closing.count
        chunks = forward // micro_batches if micro_batches > 0 and forward % micro_batches == 0 else 0
        micro_batches = micro_batches if chunks else 0
    sentence = (
        f"{counted(forward, 'message')} per step to the next rank and as many back, passed on from rank {chain[0]}"
    )
    if chunks > 1:
        sentence += f": {micro_batches} micro-batches × {chunks} chunks"
    return Pipeline(tuple(chain), micro_batches, chunks), sentence


def _other(traffic: Mapping[tuple[int, int], Traffic], members: Sequence[int]) -> ParallelGroup:
    """Messages that are no pipeline: a ring in one direction, or anything else."""
    after: dict[int, list[int]] = {}
    for one, other in traffic:
        after.setdefault(one, []).append(other)
    steady = all(pair_traffic.is_steady for pair_traffic in traffic.values())
    counts = {pair_traffic.count for pair_traffic in traffic.values()}
    is_ring = len(members) > 2 and all(len(after.get(rank, ())) == 1 for rank in members)
    if steady and is_ring and len(counts) == 1 and len(set(map(tuple, after.values()))) == len(members):
        return ParallelGroup(
            "cp", tuple(members), f"a ring of messages in one direction, {min(counts)} from each rank per step"
        )
    sentence = (
        "messages both ways that nobody passes on first"
        if steady
        else "messages whose number differs from step to step"
    )
    return ParallelGroup(UNKNOWN, tuple(members), f"{sentence}: no pipeline")


# ---------------------------------------------------------------- what collectives tell
@dataclass(slots=True)
class _Use:
    """What one group does in the steady steps."""

    label: str
    ranks: tuple[int, ...]
    calls: Counter[str] = field(default_factory=Counter)
    most_bytes: int = 0
    total_bytes: int = 0
    first_reduction: list[float] = field(default_factory=list)  # by step: its place, as a share of the step


FORWARD_SHARE = """
    SELECT rank, median((end_ns - begin_ns - backward_ns - optimizer_ns) / (end_ns - begin_ns) / greatest(backwards, 1))
    FROM steps JOIN ranks USING (process)
    WHERE role = 'rank' AND NOT warmup AND backward_ns > 0 AND end_ns > begin_ns GROUP BY rank"""


def _before_backward(tables: Tables) -> dict[int, float]:
    """Of a step of each rank: before this share of it no gradient can be reduced."""
    return {rank: min(EARLY, share) for rank, share in tables.query(FORWARD_SHARE)}


def _of_collectives(
    known: Collectives, steps: StepTimes, pipelines: Sequence[ParallelGroup], early: Mapping[int, float]
) -> list[ParallelGroup]:
    uses: dict[int, _Use] = {}
    for group in known.log.groups:
        ranks = tuple(known.log.ranks[place] for place in group.members.tolist())
        if len(ranks) > 1 and all(rank in steps.place for rank in ranks):
            use = uses.setdefault(group.number, _Use(group.label, ranks))
            _add_use(use, known, steps, group)
    stage = {rank: at for group in pipelines if group.kind == "pp" for at, rank in enumerate(group.ranks)}
    ordered = sorted(uses.values(), key=lambda use: -use.total_bytes)
    return [
        ParallelGroup(*_kind(use, len(steps.numbers), stage, early.get(use.ranks[0], EARLY)))
        for use in ordered
        if use.calls
    ]


def _add_use(use: _Use, known: Collectives, steps: StepTimes, group: Any) -> None:
    first = use.ranks[0]
    clock = known.clocks.clocks[known.clocks.of_rank[int(group.members[0])]]
    enter = clock.to_reference(group.enter_ns[:, 0].astype(np.float64))[0]
    step = steps.step_of(first, enter)
    moved = group.bytes[:, 0]
    rows = np.flatnonzero((step >= 0) & (moved > SMALL_BYTES))
    place = steps.place[first]
    earliest: dict[int, float] = {}
    for row in rows.tolist():
        name = known.log.operations[int(group.operation[row])]
        use.calls[name] += 1
        use.most_bytes, use.total_bytes = max(use.most_bytes, int(moved[row])), use.total_bytes + int(moved[row])
        if name in REDUCTIONS:
            at = int(step[row])
            length = steps.end[place, at] - steps.begin[place, at]
            share = float((enter[row] - steps.begin[place, at]) / length) if length > 0 else 0.0
            earliest[at] = min(share, earliest.get(at, np.inf))
    use.first_reduction += earliest.values()


def _kind(use: _Use, steps: int, stage: Mapping[int, int], early: float) -> tuple[str, tuple[int, ...], str]:
    most = ", ".join(f"{name} {_rate(calls / steps)}" for name, calls in use.calls.most_common(3))
    pattern = f"{most} per step, up to {size(use.most_bytes)}"
    named = next(
        (NAMES[word] for word in re.split(r"[^a-z0-9]+|(?<=[a-z])(?=\d)", use.label.lower()) if word in NAMES), ""
    )
    if named:
        return named, use.ranks, f"the program calls it {use.label.partition(' #')[0]}; {pattern}"
    if any(name.startswith("alltoall") for name in use.calls):
        return "ep", use.ranks, f"{pattern}: tokens go to their experts"
    stages = {stage.get(rank) for rank in use.ranks}
    if len(stages) > 1 and None not in stages:
        return UNKNOWN, use.ranks, f"{pattern}, over several stages of a pipeline"
    if not use.first_reduction:
        return UNKNOWN, use.ranks, f"{pattern}, no reduction"
    at = median(use.first_reduction)
    when = f"the first reduction after {100 * at:.0f} % of the step"
    if at < early:
        return "tp", use.ranks, f"{pattern}, {when}: activations, in the forward pass too"
    return "dp", use.ranks, f"{pattern}, {when}: gradients"


def _rate(calls: float) -> str:
    return f"{calls:.0f}" if abs(calls - round(calls)) < 0.05 else f"{calls:.1f}"
