"""The agent in the program's Python: there when wanted, out of the way otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT, find_mpi
from programs import recorded

TORCH = ROOT / ".envs" / "torch" / "bin" / "python"


def recorded_python(
    rankscope: str, folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH" and not key.startswith("RANKSCOPE_")}
    command = [rankscope, "run", "--out", str(folder / "run"), *arguments]
    return subprocess.run(
        command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True, timeout=100, check=False
    )


def test_the_search_path_is_the_programs_own(rankscope: str, tmp_path: Path) -> None:
    code = (
        "import sys; print(sys.path, 'sitecustomize' in sys.modules, sorted(m for m in sys.modules if 'ctypes' in m))"
    )
    plain = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    environment = {key: value for key, value in os.environ.items() if key == "PYTHONPATH"}
    under = recorded_python(rankscope, tmp_path, sys.executable, "-c", code, **environment)
    assert (under.returncode, under.stdout, under.stderr) == (0, plain.stdout, plain.stderr)


def test_a_sitecustomize_of_ones_own_still_runs(rankscope: str, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("HERE = 'mine'\n")
    code = "import sitecustomize; print(sitecustomize.HERE)"
    done = recorded_python(rankscope, tmp_path, sys.executable, "-c", code, PYTHONPATH=str(tmp_path / "mine"))
    assert (done.returncode, done.stdout) == (0, "mine\n")


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_python_that_is_told_to_look_nowhere_has_no_agent(rankscope: str, tmp_path: Path, flag: str) -> None:
    code = "import sys; print([type(finder).__name__ for finder in sys.meta_path].count('Waiting'))"
    assert recorded_python(rankscope, tmp_path, sys.executable, flag, "-c", code).stdout == "0\n"
    assert recorded_python(rankscope, tmp_path, sys.executable, "-c", code).stdout == "1\n"


def test_torch_is_as_it_would_be(rankscope: str, tmp_path: Path) -> None:
    if not TORCH.exists():
        pytest.skip(".envs/torch is missing: make envs")
    code = "import torch; print(torch.__spec__.loader.__class__, vars(torch.__spec__.loader), torch.__loader__)"
    printed = [
        done.stdout.split(" object at ")[0]
        for done in (
            recorded_python(rankscope, tmp_path, str(TORCH), "-c", code, RANKSCOPE_TORCH="0"),
            recorded_python(rankscope, tmp_path, str(TORCH), "-c", code, RANKSCOPE_TORCH="python"),
        )
    ]
    assert printed[0] == printed[1] != ""


def test_an_import_that_fails_fails_as_without_us(rankscope: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise RuntimeError('broken torch')\n")
    code = "import sys; sys.path.insert(0, '')\ntry:\n import torch\nexcept RuntimeError as e: print(e)"
    done = recorded_python(rankscope, tmp_path, sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (0, "broken torch\n")
    done = recorded_python(rankscope, tmp_path, sys.executable, "-I", "-c", "import no_such_module_at_all")
    assert "ModuleNotFoundError" in done.stderr


MPI_STEPS = """\
import sys, time
sys.path.insert(0, sys.argv[1])
import rankscope
from mpi4py import MPI
import numpy
world = MPI.COMM_WORLD
values, sums = numpy.ones(1000), numpy.zeros(1000)
for step in range(6):
    with rankscope.range("forward"):
        time.sleep(0.03 if world.rank else 0.01)
    world.Allreduce(values, sums)
    rankscope.step()
"""


def test_mpi_calls_are_the_communication_of_a_told_step(rankscope: str, tmp_path: Path) -> None:
    mpi = find_mpi("openmpi")
    package = str(Path(rankscope).parents[1])
    job = mpi.command(2, rankscope, "run", "--out", tmp_path / "run", mpi.python, "-c", MPI_STEPS, package)
    done = subprocess.run(job, env=mpi.environment, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = {one.facts.rank: one for one in map(recorded.read, recorded.rank_files(tmp_path / "run"))}
    waits, works = found[0].step_columns, found[1].step_columns
    assert waits["number"].tolist() == works["number"].tolist() == [1, 2, 3, 4, 5, 6]
    assert (waits["communication_ns"][1:] > 12e6).all()  # rank 0 waits for rank 1, which sleeps 20 ms longer
    assert (waits["blocked_communication_ns"] == waits["communication_ns"]).all()
    assert (works["forward_ns"] >= 30e6).all()
    names = {mark.name for mark in found[0].marks}
    assert {"init_begin", "init_end", "first_collective_begin", "first_collective_end", "finalize"} <= names


SHORT_STEPS = """\
import sys, time
sys.path.insert(0, sys.argv[1])
import rankscope
rankscope.step()
begun = time.thread_time_ns()
for step in range(3000):
    since = time.thread_time_ns()
    while time.thread_time_ns() - since < 100_000:
        pass
    rankscope.step()
print(time.thread_time_ns() - begun)
"""


def test_short_steps_share_what_the_system_says_of_them_together(rankscope: str, tmp_path: Path) -> None:
    package = str(Path(rankscope).parents[1])
    done = recorded_python(rankscope, tmp_path, sys.executable, "-c", SHORT_STEPS, package)
    assert done.returncode == 0, done.stderr
    (found,) = map(recorded.read, recorded.rank_files(tmp_path / "run"))
    steps = found.step_columns
    cpu_ns, step_ns = steps["cpu_ns"], steps["end_ns"] - steps["begin_ns"]
    assert len(cpu_ns) >= 3000
    assert 0.9 < cpu_ns.sum() / int(done.stdout) < 1.01  # all but the last few have their part
    assert (cpu_ns[1:2000] > 0).all() and (cpu_ns < 1.01 * step_ns + 1000).all()
