"""The steps that ranks have recorded: at once, or of a large run some ranks at a time, with the values left on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rankscope.analyse.step_values import Same, StepFile
from rankscope.analyse.threads import in_threads
from rankscope.model import Tables
from rankscope.questions.collectives.matching import WHO
from rankscope.questions.steps.arrays import RankSteps

Array = Any  # of numpy
PARTS = ("data", "zero_grad", "forward", "backward", "optimizer", "checkpoint", "other")
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
        made = _on_disk(in_threads(partial(_read, who), parts))
    elif tables.query(COUNTED)[0][0] > MOST_STEPS:  # in one database with what other tools recorded
        asked = (tables.columns(SQL.format("AND process = ?"), (process,)) for process in who)
        made = _on_disk(_of_part(columns, who) for columns in asked)
    else:
        made = _of_part(tables.columns(SQL.format("")), who)
    same = Same()
    for one in made:
        one.number, one.flagged = same(one.number), same(one.flagged)
    return made


def _on_disk(found: Iterable[list[RankSteps]]) -> list[RankSteps]:
    file = StepFile()
    made = []
    for some in found:
        for one in some:
            one.values = file.add(one.values)
            made.append(one)
    return sorted(made, key=lambda one: one.rank)


def _read(who: Who, part: Part) -> list[RankSteps]:
    return _of_part(part(NEEDED), who)


def _of_part(columns: Mapping[str, Any], who: Who) -> list[RankSteps]:
    process = columns["process"]
    edges = np.flatnonzero(np.diff(process)) + 1
    found = np.split(np.arange(len(process)), edges) if len(process) else []
    return [_of_rows(columns, rows, *who[int(process[rows[0]])]) for rows in found if int(process[rows[0]]) in who]


def _of_rows(columns: Mapping[str, Any], rows: Array, rank: int, host: str) -> RankSteps:
    def of(name: str) -> Array:
        return np.asarray(columns[name][rows], np.float64)

    begin, end = columns["begin_ns"][rows], columns["end_ns"][rows]
    values = {"begin_ns": begin, "length_ns": (end - begin).astype(np.float64), "exposed_ns": of("exposed_ns")}
    values |= {f"own {part}": np.maximum(of(f"{part}_ns") - of(f"blocked_{part}_ns"), 0) for part in PARTS}
    # a collective that blocks outside the other parts is a part of its own: what it was not blocked for is the host's
    values["own other"] = values["own other"] + np.maximum(of("communication_ns") - of("blocked_communication_ns"), 0)
    values |= {f"of which {name}": of(f"{name}_ns") for name in OF_WHICH}
    values |= {f"count {name}": of(name) for name in COUNTS}
    return RankSteps(rank, host, columns["number"][rows], np.asarray(columns["warmup"][rows], bool), values)
