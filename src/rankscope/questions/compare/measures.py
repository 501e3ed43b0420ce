"""What of one run is compared: one number for each thing, and the series of steps where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rankscope.model.records import COLLECTIVE_LAYERS, Layer
from rankscope.model.tables import Tables, sql_list
from rankscope.questions.compare.resampling import middle_mean
from rankscope.questions.gpu.kernel_names import kernel_names
from rankscope.questions.mpi.calls import OUTSIDE
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.steps.phases import waterfalls
from rankscope.questions.steps.waits import waits_per_step

Array = Any
RANGES = (Layer.TORCH, Layer.NVTX)
KINDS: dict[str, str] = {Layer.GPU: "kernel", **dict.fromkeys(RANGES, "range")}  # of other layers: operation
OF_STEP = ("hidden", "gc", "runnable", "cpu")  # times within or beside the parts
WHOLE = ("elapsed", "phase.steps")  # they grow with the number of steps
QUANTILES = {"step_p50": 50, "step_p90": 90, "step_p99": 99}
STEADY = "tallies.phase = 'steady'"  # where the run has such: what is counted before is warm-up
# Time inside calls; of Gloo, whose threads do the work, from the start of an operation to its end.
CALLS = f"""
    SELECT layer, name, sum(total_ns) FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND kind = CASE layer WHEN 'gloo' THEN 'progress' ELSE 'call' END
        AND layer IN {sql_list([*COLLECTIVE_LAYERS, *RANGES, Layer.GPU, Layer.CUDA_API])}
        AND {{phase}} GROUP BY layer, name HAVING sum(total_ns) > 0 {{more}}"""
ABOUT = """
    SELECT count(*), list(DISTINCT host ORDER BY host), list(DISTINCT command ORDER BY command),
        list(DISTINCT versions ORDER BY versions), max(elapsed_ns), max(max_rss_bytes), min(started_ns),
        count(*) FILTER (ending <> 'stopped' AND NOT (ending = 'exited' AND exit_code = 0)
            AND NOT (ending = 'unknown' AND tool <> ''))
    FROM ranks WHERE role = 'rank'"""


class Metric(NamedTuple):
    """One thing that is compared: its kind and its name."""

    kind: str  # total, step, part, phase, layer, operation, kernel, range
    name: str

    def __str__(self) -> str:
        return self.name if self.kind in ("total", "step") else f"{self.kind}.{self.name}"


@dataclass(slots=True)
class Measures:
    """One run in numbers."""

    source: str
    ranks: int = 0
    hosts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    started_ns: int = 0
    steps: int = 0
    ended_badly: int = 0
    lost_files: int = 0
    values: dict[Metric, float] = field(default_factory=dict)
    series: dict[Metric, Array] = field(default_factory=dict)  # one value for each steady step that all ranks have


def measures(tables: Tables, source: str) -> Measures:
    """All that can be compared of a run."""
    run_measures = Measures(source)
    _add_facts(run_measures, tables)
    steps = steps_of(tables)
    _add_steps(run_measures, steps)
    _add_waits(run_measures, tables, steps)
    _add_phases(run_measures, tables)
    _add_calls(run_measures, tables)
    return run_measures


def _add_facts(run_measures: Measures, tables: Tables) -> None:
    count, hosts, commands, versions, elapsed_ns, memory, started_ns, bad = tables.query(ABOUT)[0]
    run_measures.ranks, run_measures.ended_badly, run_measures.started_ns = int(count), int(bad), int(started_ns or 0)
    run_measures.hosts, run_measures.commands = tuple(hosts or ()), tuple(commands or ())
    run_measures.versions = tuple(versions or ())
    run_measures.lost_files = int(tables.query("SELECT bad_files FROM run")[0][0])
    if elapsed_ns:
        run_measures.values[Metric("total", "elapsed")] = float(elapsed_ns)
    if memory:
        run_measures.values[Metric("total", "memory")] = float(memory)


def _add_steps(run_measures: Measures, steps: Steps) -> None:
    shared = steps.common()
    run_measures.steps = max((int(rank.number[-1]) for rank in steps.ranks if len(rank.number)), default=0)
    if not len(shared):
        return
    length = _over_ranks(steps, shared, "length_ns")
    run_measures.series[Metric("step", "step_p50")] = length
    for name, quantile in QUANTILES.items():
        run_measures.values[Metric("step", name)] = float(np.percentile(length, quantile))
    run_measures.values[Metric("step", "step_mean")] = float(length.mean())
    for name, series in _parts(steps, shared):
        if series.any():
            run_measures.series[Metric("part", name)] = series
            run_measures.values[Metric("part", name)] = float(middle_mean(series))


def _parts(steps: Steps, shared: Array) -> Iterator[tuple[str, Array]]:
    for name in steps.ranks[0].own:
        yield name, _over_ranks(steps, shared, "own", name)
    yield "communication", _over_ranks(steps, shared, "exposed_ns")
    for name in OF_STEP:
        if name in steps.ranks[0].of_which:
            yield name, _over_ranks(steps, shared, "of_which", name)


def _over_ranks(steps: Steps, shared: Array, column: str, name: str = "") -> Array:
    """Of each step the median over the ranks: one rank that was disturbed is not the job."""
    rows = []
    for rank in steps.ranks:
        values = getattr(rank, column)
        rows.append((values[name] if name else values)[np.searchsorted(rank.number, shared)])
    return np.median(np.stack(rows), axis=0)


def _add_waits(run_measures: Measures, tables: Tables, steps: Steps) -> None:
    waits = list(waits_per_step(tables, steps).values())
    if waits:
        run_measures.values[Metric("part", "wait")] = float(np.median([wait.wait_ns for wait in waits]))
        run_measures.values[Metric("part", "transfer")] = float(np.median([wait.transfer_ns for wait in waits]))


def _add_phases(run_measures: Measures, tables: Tables) -> None:
    everyone = waterfalls(tables)
    for name in dict.fromkeys(name for waterfall in everyone for name in waterfall.segments):
        run_measures.values[Metric("phase", name)] = float(
            np.median([waterfall.segments.get(name, 0) for waterfall in everyone])
        )


def _add_calls(run_measures: Measures, tables: Tables) -> None:
    """Time of layers, operations, kernels and ranges: of a rank and a step where there are steps, else of a rank."""
    steady = bool(run_measures.steps and tables.query(CALLS.format(phase=STEADY, more="LIMIT 1")))
    shared = run_measures.ranks * max(1, run_measures.steps - 1 if steady else run_measures.steps)
    called = kernel_names(tables, "full")
    phase = STEADY if steady else f"name NOT IN {OUTSIDE}"
    for layer, name, total_ns in tables.query(CALLS.format(phase=phase, more="")):
        value = float(total_ns) / shared
        if layer not in RANGES:  # they lie within each other
            _grow(run_measures, Metric("layer", layer), value)
        _grow(run_measures, Metric(KINDS.get(layer, "operation"), called.get(name, name)), value)


def _grow(run_measures: Measures, metric: Metric, value: float) -> None:
    run_measures.values[metric] = run_measures.values.get(metric, 0.0) + value
