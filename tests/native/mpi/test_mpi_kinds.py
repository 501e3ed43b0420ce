"""Which MPI is loaded, known by what it says of itself; one that nobody knows is left alone. What may wait is seen."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import hatch_build
import rankscope as api
from native.builds import HERE, compile_c, make_driver, place_recorder, recording
from programs import recorded
from rankscope.model.records import Severity

SESSION_CALLS = 1000
MPI_FOLDER = hatch_build.NATIVE / "mpi"
# Of MPI 4.1: they return when others have taken what was sent, or are collective, whatever their names are like.
MAY_WAIT = (
    "Buffer_detach", "Buffer_detach_c", "Buffer_flush", "Comm_detach_buffer", "Comm_flush_buffer", "Comm_set_info",
    "File_set_atomicity", "File_set_info", "Session_detach_buffer", "Session_flush_buffer", "Win_set_info",
)  # fmt: skip


def test_an_unknown_mpi_is_passed_on_and_told_of(tmp_path: Path) -> None:
    place_recorder(tmp_path, ())
    compile_c(tmp_path / "libforeign.so", HERE / "mpi" / "foreign_mpi.c", "-fPIC", "-shared")
    found = (f"-L{tmp_path}", f"-Wl,-rpath,{tmp_path}", "-lforeign")
    program = compile_c(tmp_path / "program", HERE / "mpi" / "foreign_program.c", *found)
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


def test_no_call_that_may_wait_is_called_local() -> None:
    """Neither one that the table says may wait nor one of MPI's own list, which the table must have."""
    (listed,) = re.findall(
        r"local_prefixes\[\] = \{(.*?)\};", (MPI_FOLDER / "mpi_entry_points.c").read_text(), re.DOTALL
    )
    local = tuple(re.findall(r'"(\w+)"', listed))
    assert "Wtime" in local
    table = re.findall(r"^([A-Z_]+)\((\w+), ", (MPI_FOLDER / "mpi_functions.h").read_text(), re.MULTILINE)
    waiting = {name for kind, name in table if kind not in ("PLAIN", "IPLAIN", "SPECIAL")}
    assert {name.removesuffix("_c") for name in MAY_WAIT} <= waiting
    assert [name for name in sorted(waiting.union(MAY_WAIT)) if name.startswith(local)] == []


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
