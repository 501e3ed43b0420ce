"""Real collectives with one late rank: who is waited for, how long, and the same with clocks that disagree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpis import Mpi
from programs import jobs
from programs.other_clocks import OtherClock, with_clocks
from rankscope.questions.collectives.wait_and_transfer import Collectives, collectives_of
from rankscope.questions.collectives.waiting import sums, waiting
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

RANKS, LATE_RANK, LATE_MS, STEPS = 4, 2, 8.0, 120
MILLI, MICRO, SECOND = 1_000_000, 1_000, 1_000_000_000


@pytest.fixture(scope="module")
def recorded(mpi: Mpi, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job in which rank 2 comes late to every all-reduce."""
    return job(mpi, tmp_path_factory.mktemp(mpi.name), "Allreduce")


def job(mpi: Mpi, folder: Path, *names: str, late_ms: float = LATE_MS) -> Path:
    arguments = (str(folder), str(STEPS // len(names)), str(LATE_RANK), str(late_ms), *names)
    done = jobs.run(mpi, RANKS, folder / "run", mpi.python, jobs.PROGRAMS / "late_rank.py", *arguments)
    assert done.code == 0, done.err
    return folder


def told(folder: Path) -> tuple[Any, Any]:
    """Waiting and stay of each rank in ns, by the program's own notes."""
    calls = np.stack([np.load(folder / f"calls-{rank}.npy") for rank in range(RANKS)], axis=1)
    enter, end = calls[:, :, 0], calls[:, :, 1]
    return np.clip(enter.max(axis=1, keepdims=True) - enter, 0, end - enter), end - enter


def analysed(folder: Path) -> Collectives:
    return collectives_of(open_run(folder, read_rank_file))


def test_the_late_rank_is_named_with_the_wait_it_causes(recorded: Path) -> None:
    run = open_run(recorded / "run", read_rank_file)
    table = waiting(run)
    assert table.rows[0][0] == LATE_RANK and table.rows[0][-1] == "straggler"
    assert "The others wait for rank 2" in table.notes[0]
    found = collectives_of(run).splits[0]
    assert not sum(collectives_of(run).log.left_out.values())
    wait_ns, stay_ns = told(recorded)
    others = [rank for rank in range(RANKS) if rank != LATE_RANK]
    # the barrier before the first step is in the log and not in the program's notes
    assert len(found.last) == STEPS + 1
    measured = found.wait_ns[1:]
    assert measured[:, others].sum(axis=0) == pytest.approx(wait_ns[:, others].sum(axis=0), rel=0.1)
    assert found.stay_ns[1:].sum() == pytest.approx(stay_ns.sum(), rel=0.1)
    # who comes last waits for nobody: data move as long as the shortest stay, which the program saw a little longer
    shortest_ns = stay_ns.min(axis=1, keepdims=True)
    assert (found.transfer_ns[1:] <= shortest_ns).all() and np.median(shortest_ns - found.transfer_ns[1:]) < MILLI
    # the delay is at least what was slept; ranks sleep 2 to 4 ms each besides
    assert np.median(measured[:, others]) == pytest.approx(np.median(wait_ns[:, others]), rel=0.1)
    assert 5 * MILLI < np.median(measured[:, others]) < 15 * MILLI


def shifts(seed: int) -> dict[int, OtherClock]:
    """Some ranks on other hosts, ±2 s and ±50 ppm apart; rank 0 stays where it is."""
    random = np.random.default_rng(seed)
    hosts = int(random.integers(1, 4))
    clocks = [
        OtherClock(f"other{host}", int(random.uniform(-2, 2) * SECOND), float(random.uniform(-50e-6, 50e-6)))
        for host in range(hosts)
    ]
    chosen = {rank: clocks[int(random.integers(0, hosts))] for rank in (1, 2, 3) if random.random() < 0.7}
    return chosen or {LATE_RANK: clocks[0]}


@pytest.mark.slow
def test_other_clocks_change_the_answer_by_less_than_they_say(recorded: Path, tmp_path: Path) -> None:
    plain = analysed(recorded / "run")
    expected = sums(plain)
    good = []
    for seed in range(25):
        clocks = shifts(seed)
        copy = with_clocks(recorded / "run", tmp_path / str(seed), clocks)
        shifted = analysed(copy)
        assert shifted.log.collectives == plain.log.collectives
        good += [away < 50 * MICRO or away <= error for away, error in residuals(plain, shifted)]
        found = sums(shifted)
        assert int(np.argmax(found.caused_ns)) == LATE_RANK
        assert found.wait_ns.sum() == pytest.approx(expected.wait_ns.sum(), rel=0.1)
        assert found.transfer_ns.sum() == pytest.approx(expected.transfer_ns.sum(), rel=0.1)
        table = waiting(open_run(copy, read_rank_file))
        assert table.rows[0][0] == LATE_RANK and table.rows[0][-1] in ("straggler", "inconclusive")
    assert sum(good) >= 0.99 * len(good)


def residuals(plain: Collectives, shifted: Collectives) -> list[tuple[float, float]]:
    """How far each corrected rank is from where it was before its clock was changed, and how far it may be."""
    before, after = plain.splits[0], shifted.splits[0]
    moved = after.enter_ns - before.enter_ns + (shifted.log.base_ns - plain.log.base_ns)
    _, _, error = shifted.clocks.corrected(after.group)
    away = np.abs(moved - moved[:, :1])
    elsewhere = [rank for rank in range(RANKS) if shifted.clocks.of_rank[rank] != shifted.clocks.of_rank[0]]
    return [(float(away[:, rank].max()), float(error[int(np.argmax(away[:, rank])), rank])) for rank in elsewhere]


def test_operations_with_a_root(openmpi: Mpi, tmp_path: Path) -> None:
    """The root of the broadcasts is late, and so all wait for it; in a reduction only the root waits."""
    job(openmpi, tmp_path, "Bcast", "Reduce", "Barrier")
    known = analysed(tmp_path / "run")
    found, names = known.splits[0], known.log
    kind = [names.operations[code] for code in known.log.groups[0].operation]
    bcast, reduce = (np.array([one == name for one in kind]) for name in ("bcast", "reduce"))
    others = [rank for rank in range(RANKS) if rank != LATE_RANK]
    assert np.median(found.wait_ns[bcast][:, others]) > 5 * MILLI and found.wait_ns[bcast][:, LATE_RANK].max() == 0
    assert np.median(found.wait_ns[reduce][:, 0]) > 5 * MILLI and found.wait_ns[reduce][:, 1:].max() == 0
    assert set(found.last[bcast].tolist()) <= {LATE_RANK, -1}
    assert int(np.argmax(sums(known).caused_ns)) == LATE_RANK
    copy = with_clocks(tmp_path / "run", tmp_path / "copy", {LATE_RANK: OtherClock("other", -SECOND, 3e-5)})
    assert all(away < 50 * MICRO or away <= error for away, error in residuals(known, analysed(copy)))


def test_nonblocking_operations_wait_in_progress(mpich: Mpi, tmp_path: Path) -> None:
    """From start to completion they wait as the blocking ones do, and none of it is called a blocked call."""
    job(mpich, tmp_path, "Iallreduce")
    known = analysed(tmp_path / "run")
    found, (wait_ns, _) = sums(known), told(tmp_path)
    others = [rank for rank in range(RANKS) if rank != LATE_RANK]
    assert found.progress_wait_ns[others] == pytest.approx(wait_ns[:, others].sum(axis=0), rel=0.1)
    assert found.wait_ns.max() <= known.splits[0].wait_ns[0].max()  # that of the barrier at the start
    assert int(np.argmax(found.caused_ns)) == LATE_RANK


def test_without_a_late_rank_only_one_that_the_program_saw_late_is_named(mpi: Mpi, tmp_path: Path) -> None:
    """Nobody is made late, but a busy machine may starve a rank: then its own notes must show it."""
    job(mpi, tmp_path, "Allreduce", late_ms=0)
    table = waiting(open_run(tmp_path / "run", read_rank_file))
    named = [row[0] for row in table.rows if row[-1] == "straggler"]
    calls = np.stack([np.load(tmp_path / f"calls-{rank}.npy") for rank in range(RANKS)], axis=1)
    last = calls[:, :, 0].argmax(axis=1)
    caused = np.bincount(last, told(tmp_path)[0].sum(axis=1), RANKS)
    share = caused / caused.sum()
    assert named in ([], [int(np.argmax(caused))]) and (not named or share.max() > 0.4)
    if share.max() < 0.4:
        assert any("No rank stands out" in note for note in table.notes)
