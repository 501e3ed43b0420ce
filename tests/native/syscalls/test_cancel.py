"""Threads that are cancelled, or end, inside a counted call: their C++ objects are destroyed, and the call ends."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mpis import ROOT
from native.syscalls import runs

SOURCE = ROOT / "tests" / "native" / "syscalls" / "cancel.cpp"
NEWER = os.environ.get(
    "RANKSCOPE_GLIBC", ""
)  # a folder with the ld.so, libc, libstdc++ and libgcc_s of another version


@pytest.fixture(scope="module", params=["here", "newer"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags: list[str] = []
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    if request.param == "newer":
        if not NEWER:
            pytest.skip("RANKSCOPE_GLIBC names no folder with a newer glibc (2.41 cancels in another way)")
        flags = [f"-Wl,--dynamic-linker={NEWER}/ld-linux-x86-64.so.2", f"-Wl,-rpath,{NEWER}"]
    made = tmp_path_factory.mktemp("cancel") / "cancel"
    subprocess.run(["g++", "-O1", "-Wall", "-Wextra", "-o", made, SOURCE, "-pthread", *flags], check=True)
    return made


@pytest.mark.parametrize("mode", ["time", "calls", "paths"])
def test_as_bare(mode: str, program: Path, tmp_path: Path) -> None:
    alone = runs.bare([program])
    assert alone.code == 0 and alone.out.count("40 cancelled, 40 destroyed") == 12
    assert runs.recorded([program], tmp_path / "run", mode) == alone
    if mode != "time":
        assert ("dispatch", "") in runs.methods(tmp_path / "run")
