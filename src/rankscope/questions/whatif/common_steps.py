"""The steps that all ranks of a run have, on one clock: of the hosts, or of the GPUs where every rank has those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.model.tables import Tables
from rankscope.questions.collectives.wait_and_transfer import Collectives
from rankscope.questions.steps.data import PARTS, TITLES, Steps

Array = Any  # of numpy
DEVICE = """
    SELECT rank, number, min(d.begin_ns) AS begin_ns, max(d.end_ns) AS end_ns, max(d.exposed_ns) AS exposed_ns,
        {} FROM device_steps d JOIN ranks USING (process)
    WHERE role = 'rank' AND NOT d.cut AND number >= ? GROUP BY rank, number ORDER BY rank, number"""
IDLE = {"data": "data", "sync": "sync", "gc": "gc", "checkpoint": "checkpoint", "launch": "launch"}


@dataclass(slots=True)
class CommonSteps:
    """R ranks x S steps, times since Log.base_ns."""

    numbers: Array
    begin: Array
    end: Array
    exposed: Array  # infinite: the trace does not say when a rank was blocked
    causes: dict[str, Array]
    own_parts: dict[str, Array]  # R x S
    source: str


def common_steps(tables: Tables, known: Collectives, measured: Steps) -> CommonSteps:
    """The steps to replay."""
    return _device_steps(tables, known, measured) or _host_steps(known, measured)


def _host_steps(known: Collectives, measured: Steps) -> CommonSteps:
    numbers = measured.common()
    columns: dict[str, list[Array]] = {}
    place = {rank: at for at, rank in enumerate(known.log.ranks)}
    of_rank = {rank_steps.rank: rank_steps for rank_steps in measured.ranks}
    clock_of: list[int] = []
    for rank in known.log.ranks:
        rank_steps = of_rank.get(rank, measured.ranks[0])  # one that has no loop of its own goes by another's steps
        at = np.searchsorted(rank_steps.number, numbers)
        begin = (rank_steps.begin_ns[at] - known.log.base_ns).astype(np.float64)
        values_of = {"begin": begin, "end": begin + rank_steps.length_ns[at], "exposed": rank_steps.exposed_ns[at]}
        values_of |= {f"own {part}": rank_steps.own[part][at] for part in PARTS if part in rank_steps.own}
        values_of |= {name: rank_steps.of_which[name][at] for name in ("gc", "runnable") if name in rank_steps.of_which}
        clock_of.append(place[rank_steps.rank])
        if rank not in of_rank:
            values_of |= {name: np.zeros(len(numbers)) for name in values_of if name not in ("begin", "end")}
        for name, values in values_of.items():
            columns.setdefault(name, []).append(values)
    stacked = {name: np.stack(values) for name, values in columns.items() if len(values) == len(place)}
    for name in ("begin", "end"):
        stacked[name] = known.clocks.on_reference(np.array(clock_of), stacked[name].T).T
    causes = {
        cause: stacked[name].T
        for cause, name in (
            *(("data", "own data"), ("gc", "gc"), ("preemption", "runnable"), ("checkpoint", "own checkpoint")),
        )
        if name in stacked
    }
    parts = {TITLES[part]: stacked[f"own {part}"] for part in PARTS if f"own {part}" in stacked}
    if measured.source == "traced" and not stacked["exposed"].any():
        stacked["exposed"] = np.full_like(stacked["exposed"], np.inf)  # see CommonSteps
    source = "steps" + (" found in the pattern of collectives" if measured.source == "pattern" else "")
    return CommonSteps(numbers, stacked["begin"], stacked["end"], stacked["exposed"], causes, parts, source)


def _device_steps(tables: Tables, known: Collectives, measured: Steps) -> CommonSteps | None:
    """The steps on the GPUs' clock, where every rank has them."""
    sums = ", ".join(f"max(d.idle_{name}_ns) AS {cause}" for cause, name in IDLE.items())
    columns = tables.columns(
        DEVICE.format(f"{sums}, max(d.compute_ns) AS compute, max(d.copy_ns) AS copies"), (measured.first_steady,)
    )
    if not len(columns["rank"]):
        return None
    numbers: Array | None = None
    rows = {rank: np.flatnonzero(columns["rank"] == rank) for rank in known.log.ranks}
    for own_rows in rows.values():
        mine = columns["number"][own_rows]
        numbers = mine if numbers is None else np.intersect1d(numbers, mine)
    if numbers is None or not len(numbers):
        return None

    def of(name: str) -> Array:
        return np.stack(
            [
                columns[name][own_rows][np.searchsorted(columns["number"][own_rows], numbers)].astype(np.float64)
                for own_rows in rows.values()
            ]
        )

    begin, end = of("begin_ns") - known.log.base_ns, of("end_ns") - known.log.base_ns
    everyone = np.arange(len(known.log.ranks))
    begin, end = (known.clocks.on_reference(everyone, times.T).T for times in (begin, end))
    causes = {cause: of(cause).T for cause in IDLE}
    parts = {"GPU computes": of("compute"), "GPU copies": of("copies")}
    parts |= {f"GPU idle: {cause}": of(cause) for cause in IDLE}
    return CommonSteps(numbers, begin, end, of("exposed_ns"), causes, parts, "steps of the GPUs")
