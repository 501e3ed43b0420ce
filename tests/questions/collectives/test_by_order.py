"""Collectives of loaded traces without a sequence number: matched by group and order, or left out; either is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.questions.collectives.collectives import collectives, nccl
from rankscope.questions.collectives.matching import GUESSED, UNEVEN, match
from rankscope.questions.collectives.waiting import waiting
from rankscope.questions.run.coverage import coverage
from rankscope.store.run import RunTables
from runs.traced_job import COMMUNICATION, Job, loaded, simulated, to_kineto
from scripts.gpu_step_truth import Span


def two_ranks(tmp_path: Path, late: bool = False) -> tuple[Job, list[Path]]:
    """The same job twice; rank 1 enters every collective later, and both leave it together."""
    job = simulated(5)
    first = to_kineto(job, tmp_path / "0.json", 0)
    for one in job.launches:
        span = one.activity
        if span.kind == COMMUNICATION and late:
            one.activity = Span((span.start_ns + span.end_ns) // 2, span.end_ns, span.kind, span.launched_ns)
    return job, [first, to_kineto(job, tmp_path / "1.json", 1)]


def changed(path: Path, **members: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **members}))


def of_nccl(job: Job) -> int:
    return sum(one.activity.kind == COMMUNICATION for one in job.launches)


def run_of_two(tmp_path: Path, files: list[Path]) -> RunTables:
    return loaded(tmp_path / "run", *files)


def test_as_many_on_every_rank_are_matched_by_order(tmp_path: Path) -> None:
    job, files = two_ranks(tmp_path)
    run = run_of_two(tmp_path, files)
    log = match(run)
    assert log.collectives == log.by_order == of_nccl(job) > 20 and not +log.left_out
    table = collectives(run)
    assert [(row[0], row[1], row[4]) for row in table.rows] == [("ncclAllReduce", 2, of_nccl(job))]
    assert any("no sequence number" in note and "by group and order" in note for note in table.notes)
    counted = {row[0]: row[1] for row in coverage(run).rows}
    assert counted["records of collectives without a sequence number: matched by group and order"] == 2 * of_nccl(job)
    assert [row[:4] for row in nccl(run).rows] == [("ncclAllReduce", "RING LL", "NCCL", 2 * of_nccl(job))]


def test_one_more_on_a_rank_leaves_them_out_and_says_so(tmp_path: Path) -> None:
    job, files = two_ranks(tmp_path)
    events = json.loads(files[1].read_text())["traceEvents"]
    last = [one for one in events if one["name"].startswith("nccl")][-1]
    changed(files[1], traceEvents=[one for one in events if one is not last])
    run = run_of_two(tmp_path, files)
    log = match(run)
    assert log.collectives == 0 and log.left_out[UNEVEN] == of_nccl(job)
    assert any(UNEVEN in note for note in collectives(run).notes)


def test_several_groups_are_not_guessed(tmp_path: Path) -> None:
    _, files = two_ranks(tmp_path)
    groups = [{"pg_name": str(at), "pg_desc": "x", "pg_size": 2, "ranks": [0, 1]} for at in range(2)]
    for rank, file in enumerate(files):
        changed(file, distributedInfo={"rank": rank, "world_size": 2, "pg_config": groups})
    log = match(run_of_two(tmp_path, files))
    assert log.collectives == 0 and log.left_out[GUESSED] > 0


@pytest.mark.parametrize("members", [{"rank": 0, "world_size": 2}, {"rank": 0, "world_size": 2, "pg_config": []}])
def test_without_a_list_of_groups_all_ranks_are_one(tmp_path: Path, members: dict[str, object]) -> None:
    job, files = two_ranks(tmp_path)
    for rank, file in enumerate(files):
        changed(file, distributedInfo={**members, "rank": rank})
    assert match(run_of_two(tmp_path, files)).by_order == of_nccl(job)


def test_the_rank_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    job, files = two_ranks(tmp_path, late=True)
    expected_ns = sum(
        one.activity.end_ns - one.activity.start_ns for one in job.launches if one.name.startswith("nccl")
    )
    table = waiting(run_of_two(tmp_path, files))
    names = [column.name for column in table.columns]
    caused = {row[0]: row[names.index("caused_ns")] for row in table.rows}
    assert caused[0] == 0 and caused[1] == pytest.approx(expected_ns, rel=0.05)
