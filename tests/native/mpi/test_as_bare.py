"""What a program gets from its MPI does not depend on the recorder: rubbish, mistakes, other layers, Fortran."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mpis import LAUNCHER_FLAGS, LAUNCHER_VARIABLES, Mpi, find_mpi, remove_left_sessions
from programs import jobs, recorded
from programs.jobs import PROGRAMS, Job

# At these the MPI itself ends the program, whatever the program's error handler is.
ENDS: dict[str, tuple[str, ...]] = {
    "openmpi": ("probe_comm", "free_nothing"),
    "mpich": ("allreduce_type", "allreduce_count", "iallreduce_type"),
    "impi": (),
}
MISTAKES, RANKS = 36, 3
WITH_ITS_OWN = 8  # what a layer in front of the recorder calls for itself cannot be told from the program's calls


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("as_bare")


def lines(job: Job) -> list[str]:
    """What ranks have printed, in whatever order they did."""
    return sorted(job.out.replace("\0", "").splitlines())


def calls(folder: Path) -> list[dict[str, int]]:
    """Of each rank: function and calls."""
    readings = sorted(map(recorded.read, recorded.rank_files(folder)), key=lambda reading: reading.facts.rank or 0)
    return [recorded.calls_by_name(reading) for reading in readings if reading.facts.rank is not None]


# --- arguments --------------------------------------------------------------------------------------------------------


def test_what_is_not_significant_is_not_looked_at(mpi: Mpi, built: Path, tmp_path: Path) -> None:
    program = jobs.build_with_mpi(mpi, built, "insignificant")
    bare = jobs.run(mpi, RANKS, None, program)
    run = jobs.run(mpi, RANKS, tmp_path / "run", program)
    assert (bare.code, len(lines(bare))) == (0, 39)
    assert (run.code, lines(run), run.err) == (0, lines(bare), bare.err)
    ranks = [recorded.read(path) for path in recorded.rank_files(tmp_path / "run")]
    sent = {reading.facts.rank: recorded.bytes_by_name(reading) for reading in ranks}
    # across: rank 2 gives 8 bytes and the others none; within: 8 from each
    assert [sent[rank]["MPI_Gather"] for rank in range(RANKS)] == [8, 8, 16]
    assert [sent[rank]["MPI_Bcast"] for rank in range(RANKS)] == [8, 0, 8]
    assert [sent[rank]["MPI_Put"] for rank in range(RANKS)] == [0, 0, 0]


@pytest.mark.parametrize("handler", ["return", "handler"])
def test_a_mistake_is_told_as_often_as_without(mpi: Mpi, handler: str, built: Path, tmp_path: Path) -> None:
    program, left_out = jobs.build_with_mpi(mpi, built, "mistakes"), ENDS[mpi.name]
    bare = jobs.run(mpi, 1, None, program, handler, *left_out)
    run = jobs.run(mpi, 1, tmp_path / "run", program, handler, *left_out)
    assert (bare.code, len(lines(bare))) == (0, MISTAKES - len(left_out))
    assert (run.code, lines(run), run.err) == (0, lines(bare), bare.err)


@pytest.mark.parametrize("mistake", ["allreduce_type", "free_comm"])
def test_a_fatal_mistake_ends_the_program_as_without(mpi: Mpi, mistake: str, built: Path, tmp_path: Path) -> None:
    program = jobs.build_with_mpi(mpi, built, "mistakes")
    bare = jobs.run(mpi, 1, None, program, "fatal", mistake)
    run = jobs.run(mpi, 1, tmp_path / "run", program, "fatal", mistake)
    assert (run.code, run.out) == (bare.code, bare.out)
    assert bare.code != 0


# --- other layers -----------------------------------------------------------------------------------------------------


def layer(mpi: Mpi, folder: Path) -> Path:
    """A layer as a site has it: a library between programs and the MPI."""
    target = folder / f"libshim-{mpi.name}.so"
    if not target.exists():
        mpicc = mpi.mpicc or find_mpi("mpich").mpicc
        assert mpicc is not None
        large = () if mpi.name == "openmpi" else ("-DHAS_LARGE_COUNTS",)
        jobs.build(target, mpicc, [PROGRAMS / "shim.c"], "-fPIC", "-shared", *large)
    return target


def check_both_counted(mpi: Mpi, folder: Path, bare: Job, run: Job, reduced: int = 7) -> None:
    reduces, sends = ("MPI_Allreduce", "MPI_Send") if mpi.name == "openmpi" else ("MPI_Allreduce*", "MPI_Send*")
    assert bare.code == 0 and "shim 0: 1 Init, 7 of 14 Allreduce" in bare.out, bare
    assert (run.code, lines(run), run.err) == (0, lines(bare), bare.err)
    counted = calls(folder)
    assert [sum_of(rank, reduces) for rank in counted] == [reduced, reduced]
    assert [sum_of(rank, sends) for rank in counted] == [3, 0]


def sum_of(counted: dict[str, int], name: str) -> int:
    names = [name.rstrip("*"), *([name.rstrip("*") + "_c"] if name.endswith("*") else [])]
    return sum(counted.get(one, 0) for one in names)


@pytest.mark.parametrize("order", ["behind", "in front"])
@pytest.mark.parametrize("language", ["c", "python"])
def test_a_preloaded_layer_sees_what_it_would_see(
    mpi: Mpi, order: str, language: str, built: Path, tmp_path: Path
) -> None:
    shim = layer(mpi, built)
    program = [jobs.build_with_mpi(mpi, built, "shimmed")] if language == "c" else [mpi.python, PROGRAMS / "shimmed.py"]
    both = [str(jobs.recorder()), str(shim)]
    preload = ":".join(both if order == "behind" else both[::-1])
    bare = jobs.run(mpi, 2, None, "env", f"LD_PRELOAD={shim}", *program)
    run = jobs.run(mpi, 2, tmp_path / "run", *program, LD_PRELOAD=preload)
    check_both_counted(mpi, tmp_path / "run", bare, run, 7 if order == "behind" else WITH_ITS_OWN)


@pytest.mark.parametrize("how", ["library", "source"])
def test_a_layer_linked_into_the_program_sees_what_it_would_see(
    mpi: Mpi, how: str, built: Path, tmp_path: Path
) -> None:
    shim, program = layer(mpi, built), built / f"shimmed-{how}-{mpi.name}"
    mpicc = mpi.mpicc or find_mpi("mpich").mpicc
    assert mpicc is not None
    if how == "library":
        linked = (f"-L{built}", f"-Wl,-rpath,{built}", "-Wl,--no-as-needed", f"-l:{shim.name}")
        jobs.build(program, mpicc, [PROGRAMS / "shimmed.c"], *linked)
    else:
        jobs.build(program, mpicc, [PROGRAMS / "shimmed.c", PROGRAMS / "shim.c"])
    bare = jobs.run(mpi, 2, None, program)
    run = jobs.run(mpi, 2, tmp_path / "run", program)
    check_both_counted(mpi, tmp_path / "run", bare, run, 7 if how == "library" else WITH_ITS_OWN)


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_sessions_without_init_are_recorded(mpi: Mpi, built: Path, tmp_path: Path) -> None:
    program = jobs.build_with_mpi(mpi, built, "sessions")
    bare = jobs.run(mpi, 2, None, program)
    run = jobs.run(mpi, 2, tmp_path / "run", program)
    told = int(mpi.name == "impi")  # it calls itself initialised
    assert (bare.code, lines(bare)) == (0, [f"{rank} of 2: 400, initialized {told}" for rank in range(2)]), bare
    assert (run.code, lines(run), run.err) == (0, lines(bare), bare.err)
    readings = [recorded.read(path) for path in recorded.rank_files(tmp_path / "run")]
    assert sorted(reading.facts.rank or 0 for reading in readings) == [0, 1]
    for reading in readings:
        assert recorded.calls_by_name(reading)["MPI_Allreduce"] == 200
        made = [group for group in reading.groups if group.name.startswith("from_group")]
        assert [(group.size, group.collectives) for group in made] == [(2, 51)] * 4
    assert identities(readings[0].groups) == identities(readings[1].groups)


def identities(groups: list[object]) -> list[str]:
    return sorted(str(getattr(group, "identity", "")) for group in groups)


# --- Fortran ----------------------------------------------------------------------------------------------------------

DEBIAN = {"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}


def compiled(name: str, interface: str, folder: Path) -> Path:
    compiler = shutil.which(f"mpif90.{name}")
    if not compiler or not shutil.which("gfortran") or not shutil.which(f"mpirun.{name}"):
        pytest.skip(f"no mpif90.{name}, mpirun.{name} or gfortran: apt-get install gfortran lib{name}-dev {name}")
    program = folder / f"reduces-{name}-{interface}"
    define = {"mpif.h": [], "use mpi": ["-DWITH_MODULE"], "mpi_f08": ["-DWITH_F08"]}[interface]
    command = [compiler, "-cpp", *define, "-o", str(program), str(PROGRAMS / "reduces.f90")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


@pytest.mark.parametrize("interface", ["mpif.h", "use mpi", "mpi_f08"])
@pytest.mark.parametrize("name", list(DEBIAN))
def test_fortran_is_recorded(name: str, interface: str, tmp_path: Path) -> None:
    program, folder = compiled(name, interface, tmp_path), tmp_path / "run"
    remove_left_sessions()
    command = [f"mpirun.{name}", *LAUNCHER_FLAGS[name], "-n", "2"]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_")}
    environment = {**kept, **LAUNCHER_VARIABLES[name]}
    bare, run = (
        subprocess.run(
            [*command, *preload, program], env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        for preload in ([], jobs.recording(folder))
    )
    assert bare.returncode == 0 and "0 of 2:  3.0, 0" in bare.stdout, bare
    assert (run.returncode, sorted(run.stdout.splitlines())) == (0, sorted(bare.stdout.splitlines())), run
    expected = {"Init": 1, "Comm_rank": 1, "Comm_size": 1, "Comm_dup": 1, "Allreduce": 5, "Bcast": 2, "Irecv": 1}
    expected |= {"Isend": 1, "Waitall": 1, "Barrier": 1, "Comm_free": 1, "Finalize": 1}
    for path in recorded.rank_files(folder):
        reading = recorded.read(path)
        assert recorded.calls_by_name(reading) == {f"MPI_{one}": count for one, count in expected.items()}
        assert recorded.bytes_by_name(reading)["MPI_Allreduce"] == 60
        assert recorded.bytes_by_name(reading)["MPI_Bcast"] == 32
        missed = [note.text for note in reading.notes if note.text.startswith("not intercepted: mpi_")]
        assert missed == []
