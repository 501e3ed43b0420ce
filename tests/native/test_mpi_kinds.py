"""Which MPI is loaded is known by what it says of itself; one that nobody knows is left alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import rankscope as api
from native.builds import HERE, compile_c, make_driver, place_recorder, recording
from programs import recorded
from rankscope.model import Severity

SESSION_CALLS = 1000


def test_an_unknown_mpi_is_passed_on_and_told_of(tmp_path: Path) -> None:
    place_recorder(tmp_path, ())
    compile_c(tmp_path / "libforeign.so", HERE / "foreign_mpi.c", "-fPIC", "-shared")
    found = (f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}", "-lforeign")
    program = compile_c(tmp_path / "program", HERE / "foreign_program.c", *found)
    run = tmp_path / "run"
    run.mkdir()
    bare = subprocess.run([program], capture_output=True, text=True, check=True)
    environment = recording(run, LD_PRELOAD=str(tmp_path / "librankscope.so"))
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, bare.stdout, "")
    (path,) = recorded.rank_files(run)
    reading = recorded.read(path)
    assert recorded.calls_by_name(reading) == {}
    told = [note.text for note in reading.notes if note.severity is Severity.WARNING]
    assert len(told) == 1 and "of no kind that rankscope knows (Foreign Message Passing 1.0)" in told[0]
    coverage = api.open(run).table("coverage")
    assert [text for text in coverage.warnings if "Foreign Message Passing" in text]


def test_sessions_are_looked_at_once(tmp_path: Path) -> None:
    """The MPI counts how often it is asked whether it was initialised: not once more for more calls."""
    driver = make_driver(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    asked = []
    for calls in (1, SESSION_CALLS):
        done = subprocess.run(
            driver.command("sessions", calls), env=recording(run), capture_output=True, text=True, check=True
        )
        counted = dict(line.split() for line in done.stdout.splitlines())
        asked.append(int(counted["asked"]))
    assert asked[0] == asked[1] <= 2
    readings = [recorded.calls_by_name(recorded.read(path)) for path in recorded.rank_files(run)]
    assert sorted(reading["MPI_Allreduce"] for reading in readings) == [4, 4 * SESSION_CALLS]
