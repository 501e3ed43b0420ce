"""Horovod's background thread by its virtual functions, in a library that binds its own calls as Horovod's does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native.builds import HERE, compile_c, place_recorder, recording
from programs import recorded

SOURCES = HERE / "horovod"
# as Horovod's CMakeLists.txt has it
LINKED = ("-shared", "-fPIC", "-Wl,-Bsymbolic-functions", "-Wl,-z,relro,-z,now")
SEEN = {
    "negotiation: MPIController::CrossRankBitwiseAnd": (1000, 0, 0),
    "negotiation: MPIController::RecvReadyTensors": (1, 0, 0),
    "fusion: AllreduceOp::MemcpyInFusionBuffer": (5, 5 * 128, 0),
    "execution: MPIAllreduce": (11, 0, 1),
}


def test_what_the_thread_does(tmp_path: Path) -> None:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    library, source = tmp_path / "standin.so", SOURCES / "standin_horovod.cpp"
    command = ["g++", "-std=c++17", "-O2", "-Wall", *LINKED, str(source), "-o", str(library), "-pthread"]
    subprocess.run(command, check=True)
    opener = compile_c(tmp_path / "opener", SOURCES / "opener.c", "-ldl")
    recorder = place_recorder(tmp_path, ())

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        environment = recording(tmp_path, **more)
        return subprocess.run([opener, library], env=environment, capture_output=True, text=True, check=False)

    bare, watched = run(), run(LD_PRELOAD=str(recorder))
    assert bare.returncode == 7 and "caught thirteen" in bare.stdout
    assert (watched.returncode, watched.stdout) == (bare.returncode, bare.stdout)
    assert watched.stderr == "5 0\n"  # no place is taken twice
    (path,) = recorded.rank_files(tmp_path)
    found = {name: counts for (name, kind, _), counts in recorded.counts_of(recorded.read(path)).items() if kind == 1}
    assert found == SEEN
