"""The timeline of a page: levels of detail lose no time, and every long event is in all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.large_run import write_large_run
from rankscope.api.export import FORMS
from rankscope.model.records import Event, Layer, RankFacts, Reading
from rankscope.pictures import Blocks, Section
from rankscope.questions.page import timeline
from rankscope.questions.page.section import PageOptions
from rankscope.questions.page.timeline import merged, timeline_section
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.loaded import run_of

SLOW = 5


def some_blocks(seed: int) -> Blocks:
    """Two lines of events that lie apart from each other, from 1 ns to 100 µs."""
    random = np.random.default_rng(seed)
    count = 2000
    gap, length = random.integers(0, 5000, count), (10 ** random.uniform(0, 5, count)).astype(np.int64)
    end = np.concatenate([np.cumsum(part) for part in np.split(gap + length, 2)])
    line, ones = np.repeat([0, 1], count // 2), np.ones(count, np.int64)
    return Blocks(line, end - length, end, random.integers(0, 5, count), ones, length)


@pytest.mark.parametrize("resolution", [1, 1000, 30_000, 10_000_000])
def test_merging_loses_neither_events_nor_time(resolution: int) -> None:
    blocks = some_blocks(resolution)
    few = merged(blocks, resolution)
    for line in (0, 1):
        for name in ("count", "busy_ns"):
            sums = [getattr(one, name)[one.line == line].sum() for one in (few, blocks)]
            assert sums[0] == sums[1]
    long = blocks.end_ns - blocks.start_ns >= resolution
    kept = set(zip(few.line.tolist(), few.start_ns.tolist(), few.end_ns.tolist(), few.name.tolist(), strict=True))
    columns = (one[long].tolist() for one in (blocks.line, blocks.start_ns, blocks.end_ns, blocks.name))
    assert set(zip(*columns, strict=True)) <= kept
    assert (np.diff(few.start_ns)[np.diff(few.line) == 0] >= 0).all()
    again = merged(few, resolution * 4)
    assert again.count.sum() == blocks.count.sum() and len(again) <= len(few)


def test_a_block_is_named_after_what_takes_most_of_its_time() -> None:
    start, length = np.array([0, 10, 20, 30]), np.array([4, 3, 3, 5])
    zeros, ones = np.zeros(4, np.int64), np.ones(4, np.int64)
    few = merged(Blocks(zeros, start, start + length, np.array([7, 8, 8, 9]), ones, length), 1000)
    assert [few.name.tolist(), few.count.tolist(), few.busy_ns.tolist(), few.end_ns.tolist()] == [[8], [4], [15], [35]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_run(write_large_run(tmp_path_factory.mktemp("run") / "run", ranks=8, steps=40), read_rank_file)


def made(run: Any) -> Section:
    section = timeline_section(run, PageOptions())
    assert section is not None and section.timeline is not None
    return section


def test_all_of_a_few_events(run: Any) -> None:
    """Steps, their parts and collectives of every rank, each at its own time."""
    section = made(run)
    drawn = section.timeline
    assert drawn is not None
    assert {line.rank for line in drawn.lines} == {"critical path", *(f"rank {rank}" for rank in range(8))}
    [level] = drawn.levels
    recorded = run.query("SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM steps)")[0][0]
    assert section.notes[0] == f"All {recorded} events of these ranks that were recorded are shown."
    begin = run.query("SELECT min(started_ns) FROM ranks")[0][0]
    sql = "SELECT start_ns - ?, end_ns - ? FROM events JOIN ranks USING (process) WHERE rank = 3 ORDER BY 1"
    at = next(n for n, line in enumerate(drawn.lines) if line.rank == "rank 3" and line.kind == "thread")
    own = level.blocks.line == at
    found = list(zip(level.blocks.start_ns[own].tolist(), level.blocks.end_ns[own].tolist(), strict=True))
    assert found == run.query(sql, (begin, begin))
    assert {drawn.names[name] for name in level.blocks.name[own].tolist()} == {"MPI_Allreduce"}


def test_median_and_worst_steps_are_chosen(run: Any) -> None:
    rows = made(run).tables[0].rows
    assert [row[0] for row in rows] == ["median"] * 3 + ["worst", "whole run"]
    sql = "SELECT max(end_ns - begin_ns) FROM steps WHERE number = ?"
    assert all(row[2] == run.query(sql, (row[1],))[0][0] for row in rows[:-1])


def test_the_first_line_is_the_critical_path(run: Any) -> None:
    """In every step without a hole, mostly on the slow rank; the note and the table have its shares."""
    section = made(run)
    drawn = section.timeline
    assert drawn is not None and drawn.lines[0].rank == "critical path"
    blocks = drawn.levels[0].blocks
    mine = blocks.line == 0
    start, end = blocks.start_ns[mine], blocks.end_ns[mine]
    assert (end[:-1] <= start[1:] + 2000).all() and (end - start).sum() > 0.95 * (end.max() - start.min())
    names = [drawn.names[at] for at in blocks.name[mine].tolist()]
    assert {name for name in names if not name.endswith("allreduce")} == {f"rank {SLOW}: own time"}
    path = next(table for table in section.tables if table.name == "critical_path")
    assert path.rows[0][0] == SLOW and section.notes[-1].startswith(f"Critical path of the steps: rank {SLOW} ")


def test_too_many_events_are_thinned_by_level(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more blocks than a page can hold, all time in the first level, and the caption says how many are shown."""
    whole = made(run).timeline
    monkeypatch.setattr(timeline, "MOST_BLOCKS", 300)
    section = made(run)
    few = section.timeline
    assert whole is not None and few is not None
    assert sum(len(level.blocks) for level in few.levels) <= 300
    assert len(few.levels) >= 2 and all(level.resolution_ns == 0 for level in few.levels[1:])
    for name in ("count", "busy_ns"):
        assert getattr(few.levels[0].blocks, name).sum() == getattr(whole.levels[0].blocks, name).sum()
    assert " of 640 events shown one by one" in section.notes[0]
    assert 0 < int(section.notes[0].split()[0]) < 640


def test_many_ranks_are_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "MOST_RANKS", 4)
    section = made(open_run(write_large_run(tmp_path / "run", ranks=12, steps=12), read_rank_file))
    assert section.timeline is not None
    assert len({line.rank for line in section.timeline.lines} - {"critical path"}) == 4
    assert section.notes[0].startswith("4 of 12 ranks are drawn")


def test_deep_events_are_left_out_and_told() -> None:
    """Of six events within each other four are drawn, on a thread of any number; the caption names a real option."""
    nested = [Event(Layer.NVTX, f"call {n}", n, 100 - n, thread=-7) for n in range(6)]
    section = made(run_of([Reading(RankFacts(rank=0, world_size=1, host="h", pid=1), events=nested)]))
    assert section.timeline is not None
    assert [line.name for line in section.timeline.lines] == [
        f"ranges of thread -7{' ' * bool(n)}{'›' * n}" for n in range(4)
    ]
    assert section.notes[0].startswith("4 of 6 events shown one by one")
    assert "`rankscope export RUN --perfetto`" in section.notes[0] and "perfetto" in FORMS
