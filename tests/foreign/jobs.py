"""Runs one unit bare or recorded, whatever it does: its tests' outcomes, its exit code, what it printed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from foreign.suites import OUTCOMES_FILE, ROOT, Mode, Unit

RANKSCOPE = ROOT / ".venv" / "bin" / "rankscope"
MARK = "FOREIGN_RUN"  # in the environment of everything we start, so that all of it can be ended
KEPT_TEXT = 20_000


@dataclass
class Run:
    """What came of one run of a unit."""

    end: str  # "exit 0", "signal 11", "time limit"
    seconds: float
    tests: dict[str, str] = field(default_factory=dict)
    rank_files: int = 0
    warnings: list[str] = field(default_factory=list)  # lines of ours on stderr
    tail: str = ""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run_unit(unit: Unit, mode: Mode | None) -> Run:
    """Without a mode: bare."""
    # Short, because sockets live in it, and the same length for all.
    scratch = Path(tempfile.mkdtemp(prefix="f", dir="/tmp"))
    try:
        return run_in(scratch, unit, mode)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run_in(scratch: Path, unit: Unit, mode: Mode | None) -> Run:
    for name in ("t", "cwd"):
        (scratch / name).mkdir()
    environment, mark = environment_of(unit, mode, scratch)
    command = [word.replace(OUTCOMES_FILE, str(scratch / "outcomes")) for word in command_of(unit, mode, scratch)]
    begun = time.monotonic()
    with open(scratch / "stdout", "wb") as stdout, open(scratch / "stderr", "wb") as stderr:
        process = subprocess.Popen(
            command,
            cwd=unit.folder or scratch / "cwd",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=with_usual_signals,
        )
        try:
            code = process.wait(unit.limit_s)
            end = f"exit {code}" if code >= 0 else f"signal {-code}"
        except subprocess.TimeoutExpired:
            end = "time limit"
        finally:
            end_all(process, mark)
    seconds = time.monotonic() - begun
    out, (err, warnings) = read(scratch / "stdout"), without_warnings(read(scratch / "stderr"))
    tests = read_outcomes(scratch)
    if unit.compares_output:
        tests = {"end": end, "stdout": comparable(out, unit, scratch), "stderr": comparable(err, unit, scratch)}
    rank_files = len(list((scratch / "run").rglob("*.rank")))
    return Run(
        end, round(seconds, 2), tests, rank_files, warnings, (out[-3000:] + err[-3000:]) if end != "exit 0" else ""
    )


def with_usual_signals() -> None:
    """A shell starts what runs in the background with these ignored, and tests of signals would see that."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def environment_of(unit: Unit, mode: Mode | None, scratch: Path) -> tuple[dict[str, str], str]:
    mark = secrets.token_hex(8)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RANKSCOPE_", "MAKE", "MFLAGS"))}
    environment = {
        **kept,
        "TMPDIR": str(scratch / "t"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        MARK: mark,
    }
    environment.update(
        {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "LANG": "C.UTF-8", **dict(unit.variables)}
    )
    if mode:
        environment.update(dict(mode.variables))
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "LD_PRELOAD"):
        if name not in dict(unit.variables):
            environment.pop(name, None)
    return environment, mark


def command_of(unit: Unit, mode: Mode | None, scratch: Path) -> list[str]:
    if mode is None:
        return [*unit.launcher, *unit.command]
    options = [option.replace("{scratch}", str(scratch)) for option in mode.options]
    recorder = [str(RANKSCOPE), "run", "--out", str(scratch / "run"), *options]
    if mode.outside:
        return [*recorder, *unit.launcher, *unit.command]
    return [*unit.launcher, *recorder, *unit.command]


def end_all(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ends the process group and whatever left it, which the mark in its environment shows."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM if process.poll() is None else signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(3)
    needle = f"{MARK}={mark}".encode()
    for _ in range(5):
        left = [
            folder for folder in Path("/proc").iterdir() if folder.name.isdecimal() and needle in environ_of(folder)
        ]
        if not left:
            break
        for folder in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(folder.name), signal.SIGKILL)
        time.sleep(0.1)
    process.wait()


def environ_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


def read(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "backslashreplace")


def without_warnings(err: str) -> tuple[str, list[str]]:
    """A program that cannot be recorded may get one line of ours: shown without its paths, not compared."""
    lines = err.splitlines(keepends=True)
    ours = [re.sub(r"/[^\s;:,)]+", "PATH", line.rstrip("\n")) for line in lines if line.startswith("rankscope: ")]
    return "".join(line for line in lines if not line.startswith("rankscope: ")), ours


def comparable(text: str, unit: Unit, scratch: Path) -> str:
    text = text.replace(str(scratch), "SCRATCH")
    for pattern, instead in unit.replacements:
        text = re.sub(pattern, instead, text)
    return text if len(text) < KEPT_TEXT else f"{text[:KEPT_TEXT]} … {len(text)} characters"


def read_outcomes(scratch: Path) -> dict[str, str]:
    """Each test's outcome: several of one name (subtests, ranks) are told together, worst last."""
    tests: dict[str, str] = {}
    files = sorted(scratch.glob("outcomes.*"))
    for file in files:
        seen: dict[str, list[str]] = {}
        for line in file.read_text().splitlines():
            with contextlib.suppress(ValueError):
                test, outcome = json.loads(line)
                seen.setdefault(test, []).append(outcome)
        for test, outcomes in seen.items():
            name = test if len(files) == 1 else f"{test} @{file.suffix[1:]}"
            tests[name] = "+".join(sorted(set(outcomes)))
    return tests
