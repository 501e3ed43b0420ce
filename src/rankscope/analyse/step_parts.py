"""Where does the step of each rank go?"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope.analyse.steps_recorded import OF_WHICH, PARTS
from rankscope.model import Cell, Column, Table, Tables, Unit
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.arrays import RankSteps
from rankscope.questions.steps.data import steps_of
from rankscope.questions.steps.steps import step_notes
from rankscope.questions.steps.waits import waits_per_step

OWN = (*PARTS[:5], "checkpoint", "compute", "other")
COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("host", Unit.NAME, "Host"),
    Column("steps", Unit.COUNT, "Steps"),
    Column("step_ns", Unit.NS, "Step"),
    *(Column(f"{part}_ns", Unit.NS, part.replace("_", " ").capitalize()) for part in OWN),
    Column("exposed_ns", Unit.NS, "Communication"),
    Column("sum_share", Unit.SHARE, "Sum/step"),
    Column("exposed_share", Unit.SHARE, "Comm. share"),
    Column("wait_ns", Unit.NS, "Waiting"),
    Column("transfer_ns", Unit.NS, "Moving data"),
    Column("leaving_ns", Unit.NS, "Leaving"),
    Column("hidden_ns", Unit.NS, "Hidden"),
    Column("gc_ns", Unit.NS, "Of it gc"),
    Column("runnable_ns", Unit.NS, "No CPU"),
    Column("cpu_ns", Unit.NS, "CPU time"),
)


def step_parts(tables: Tables, selection: Selection = ALL) -> Table:
    """The mean steady step of each rank, part by part; the parts and the communication add up to the step."""
    found = steps_of(tables)
    chosen = [one for one in found.ranks if selection.ranks is None or one.rank in selection.ranks]
    waits = waits_per_step(tables, found)
    table = Table("step_parts", "Parts of the step, mean", COLUMNS, [])
    for one in chosen:
        mask = found.steady(one)
        if mask.any():
            table.rows.append(_row(one, mask, waits.get(one.rank)))
    if table.rows:
        table.notes += step_notes(found, chosen)
        table.notes.append("Parts are without the time blocked in collectives, which is all in Communication.")
    return arranged(table, selection)


def _row(one: RankSteps, mask: Any, waits: tuple[float, ...] | None) -> tuple[Cell, ...]:
    step = float(one.length_ns[mask].mean())
    own = {name: float(values[mask].mean()) for name, values in one.own.items()}
    exposed = float(one.exposed_ns[mask].mean())
    whole = (sum(own.values()) + exposed) / step if step else None
    within = {name: float(np.mean(one.of_which[name][mask])) for name in OF_WHICH if name in one.of_which}
    return (
        *(one.rank, one.host, int(mask.sum()), step),
        *(own.get(name) for name in OWN),
        *(exposed, whole, exposed / step if step else None),
        *(waits or (None, None, None)),
        *(within.get(name) for name in ("hidden", "gc", "runnable", "cpu")),
    )
