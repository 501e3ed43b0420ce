"""Real programs with one problem each: the first finding names it, with the seconds that were put in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT, Mpi
from programs import jobs
from rankscope.questions.collectives.wait_and_transfer import collectives_of
from rankscope.questions.findings.finding import Finding
from rankscope.questions.findings.table import findings_of
from rankscope.questions.steps.data import steps_of
from rankscope.questions.steps.steps import step_parts
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run

PYTHON = ROOT / ".envs" / "torch" / "bin" / "python"
PROGRAMS = ROOT / "tests" / "programs"
LATE_S = 0.03  # as in one_problem.py


def trained(folder: Path, problem: str, ranks: int = 2, steps: int = 40, code: int = 0) -> RunTables:
    """A recorded training on Gloo."""
    if not PYTHON.exists():
        pytest.skip(".envs/torch is missing: run make envs")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    record = [sys.executable, "-m", "rankscope", "run", "--out", str(folder / "run")]
    launch = [str(PYTHON), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    program = [str(PROGRAMS / "one_problem.py"), problem, "--steps", str(steps)]
    done = subprocess.run([*record, *launch, *program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return open_run(folder / "run", read_rank_file)


def first(run: RunTables) -> Finding:
    return findings_of(run)[0]


def exposed_ms(run: RunTables) -> list[float]:
    """Exposed communication of a step, by rank."""
    table = step_parts(run)
    at = [column.name for column in table.columns].index("exposed_ns")
    return [float(str(row[at])) / 1e6 for row in table.rows]


def hidden_ms(run: RunTables) -> list[float]:
    found = steps_of(run)
    return [float(one.of_which["hidden"][found.steady(one)].mean()) / 1e6 for one in found.ranks]


@pytest.mark.parametrize(
    ("problem", "late", "operation"),
    [
        pytest.param("buffers", 0, "broadcast", marks=pytest.mark.slow),
        pytest.param("tensor_parallel", 1, "all_reduce", marks=pytest.mark.slow),
        pytest.param("fully_sharded", 1, "all_gather", marks=pytest.mark.slow),
        pytest.param("late_forward", 1, "all_reduce", marks=pytest.mark.slow),
    ],
)
@pytest.mark.timeout(300)
def test_a_late_rank_that_c_plus_plus_waits_for(tmp_path: Path, problem: str, late: int, operation: str) -> None:
    """Waits for buffers in forward and for functional collectives are exposed, matched and blamed on the late rank."""
    run = trained(tmp_path, problem)
    one = first(run)
    assert one.rule == "straggler" and one.title.startswith(f"Rank {late} ")
    assert 38 * LATE_S * 0.8 <= (one.saved_ns or 0) / 1e9 <= 38 * LATE_S * 3
    exposed, hidden = exposed_ms(run), hidden_ms(run)
    assert exposed[1 - late] - exposed[late] >= 20 and hidden[1 - late] <= 0.5 * exposed[1 - late]
    log = collectives_of(run).log
    matched = [log.names[code] for group in log.groups for code in group.name.tolist()]
    assert matched.count(operation) >= 38 and sum(log.left_out.values()) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hybrid_sharding_is_matched_on_its_groups(tmp_path: Path) -> None:
    """Four ranks, two groups for each: all-gathers over one, all-reduces over the other."""
    run = trained(tmp_path, "fully_sharded", ranks=4, steps=30)
    log = collectives_of(run).log
    assert sum(log.left_out.values()) == 0 and len({tuple(group.members.tolist()) for group in log.groups}) == 5
    assert first(run).title.startswith("Rank 1 ")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("problem", "rule", "words"),
    [
        ("loader", "data_bound", "All 2 ranks wait for the data loader"),
        ("garbage", "gc_bound", "Python collects garbage"),
        ("checkpoints", "checkpointing", "Checkpoints block the loop"),
        ("compiled", "recompiling", "torch compiles "),
        ("exposed", "exposed_communication", ""),
        ("stall", "stalled", "Step 21 takes 4"),
        ("uneven_batches", "straggler", "Rank 1 "),
    ],
)
def test_the_first_finding_is_the_problem(tmp_path: Path, problem: str, rule: str, words: str) -> None:
    one = first(trained(tmp_path, problem))
    assert (one.rule, one.title[: len(words)]) == (rule, words), one
    assert "preemption" not in one.title


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ranks_that_exit_with_an_error(tmp_path: Path) -> None:
    one = first(trained(tmp_path, "failing", ranks=4, steps=5, code=1))
    assert one.rule == "failed_ranks" and "exit 1" in one.title


def computed(mpi: Mpi, folder: Path, problem: str, *before: str, steps: int = 60) -> RunTables:
    """A recorded program of mpi4py on two ranks."""
    program = PROGRAMS / "one_problem_mpi.py"
    job = jobs.run(mpi, 2, folder / "run", *before, mpi.python, program, problem, "--steps", str(steps))
    assert job.code == 0, job.err
    return open_run(folder / "run", read_rank_file)


@pytest.mark.slow  # on busy processors "oversubscribed" comes first, and rightly
def test_the_wait_for_a_nonblocking_collective_is_communication(openmpi: Mpi, tmp_path: Path) -> None:
    run = computed(openmpi, tmp_path, "nonblocking")
    one = first(run)
    assert one.rule == "straggler" and one.title.startswith("Rank 1 ")
    assert (one.saved_ns or 0) / 1e9 >= 0.8 * 60 * 0.02
    assert exposed_ms(run)[0] >= 0.8 * 20


def test_a_stall_of_a_plain_program(openmpi: Mpi, tmp_path: Path) -> None:
    one = first(computed(openmpi, tmp_path, "stall"))
    assert one.rule == "stalled" and "rank 1" in one.title and (one.saved_ns or 0) / 1e9 >= 0.9 * 3


@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is missing")
def test_two_ranks_on_one_cpu(openmpi: Mpi, tmp_path: Path) -> None:
    """Each computes 4 ms a step on the CPU that the other wants, too."""
    cpu = str(min(os.sched_getaffinity(0)))
    run = computed(openmpi, tmp_path, "oversubscribed", "taskset", "-c", cpu, steps=200)
    found = [one for one in findings_of(run) if one.rule == "oversubscribed"]
    assert len(found) == 1 and "have 1" in found[0].title and (found[0].saved_ns or 0) / 1e9 >= 0.5 * 200 * 0.004
