"""Whatever happens to the recorder, the job prints and returns what it would have without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpis import Mpi
from native.builds import Driver, make_driver, recording
from programs import jobs, recorded

MIB = 1 << 20
FILE_BOUND_BYTES = 4 * MIB


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small tmpfs needs root; the limit on file sizes is tested instead")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def same_as_bare(mpi: Mpi, ranks: int, folder: Path, *argv: str | Path, **settings: str) -> None:
    """Runs argv twice and compares all that its user sees."""
    bare = jobs.run(mpi, ranks, None, *argv)
    job = jobs.run(mpi, ranks, folder, *argv, **settings)
    assert job.code == bare.code
    assert sorted(job.out.splitlines()) == sorted(bare.out.splitlines())
    assert sorted(job.err.splitlines()) == sorted(bare.err.splitlines())


def files_are_bounded(folder: Path) -> None:
    for path in recorded.rank_files(folder):
        assert path.stat().st_size <= FILE_BOUND_BYTES
        assert path.stat().st_blocks * 512 <= FILE_BOUND_BYTES


def test_full_disk(mpi: Mpi, small_disk: Path) -> None:
    program = jobs.PROGRAMS / "loses_its_folder.py"
    same_as_bare(mpi, 4, small_disk, mpi.python, program, "/nowhere")


def test_disk_that_is_full_already(openmpi: Mpi, small_disk: Path) -> None:
    with pytest.raises(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))
    same_as_bare(openmpi, 2, small_disk, openmpi.python, jobs.PROGRAMS / "loses_its_folder.py", "/nowhere")


@pytest.mark.parametrize("blocks", [0, 8, 128, 400])
def test_limit_on_file_sizes(driver: Driver, blocks: int, tmp_path: Path) -> None:
    """No signal, no loss of the program; in blocks of 1 kB."""
    command = ["bash", "-c", f'ulimit -f {blocks}; exec "$@"', "bash"]
    ran = [[*command, str(program), "communicators", "2000"] for program in (driver.bare, driver.recorded)]
    bare, job = (subprocess.run(argv, env=recording(tmp_path), capture_output=True, text=True) for argv in ran)
    assert (job.returncode, job.stdout, job.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert all(path.stat().st_size <= blocks * 1024 for path in recorded.rank_files(tmp_path))


def unwritable(tmp_path: Path) -> Path:
    """A folder in which this user can make nothing; to root only the kernel says no."""
    if os.geteuid() == 0:
        return Path("/proc/self")
    tmp_path.chmod(0o555)
    return tmp_path


def test_read_only_folder(mpi: Mpi, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    same_as_bare(mpi, 2, unwritable(folder), mpi.python, jobs.PROGRAMS / "loses_its_folder.py", "/nowhere")


def test_folder_that_is_a_file(openmpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    same_as_bare(openmpi, 2, tmp_path / "file", openmpi.python, jobs.PROGRAMS / "loses_its_folder.py", "/nowhere")


def test_folder_that_vanishes(mpi: Mpi, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    same_as_bare(mpi, 4, folder, mpi.python, jobs.PROGRAMS / "loses_its_folder.py", folder)
    assert not list(folder.glob("ranks/*/*"))


@pytest.mark.parametrize("mpi", ["openmpi", "mpich", pytest.param("impi", marks=pytest.mark.slow)], indirect=True)
def test_two_hundred_threads(mpi: Mpi, built: Path, tmp_path: Path) -> None:
    threads, rounds = 200, 20
    program = jobs.build_with_mpi(mpi, built, "many_threads")
    same_as_bare(mpi, 2, tmp_path, program, str(threads), str(rounds))
    files = recorded.rank_files(tmp_path)
    assert len(files) == 2
    for path in files:
        reading = recorded.read(path)
        found = recorded.calls_by_name(reading)
        each = {name: found.get(name) for name in ("MPI_Isend", "MPI_Irecv", "MPI_Waitall", "MPI_Allreduce")}
        assert each == dict.fromkeys(each, threads * rounds)
        assert reading.facts.lost_calls == 0
    files_are_bounded(tmp_path)


def test_a_thousand_children(tmp_path: Path) -> None:
    argv = [sys.executable, str(jobs.PROGRAMS / "many_children.py"), "600", "360", "36", "4"]
    bare = subprocess.run(argv, capture_output=True, text=True)
    job = subprocess.run([*jobs.recording(tmp_path), *argv], capture_output=True, text=True)
    assert (job.returncode, job.stdout, job.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    assert job.returncode == 7
    files_are_bounded(tmp_path)


def test_a_thousand_children_in_c(driver: Driver, tmp_path: Path) -> None:
    argv = driver.command("forks", 1000)
    job = subprocess.run(argv, env=recording(tmp_path), capture_output=True, text=True)
    assert (job.returncode, job.stdout, job.stderr) == (0, "MPI_Allreduce 2\n", "")
    assert len(recorded.rank_files(tmp_path)) == 1001
    files_are_bounded(tmp_path)


@pytest.mark.parametrize("calls", [10**7, pytest.param(10**9, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_a_long_run_does_not_grow(driver: Driver, calls: int, tmp_path: Path) -> None:
    """As many calls as eight hours of training make: no memory, no disk, no overflow."""
    job = subprocess.Popen(driver.command("tallies", calls), env=recording(tmp_path), stdout=subprocess.PIPE, text=True)
    sizes = list(sizes_until_end(job))
    assert job.stdout is not None and job.stdout.read() == f"MPI_Iprobe {calls}\n"
    assert job.returncode == 0
    (path,) = recorded.rank_files(tmp_path)
    assert recorded.calls_by_name(recorded.read(path))["MPI_Iprobe"] == calls
    assert len(sizes) < 3 or max(sizes[1:]) - min(sizes[1:]) <= MIB
    files_are_bounded(tmp_path)


def sizes_until_end(job: subprocess.Popen[str]) -> Iterator[int]:
    """The address space of the process, in bytes, ten times a second."""
    while True:
        try:
            job.wait(0.1)
            return
        except subprocess.TimeoutExpired:
            pages = Path(f"/proc/{job.pid}/statm").read_text().split()
        if pages and int(pages[0]):
            yield int(pages[0]) * os.sysconf("SC_PAGE_SIZE")
