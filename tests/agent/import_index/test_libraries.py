"""The map of libraries: the dynamic loader finds what it would find without it, with fewer tries."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.import_index.environments import Environment, rankscope
from mpis import ROOT

AUDITOR = ROOT / "src" / "rankscope" / "native" / "librankscope_libraries.so"
CODE = "import ctypes; print(ctypes.CDLL('librankscope_tiny.so').number())"


def compile_library(target: Path, number: int, *flags: str) -> None:
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    source = f"int inner(void); int number(void) {{ return {number}; }}"
    subprocess.run(
        ["cc", "-x", "c", "-", "-shared", "-fPIC", "-o", target, *flags], input=source, text=True, check=True
    )


class Libraries:
    """Ten folders in LD_LIBRARY_PATH, one that is missing, and the library in the last of them."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self.python, self.index = environment.python, folder / "tiny.rsindex"
        self.folders = [folder / f"libraries{number}" for number in range(10)]
        for path in self.folders:
            path.mkdir()
        self.missing = folder / "missing" / "deep"
        compile_library(self.folders[-1] / "librankscope_tiny.so", 1)
        self.path = ":".join(map(str, [self.missing, *self.folders]))
        self.map = self.index.with_suffix(".libraries")

    def build(self) -> str:
        words = ("index", self.python, "--out", self.index, "--statement", CODE, "--libraries")
        done = rankscope(*words, LD_LIBRARY_PATH=self.path)
        if "needs glibc" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, path: str | None = None, code: str = CODE, strace: Path | None = None) -> str:
        """What the program prints, with the map at work."""
        variables = {"LD_LIBRARY_PATH": self.path if path is None else path, "LD_AUDIT": str(AUDITOR)}
        variables["RANKSCOPE_LIBRARIES"] = str(self.map)
        traced = ["strace", "-f", "-e", "trace=openat", "-o", str(strace)] if strace else []
        traced += [word for name, value in variables.items() for word in ("-E", f"{name}={value}")] if strace else []
        environment = os.environ if strace else {**os.environ, **variables}
        command = [*traced, str(self.python), "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.stdout.strip()


@pytest.fixture
def libraries(small: Environment, tmp_path: Path) -> Libraries:
    if not AUDITOR.exists():
        pytest.skip(f"{AUDITOR.name} is not built: run make native")
    found = Libraries(tmp_path, small)
    assert "libraries of the loader" in found.build()
    return found


def tries(libraries: Libraries, log: Path) -> int:
    """How often the library was tried to be opened."""
    assert libraries.run(strace=log) == "1"
    return log.read_text().count("librankscope_tiny.so")


def test_found_at_once(libraries: Libraries, tmp_path: Path) -> None:
    if not shutil.which("strace"):
        pytest.skip("strace is missing")
    assert tries(libraries, tmp_path / "with") == 1
    libraries.map.unlink()
    assert tries(libraries, tmp_path / "without") >= 10


def test_other_library_path_other_library(libraries: Libraries, tmp_path: Path) -> None:
    (tmp_path / "front").mkdir()
    compile_library(tmp_path / "front" / "librankscope_tiny.so", 2)
    assert libraries.run(f"{tmp_path / 'front'}:{libraries.path}") == "2"


def test_library_put_in_front_wins(libraries: Libraries) -> None:
    compile_library(libraries.folders[3] / "librankscope_tiny.so", 3)
    assert libraries.run() == "3"


def test_library_in_a_folder_that_was_missing_wins(libraries: Libraries) -> None:
    libraries.missing.mkdir(parents=True)
    compile_library(libraries.missing / "librankscope_tiny.so", 4)
    assert libraries.run() == "4"


def test_library_that_moved_is_searched(libraries: Libraries) -> None:
    os.rename(libraries.folders[-1] / "librankscope_tiny.so", libraries.folders[5] / "librankscope_tiny.so")
    assert libraries.run() == "1"


def test_library_for_some_processors_wins(libraries: Libraries) -> None:
    folder = libraries.folders[0] / "glibc-hwcaps" / "x86-64-v2"
    folder.mkdir(parents=True)
    compile_library(folder / "librankscope_tiny.so", 5)
    without = subprocess.run(
        [libraries.python, "-c", CODE],
        env={**os.environ, "LD_LIBRARY_PATH": libraries.path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert libraries.run() == without.stdout.strip()


def test_inherited_search_path_is_kept(libraries: Libraries, tmp_path: Path) -> None:
    """The same library needs another by name only; who loads it says, by its RPATH, which one that is."""
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else {default!r}).number())"
    for side, number in (("left", 10), ("right", 20)):
        folder = tmp_path / side
        folder.mkdir()
        compile_library(folder / "libother.so", number)
        compile_outer(folder, tmp_path)
    program = code.format(default=str(tmp_path / "left" / "outer.so"))
    words = ("index", libraries.python, "--out", libraries.index, "--statement", program, "--libraries")
    assert rankscope(*words, LD_LIBRARY_PATH=libraries.path).returncode == 0
    assert libraries.run(code=program) == "10"
    assert libraries.run(code=program.replace("left", "right")) == "20"


def compile_outer(folder: Path, shared: Path) -> None:
    """outer.so, with an RPATH, needs libmiddle.so, which has none and needs libother.so."""
    middle = shared / "libmiddle.so"
    text = "int number(void); int middle(void) { return number(); }"
    flags = ["-shared", "-fPIC", f"-L{folder}", f"-L{shared}", "-Wl,--disable-new-dtags"]
    command = ["cc", "-x", "c", "-", *flags]
    subprocess.run([*command, "-o", middle, "-Wl,--no-as-needed", "-lother"], input=text, text=True, check=True)
    text = "int middle(void); int outer(void) { return middle(); }"
    rpath = f"-Wl,-rpath,{folder}:{shared}"
    subprocess.run(
        [*command, rpath, "-o", folder / "outer.so", "-Wl,--no-as-needed", "-lmiddle"],
        input=text,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("how", ["writable by others", "cut", "of another program"])
def test_what_cannot_be_trusted_is_not_used(libraries: Libraries, how: str, tmp_path: Path) -> None:
    text = libraries.map.read_text()
    wrong = tmp_path / "wrong" / "librankscope_tiny.so"
    wrong.parent.mkdir()
    compile_library(wrong, 9)
    status = wrong.stat()
    lines = [line for line in text.splitlines() if "librankscope_tiny.so" not in line]
    chain = next(line.split("\t")[1] for line in text.splitlines() if "librankscope_tiny.so" in line)
    entry = f"F\t{chain}\tlibrankscope_tiny.so\t{status.st_size}\t{status.st_mtime_ns}\t{wrong}"
    misled = "\n".join([*lines[:-1], entry, lines[-1], ""])
    libraries.map.write_text(misled)
    assert libraries.run() == "9"  # the map is what decides
    if how == "writable by others":
        libraries.map.chmod(0o666)
    elif how == "cut":
        libraries.map.write_text(misled[:-3])
    else:
        libraries.map.write_text(misled.replace("\nE\t", "\nE\t/other"))
    assert libraries.run() == "1"


def test_recorded_job_uses_it(libraries: Libraries, tmp_path: Path) -> None:
    code = CODE + "; import os; print(os.environ['LD_AUDIT'], os.environ['RANKSCOPE_LIBRARIES'])"
    words = ("index", "--run", "--out", libraries.index, "--", libraries.python, "-c", code)
    done = rankscope(*words, LD_LIBRARY_PATH=libraries.path)
    assert done.stdout == f"1\n{AUDITOR} {libraries.map}\n"
    words = ("run", "--out", tmp_path / "run", "--index", libraries.index, libraries.python, "-c", code)
    done = rankscope(*words, LD_LIBRARY_PATH=libraries.path)
    assert done.stdout == f"1\n{AUDITOR} {libraries.map}\n"
    assert list((tmp_path / "run" / "ranks").glob("*/*.rank"))
