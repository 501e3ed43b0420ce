"""Threads, forks, signals and ends of programs are theirs, whatever the recorder is doing just then."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from native.builds import HERE as NATIVE_TESTS
from native.builds import compile_c
from native.syscalls import runs

SOURCE = Path(__file__).parent / "life.c"
CASES = re.findall(r'^\s*\{"(\w+)", ', SOURCE.read_text(), re.MULTILINE)

# What CUDA does at its first use, in a process of which no thread was met yet.
STARTS_CUDA_AND_FORKS = """
import ctypes, os, sys
if "rankscope" in os.environ.get("LD_PRELOAD", ""):
    ctypes.CDLL(None).InitializeInjection()
pid = os.fork()
if pid == 0:
    os._exit(ctypes.pythonapi.PyGILState_Check())
print(ctypes.pythonapi.PyGILState_Check(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("life")
    compile_c(folder / "life", SOURCE, "-O1", "-ldl")
    compile_c(folder / "libcupti.so.13", NATIVE_TESTS / "cuda" / "fake_cupti.c", "-fPIC", "-shared")
    return folder


@pytest.mark.parametrize("mode", ["off", "paths"])
@pytest.mark.parametrize("case", CASES)
def test_as_bare(case: str, mode: str, built: Path, tmp_path: Path) -> None:
    command = [built / "life", case]
    cupti = str(built / "libcupti.so.13")
    assert runs.recorded(command, tmp_path / "run", mode, RANKSCOPE_CUPTI=cupti) == runs.bare(command)


def test_forked_python_keeps_its_thread_state(built: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_CUDA_AND_FORKS]
    settings = {"RANKSCOPE_CUPTI": str(built / "libcupti.so.13"), "RANKSCOPE_TORCH": "0"}
    done = runs.recorded(command, tmp_path / "run", "off", **settings)
    assert done == runs.bare(command)
    assert done.out == "1 1\n"


@pytest.mark.parametrize(("case", "code"), [("quick_exits", 9), ("cancelled_exit", 12), ("main_leaves", 0)])
def test_how_it_ended_is_recorded(case: str, code: int, built: Path, tmp_path: Path) -> None:
    assert runs.recorded([built / "life", case], tmp_path / "run", "off").code == code
    ended = runs.opened(tmp_path / "run").query("SELECT ending::VARCHAR, exit_code FROM ranks")
    assert ended == [("exited", code)]
