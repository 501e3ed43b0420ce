"""Cells that fail, hang or are incomplete are shown as such with their reason, and can be tried again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpis import Mpi
from studies.studying import (
    ENVIRONMENT,
    STUDY,
    WORKLOAD,
    cells,
    processes_with,
    squares,
    states,
    study,
    write_toml,
    wrong_values,
)

ONE = {"number": [2], "ranks": [2]}
NAME = "number=2,ranks=2,repeat=1"


def troubled(path: Path, how: str, python: str | Path = sys.executable, **more: object) -> Path:
    """Rank 1 is in trouble until there is a file `mended` beside the study."""
    script = path.with_name("maybe.py")
    script.write_text(
        f"import os, sys\n"
        f"if not os.path.exists({str(path.with_name('mended'))!r}): sys.argv += [{how!r}, '1']\n"
        f"exec(open({str(WORKLOAD)!r}).read())\n"
    )
    return write_toml(path, [str(python), str(script), "{number}", "{cell}"], ONE, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("fail", "failed", "exit code 1: RuntimeError: no luck today"),
        ("hang", "timed out", "stopped after 5 s"),
    ],
)
def test_reason_is_told_and_retry_mends(tmp_path: Path, how: str, state: str, reason: str) -> None:
    toml, folder = troubled(tmp_path / "t.toml", how, timeout_s=5), tmp_path / "out"
    first = study(toml, "--out", folder)
    assert first.returncode == 1
    assert cells(folder)[NAME]["state"] == state
    assert cells(folder)[NAME]["reason"].startswith(reason)
    assert reason in first.stderr and reason in first.stdout and reason in (folder / "t.md").read_text()
    (tmp_path / "mended").touch()
    assert study(toml, "--out", folder, "--resume").returncode == 1  # it has ended: only --retry runs it again
    assert states(folder) == {NAME: state}
    assert study(toml, "--out", folder, "--retry").returncode == 0
    assert states(folder) == {NAME: "done"} and wrong_values(folder) == []
    assert cells(folder)[NAME]["attempt"] == "attempt-2"


def test_a_rank_that_is_not_seen_makes_the_cell_incomplete(tmp_path: Path) -> None:
    """The launcher starts one rank less than the cell has."""
    launch = {"template": f"{sys.executable} -c 'import os, sys; os.execvp(sys.argv[1], sys.argv[1:])' {{command}}"}
    folder = tmp_path / "out"
    done = study(squares(tmp_path / "t.toml", axes=ONE, launch=launch), "--out", folder)
    assert done.returncode == 1
    assert cells(folder)[NAME]["state"] == "incomplete"
    assert cells(folder)[NAME]["reason"].startswith("1 of 2 ranks were recorded")


def test_a_rank_without_result_makes_a_built_in_cell_incomplete(tmp_path: Path) -> None:
    """By the judge alone: the workloads that come with rankscope leave their results or fail."""
    from rankscope.studies.plan import Cell
    from rankscope.studies.run_study import judged

    folder = tmp_path / "out"
    assert study(squares(tmp_path / "t.toml", axes=ONE), "--out", folder).returncode == 0
    attempt = folder / "cells" / NAME / "attempt-1"
    cell, ended = Cell((("number", "2"),), 2, 1), {"exit_code": 0, "results": True}
    assert judged(attempt, cell, ended) == ("done", "")
    (attempt / "results" / "1.json").write_text(json.dumps({"rank": 1, "wrong": "the sum is 3"}))
    assert judged(attempt, cell, ended) == ("failed", "wrong result: the sum is 3")
    (attempt / "results" / "1.json").unlink()
    assert judged(attempt, cell, ended) == ("incomplete", "1 of 2 ranks left a result")
    assert judged(attempt, cell, {"exit_code": -11}) == ("failed", "signal 11")


def test_ranks_that_are_each_a_world_of_their_own_are_no_result(mpich: Mpi, tmp_path: Path) -> None:
    """MPI whose ranks were started by something else: every one of them is rank 0 of 1, and all goes well."""
    code = "from mpi4py import MPI; assert MPI.COMM_WORLD.size == 1"
    toml = write_toml(tmp_path / "t.toml", [str(mpich.python), "-c", code], {"ranks": [2]}, {"launcher": "local"})
    assert study(toml, "--out", tmp_path / "out").returncode == 1
    (cell,) = cells(tmp_path / "out").values()
    assert cell["state"] == "failed" and cell["reason"].startswith("MPI had 1 of 2 ranks: the launcher does not fit it")


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    toml = write_toml(tmp_path / "t.toml", ["/no/such/program"], {"ranks": [2]})
    assert study(toml, "--out", tmp_path / "out").returncode == 1
    reason = cells(tmp_path / "out")["ranks=2,repeat=1"]["reason"]
    assert reason.startswith("exit code 127") and "/no/such/program" in reason


@pytest.mark.slow
def test_two_at_once(tmp_path: Path) -> None:
    toml, folder = troubled(tmp_path / "t.toml", "hang"), tmp_path / "out"
    running = subprocess.Popen([*STUDY, str(toml), "--out", str(folder)], env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    try:
        wait_for(folder / "cells" / NAME / "attempt-1" / "results" / "0.json")
        second = study(toml, "--out", folder, "--resume")
        assert second.returncode == 2
        assert second.stderr.startswith(f"rankscope study: {folder}: another process is running this study")
        assert second.stderr.count("\n") == 1
    finally:
        running.terminate()
        running.wait()
    assert gone(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped(tmp_path: Path, number: signal.Signals) -> None:
    toml, folder = troubled(tmp_path / "t.toml", "hang"), tmp_path / "out"
    running = subprocess.Popen(
        [*STUDY, str(toml), "--out", str(folder)],
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for(folder / "cells" / NAME / "attempt-1" / "results" / "0.json")
    running.send_signal(number)
    said = running.communicate()[1]
    assert gone(folder)
    assert states(folder) == {}
    if number == signal.SIGINT:
        assert running.returncode == 130
        assert said.strip().splitlines()[-1] == "rankscope study: stopped; continue with --resume"
    (tmp_path / "mended").touch()
    assert study(toml, "--out", folder, "--resume").returncode == 0
    assert wrong_values(folder) == [] and states(folder) == {NAME: "done"}


def test_a_changed_definition_is_refused(tmp_path: Path) -> None:
    toml, folder = squares(tmp_path / "t.toml", axes=ONE), tmp_path / "out"
    assert study(toml, "--out", folder).returncode == 0
    again = study(toml, "--out", folder)
    assert again.returncode == 2 and "already holds a study: continue it with --resume" in again.stderr
    toml.write_text(toml.read_text().replace('"{cell}"', '"{cell}", "fail", "7"'))
    changed = study(toml, "--out", folder, "--resume")
    assert changed.returncode == 2
    assert "differs in its file's [workload] or [launch]" in changed.stderr and changed.stderr.count("\n") == 1


def test_an_axis_may_grow(tmp_path: Path) -> None:
    toml, folder = squares(tmp_path / "t.toml", axes=ONE), tmp_path / "out"
    assert study(toml, "--out", folder).returncode == 0
    squares(tmp_path / "t.toml", axes={"number": [2, 3], "ranks": [2]})
    assert study(toml, "--out", folder, "--resume").returncode == 0
    assert list(states(folder).values()) == ["done", "done"] and wrong_values(folder) == []
    assert cells(folder)[NAME]["attempt"] == "attempt-1"


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """In a small file system of its own, where the system lets us have one."""
    place = tmp_path / "small"
    place.mkdir()
    script = tmp_path / "fill.py"
    script.write_text(
        "import sys\nsize = 1 << 20\nwith open(sys.argv[1] + '/fill', 'wb', buffering=0) as file:\n"
        "    while size:\n        try:\n            file.write(b'x' * size)\n"
        "        except OSError:\n            size //= 2\n"
    )
    toml = write_toml(tmp_path / "t.toml", [sys.executable, str(script), "{cell}"], {"ranks": [1]})
    mended = write_toml(tmp_path / "mended.toml", [sys.executable, "-c", "pass"], {"ranks": [1]}, name="t")
    run = " ".join(map(str, STUDY))
    commands = (
        f"mount -t tmpfs -o size=16m tmpfs {place} || exit 77\n"
        f"{run} {toml} --out {place}/s; echo code $?\nrm {place}/s/cells/*/attempt-1/fill\n"
        f"find {place}/s -name '*.json' | xargs -n 1 {sys.executable} -m json.tool >/dev/null && echo whole\n"
        f"{run} {mended} --out {place}/s2 >/dev/null; echo code $?\n"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", commands],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"no file system of our own here: {done.stderr.strip()}")
    said = [line for line in done.stderr.splitlines() if line.startswith("rankscope study")]
    assert len(said) == 1 and "No space left on device" in said[0] and said[0].endswith("continue with --resume")
    assert "Traceback" not in done.stderr
    assert done.stdout.split() == ["code", "2", "whole", "code", "0"]


@pytest.mark.slow
def test_mpirun_that_fails(openmpi: Mpi, tmp_path: Path) -> None:
    toml = troubled(tmp_path / "t.toml", "fail", openmpi.python, launch={"launcher": "openmpi"})
    assert study(toml, "--out", tmp_path / "out").returncode == 1
    assert cells(tmp_path / "out")[NAME]["state"] == "failed"


def wait_for(path: Path) -> None:
    until = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < until, path
        time.sleep(0.05)


def gone(folder: Path) -> bool:
    until = time.monotonic() + 100
    while processes_with(str(folder)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_nothing_of_this_module_runs(tmp_path: Path) -> None:
    left = processes_with(f"{os.sep}maybe.py")
    assert [words for words in left if str(tmp_path.parent) in words] == []  # others may run the same tests
