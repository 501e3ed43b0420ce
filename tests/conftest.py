"""The fixtures all tests share, and how they are run beside each other."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from mpis import ROOT, WAITING_VARIABLES, Mpi, find_mpi


def pytest_collection_finish(session: pytest.Session) -> None:
    """Have torch's observer compiled before tests of torch begin: no job of theirs waits for it."""
    python, rankscope = ROOT / ".envs" / "torch" / "bin" / "python", ROOT / ".venv" / "bin" / "rankscope"
    if session.config.option.collectonly or not python.exists() or not rankscope.exists():
        return
    if any("torch" in path.read_text(errors="replace") for path in {item.path for item in session.items}):
        subprocess.run([rankscope, "doctor", "--prepare", "--python", python], capture_output=True, check=False)


@pytest.fixture(scope="session", params=["openmpi", "mpich", "impi"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each MPI in turn."""
    return find_mpi(request.param)


@pytest.fixture(scope="session")
def openmpi() -> Mpi:
    return find_mpi("openmpi")


@pytest.fixture(scope="session")
def mpich() -> Mpi:
    return find_mpi("mpich")


@pytest.fixture(scope="session")
def impi() -> Mpi:
    return find_mpi("impi")


@pytest.fixture(scope="session")
def rankscope() -> Path:
    """The rankscope command of the environment the tests run in."""
    found = ROOT / ".venv" / "bin" / "rankscope"
    if not found.exists():
        pytest.skip(".venv/bin/rankscope is missing: run make envs")
    return found


# ---------------------------------------------------------------- what programs inherit
def pytest_configure(config: pytest.Config) -> None:
    for name, value in WAITING_VARIABLES.items():
        os.environ.setdefault(name, value)
    # Examples are as many as there is time for, and however long one takes on a busy machine.
    settings.register_profile("quick", max_examples=30, deadline=None)
    settings.register_profile("thorough", max_examples=100, deadline=None)
    settings.load_profile("quick" if config.option.markexpr == "not slow" else "thorough")
    # A shell starts background jobs with SIGINT ignored, and so would be every program that a test starts. "Ignored"
    # goes through exec, a handler does not; with this one the tests themselves still take no notice.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: None)


# ---------------------------------------------------------------- several workers
# pytest-xdist, as `make test` calls it: one worker takes a whole file, so that what a module's fixtures make is made
# once, but each MPI and each sanitizer of a file apart, since nothing is shared between them.
APART = re.compile(r"\[.*?\b(openmpi|mpich|impi|plain|address|thread)\b")
TOGETHER = ("tests/browser", "tests/store/nodes")  # one browser, one cluster for all files
# Seconds of the longest files, begun first, so that no worker is left with one of them when the others have ended.
LONGEST_FILES = {
    "agent/test_torch_steps.py": 90,
    "native/nccl/test_nccl.py": 70,
    "native/core/test_trace.py": 60,
    "native/mpi/test_driver.py": 60,
    "questions/live/test_hang_gloo.py": 60,
    "questions/live/test_hang_mpi.py": 60,
    "test_packaging.py": 60,
    "robust/test_sacred_job.py": 50,
    "browser/test_differing.py": 50,  # and all others there
    "store/nodes/test_gather.py": 45,  # and all others there
    "native/mpi/test_every_call.py": 40,
    "robust/test_kill.py": 40,
    "studies/test_ddp.py": 35,
    "studies/test_slurm.py": 30,
    "questions/live/test_top.py": 30,
    "native/syscalls/test_jobs.py": 25,
    "studies/test_outcomes.py": 20,
    "agent/import_index/test_packages.py": 20,
    "stage/test_slow_nodes.py": 20,
    "studies/test_kill.py": 20,
    "test_tutorial.py": 35,
    "questions/compare/test_compare.py": 17,
    "cli/test_imports.py": 16,
    "questions/stragglers/test_real.py": 15,
    "questions/collectives/test_gloo_clocks.py": 12,
    "test_docs.py": 12,
    "agent/import_index/test_changes.py": 11,
    "agent/import_index/test_counts.py": 10,
}
LONG_FILE_S = 10
# Left to `make test-all`: where one MPI or two of three have shown it, and the second build with a sanitizer.
TWICE = (
    "questions/live/test_hang_mpi",
    "questions/live/test_top",
    "robust/test_sacred_job",
    "questions/collectives/test_waiting_of_mpi",
    "questions/steps/test_steps_of_mpi",
)
THRICE = (
    *TWICE,
    "questions/live/",
    "robust/",
    "stage/",
    "cli/test_running",
    "native/mpi/test_as_bare",
)
THOROUGH = {
    "mpich": ("tests/robust/test_kill", *(f"tests/{name}" for name in TWICE)),
    "impi": tuple(f"tests/{name}" for name in THRICE),
    "3-": ("tests/native/mpi/test_every_call",),  # ranks
    "4-impi": ("tests/native/mpi/test_every_call",),
    "address": ("tests/native/cuda/test_cuda.py", "tests/native/cuda/test_cuda_windows.py"),
    "thread": tuple(f"tests/native/{name}" for name in ("core/test_trace", "cuda/", "mpi/test_driver", "nccl/")),
}
# Files of which each test takes seconds, and whose subject others in `make test` touch as well.
LONG_FILES = (
    "tests/agent/import_index/test_changes.py",
    "tests/stage/test_nodes.py",
    *(f"tests/studies/test_{name}.py" for name in ("ddp", "outcomes", "script")),
    *(f"tests/gpu/test_declarations.py::test_records_and_numbers_are_the_real_ones[{of}" for of in ("12.1", "12.9")),
)
TURNS = Path(os.environ.get("TESTS_TURNS") or ROOT / "build" / "tests" / "turns")  # a run inside a test has its own


@pytest.hookimpl(tryfirst=True)  # pytest-xdist looks at the groups next
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(LONG_FILES) or any(
            item.nodeid.startswith(folders) and f"[{variant}" in item.nodeid for variant, folders in THOROUGH.items()
        ):
            item.add_marker(pytest.mark.slow)
    if "PYTEST_XDIST_WORKER" in os.environ:
        for item in items:
            if item.get_closest_marker("alone"):
                item.add_marker(pytest.mark.xdist_group("alone"))
        items.sort(key=place_in_line)


def place_in_line(item: pytest.Item) -> int:
    """Long files first, tests that must be alone last, all others as they are."""
    if item.get_closest_marker("alone"):
        return 1
    return -LONGEST_FILES.get(item.nodeid.partition("::")[0].removeprefix("tests/"), 0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One file at a time to each worker, in the order of collection."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.endswith("@alone"):
                return "alone"
            file, apart = nodeid.partition("::")[0], APART.search(nodeid)
            folder = next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), None)
            return folder or file + (f"[{apart[1]}]" if apart else "")

    config.option.loadscopereorder = False
    return Files(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The longest files, for LONGEST_FILES and for whoever asks where the minutes of `make test` go."""
    seconds: Counter[str] = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration
    longest = [f"{file} {taken:.0f}" for file, taken in seconds.most_common(12) if taken > LONG_FILE_S]
    if longest:
        terminalreporter.section("longest files, in seconds")
        terminalreporter.write_line(", ".join(longest))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of what counts a test's time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test marked `alone` waits for the tests of the other workers to end, and they for it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with turn(is_alone=item.get_closest_marker("alone") is not None):
        return (yield)


@contextmanager
def turn(is_alone: bool) -> Iterator[None]:
    """Whoever wants to be alone holds the door while the others leave, so that they cannot keep it waiting."""
    TURNS.mkdir(parents=True, exist_ok=True)
    with (TURNS / "door").open("w") as door, (TURNS / "room").open("w") as room:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
