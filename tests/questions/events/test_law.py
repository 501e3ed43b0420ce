"""Tables of made-up traces against what their law says, in both forms in which traces are kept."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_answers import Answers, answers
from trace_law import DOMAIN, STEP_EVENTS, Law, laws, write_run

import rankscope
from native.read import in_python
from rankscope.questions.events import tables
from rankscope.questions.events.tables import trace_tables
from rankscope.questions.gpu import activities as gpu_activities
from rankscope.questions.gpu import walk
from rankscope.questions.gpu.activities import kind_of
from rankscope.rank_files import trace
from rankscope.rank_files.events import trace_events
from rankscope.store.derived import Traces, derived, loaded_tasks, trace_tasks

STEPS = {"rank": 40, "parquet": 490}  # the second: more than one block of rows


def rows_of(run: Any, table: str) -> list[tuple[Any, ...]]:
    return list(run.table(table, top=None, names="mangled").rows)


@pytest.fixture(scope="module", params=["rank", "parquet"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Answers]:
    found = [Law(rank, STEPS[request.param] // (rank + 1), seed=3) for rank in range(3)]
    folder = tmp_path_factory.mktemp(request.param)
    write_run(folder, found, request.param)
    return request.param, folder, answers(found)


@pytest.fixture(params=["compiled", "python"])
def run(request: pytest.FixtureRequest, made: tuple[str, Path, Answers], monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "python":
        monkeypatch.setattr(gpu_activities, "add_lengths", in_python.add_lengths)
        monkeypatch.setattr(walk, "walk_device", in_python.walk_device)
        monkeypatch.setattr(tables, "sweep_ranges", in_python.sweep_ranges)
        monkeypatch.setattr(trace.TraceClocks, "times", in_python.times)
    return rankscope.open(made[1])


def test_overlap(run: Any, made: tuple[str, Path, Answers]) -> None:
    for rank, device, span, busy, _, idle, compute, _, comm, copy, hidden, share, exposed in rows_of(run, "gpu_time"):
        expected = made[2].devices[rank]
        assert (device, span, busy, compute, comm, copy, hidden) == ("0", *expected)
        assert (idle, exposed, share) == (span - busy, comm - hidden, hidden / comm)
    assert len(rows_of(run, "gpu_time")) == 3


def test_kernels(run: Any, made: tuple[str, Path, Answers]) -> None:
    expected = made[2].names
    found = rows_of(run, "kernels")
    assert len(found) == len(expected)
    for kind, name, calls, total, _, mean, least, most, stdev in found:
        one = expected[name]
        assert (kind, calls, total, least, most) == (kind_of(name), one.calls, one.total_ns, one.min_ns, one.max_ns)
        assert mean == pytest.approx(total / calls)
        assert stdev == pytest.approx((one.squares / calls - (total / calls) ** 2) ** 0.5)


def test_idle(run: Any, made: tuple[str, Path, Answers]) -> None:
    found = {(row[0], row[1], row[2]): row[3:] for row in rows_of(run, "gpu_idle")}
    between = "other" if made[0] == "rank" else "host"  # rank files do not tell which call launched what
    assert len(found) == len(made[2].gaps)
    for (rank, stream, within), lengths in made[2].gaps.items():
        gaps, idle, _, median, most = found[rank, stream, "next kernel" if within else between]
        assert (gaps, idle, median, most) == (len(lengths), lengths.sum(), np.median(lengths), lengths.max())


def test_ranges(run: Any, made: tuple[str, Path, Answers]) -> None:
    form, _, expected = made
    found = rows_of(run, "ranges")
    assert {row[0] for row in found} == set(expected.ranges)
    for name, layer, domain, calls, total, own, _, _, least, most, activities, _, gpu, own_gpu, ranks in found:
        one = expected.ranges[name]
        assert (layer, domain, calls, total, least, most) == (
            "nvtx", DOMAIN, one.calls, one.total_ns, one.min_ns, one.max_ns
        )  # fmt: skip
        assert (own, ranks) == (expected.own_ns[name], 3)
        launched = expected.activities[name], expected.gpu_ns[name], expected.own_gpu_ns[name]
        assert (activities, gpu, own_gpu) == (launched if form == "parquet" else (None, None, None))


def test_events_are_shared_out_in_whole_steps() -> None:
    found = laws(100_000, 7)
    assert len(found) == 7 and abs(sum(law.events for law in found) - 100_000) < 273


def test_single_events_are_unpacked_only_where_they_are_asked_for(
    made: tuple[str, Path, Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tables that a report shows unasked come without; SQL over the events has them all."""
    opened = rankscope.open(made[1])
    with monkeypatch.context() as patched:
        patched.setattr(Traces, "write", lambda traces, bad: pytest.fail("unpacked"))
        shown = opened.default_tables()
        assert {"gpu_time", "gpu_idle", "kernels", "ranges"} <= set(shown)
        assert all(len(opened.table(name)) for name in ("gpu_time", "gpu_idle", "kernels", "ranges", "overview"))
        for name in shown:
            opened.table(name)
    [(count,)] = opened.query("SELECT count(*) FROM events").rows
    assert count == sum(STEPS[made[0]] // (rank + 1) for rank in range(3)) * STEP_EVENTS


def test_anybody_may_do_the_work(made: tuple[str, Path, Answers]) -> None:
    """Tasks and results survive being sent elsewhere, and the tables are the same to the last bit."""

    def elsewhere(work: Any, tasks: Any) -> Iterator[Any]:
        for task in tasks:
            yield pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(partial(work, task)))()))

    if made[0] == "rank":
        files = dict(enumerate(sorted(made[1].glob("ranks/*/*.rank"))))
        tasks = trace_tasks(trace_tables, trace_events, files)
    else:
        places = [(str(folder), 0, at) for at, folder in enumerate(sorted((made[1] / "loaded").iterdir()))]
        tasks = loaded_tasks(trace_tables, places)
    assert len(tasks) == 3
    here, there = derived(tasks, []), derived(tasks, [], elsewhere)
    assert all(here[name].equals(there[name]) and here[name].num_rows for name in here)


def test_a_traced_run_of_many_ranks(tmp_path: Path) -> None:
    """More files than are read one by one."""
    found = laws(260 * STEP_EVENTS, 260)
    write_run(tmp_path, found)
    opened, expected = rankscope.open(tmp_path), answers(found)
    rows = opened.table("gpu_time").rows
    assert {row[0]: (row[2], row[3], row[6], row[8], row[9], row[10]) for row in rows} == expected.devices
    kernels = opened.table("kernels", names="mangled").rows
    assert {row[1]: row[3] for row in kernels} == {name: one.total_ns for name, one in expected.names.items()}
    assert opened.query("SELECT count(*) FROM events").rows == [(260 * STEP_EVENTS,)]
