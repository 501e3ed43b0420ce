"""Steps of real programs without torch: found in the pattern of their collectives, and what they give away."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpis import ROOT, Mpi, find_mpi
from programs import jobs
from rankscope.questions.findings.communication import pickled_objects, tiny_collectives
from rankscope.questions.findings.startup import wrong_launcher
from rankscope.questions.steps.data import steps_of
from rankscope.questions.steps.phases import phase_ranks
from rankscope.questions.steps.steps import step_parts
from rankscope.questions.stragglers.causes import causes_of
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run

TRAIN = ROOT / "examples" / "train_mpi4py.py"
CASES = ROOT / "tests" / "questions" / "stragglers" / "train_mpi.py"
RANKS = 4
STEPS_AN_EPOCH = 24_576 // RANKS // 64


def recorded(mpi: Mpi, folder: Path, *argv: str | Path, ranks: int = RANKS, **settings: str) -> RunTables:
    job = jobs.run(mpi, ranks, folder / "run", mpi.python, *argv, **settings)
    assert job.code == 0, job.err
    return open_run(folder / "run", read_rank_file)


@pytest.mark.parametrize("epochs", [1, 3])
def test_every_step_is_found_and_its_parts_add_up(openmpi: Mpi, tmp_path: Path, epochs: int) -> None:
    run = recorded(openmpi, tmp_path, TRAIN, "--epochs", str(epochs))
    found = steps_of(run)
    assert found.source == "pattern"
    assert [len(one.number) for one in found.ranks] == [epochs * STEPS_AN_EPOCH] * RANKS
    table = step_parts(run)
    names = [column.name for column in table.columns]
    for row in table.rows:
        told = dict(zip(names, row, strict=True))
        assert told["compute_ns"] + told["exposed_ns"] == pytest.approx(told["step_ns"], rel=0.03)
        assert told["wait_ns"] + told["transfer_ns"] + told["leaving_ns"] == pytest.approx(told["exposed_ns"], rel=0.03)
        assert told["exposed_unmatched_ns"] < 0.03 * told["exposed_ns"]
        assert told["exposed_wait_ns"] == pytest.approx(told["wait_ns"], abs=0.03 * told["exposed_ns"])


def test_the_phases_of_a_real_run_add_up(openmpi: Mpi, tmp_path: Path) -> None:
    table = phase_ranks(recorded(openmpi, tmp_path, TRAIN, "--epochs", "1"))
    assert len(table.rows) == RANKS
    for row in table.rows:
        assert sum(int(str(cell or 0)) for cell in row[2:]) == row[1]


def test_the_slow_rank_is_named(openmpi: Mpi, tmp_path: Path) -> None:
    # far more than this machine's own noise may add, whatever else runs on it
    run = recorded(openmpi, tmp_path, TRAIN, "--epochs", "1", "--slow-rank", "2", "--slow-ms", "20")
    found = causes_of(run)
    assert found[0].late.rank == 2
    assert found[0].late.waited_ns > 10e6


@pytest.mark.parametrize(("ranks", "rank", "slot"), [(2, 1, 1), (4, 2, 2), (5, 0, 1)])
def test_rank_place_and_wait_of_an_injected_delay(
    openmpi: Mpi, tmp_path: Path, ranks: int, rank: int, slot: int
) -> None:
    case = {"CASE_RANK": str(rank), "CASE_SLOT": str(slot), "CASE_MS": "12"}
    for turn in range(3):  # a machine that takes the CPU away from the rank is told as such: then once more
        job = jobs.run(openmpi, ranks, tmp_path / f"run{turn}", openmpi.python, CASES, **case)
        assert job.code == 0, job.err
        held_ns = float(job.out.split()[2])
        run = open_run(tmp_path / f"run{turn}", read_rank_file)
        assert {len(one.number) for one in steps_of(run).ranks} <= {79, 80}  # nobody knows when the first began
        found = causes_of(run)[0]
        if found.name != "preemption":
            break
    assert (found.late.rank, found.name) == (rank, f"own compute before MPI_Allreduce {slot}")
    assert found.ns == pytest.approx(held_ns, rel=0.25)


@pytest.mark.parametrize("how", ["objects", "buffers"])
def test_pickled_objects_are_recognised(openmpi: Mpi, tmp_path: Path, how: str) -> None:
    found = pickled_objects(recorded(openmpi, tmp_path, jobs.PROGRAMS / "pickles.py", how, ranks=2))
    assert [one.rule for one in found] == (["pickled_objects"] if how == "objects" else [])


@pytest.mark.parametrize("how", ["unfused", "fused"])
def test_unfused_gradients_are_recognised(openmpi: Mpi, tmp_path: Path, how: str) -> None:
    program = jobs.PROGRAMS / "tiny_collectives.py"
    run = recorded(openmpi, tmp_path, program, how, ranks=2, RANKSCOPE_LOG_RECORDS="16384")  # all 4,800 of them
    assert {len(one.number) for one in steps_of(run).ranks} <= {39, 40}
    found = tiny_collectives(run)
    assert [one.rule for one in found] == (["tiny_collectives"] if how == "unfused" else [])
    assert all(one.title.startswith("4800 collectives of at most 4 KiB") for one in found)


def test_the_mpirun_of_another_mpi_is_told(openmpi: Mpi, mpich: Mpi, tmp_path: Path) -> None:
    job = jobs.run(mpich, 2, tmp_path / "run", openmpi.python, "-c", "from mpi4py import MPI")
    assert job.code == 0, job.err
    (found,) = wrong_launcher(open_run(tmp_path / "run", read_rank_file))
    assert "2 processes run as 2 jobs" in found.title
    assert find_mpi("openmpi").name in found.action.lower().replace(" ", "")
