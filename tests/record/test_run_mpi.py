"""`rankscope run` inside and outside the real launchers."""

import json
from collections import Counter
from pathlib import Path

import pytest

from installed import Mpi, Run, library_of

SHOW = ("sh", "-c", 'echo "$RANKSCOPE_DIR $LD_PRELOAD"')


def run_json(folder: str) -> dict[str, object]:
    return dict(json.loads((Path(folder) / "run.json").read_text()))


def words(output: bytes) -> list[list[str]]:
    return [line.split() for line in output.decode().splitlines()]


def test_inside(rankscope: str, mpi: Mpi, run: Run) -> None:
    done = run(*mpi.mpirun(4), rankscope, "run", *SHOW, env=mpi.environment)
    lines = words(done.stdout)
    assert done.returncode == 0 and len(lines) == 4 and len({folder for folder, _ in lines}) == 1, done
    assert {preload for _, preload in lines} == {str(library_of(Path(rankscope)))}
    about = run_json(lines[0][0])
    assert about["expected_ranks"] == 4
    assert about["launcher"] == {"impi": "intelmpi"}.get(mpi.name, mpi.name)
    assert b"rankscope" not in done.stderr


def test_outside(rankscope: str, mpi: Mpi, run: Run) -> None:
    done = run(rankscope, "run", *mpi.mpirun(2), *SHOW, ":", "-n", "1", *SHOW, env=mpi.environment)
    lines = words(done.stdout)
    assert done.returncode == 0 and len(lines) == 3 and len({folder for folder, _ in lines}) == 1, done
    about = run_json(lines[0][0])
    assert about["expected_ranks"] == 3
    assert about["launcher"] == ("openmpi" if mpi.name == "openmpi" else "hydra")


def test_outside_with_a_launcher_that_drops_the_environment(rankscope: str, mpi: Mpi, run: Run) -> None:
    """hydra's -genvnone passes nothing on but what -genv names."""
    if mpi.name == "openmpi":
        pytest.skip("Open MPI's local ranks always inherit")
    launcher = mpi.mpirun(2)
    keep = ["-genv", "PATH", mpi.environment["PATH"]]
    done = run(rankscope, "run", launcher[0], "-genvnone", *keep, *launcher[1:], *SHOW, env=mpi.environment)
    assert len(words(done.stdout)) == 2 and all(len(line) == 2 for line in words(done.stdout)), done


def test_outside_with_a_preload_of_the_user(rankscope: str, mpi: Mpi, run: Run, tmp_path: Path) -> None:
    from installed import compile_c

    compile_c("int other;", tmp_path / "other.so", "-shared", "-fPIC")
    other = str(tmp_path / "other.so")
    give = ["-x", f"LD_PRELOAD={other}"] if mpi.name == "openmpi" else ["-genv", "LD_PRELOAD", other]
    launcher = mpi.mpirun(2)
    done = run(rankscope, "run", launcher[0], *give, *launcher[1:], *SHOW, env=mpi.environment)
    expected = f"{library_of(Path(rankscope))}:{other}"
    assert [preload for _, preload in words(done.stdout)] == [expected, expected], done


def test_two_jobs_at_different_times(rankscope: str, mpi: Mpi, run: Run) -> None:
    folders = [words(run(*mpi.mpirun(2), rankscope, "run", *SHOW, env=mpi.environment).stdout) for _ in range(2)]
    assert Counter(folder for lines in folders for folder, _ in lines).most_common()[0][1] == 2


def test_several_commands_in_each_rank(rankscope: str, mpi: Mpi, run: Run) -> None:
    twice = f"for name in a b; do {rankscope} run --name $name sh -c 'echo $RANKSCOPE_DIR'; done"
    done = run(*mpi.mpirun(3), "sh", "-c", twice, env=mpi.environment)
    counts = Counter(done.stdout.decode().split())
    assert sorted(counts.values()) == [3, 3], done
    assert all("-a-" in folder or "-b-" in folder for folder in counts)


@pytest.mark.parametrize("inside", [True, False])
def test_exit_code_of_a_failing_rank(rankscope: str, mpi: Mpi, run: Run, inside: bool) -> None:
    command = ["sh", "-c", "exit 7"]
    bare = run(*mpi.mpirun(2), *command, env=mpi.environment)
    wrapped = [*mpi.mpirun(2), rankscope, "run"] if inside else [rankscope, "run", *mpi.mpirun(2)]
    assert run(*wrapped, *command, env=mpi.environment).returncode == bare.returncode == 7


def test_two_daemons(rankscope: str, run: Run, mpi: Mpi) -> None:
    """MPICH can pretend to have two nodes: two proxies, one job."""
    if mpi.name != "mpich":
        pytest.skip("only MPICH starts daemons for made-up hosts by fork")
    launcher = [*mpi.mpirun(4), "-launcher", "fork", "-hosts", "one,two", "-ppn", "2"]
    done = run(*launcher, rankscope, "run", *SHOW, env=mpi.environment)
    assert len(words(done.stdout)) == 4 and len({line[0] for line in words(done.stdout)}) == 1, done


def test_python_with_mpi4py(rankscope: str, mpi: Mpi, run: Run) -> None:
    """A real MPI program gives the same output and exit code."""
    line = r"b'%d %d\n' % (world.allreduce(world.rank), world.size)"
    program = f"import os; from mpi4py import MPI; world = MPI.COMM_WORLD; os.write(1, {line})"  # lines stay whole
    python = str(mpi.bin / "python")
    done = run(*mpi.mpirun(2), rankscope, "run", "--out", "prof", python, "-c", program, env=mpi.environment)
    assert sorted(done.stdout.splitlines()) == [b"1 2", b"1 2"] and done.returncode == 0, done


def test_outside_with_any_letter_in_the_path_and_a_python_path_of_the_user(
    rankscope: str, mpi: Mpi, run: Run, work: Path
) -> None:
    out = "a b,c=d;e'f"
    assignment = "PYTHONPATH=/of/the user,1"
    give = {"openmpi": ["-x", assignment], "mpich": ["-genv", *assignment.split("=")]}.get(
        mpi.name, ["-genv", assignment]
    )
    launcher = mpi.mpirun(2)
    show = ("sh", "-c", 'echo "$RANKSCOPE_DIR|$PYTHONPATH"')
    done = run(rankscope, "run", "--out", out, launcher[0], *give, *launcher[1:], *show, env=mpi.environment)
    agent = library_of(Path(rankscope)).parents[1] / "agent" / "start"
    assert done.stdout.decode().splitlines() == [f"{work}/{out}|{agent}:/of/the user,1"] * 2, done
    assert run_json(f"{work}/{out}")["expected_ranks"] == 2
