"""Steps of a large run, recorded or found in its collectives, are those of a small one; their values stay on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from questions.steps.test_step_patterns import Call
from rankscope.api.run import Run
from rankscope.questions.steps.arrays import Stored
from rankscope.questions.steps.data import Steps, steps_of
from rankscope.questions.steps.inferred import EXTRAS, whole_steps
from rankscope.rank_file import COLLECTIVE
from rankscope.rank_file_writer import RankFileWriter
from runs.many_ranks import LAW, age, aged_run, assert_same, make_large, rank_files, tables
from runs.small_run import MILLI, SECOND, mpi_rank, write_run

ASKED = (
    *("steps", "step_parts", "causes", "phases", "phase_ranks", "waiting_parts", "wait_map", "wait_matrix"),
    *("findings", "outliers", "waiting"),
)
PATTERN = replace(LAW, ranks=8, collectives=600, straggler_ns=300_000, imbalance_ns=50_000)
LAWS = {
    "pattern": PATTERN,
    "pattern and losses": replace(PATTERN, killed=(2,), log_capacity=500),
    "recorded": replace(PATTERN, steps=60),
    "recorded and losses": replace(PATTERN, steps=60, killed=(2,), log_capacity=500),
}


def make_large_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also steps are kept on disk, and looked at a few at a time."""
    make_large(monkeypatch)
    monkeypatch.setattr("rankscope.store.large_runs.MOST_ROWS", 100)
    monkeypatch.setattr("rankscope.questions.stragglers.lateness.MOST_CELLS", 10)
    monkeypatch.setattr("rankscope.questions.steps.steps.CELLS", 100)
    monkeypatch.setattr("rankscope.questions.steps.waits.CELLS", 100)
    monkeypatch.setattr("rankscope.questions.steps.waits.MANY", 2)


def steps_as_read(folder: Path) -> Steps:
    run = Run(folder, keep=False)
    return steps_of(run.store(events=True))


@pytest.mark.parametrize("name", LAWS)
def test_the_tables_are_those_of_a_small_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = aged_run(tmp_path / "run", LAWS[name])
    small = tables(Run(folder), ASKED)
    assert small["steps"].rows and small["step_parts"].rows
    make_large_steps(monkeypatch)
    assert_same(tables(Run(folder, keep=False), ASKED), small)
    found = steps_as_read(folder)
    assert found.source == name.partition(" ")[0]
    assert all(isinstance(one.values, Stored) for one in found.ranks)


@pytest.mark.parametrize("name", ["pattern and losses", "recorded and losses"])
def test_what_a_database_holds_too_much_of_is_asked_for_rank_by_rank(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = aged_run(tmp_path / "run", LAWS[name])
    small = tables(Run(folder), ASKED)
    monkeypatch.setattr("rankscope.questions.steps.inferred.MOST_RECORDS", 100)
    monkeypatch.setattr("rankscope.questions.steps.data.MOST_STEPS", 100)
    assert_same(tables(Run(folder), ASKED), small, exact=True)
    assert all(isinstance(one.values, Stored) for one in steps_as_read(folder).ranks)


HALVES = {0: "even", 1: "odd"}
STEP: list[Call] = [("MPI_Allreduce", 1 << 20, 5.0), ("MPI_Allreduce", 1 << 16, 1.0), ("MPI_Allreduce", 8, 0.2)]


def ranks_of_halves(shared: bool, repeats: int = 40) -> list[RankFileWriter]:
    """Eight ranks: each step's collectives are on a communicator of all, or of half of them; one rank is late."""
    made = []
    random = np.random.default_rng(5)
    for rank in range(8):
        one = mpi_rank(rank, 8, host=b"node%d" % (rank // 3))
        half = rank % 2
        name, members = ("MPI_COMM_WORLD", [*range(8)]) if shared else (HALVES[half], [*range(half, 8, 2)])
        identity = 1 if shared else 1 + half
        group = one.group(name, identity=identity, size=len(members), my_rank=members.index(rank))
        rows = np.zeros(len(STEP) * repeats + rank % 3, COLLECTIVE)  # some have a few more at the end
        now = SECOND
        for at, row in enumerate(rows):
            call, size, work_ms = STEP[at % len(STEP)]
            enter = now + int(
                (work_ms + (4 if rank == 5 and size == 1 << 20 else 0)) * random.uniform(0.9, 1.1) * MILLI
            )
            now += int((work_ms + 6) * MILLI)
            row["name"], row["bytes"], row["group"], row["sequence"] = one.string(call), size, group, at + 1
            row["enter_ticks"], row["end_ticks"], row["root"], row["phase"] = enter, now, -1, 5
        one.collectives(rows)
        made.append(one)
    return made


@pytest.mark.parametrize("shared", [True, False])
def test_groups_of_ranks_have_patterns_of_their_own(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", *ranks_of_halves(shared), expected_ranks=8)
    for path in rank_files(folder):
        age(path)
    expected = steps_as_read(folder)
    assert [len(one.number) for one in expected.ranks] == [39 + (rank % 3 == 2) for rank in range(8)]
    small = tables(Run(folder), ASKED)
    make_large_steps(monkeypatch)
    assert_same(tables(Run(folder, keep=False), ASKED), small)
    for one, told in zip(steps_as_read(folder).ranks, expected.ranks, strict=True):
        assert (one.rank, one.host, one.slots) == (told.rank, told.host, told.slots)
        assert one.number.tolist() == told.number.tolist()
        assert one.values.keys() == told.values.keys()
        for name, values in one.values.items():
            assert values.tolist() == told.values[name].tolist()


def test_one_rank_without_the_pattern_is_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = ranks_of_halves(shared=True)[:-1]
    odd = mpi_rank(7, 8)
    group = odd.group("MPI_COMM_WORLD", identity=1, size=8, my_rank=7)
    rows = np.zeros(120, COLLECTIVE)
    rows["name"], rows["group"], rows["sequence"] = odd.string("MPI_Bcast"), group, np.arange(1, 121)
    rows["bytes"] = np.random.default_rng(1).integers(100, 10**6, 120)
    rows["enter_ticks"] = SECOND + np.arange(120) * MILLI
    rows["end_ticks"] = rows["enter_ticks"] + MILLI // 2
    odd.collectives(rows)
    folder = write_run(tmp_path / "run", *ranks, odd, expected_ranks=8)
    assert steps_as_read(folder).ranks == []
    make_large_steps(monkeypatch)
    assert steps_as_read(folder).ranks == []


def naive_steps(tokens: list[int], pattern: list[int]) -> list[list[int]]:
    """From every place on: the first place of each token of the pattern, not too many others skipped."""
    found: list[list[int]] = []
    at = 0
    while at < len(tokens):
        places = [at] if tokens[at] == pattern[0] else []
        for wanted in pattern[1:] if places else ():
            later = next((place for place in range(places[-1] + 1, len(tokens)) if tokens[place] == wanted), None)
            if later is None or later - at - len(places) > EXTRAS:
                places = []
                break
            places.append(later)
        found += [places] if places else []
        at = places[-1] + 1 if places else at + 1
    return found


@pytest.mark.parametrize("period", [1, 2, 3, 7])
def test_steps_are_cut_as_by_going_through_the_log(period: int) -> None:
    random = np.random.default_rng(period)
    for _ in range(50):
        pattern = random.integers(0, 4, period).tolist()
        tokens = np.tile(pattern, 30)
        wrong = random.random(len(tokens)) < random.choice([0.0, 0.05, 0.3])
        tokens = np.where(wrong, random.integers(0, 5, len(tokens)), tokens)
        tokens = np.insert(tokens, random.integers(0, len(tokens), 9), 9)[: random.integers(1, len(tokens) + 1)]
        assert whole_steps(tokens, tuple(pattern)).tolist() == naive_steps(tokens.tolist(), pattern)
