"""Which numbers of a run should be watched from outside? One table a metric, its last column the value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rankscope.model.records import COLLECTIVE_LAYERS
from rankscope.model.tables import Cell, Column, Table, Tables, Unit, sql_list
from rankscope.questions.mpi.calls import BYTES_SQL
from rankscope.questions.steps.data import steps_of

QUANTILES = (0.5, 0.9, 0.99)
OF_RANKS = {
    "rankscope_elapsed_seconds": ("Time from the start of the process to its end, or until now", "elapsed_ns / 1e9"),
    "rankscope_cpu_seconds_total": ("User and system time of the process", "(user_ns + system_ns) / 1e9"),
    "rankscope_memory_bytes": ("Largest resident memory of the process", "max_rss_bytes"),
    "rankscope_running": ("1 while the process runs", "(ending = 'running')::INTEGER"),
    "rankscope_lost_calls_total": ("Calls that did not fit in the rank file", "lost_calls"),
    "rankscope_lost_events_total": ("Events dropped because the trace was full", "lost_trace_events"),
}
CALLS = f"""
    SELECT rank, host, layer, name, (sum(calls) FILTER (kind = 'call' OR layer = 'gloo'))::BIGINT,
        sum(total_ns) FILTER (kind = 'call' OR layer = 'gloo') / 1e9, {BYTES_SQL}
    FROM tallies JOIN ranks USING (process) WHERE role = 'rank'
        AND layer IN {sql_list(COLLECTIVE_LAYERS)} GROUP BY ALL ORDER BY rank, layer, name"""


def scrape(tables: Tables) -> list[Table]:
    """Ranks, calls of communication libraries, and steps."""
    return [*_run(tables), *_ranks(tables), *_calls(tables), *_steps(tables)]


def _metric(name: str, about: str, labels: Sequence[str], rows: Sequence[tuple[Cell, ...]]) -> Table:
    columns = [
        *(Column(label, Unit.NAME) for label in labels),
        Column("value", Unit.NUMBER, formula="the value of the metric, in the unit at the end of its name"),
    ]
    return Table(name, about, columns, list(rows))


def _run(tables: Tables) -> Iterator[Table]:
    command, launcher, expected, version = tables.query(
        "SELECT command, launcher, expected_ranks, rankscope_version FROM run"
    )[0]
    rows = [(command, launcher, version, 1)]
    yield _metric("rankscope_run_info", "What ran", ("command", "launcher", "rankscope_version"), rows)
    if expected is not None:
        yield _metric("rankscope_expected_ranks", "Ranks that were started", (), [(expected,)])
    seen = tables.query("SELECT count(*) FROM ranks WHERE role = 'rank'")[0][0]
    yield _metric("rankscope_ranks", "Ranks seen", (), [(seen,)])


def _ranks(tables: Tables) -> Iterator[Table]:
    for name, (about, value) in OF_RANKS.items():
        rows = tables.query(f"SELECT rank, host, {value} FROM ranks WHERE role = 'rank' ORDER BY rank")
        yield _metric(name, about, ("rank", "host"), rows)


def _calls(tables: Tables) -> Iterator[Table]:
    rows = tables.query(CALLS)
    labels = ("rank", "host", "layer", "name")
    for at, (name, about) in enumerate(
        (
            ("rankscope_calls_total", "Calls of MPI and of collective libraries"),
            ("rankscope_call_seconds_total", "Time in them; of Gloo: from start to completion"),
            ("rankscope_call_bytes_total", "Bytes they moved"),
        )
    ):
        yield _metric(name, about, labels, [(*row[:4], row[4 + at]) for row in rows])


def _steps(tables: Tables) -> Iterator[Table]:
    steps = steps_of(tables)
    counts: list[tuple[Cell, ...]] = []
    lengths: list[tuple[Cell, ...]] = []
    for rank in steps.ranks:
        counts.append((rank.rank, rank.host, int(rank.number[-1]) if len(rank.number) else 0))
        steady = rank.length_ns[steps.steady(rank)]
        if len(steady):
            for quantile, length_ns in zip(QUANTILES, np.quantile(steady, QUANTILES).tolist(), strict=True):
                lengths.append((rank.rank, rank.host, quantile, length_ns / 1e9))
    yield _metric("rankscope_steps_total", "Steps of the training loop", ("rank", "host"), counts)
    yield _metric("rankscope_step_seconds", "Length of steady steps", ("rank", "host", "quantile"), lengths)
