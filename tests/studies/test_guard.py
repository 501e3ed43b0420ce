"""The guard of a cell: how the command ended, what it printed, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT
from studies.studying import processes_with

GUARD = ROOT / "src" / "rankscope" / "studies" / "guard.py"
LOCAL = ROOT / "src" / "rankscope" / "studies" / "local.py"
# A child that leaves the session and loses its parent, and does not care for SIGTERM.
DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(1000)
    os._exit(0)
os.wait()
print('started', flush=True)
time.sleep(float(sys.argv[1]))
"""


def guard(folder: Path, *command: str, timeout_s: float = 60) -> list[str]:
    words = [sys.executable, "-I", "-S", str(GUARD), "--into", str(folder), "--timeout", str(timeout_s), "--"]
    return [*words, *command]  # -I -S: the standard library only


def ended(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "ended.json").read_text())
    return found


def started(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    """A guard whose command has printed something already."""
    running = subprocess.Popen(guard(folder, *command))
    until = time.monotonic() + 100
    while not (folder / "output.txt").exists() or not (folder / "output.txt").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.02)
    return running


def gone(word: str) -> bool:
    until = time.monotonic() + 100
    while processes_with(word):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [("print('x')", 0, 0), ("raise SystemExit(7)", 7, 7), ("import os; os.kill(os.getpid(), 9)", -9, 137)],
)
def test_exit_code(tmp_path: Path, code: str, status: int, exit_code: int) -> None:
    done = subprocess.run(guard(tmp_path, sys.executable, "-c", code), check=False)
    assert done.returncode == exit_code
    told = ended(tmp_path)
    assert told["exit_code"] == status and told["timed_out"] is False and told["command"][-1] == code
    assert 0 < told["seconds"] < 60


def test_output_and_input(tmp_path: Path) -> None:
    code = "import os, sys; print(len(sys.stdin.read()), flush=True); os.write(2, b'and errors')"
    subprocess.run(guard(tmp_path, sys.executable, "-c", code), input=b"not for the job", check=True)
    assert (tmp_path / "output.txt").read_bytes() == b"0\nand errors"


def test_endless_output_is_cut_in_the_middle(tmp_path: Path) -> None:
    size = 40 << 20
    code = f"import sys; sys.stdout.write('first\\n' + 'x' * {size} + '\\nlast\\n')"
    subprocess.run(guard(tmp_path, sys.executable, "-c", code), check=True)
    kept = (tmp_path / "output.txt").read_bytes()
    left_out = size + len("first\n\nlast\n") - (32 << 20) - (64 << 10)
    assert kept.startswith(b"first\nxxx") and kept.endswith(b"x\nlast\n")
    assert f"\n… {left_out} bytes omitted here …\n".encode() in kept
    assert len(kept) < 33 << 20


def test_time_up_ends_daemons_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "daemon.py"
    program.write_text(DAEMON)
    # The job ignores SIGTERM: the guard's patience is what this test takes.
    patient = GUARD.read_text().replace("POLITE_S = 10.0", "POLITE_S = 0.5")
    shorter = tmp_path / "guard.py"
    shorter.write_text(patient)
    words = guard(tmp_path, sys.executable, str(program), "1000", timeout_s=1)
    words[words.index(str(GUARD))] = str(shorter)
    done = subprocess.run(words, check=False)
    assert done.returncode == 124
    assert ended(tmp_path)["timed_out"] is True and ended(tmp_path)["exit_code"] is None
    assert (tmp_path / "output.txt").read_bytes() == b"started\n"
    assert processes_with(str(program)) == []


def test_daemons_of_a_job_that_has_ended(tmp_path: Path) -> None:
    program = tmp_path / "daemon.py"
    program.write_text(DAEMON)
    done = subprocess.run(guard(tmp_path, sys.executable, str(program), "0"), check=False)
    assert done.returncode == 0 and ended(tmp_path)["exit_code"] == 0
    assert ended(tmp_path)["seconds"] < 20
    assert processes_with(str(program)) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_stopped_attempts_do_not_count(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "sleep.py"
    program.write_text("import time; print('on', flush=True); time.sleep(1000)")
    running = started(tmp_path, sys.executable, str(LOCAL), "2", "--", sys.executable, str(program))
    running.send_signal(number)
    assert running.wait() == -number
    assert gone(str(program))
    assert not (tmp_path / "ended.json").exists()


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    program = tmp_path / "sleep.py"
    program.write_text("import time; print('on', flush=True); time.sleep(1000)")
    code = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:]); time.sleep(1000)"
    parent = subprocess.Popen([sys.executable, "-c", code, *guard(tmp_path, sys.executable, str(program))])
    until = time.monotonic() + 100
    while not (tmp_path / "output.txt").exists() or not (tmp_path / "output.txt").read_bytes():
        assert time.monotonic() < until
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    assert gone(str(program))
    assert not (tmp_path / "ended.json").exists()


def test_it_does_not_start_for_a_parent_that_is_gone(tmp_path: Path) -> None:
    words = guard(tmp_path, sys.executable, "-c", "print('x')")
    words[words.index("--") : words.index("--")] = ["--parent", "1"]
    assert subprocess.run(words, check=False).returncode == 1
    assert not (tmp_path / "output.txt").exists()


def test_local_tells_each_rank_its_place(tmp_path: Path) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMPI_COMM_WORLD_RANK")
    code = f"import os; os.write(1, (' '.join(os.environ.get(name, '-') for name in {names!r}) + '\\n').encode())"
    words = [sys.executable, "-I", "-S", str(LOCAL), "3", "--", sys.executable, "-c", code]
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": "5"}
    environment.pop("MASTER_ADDR", None)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == [f"{rank} {rank} 3 3 127.0.0.1 -" for rank in range(3)]


@pytest.mark.parametrize(("code", "exit_code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_local_ends_all_when_one_fails(tmp_path: Path, code: str, exit_code: int) -> None:
    program = tmp_path / "one.py"
    program.write_text(f"import os, sys, time\nif os.environ['RANK'] == '1': {code}\ntime.sleep(1000)")
    done = subprocess.run([sys.executable, str(LOCAL), "3", "--", sys.executable, str(program)], check=False)
    assert done.returncode == exit_code
    assert processes_with(str(program)) == []
