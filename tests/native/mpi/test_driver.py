"""The recorder driven hard on a fake MPI: counts stay exact, and sanitizers and valgrind find nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native.builds import STRICT, Driver, make_driver, recording
from programs import recorded

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder with a sanitizer

PARTS = {
    "threads": (40, {}),
    "forks": (60, {}),
    "communicators": (3000, {}),
    "requests": (5000, {}),
    "ring": (5000, {"RANKSCOPE_LOG_RECORDS": "64"}),
    "pauses": (200, {}),
}
FULL = {"RANKSCOPE_FILE_BYTES": "65536", "RANKSCOPE_LOG_RECORDS": "16"}


@pytest.fixture(scope="session")
def driver(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp(sanitizer), sanitizer)


def run(command: list[str], run_folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = recording(run_folder, **STRICT, **settings)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)


def check_counts(run_folder: Path, said: str) -> None:
    """What the driver said it did is what the file of the driver (not of its children) says."""
    (path,) = [path for path in recorded.rank_files(run_folder) if not is_child(path)]
    found = recorded.calls_by_name(recorded.read(path))
    expected = {name: int(calls) for name, calls in (line.split() for line in said.splitlines())}
    assert {name: found.get(name) for name in expected} == expected


def is_child(path: Path) -> bool:
    return recorded.calls_by_name(recorded.read(path)).get("MPI_Init_thread") is None


@pytest.mark.parametrize("part", list(PARTS))
def test_counts_are_exact_and_nothing_complains(driver: Driver, part: str, tmp_path: Path) -> None:
    number, settings = PARTS[part]
    done = run(driver.command(part, number), tmp_path, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    check_counts(tmp_path, done.stdout)


@pytest.mark.parametrize("part", ["threads", "communicators", "requests", "forks"])
def test_full_file_loses_rows_and_says_so(driver: Driver, part: str, tmp_path: Path) -> None:
    done = run(driver.command(part, PARTS[part][0]), tmp_path, **FULL)
    assert (done.returncode, done.stderr) == (0, "")
    for path in recorded.rank_files(tmp_path):
        assert path.stat().st_size <= int(FULL["RANKSCOPE_FILE_BYTES"])
    if part == "communicators":
        (path,) = recorded.rank_files(tmp_path)
        reading = recorded.read(path)
        counted = sum(recorded.calls_by_name(reading).values())
        assert reading.facts.lost_calls > 0
        assert counted > 0


def test_children_have_files_of_their_own(driver: Driver, tmp_path: Path) -> None:
    done = run(driver.command("forks", 24), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    children = [path for path in recorded.rank_files(tmp_path) if is_child(path)]
    assert len(children) == 24
    assert all(recorded.calls_by_name(recorded.read(path))["MPI_Allreduce"] == 2 for path in children)


@pytest.mark.parametrize("part", list(PARTS))
def test_valgrind_finds_nothing(part: str, plain_driver: Driver, tmp_path: Path) -> None:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        pytest.skip("valgrind is not installed")
    number, settings = PARTS[part]
    strict = ["--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]
    command = [valgrind, *strict, *plain_driver.command(part, max(8, number // 20))]
    done = run(command, tmp_path, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    check_counts(tmp_path, done.stdout)


@pytest.fixture(scope="session")
def plain_driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return make_driver(tmp_path_factory.mktemp("plain"))
