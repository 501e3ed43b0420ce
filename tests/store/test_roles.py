"""Which process is the rank where wrappers, workers and restarts leave a choice."""

from __future__ import annotations

from typing import Any

from rankscope.model.records import RankFacts
from rankscope.store.roles import assign_roles


def process(pid: int, parent: int, rank: int | None = None, **more: Any) -> RankFacts:
    facts: dict[str, Any] = {"ending": "exited", "exit_code": 0, "started_ns": pid, "ended_ns": pid + 5}
    return RankFacts("h", pid, parent, rank, **{**facts, **more})


def roles(*processes: RankFacts) -> list[tuple[str, int | None]]:
    assign_roles(processes)
    return [(str(facts.role), facts.rank) for facts in processes]


def test_the_process_that_trains_is_rank_0_whatever_wraps_it() -> None:
    shell, launcher = process(10, 1), process(11, 10, phase="imports")
    trainer, worker = process(12, 11, phase="steady", ended_steps=90), process(13, 12, phase="imports")
    assert roles(shell, launcher, trainer, worker) == [
        ("launcher", None), ("launcher", None), ("rank", 0), ("helper", None),
    ]  # fmt: skip
    assert (trainer.world_size, trainer.rank_source) == (1, "none")


def test_a_wrapper_that_has_the_ranks_variables_too() -> None:
    wrappers = [process(10 + rank, 1, rank) for rank in range(2)]
    trainers = [process(20 + rank, 10 + rank, rank, phase="steady", ended_steps=5) for rank in range(2)]
    assert roles(*wrappers, *trainers) == [("helper", 0), ("helper", 1), ("rank", 0), ("rank", 1)]


def test_backward_runs_are_more_than_an_import() -> None:
    launcher, trainer = process(10, 1, phase="imports"), process(11, 10, phase="first_step")
    assert roles(launcher, trainer) == [("launcher", None), ("rank", 0)]


def test_workers_that_train_side_by_side_are_ranks_by_their_start() -> None:
    driver = process(10, 1, phase="imports")
    actors = [process(20 + n, 15, command=f"python worker.py --id={n}", ended_steps=9, ended_ns=99) for n in range(3)]
    assert roles(driver, *reversed(actors)) == [("helper", None), ("rank", 2), ("rank", 1), ("rank", 0)]
    assert {facts.world_size for facts in actors} == {3}


def test_trainings_one_after_the_other_are_not_ranks_of_one_job() -> None:
    script = process(1, 0)
    first = process(10, 1, command="python train.py --lr 1", ended_steps=30)
    second = process(20, 1, command="python train.py --lr 2", ended_steps=20)
    assert roles(script, first, second) == [("launcher", None), ("rank", 0), ("helper", None)]


def test_a_scripts_loop_is_attempts_and_the_last_is_the_run() -> None:
    script = process(1, 0)
    failed = process(10, 1, command="python train.py", ended_steps=30, exit_code=1)
    again = process(20, 1, command="python train.py", ended_steps=20)
    assert roles(script, failed, again) == [("launcher", None), ("attempt", 0), ("rank", 0)]
    assert (failed.attempt, again.attempt) == (1, 2)


def elastic(attempt: int, rank: int, begin: int, **more: Any) -> RankFacts:
    return process(begin + rank, 1, rank, attempt=attempt, world_size=2, **more)


def test_torchrun_counts_its_attempts_and_the_last_is_the_run() -> None:
    agent = process(1, 0, ended_ns=100)
    first = [elastic(1, 0, 10, ending="signalled", end_signal=15, ended_steps=50), elastic(1, 1, 10, exit_code=1)]
    second = [elastic(2, 0, 20), elastic(2, 1, 20)]  # which failed before its first step
    assert roles(agent, *first, *second) == [
        ("launcher", None), ("attempt", 0), ("attempt", 1), ("rank", 0), ("rank", 1),
    ]  # fmt: skip


def test_a_smaller_last_attempt_has_no_rank_of_an_earlier_one() -> None:
    first = [elastic(1, rank, 10, exit_code=1) for rank in range(3)]
    second = [elastic(2, rank, 20, ended_steps=4) for rank in range(2)]
    assert [role for role, _ in roles(*first, *second)] == ["attempt"] * 3 + ["rank"] * 2


def test_children_go_with_their_attempt() -> None:
    first, child = elastic(1, 0, 10, exit_code=1, ended_steps=3), process(11, 10, 0, attempt=1, ended_steps=9)
    second = elastic(2, 0, 20)
    assert [role for role, _ in roles(first, child, second)] == ["attempt", "helper", "rank"]


def test_ranks_that_nobody_counts_come_again_after_a_failure_only() -> None:
    failed, again = process(10, 1, 0, exit_code=1), process(20, 1, 0)
    assert roles(failed, again) == [("attempt", 0), ("rank", 0)]
    done, other = process(10, 1, 0), process(20, 1, 0)
    assert roles(done, other) == [("rank", 0), ("helper", 0)]


def test_a_part_of_the_ranks_that_comes_again_is_no_attempt() -> None:
    done, failed, again = process(10, 1, 0), process(11, 1, 1, exit_code=1), process(20, 1, 1)
    assert roles(done, failed, again) == [("rank", 0), ("rank", 1), ("helper", 1)]


def test_a_rank_that_goes_on_while_another_is_started_anew() -> None:
    stays = process(10, 1, 0, ended_ns=99)
    failed, again = process(11, 1, 1, exit_code=1), process(20, 1, 1)
    assert roles(stays, failed, again) == [("rank", 0), ("attempt", 1), ("rank", 1)]


def test_workers_that_ray_stopped_have_not_failed() -> None:
    """Ray ends them with exit code 1 once its driver is through; where the driver fails, they are as they ended."""
    for code, ending in ((0, "stopped"), (1, "exited")):
        driver = process(10, 1, phase="imports", exit_code=code)
        raylet = process(11, 10, command="/env/ray/core/src/ray/raylet/raylet --port=0")
        command = "python /env/ray/_private/workers/default_worker.py --id="
        actors = [process(20 + n, 11, command=f"{command}{n}", ended_steps=9, ended_ns=99, exit_code=1) for n in (0, 1)]
        crashed = process(30, 11, command=command, ended_ns=99, exit_code=None, ending="signalled", end_signal=11)
        assert roles(driver, raylet, *actors, crashed)[2:] == [("rank", 0), ("rank", 1), ("helper", None)]
        assert [facts.ending for facts in (*actors, crashed)] == [ending, ending, "signalled"]
