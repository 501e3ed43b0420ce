"""Which ranks share what out between them: told by messages, collectives, a table of operations, or the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.formats.operations import read
from rankscope.formats.source import Source
from rankscope.model.records import Event, Group, MessageEnd, RankFacts, Reading, Role, Step
from rankscope.model.tables import Words, Wrong
from rankscope.questions.findings.pipelines import pipeline_bubble
from rankscope.questions.parallelism.bubbles import bubbles, bubbles_of
from rankscope.questions.parallelism.groups import UNKNOWN, given_groups, parallelism, parallelism_of, pipelines_of
from rankscope.store.run import RunTables
from runs.loaded import run_of
from synthetic_operations import Job, write

STEPS, STEP_NS, MS = 6, 100_000_000, 1_000_000
BASE_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Message:
    """In every step: when it is posted at both ends, and until when the receiver stands in its call for it."""

    sender: int
    receiver: int
    sent_ms: float
    received_ms: float
    over_ms: float


@dataclass(frozen=True)
class Call:
    """A collective of every step."""

    group: tuple[int, ...]
    name: str
    at_ms: float
    size: int = 1 << 20


def made(ranks: int, messages: Sequence[Message] = (), calls: Sequence[Call] = (), backward_ms: float = 0) -> RunTables:
    """A run in which every step is the same."""
    return run_of(_reading(rank, ranks, messages, calls, backward_ms) for rank in range(ranks))


def _reading(rank: int, ranks: int, messages: Sequence[Message], calls: Sequence[Call], backward_ms: float) -> Reading:
    world = Group("world", "w", "process_group", ranks, rank)
    mine = list(dict.fromkeys(call.group for call in calls if rank in call.group))
    groups = [Group(str(one), str(one), "process_group", len(one), one.index(rank)) for one in mine]
    reading = Reading(RankFacts(rank=rank, world_size=ranks, role=Role.RANK, host="node"), groups=[world, *groups])
    numbers: dict[Any, int] = {}
    ends: list[MessageEnd] = []

    def number(*key: Any) -> int:
        numbers[key] = numbers.get(key, 0) + 1
        return numbers[key]

    for step in range(STEPS):
        begin = BASE_NS + step * STEP_NS
        blocked = sum(one.over_ms - one.received_ms for one in messages if one.receiver == rank)
        told: dict[str, Any] = {one.name: 0 for one in fields(Step)}
        told |= dict.fromkeys(("accumulated", "skipped", "told", "by_backward"), False)
        told |= {"backwards": 1, "backward_ns": int(backward_ms * MS)} if backward_ms else {}
        told |= {"number": step + 1, "begin_ns": begin, "end_ns": begin + STEP_NS, "warmup": step < 2}
        reading.steps.append(Step(**told | {"exposed_ns": int(blocked * MS)}))
        for one in messages:
            receives = one.receiver == rank
            if rank not in (one.sender, one.receiver):
                continue
            posted = begin + int((one.received_ms if receives else one.sent_ms) * MS)
            over = begin + int((one.over_ms if receives else one.sent_ms) * MS)
            peer = one.sender if receives else one.receiver
            kind = "receive" if receives else "send"
            ends.append(
                MessageEnd(
                    "gloo",
                    kind,
                    kind,
                    "world",
                    peer,
                    0,
                    number(kind, peer),
                    "",
                    posted,
                    over,
                    over - posted,
                    4096,
                    posted=number("posted"),
                )
            )
        for call in calls:
            if rank in call.group:
                at = begin + int(call.at_ms * MS)
                about = {"group": str(call.group), "sequence": number(call.group), "bytes": call.size}
                reading.events.append(Event("gloo", call.name, at, at + MS, **about))  # type: ignore[arg-type]
    if ends:
        reading.message_columns = {
            one.name: _column([getattr(end, one.name) for end in ends]) for one in fields(MessageEnd)
        }
    return reading


def _column(values: list[Any]) -> Any:
    if not values or not isinstance(values[0], str):
        return np.array(values, np.int64)
    words = sorted(set(values))
    return Words(np.array([words.index(value) for value in values], np.int32), words)


# Three stages and two micro-batches, all forward and then all back; each message is under way for 1 ms.
PIPELINE = [
    *(Message(0, 1, *times) for times in ((10, 0, 11), (20, 13, 21))),
    *(Message(1, 2, *times) for times in ((20, 0, 21), (30, 23, 31))),
    *(Message(2, 1, *times) for times in ((51, 40, 52), (61, 55, 62))),
    *(Message(1, 0, *times) for times in ((62, 50, 63), (72, 68, 73))),
]


def test_a_pipeline_is_told_by_who_passes_on() -> None:
    run = made(3, PIPELINE)
    [pipeline] = pipelines_of(run)
    assert (pipeline.ranks, pipeline.micro_batches, pipeline.chunks) == ((0, 1, 2), 2, 1)
    assert [row[1] for row in parallelism(run).rows] == ["(pp 0)", "(pp 1)", "(pp 2)"]


def test_parts_of_the_bubble_add_up() -> None:
    """Worked out by hand: the first stage waits 12 ms for its first gradient, and 4 ms for the second after that."""
    table = bubbles(made(3, PIPELINE))
    rows = [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
    for row in rows:
        parts = ("compute_ns", "collective_ns", "warmup_ns", "drain_ns", "transfer_ns", "imbalance_ns")
        assert sum(row[name] for name in parts) == pytest.approx(row["window_ns"]) == pytest.approx(STEP_NS)
    expected = [(12, 4, 2, 0), (10 + 7 + 11, 6, 4, 0), (20 + 7, 0, 2, 0)]  # the last stage never waits for gradients
    for row, times in zip(rows, expected, strict=True):
        found = [row[f"{name}_ns"] / MS for name in ("warmup", "drain", "transfer", "imbalance")]
        assert found == pytest.approx(times, abs=0.01)


def test_more_micro_batches_halve_the_time_to_fill_and_drain() -> None:
    [finding] = pipeline_bubble(made(3, PIPELINE))
    assert finding.saved_ns == pytest.approx((16 + 34 + 27) / 3 / 2 * MS * (STEPS - 2), rel=1e-3)
    assert "4 micro-batches of half the size" in finding.action


def test_neighbours_that_exchange_edges_are_no_pipeline() -> None:
    both = [(0, 1), (1, 0), (1, 2), (2, 1)]
    run = made(3, [Message(one, other, 10, 10, 12) for one, other in both])
    assert not pipelines_of(run) and bubbles_of(run) is None
    assert {row[1] for row in parallelism(run).rows} == {UNKNOWN}


def test_two_ranks_that_exchange_one_message_are_no_pipeline() -> None:
    """Rank 1 answers at once what rank 0 sends: a pipeline of one micro-batch would look the same."""
    run = made(2, [Message(0, 1, 10, 0, 11), Message(1, 0, 11, 10, 12)])
    assert not pipelines_of(run) and {row[1] for row in parallelism(run).rows} == {UNKNOWN}


@pytest.mark.parametrize(("answers_after_ms", "is_pipeline"), [(0.1, False), (4.0, True)])
def test_two_ranks_that_take_turns_in_exchanging_are_no_pipeline(answers_after_ms: float, is_pipeline: bool) -> None:
    """Both compute for 20 ms, then rank 0 sends and receives, and rank 1 receives and sends, three times in a step."""
    messages = []
    for at in (20, 50, 80):
        back = at + 1 + answers_after_ms
        messages += [Message(0, 1, at, at - 5, at + 1), Message(1, 0, back, at + 1, back + 1)]
    run = made(2, messages)
    assert bool(pipelines_of(run)) == is_pipeline


def test_a_ring_in_one_direction_is_context_parallel() -> None:
    run = made(
        3, [Message(one, (one + 1) % 3, 10 + 5 * n, 10 + 5 * n, 12 + 5 * n) for one in range(3) for n in range(2)]
    )
    assert [row[1] for row in parallelism(run).rows] == ["(cp 0)", "(cp 1)", "(cp 2)"]


def test_collectives_tell_tensor_data_and_expert_parallel_groups() -> None:
    tensor = [Call(group, "gloo:all_reduce", at) for group in ((0, 1), (2, 3)) for at in (5, 15, 40, 60)]
    data = [Call(group, "gloo:all_reduce", 80) for group in ((0, 2), (1, 3))]
    run = made(4, calls=[*tensor, *data, Call((0, 1, 2, 3), "gloo:all_reduce", 95, size=4)])
    assert [row[1] for row in parallelism(run).rows] == ["(dp 0, tp 0)", "(dp 0, tp 1)", "(dp 1, tp 0)", "(dp 1, tp 1)"]
    assert "up to 1 MiB" in parallelism(run).rows[0][-1]
    run = made(2, calls=[Call((0, 1), "gloo:all_to_all", at) for at in (10, 20)])
    assert parallelism(run).rows[1][1] == "(ep 1)"


def test_gradients_of_a_long_backward_pass_are_no_activations() -> None:
    """Reduced after a fifth of the step: early, but not before backward begins."""
    calls = [Call((0, 1), "all_reduce", at_ms) for at_ms in (20, 60)]
    assert [one.kind for one in parallelism_of(made(2, calls=calls, backward_ms=85)).groups] == ["dp"]
    assert [one.kind for one in parallelism_of(made(2, calls=calls, backward_ms=50)).groups] == ["tp"]


def test_nothing_that_repeats_is_unknown() -> None:
    run = made(2)
    assert not parallelism(run).rows and parallelism(run).notes[0].startswith("Unknown")


def test_groups_that_are_given_stand_for_inferred_ones() -> None:
    run = made(3, PIPELINE)
    run.parallel_groups = "pp=2,1,0;dp=0-2"
    assert [row[1] for row in parallelism(run).rows] == ["(dp 0, pp 2)", "(dp 1, pp 1)", "(dp 2, pp 0)"]
    for wrong in ("pp=0,0", "xp=0,1", "pp=0,1;dp"):
        with pytest.raises(Wrong, match="--groups"):
            given_groups(wrong)
    other = made(3, PIPELINE)
    other.parallel_groups = "pp=0,7"
    with pytest.raises(Wrong, match="no rank 7"):
        parallelism_of(other)


def test_a_table_of_operations_carries_it(tmp_path: Path) -> None:
    write(tmp_path / "operations.parquet", Job("1f1b", stages=2, data=2, steps=3))
    rows = parallelism(run_of(read(Source(tmp_path / "operations.parquet")))).rows
    assert sorted((row[2], row[3]) for row in rows) == [(0, 0), (0, 1), (1, 0), (1, 1)]
