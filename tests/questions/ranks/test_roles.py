"""Workers that call each other: what each role did with its time, and whom it waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rankscope.questions.ranks.roles import kind_of, role_of, role_waits, roles
from rankscope.rank_file import GroupKind, LayerNumber, MarkKind, Part
from rankscope.rank_file_writer import RankFileWriter
from runs.small_run import SECOND, process
from runs.step_runs import opened, steps

MS = SECOND // 1000


def worker(rank: int, name: str, served: dict[str, int], waits: dict[tuple[str, str], int]) -> RankFileWriter:
    """A worker of 10 s that is initialised after one; seconds by function, and by function and worker."""
    made = process(rank=rank, world_size=3, pid=100 + rank)
    made.marks((MarkKind.INIT_BEGIN, MS, "init_rpc"), (MarkKind.INIT_END, SECOND, "init_rpc"))
    own = made.group(name, kind=GroupKind.SERVED)
    for function, seconds in served.items():
        made.tally(function, 10, seconds * SECOND, layer=LayerNumber.TORCH, group=own)
    peers: dict[str, int] = {}
    for (function, peer), seconds in waits.items():
        peers[peer] = peers.get(peer) or made.group(peer, kind=GroupKind.WORKER)
        made.tally(function, 5, seconds * SECOND, layer=LayerNumber.TORCH, group=peers[peer])
    return made


def three_workers(folder: Path) -> Any:
    trainer = worker(0, "trainer", {}, {("Rollout.generate", "rollout0"): 4, ("Rollout.generate", "rollout1"): 1})
    trainer.steps(steps([{Part.FORWARD: 500.0, Part.DATA: 100.0}] * 5))
    rollouts = [worker(1 + n, f"rollout{n}", {"Rollout.generate": 6, "set_weights": 2}, {}) for n in range(2)]
    return opened(folder, trainer, *rollouts)


def test_time_by_role(tmp_path: Path) -> None:
    table = roles(three_workers(tmp_path))
    names = [column.name for column in table.columns]
    found = {str(row[0]): dict(zip(names, row, strict=True)) for row in table.rows}
    assert {role: row["processes"] for role, row in found.items()} == {"trainer": 1, "rollout": 2}
    trainer, rollout = found["trainer"], found["rollout"]
    seconds = {key: value / 1e9 for key, value in rollout.items() if key.endswith("_ns") and value}
    assert seconds == pytest.approx(
        {"elapsed_ns": 10, "startup_ns": 1, "generate_ns": 6, "sync_ns": 2, "idle_ns": 1}, rel=1e-6
    )
    assert trainer["train_ns"] == pytest.approx(2.5e9) and trainer["data_ns"] == pytest.approx(0.5e9)
    assert (trainer["waits_for"], trainer["wait_ns"]) == ("rollout", pytest.approx(5e9))
    assert trainer["idle_ns"] == pytest.approx(1e9)


def test_who_waits_for_whom(tmp_path: Path) -> None:
    rows = role_waits(three_workers(tmp_path)).rows
    assert rows == [("trainer", "rollout", "Rollout.generate", 10, 5e9, 0.5, 5e8, pytest.approx(8e8))]


def test_a_job_without_workers_has_no_roles(tmp_path: Path) -> None:
    run = opened(tmp_path, process(rank=0, world_size=1))
    assert not roles(run).rows and not role_waits(run).rows


def test_names() -> None:
    assert [role_of(name, "", 0) for name in ("trainer0", "worker_12", "ps", "7")] == ["trainer", "worker", "ps", "7"]
    kinds = {"Policy.generate_sequences": "generate", "get_weights": "sync", "load_batch": "data", "fit": "train"}
    assert {name: kind_of(name) for name in kinds} == kinds and kind_of("ping") == "other"
