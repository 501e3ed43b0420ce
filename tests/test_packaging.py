"""The wheel: built from the sdist with the C compiler alone, installed elsewhere without one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import hatch_build
from mpis import ROOT

NAMES = [
    "librankscope.so",
    "librankscope_calls.so",
    "librankscope_libraries.so",
    "librankscope_lookups.so",
    "librankscope_read.so",
    "librankscope_slow.so",
]
LIBRARIES = {f"rankscope/native/{name}" for name in NAMES}
PROGRAMS = {f"rankscope/native/{name}" for name in hatch_build.programs()}
LOAD_LIBRARIES = """
import ctypes, pathlib, rankscope
for library in sorted((pathlib.Path(rankscope.__file__).parent / "native").glob("*.so")):
    ctypes.CDLL(str(library))
    print(library)
"""


def call(*argv: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(argument) for argument in argv],
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def succeed(*argv: str | Path, **variables: str) -> str:
    done = call(*argv, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def folder_without_compiler(folder: Path) -> str:
    """A PATH with nothing in it."""
    folder.mkdir(exist_ok=True)
    return str(folder)


def other_pythons() -> list[Path]:
    """Pythons >= 3.10 of other versions than this one, here or with pyenv."""
    names = [f"python3.{minor}" for minor in range(10, 16) if minor != sys.version_info.minor]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [*map(str, pyenv.glob("3.*/bin")), *os.environ.get("PATH", "").split(os.pathsep)]
    found = [Path(path) for name in names if (path := shutil.which(name, path=os.pathsep.join(places)))]
    return [python for python in found if "shims" not in python.parts]


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    succeed(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", out)
    return next(out.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    succeed(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, sdist)
    return next(out.glob("*.whl"))


def test_sdist_carries_the_native_sources(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {path.relative_to(ROOT).as_posix() for path in hatch_build.NATIVE.rglob("*.[ch]")}
    assert sources <= names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.slow
def test_wheel_is_tied_to_no_python_version(wheel: Path) -> None:
    assert re.fullmatch(rf"rankscope-{re.escape(hatch_build.version())}-py3-none-linux_\w+\.whl", wheel.name)


@pytest.mark.slow
def test_wheel_carries_the_libraries_and_no_sources(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= LIBRARIES | PROGRAMS
    assert not [name for name in names if name.endswith((".c", ".h"))]


@pytest.mark.slow
def test_wheel_carries_what_pages_are_made_of(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    folder = ROOT / "src" / "rankscope" / "output" / "html"
    made_of = {
        path.relative_to(ROOT / "src").as_posix() for path in folder.rglob("*") if path.suffix in (".js", ".css")
    }
    assert len(made_of) > 15
    assert made_of | {"rankscope/output/html/vendor/uPlot.LICENSE"} <= names


@pytest.mark.slow
def test_wheel_installs_without_compiler_on_another_python(wheel: Path, tmp_path: Path) -> None:
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other Python >= 3.10 on this machine")
    succeed(pythons[-1], "-m", "venv", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    path = folder_without_compiler(tmp_path / "empty")
    succeed(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel, PATH=path)
    loaded = [Path(line) for line in succeed(python, "-I", "-c", LOAD_LIBRARIES, PATH=path).splitlines()]
    assert [library.name for library in loaded] == NAMES
    assert all(library.is_relative_to(tmp_path) for library in loaded)
    assert all(os.access(loaded[0].parent / Path(name).name, os.X_OK) for name in PROGRAMS)


@pytest.mark.slow
def test_installed_command_does_not_go_through_pips_script(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    succeed(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel)
    script = tmp_path / "env" / "bin" / "rankscope"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[0] == f"#!{python}"
    assert "import re" not in script.read_text()


def test_missing_compiler_is_one_line_with_the_next_action(tmp_path: Path) -> None:
    path = folder_without_compiler(tmp_path / "empty")
    done = call(sys.executable, ROOT / "hatch_build.py", "--out", tmp_path, PATH=path, CC="")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no C compiler found" in done.stderr
    assert "install gcc or clang" in done.stderr


def test_compiler_that_fails_leaves_the_old_library(tmp_path: Path) -> None:
    old = tmp_path / "librankscope.so"
    old.write_text("old")
    done = call(sys.executable, ROOT / "hatch_build.py", "--out", tmp_path, CC="false")
    assert done.returncode == 1
    assert done.stderr == "rankscope: the C compiler failed on librankscope.so: see its messages above\n"
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_wheel_that_promises_too_much_is_not_built(tmp_path: Path) -> None:
    """The dynamic loader of the promised glibc would refuse it."""
    (tmp_path / "new.c").write_text("#include <pthread.h>\nvoid *f(void) { return (void *)pthread_create; }\n")
    library = tmp_path / "new.so"
    succeed(*hatch_build.compiler(), "-shared", "-fPIC", tmp_path / "new.c", "-o", library, "-pthread")
    machine = hatch_build.machine()
    hatch_build.check_promise([library], f"manylinux_2_99_{machine}")
    with pytest.raises(hatch_build.BuildError, match=r"new.so asks for glibc [\d., ]+, manylinux_2_1_"):
        hatch_build.check_promise([library], f"manylinux_2_1_{machine}")
    with pytest.raises(hatch_build.BuildError, match="is not manylinux_X_Y_"):
        hatch_build.check_promise([library], "linux_x86_64")


def test_extra_flags_come_after_the_common_ones(tmp_path: Path) -> None:
    line = hatch_build.compile_command(tmp_path / "a.c", tmp_path / "a.o", ["-O0"])
    assert line.index("-O0") > line.index("-O2")
    assert f'-DRANKSCOPE_VERSION="{hatch_build.version()}"' in line
