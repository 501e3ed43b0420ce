"""What would a step take without one of its problems, and which rank and part does its time hang on?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit, Wrong
from rankscope.questions.compare.resampling import DRAWS, SEED, block_length
from rankscope.questions.messages import matched_messages
from rankscope.questions.parallelism.groups import pipelines_of
from rankscope.questions.parallelism.micro_batches import unequal_micro_batches
from rankscope.questions.scaling.models import student_quantile
from rankscope.questions.whatif.changes import Change, checked, known_causes, least_step_ns
from rankscope.questions.whatif.of_collectives import programs_of_collectives
from rankscope.questions.whatif.of_operations import has_operations, programs_of_operations
from rankscope.questions.whatif.program import BETWEEN, Piece, Program
from rankscope.questions.wording import counted, seconds

Array = Any  # of numpy
MOST_ERROR = 0.03  # from here on the model is no model of this run
MUCH_UNUSUAL = 0.05
TRIED_RANKS = 3
SETTLED = 4  # steps: after so many, ranks are as far apart as the change makes them
NORMAL = 1.96  # standard deviations: 95 % lie within
RUNS_DIFFER = 0.01  # of a step: standard deviation between two runs of one job that their own steps do not show
MOST_STAGES = 16
LEAST_SAVING = 0.002  # of a step: of the obvious changes, what saves less is not shown
MODEL_COLUMNS = (
    Column("source", Unit.NAME, "Model from"),
    Column("ranks", Unit.COUNT, "Ranks", "ranks in the model"),
    Column("steps", Unit.COUNT, "Steps", "steps that were replayed"),
    Column("recorded_ns", Unit.NS, "Recorded step", "mean of the recorded step times of these steps"),
    Column("replayed_ns", Unit.NS, "Replayed step", "mean of the replayed step times"),
    Column("error", Unit.SHARE, "Model error", "median over the steps of |replayed − recorded| ÷ recorded"),
    Column(
        "usual_error",
        Unit.SHARE,
        "Error, typical transfers",
        "the same where each transfer is as long as in the median step, so that whatever was longer must be wait that "
        "the model explains; empty for very large runs, may be above 1",
    ),
    Column(
        "worst_error", Unit.SHARE, "Worst step", "largest |replayed − recorded| ÷ recorded of a step; may be above 1"
    ),
)
WHATIF_COLUMNS = (
    Column("change", Unit.NAME, "What if"),
    Column("step_ns", Unit.NS, "Step", "mean of the replayed step times with the change"),
    Column(
        "step_low_ns",
        Unit.NS,
        "Rerun from",
        "`step_ns` − u: 95 % of other runs of the job with the change are expected from here to `step_high_ns`; "
        "u² = 2 (t s)² + v² + r², s being the standard deviation of the mean of steps drawn again (1,000 times, in "
        "blocks), t Student's for so many blocks, v² the sum of the squares of by how much the step differs where each "
        "transfer is as long as in the median step, and without preemption (0 of very large runs), and r 1.96 % of "
        "`step_ns`: two runs of one job differ, however steady each of them is",
    ),
    Column("step_high_ns", Unit.NS, "Rerun to", "`step_ns` + u"),
    Column("saved_ns", Unit.NS, "Saved", "`replayed_ns` of the model − `step_ns`; negative: the step gets longer"),
    Column("saved_share", Unit.SHARE, "Saved share", "`saved_ns` ÷ `replayed_ns`; negative: the step gets longer"),
    Column(
        "saved_low",
        Unit.SHARE,
        "From",
        "2.5 % of the shares that steps drawn again (1,000 times, in blocks) save; may be less than 0",
    ),
    Column("saved_high", Unit.SHARE, "To", "97.5 % of them; may be less than 0"),
)
PATH_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("stage", Unit.NAME, "Stage"),
    Column("part", Unit.NAME, "Part"),
    Column("path_ns", Unit.NS, "On the path", "time of this rank and part on the longest chain of a mean step"),
    Column("path_share", Unit.SHARE, "Share", "`path_ns` ÷ the length of the chain"),
)


@dataclass(slots=True)
class Model:
    """The programs of a run: steps that have the same operations are one, or steps that follow each other."""

    programs: Sequence[Program]
    source: str
    notes: list[str] = field(default_factory=list)
    _recorded_ns: list[Array] = field(default_factory=list)
    _replayed_ns: list[Array] = field(default_factory=list)
    _path: dict[tuple[int, int, str, bool], float] = field(default_factory=dict)
    _changed_ns: dict[tuple[Change, ...], Array] = field(default_factory=dict)
    _some: list[Program] = field(default_factory=list)

    def replay(self, tried: Sequence[Sequence[Change]] = ()) -> None:
        """Work out all that is not known yet, in one go: of a large run making its programs is the work."""
        keys = [key for key in dict.fromkeys(map(tuple, tried)) if key not in self._changed_ns]
        is_first = not self._replayed_ns
        changed: dict[tuple[Change, ...], list[Array]] = {key: [] for key in keys}
        for program in self.programs if keys or is_first else ():
            if is_first:
                ends = program.replay()
                self._recorded_ns.append(program.recorded_ns)
                self._replayed_ns.append(program.step_times(ends))
                _add_path(self._path, program, ends)
            for key in keys:
                changed[key].append(_changed_ns(program, key))
        self._changed_ns |= {key: np.concatenate(columns) for key, columns in changed.items()}

    @property
    def recorded_ns(self) -> Array:
        self.replay()
        return np.concatenate(self._recorded_ns)

    @property
    def replayed_ns(self) -> Array:
        self.replay()
        return np.concatenate(self._replayed_ns)

    @property
    def errors(self) -> Array:
        return np.abs(self.replayed_ns - self.recorded_ns) / np.maximum(self.recorded_ns, 1.0)

    @property
    def uneven(self) -> bool:
        """Whether micro-batches differ in what they cost."""
        return any(program.uneven for program in self.some)

    @property
    def path(self) -> dict[tuple[int, int, str, bool], float]:
        """Time on the longest chains of all steps by rank, stage, part and whether it is transfer."""
        self.replay()
        return self._path

    def changed_ns(self, changes: Sequence[Change]) -> Array:
        """S: the step times with all these changes."""
        self.replay([changes])
        return self._changed_ns[tuple(changes)]

    @property
    def some(self) -> Sequence[Program]:
        """Those that tell what may be asked for: of a large run the first."""
        if not self._some:
            self._some = [self.programs[0]] if self.is_large else list(self.programs)
        return self._some

    @property
    def ranks(self) -> Sequence[int]:
        return self.some[0].ranks

    @property
    def is_large(self) -> bool:
        """Whether its programs are made anew each time."""
        return not isinstance(self.programs, list)

    def usual_error(self) -> float | None:
        """The error where transfers are those of the median step: recorded durations cannot make it small."""
        if self.is_large:
            return None
        usual = self.changed_ns([Change("typical")])
        return float(np.median(np.abs(usual - self.recorded_ns) / np.maximum(self.recorded_ns, 1.0)))

    def table(self) -> Table:
        """How well the model gives back what was recorded."""
        recorded, replayed, errors, usual = self.recorded_ns, self.replayed_ns, self.errors, self.usual_error()
        row: tuple[Cell, ...] = (
            self.source,
            len(self.ranks),
            len(recorded),
            float(recorded.mean()),
            float(replayed.mean()),
            float(np.median(errors)),
            usual,
            float(errors.max()),
        )
        table = Table("whatif_model", "Model", MODEL_COLUMNS, [row], notes=list(self.notes), vertical=True)
        if usual is not None and usual > MUCH_UNUSUAL:
            table.warnings.append(
                f"With typical transfer times the replay is off by {100 * usual:.0f} %: transfers vary that much, or "
                "ranks wait for something that was not recorded. Savings are as uncertain."
            )
        return table

    def refusal(self) -> str:
        """Why no what-if can be answered, "" where it can."""
        error = float(np.median(self.errors))
        if error <= MOST_ERROR:
            return ""
        return (
            f"the replay misses the recorded steps by {100 * error:.1f} % (median; at most {100 * MOST_ERROR:g} % is "
            "allowed): what holds the ranks up is not in this run's record"
        )


def _changed_ns(program: Program, changes: Sequence[Change]) -> Array:
    """The ideal of a pipeline shares work out where that helps: it is never worse than an even share or no change."""
    tried = [list(changes)]
    if any(change.kind == "ideal" for change in changes) and len(np.unique(program.stage[program.stage >= 0])) > 1:
        others = [change for change in changes if change.kind != "ideal"]
        tried += [[*others, Change("balance")], others]
        tried += [[*others, Change("even"), Change("balance")]] if program.uneven else []
    return min((_replayed_with(program, changes) for changes in tried), key=lambda step_ns: float(step_ns.mean()))


def _replayed_with(program: Program, changes: Sequence[Change]) -> Array:
    time = program.time
    for change in sorted(changes, key=lambda change: change.kind != "even"):  # in whatever order they were asked for
        time = change.applied(program, time)
    ends = program.replay(time)
    if program.begins is not None and len(program.begins) >= SETTLED:
        ends = program.replay(program.begun_as_ended(time, ends))
    return np.maximum(program.step_times(ends), least_step_ns(program, changes, time))


def model_of(tables: Tables) -> Model:
    """The model of a run, by what it has: operations one by one, else steps, matched collectives and messages."""
    programs: Sequence[Program]
    if has_operations(tables):
        programs, notes = programs_of_operations(tables)
        source = "table of operations"
    else:
        recorded, notes, source = programs_of_collectives(tables, matched_messages(tables), pipelines_of(tables))
        programs = list(recorded) if len(recorded) == 1 else recorded
    if not programs:
        raise Wrong(f"no model of this run: {notes[0] if notes else 'it has no steps'}")
    if has_operations(tables) and unequal_micro_batches(tables) is not None:
        for program in programs:
            program.uneven = True
    return Model(programs, source, notes)


def whatif(model: Model, changes: Sequence[Change]) -> Table:
    """What each change saves, and all together; without any, what the obvious ones save."""
    requested = [checked(change, model.some) for change in changes]
    tried = [[change] for change in requested or _obvious(model)]
    together = requested if len(requested) > 1 else []
    model.replay([*tried, together] if together else tried)
    base = model.replayed_ns
    results = [(changes, model.changed_ns(changes)) for changes in tried]
    if not requested:
        results = [(changes, ns) for changes, ns in results if 1 - ns.mean() / base.mean() >= LEAST_SAVING]
    results.sort(key=lambda result: float(result[1].mean()))
    together = together or ([] if requested or model.is_large else _two_best(results))
    if together:
        results.append((list(together), model.changed_ns(together)))
    rows = [_row(_words(changes), base, ns, _by_chance(model, changes)) for changes, ns in results]
    notes = [
        f"Saved: of the mean replayed step, {seconds(base.mean())}. 95 % intervals: From and To by resampling these "
        "steps; Rerun is what another run would take, its own noise included."
    ]
    kinds = {change.kind for changes, _ in results for change in changes}
    if {"stage", "ideal"} <= kinds:
        notes.append(
            "A stage with no more work than the median stage: its excess is dropped, and no other stage takes it "
            "over. The ideal keeps all work, so it may save less; no other split of the same work saves more."
        )
    elif {"rank", "ideal"} <= kinds and _are_stages(model):
        notes.append(
            "Each rank is a stage. As fast as its peers, it has no more work than the other stages, and nobody "
            "takes over the rest; the ideal keeps all work, so it may save less."
        )
    if not rows:
        notes.insert(0, "None of the obvious changes saves 0.2 % of a step or more.")
    if "bandwidth" in kinds:
        notes.append("Bandwidth: all of the transfer is assumed to shrink; how much of it is latency is unknown.")
    return Table("whatif", "What if", WHATIF_COLUMNS, rows, notes=notes)


def _are_stages(model: Model) -> bool:
    """Whether every rank of a pipeline is alone in its stage."""
    stages = {(int(rank), int(stage)) for rank, stage in zip(model.some[0].rank, model.some[0].stage, strict=True)}
    numbers = [stage for _, stage in stages if stage >= 0]
    return len(set(numbers)) == len(numbers) > 1


def _words(changes: Sequence[Change]) -> str:
    return changes[0].words if len(changes) == 1 else "together: " + "; ".join(change.words for change in changes)


def _by_chance(model: Model, changes: Sequence[Change]) -> list[Array]:
    """The step times with these changes and without what another run need not have: unusual transfers, preemption.

    None of large runs, where that is too much work.
    """
    if model.is_large:
        return []
    chances = [Change("typical")]
    if "preemption" in known_causes(model.some):
        chances.append(Change("cause", cause="preemption"))
    return [model.changed_ns([*changes, change]) for change in chances]


def _row(words: str, base: Array, changed: Array, by_chance: Sequence[Array]) -> tuple[Cell, ...]:
    step, saved = float(changed.mean()), float(base.mean() - changed.mean())
    if len(base) < 2:
        share = saved / float(base.mean())
        return words, step, None, None, saved, share, share, share
    picks = _drawn(base)
    means = changed[picks].mean(axis=1)
    low, high = np.quantile(1 - means / base[picks].mean(axis=1), (0.025, 0.975)).tolist()
    blocks = max(2, len(base) // min(block_length(base), len(base)))
    # this run's mean is off by its noise, and that of another run by as much again
    noise = 2**0.5 * student_quantile(0.975, blocks - 1) * float(means.std())
    between_runs = NORMAL * RUNS_DIFFER * step
    reach = float(np.linalg.norm([noise, between_runs, *(step - float(ns.mean()) for ns in by_chance)]))
    return words, step, max(0.0, step - reach), step + reach, saved, saved / float(base.mean()), low, high


def _drawn(base: Array) -> Array:
    """Steps drawn again, in blocks that follow each other: draws × steps."""
    count = len(base)
    random = np.random.default_rng(SEED)
    length = min(block_length(base), count)
    starts = random.integers(0, count, (DRAWS, -(-count // length)))
    return (starts[:, :, None] + np.arange(length)).reshape(DRAWS, -1)[:, :count] % count


def _obvious(model: Model) -> list[Change]:
    programs, path = model.some, model.path
    own_ns: dict[int, float] = {}
    for (rank, _, _, transfer), ns in path.items():
        if not transfer:
            own_ns[rank] = own_ns.get(rank, 0.0) + ns
    changes = []
    if len(programs[0].ranks) > 1:
        worst = sorted(own_ns, key=lambda rank: -own_ns[rank])[:TRIED_RANKS]
        changes = [Change("rank", ranks=(rank,)) for rank in worst]
        stages = sorted({int(stage) for program in programs for stage in np.unique(program.stage) if stage >= 0})
        if 1 < len(stages) <= MOST_STAGES:
            if len(programs[0].ranks) > len(stages):  # else each rank is a stage
                changes += [Change("stage", stages=(stage,)) for stage in stages]
            changes.append(Change("balance"))
        changes += [Change("even")] if model.uneven else []
        changes += [checked(Change("ideal"), programs), Change("bandwidth", factor=2.0), Change("overlap")]
    return changes + [Change("cause", cause=cause) for cause in known_causes(programs)]


def _two_best(results: Sequence[tuple[list[Change], Array]]) -> list[Change]:
    """A rank or stage and a cause, or two of either, that save most each by itself."""
    fixes = [changes[0] for changes, _ in results if changes[0].kind in ("rank", "stage", "cause")]
    kinds = {"rank": 0, "stage": 0}
    picked: list[Change] = []
    for change in fixes:
        other = "stage" if change.kind == "rank" else "rank"
        if kinds.get(other) and change.kind in kinds:
            continue  # a rank of that stage: the same once more
        kinds[change.kind] = kinds.get(change.kind, 0) + 1
        picked.append(change)
        if len(picked) == 2:
            return picked
    return []


# ---------------------------------------------------------------- the critical path
def _add_path(path_ns: dict[tuple[int, int, str, bool], float], program: Program, ends: Array) -> None:
    """Add what the steps of one program hang on."""
    stage_of = np.full(len(program.ranks), -1)
    stage_of[program.rank] = program.stage
    for (rank, part, transfer), ns in program.critical_path(ends).items():
        for name, share in _names(program, rank, part, transfer).items():
            key = (int(program.ranks[rank]), int(stage_of[rank]), name, transfer)
            path_ns[key] = path_ns.get(key, 0.0) + ns * share


def _names(program: Program, rank: int, part: int, transfer: bool) -> dict[str, float]:
    """What to call a piece of the path: a rank's own time goes by the parts that its steps are made of."""
    if part != BETWEEN and (transfer or not program.own_parts):
        return {program.parts[part]: 1.0}
    total_ns = sum(float(values[rank]) for values in program.own_parts.values())
    if not total_ns:
        return {"own time" if program.begins is not None else "between operations": 1.0}
    return {name: float(values[rank]) / total_ns for name, values in program.own_parts.items() if values[rank]}


@dataclass(frozen=True, slots=True)
class OnPath:
    """A stretch of time for which a step hangs on one rank, and on what there; Unix time on the run's common clock."""

    rank: int
    what: str
    transfers: bool
    begin_ns: float
    end_ns: float


def path_in_time(model: Model) -> list[OnPath]:
    """The critical path of every step where it was recorded, in the order of time; nothing of large runs."""
    path: list[OnPath] = []
    for program in model.programs if not model.is_large else ():
        ends = program.replay()
        for column in range(ends.shape[1]):
            path += _in_time(program, ends, column)
    return sorted(path, key=lambda piece: piece.begin_ns)


def _in_time(program: Program, ends: Array, column: int) -> list[OnPath]:
    """Each step from its own recorded begin on: what the replay misses does not add up over the steps."""
    assert program.began_ns is not None
    if program.begins is None or program.step is None:
        shift = program.began_ns[[column]]
    else:
        shift = program.began_ns - ends[program.begins, column].min(axis=1)
    path = []
    for piece in program.path(ends, column):
        step = 0 if program.step is None else int(program.step[piece.operation])
        if step >= 0 and piece.end > piece.begin:
            rank, what = int(program.ranks[piece.rank]), _what(program, piece)
            path.append(OnPath(rank, what, piece.transfers, piece.begin + shift[step], piece.end + shift[step]))
    return path


def _what(program: Program, piece: Piece) -> str:
    if piece.part != BETWEEN and (piece.transfers or program.step is None):
        return str(program.parts[piece.part])
    if program.passes is not None:
        forward, backward = program.passes[piece.operation].tolist()
        if forward or backward:
            return " and ".join(["forward"] * bool(forward) + ["backward"] * bool(backward))
    return "own time" if program.step is not None else "between operations"


LEAST_PATH = 0.01
MOST_PATH = 16  # rows


def critical_path(model: Model) -> Table:
    """Which rank and part does the step hang on, for which share of it?"""
    path = model.path
    steps, total = len(model.recorded_ns), sum(path.values()) or 1.0
    ordered = sorted(path.items(), key=lambda item: -item[1])
    shown = [item for item in ordered if item[1] >= LEAST_PATH * total][:MOST_PATH]
    rows: list[tuple[Cell, ...]] = [
        (rank, stage if stage >= 0 else None, f"{part}, transfer" if transfer else part, ns / steps, ns / total)
        for (rank, stage, part, transfer), ns in shown
    ]
    columns = PATH_COLUMNS if any(row[1] is not None for row in rows) else (PATH_COLUMNS[0], *PATH_COLUMNS[2:])
    if len(columns) < len(PATH_COLUMNS):
        rows = [(row[0], *row[2:]) for row in rows]
    left = len(ordered) - len(shown)
    rest = sum(ns for _, ns in ordered[len(shown) :]) / total
    notes = [f"{counted(left, 'more part')} with {100 * rest:.1f} % of the path together."] if left else []
    return Table("critical_path", "Critical path through the ranks", columns, rows, notes=notes)
