"""Calls of real imports, held against strace; what they are put down to; what remains without dispatch."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from mpis import ROOT
from native.syscalls import runs

PACKAGES = ROOT / ".envs" / "packages" / "bin" / "python"
STATS = ("stat", "lstat", "fstat", "newfstatat", "statx")
OPENS = ("open", "openat")


def by_strace(command: list[str], folder: Path) -> Counter[str]:
    subprocess.run(["strace", "-f", "-c", "-o", str(folder / "strace"), *command], check=True, env=runs.environment())
    rows = re.findall(r"(?m)^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", (folder / "strace").read_text())
    return Counter({name: int(calls) for calls, name in rows if name != "total"})


def by_us(folder: Path) -> Counter[str]:
    rows = runs.opened(folder).query("SELECT call::VARCHAR, sum(calls)::BIGINT FROM system_calls GROUP BY call")
    return Counter({name: calls for name, calls in rows if name not in ("exit", "exit_group")})  # strace has them not


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")
@pytest.mark.skipif(not PACKAGES.exists(), reason=".envs/packages is missing: run make envs")
@pytest.mark.parametrize(
    "statement", ["import click", "import numpy", "import yaml; import subprocess as s; s.run('true')"]
)
def test_as_strace_counts(statement: str, tmp_path: Path) -> None:
    command = [str(PACKAGES), "-c", statement]
    theirs = by_strace(command, tmp_path)
    assert runs.recorded(command, tmp_path / "run", "calls").code == 0
    ours = by_us(tmp_path / "run")
    assert abs(ours.total() - theirs.total()) <= 0.01 * theirs.total()
    for family, most in ((STATS, 0.01), (OPENS, 0.02)):
        mine, true = (sum(counts[name] for name in family) for counts in (ours, theirs))
        assert abs(mine - true) <= most * true


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A module that is searched in empty folders first, reads a file, and imports another that is not there."""
    for name in ("empty1", "empty2", "modules"):
        (tmp_path / name).mkdir()
    (tmp_path / "modules" / "outer.py").write_text(
        "import os, inner\nfor n in range(7):\n    os.path.exists('/no/such/file')\n"
    )
    (tmp_path / "modules" / "inner.py").write_text(
        "import time\nend = time.thread_time() + 0.05\nwhile time.thread_time() < end: pass\n"
        "open('/etc/hostname').read()\ntry:\n    import not_there\nexcept ImportError:\n    pass\n"
    )
    return tmp_path


def test_modules_and_causes(library: Path, tmp_path: Path) -> None:
    path = ":".join(str(library / name) for name in ("empty1", "empty2", "modules"))
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {path.split(':')!r}; import outer; import decimal"]
    assert runs.recorded(command, tmp_path / "run", "paths").code == 0
    run = runs.opened(tmp_path / "run")
    modules = {
        name: row
        for name, *row in run.query("SELECT name, module, parent, wall_ns, self_wall_ns, cpu_ns, failed FROM modules")
    }
    outer, inner, missing = modules["outer"], modules["inner"], modules["not_there"]
    assert inner[1] == outer[0] and missing[1] == inner[0] and outer[1] == 0
    assert missing[5] and not inner[5] and not outer[5]
    assert inner[4] >= 50_000_000 and outer[2] >= inner[2] and outer[3] <= outer[2] - inner[2]
    asked = run.query(
        "SELECT cause, operation, result, sum(times) FROM paths WHERE path = '/no/such/file' GROUP BY ALL"
    )
    assert asked == [("module", "stat", "ENOENT", 7)]
    read = run.query(f"SELECT cause, result, bytes FROM paths WHERE path = '/etc/hostname' AND module = {inner[0]}")
    assert read == [("module", "ok", os.path.getsize("/etc/hostname"))]
    found = run.query(
        f"SELECT DISTINCT cause FROM paths WHERE module = {outer[0]} AND path = '{library}/modules/outer.py'"
    )
    assert ("search",) in found and ("code",) in found
    own = run.query("SELECT count(*) FROM paths WHERE path LIKE '%/rankscope/agent/%' OR path LIKE '%.rank'")
    assert own == [(0,)]
    loaded = run.query("SELECT sum(shared_objects) FROM modules WHERE name = '_decimal'")[0][0]
    assert loaded >= 1
    by_loader = run.query("""SELECT count(*) FROM paths JOIN modules USING (process, module)
        WHERE cause = 'loader' AND name = '_decimal' AND result = 'ok'""")
    assert by_loader[0][0] >= 1


def test_times_are_always_there_and_calls_only_where_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import decimal"]
    assert runs.recorded(command, tmp_path / "time", "time").code == 0
    run = runs.opened(tmp_path / "time")
    assert run.query("SELECT count(*) FROM modules WHERE name = 'decimal' AND wall_ns > 0") == [(1,)]
    assert run.query("SELECT count(*) FROM system_calls") == run.query("SELECT count(*) FROM calls_method") == [(0,)]
    assert runs.recorded(command, tmp_path / "off", "off").code == 0
    assert runs.opened(tmp_path / "off").query("SELECT count(*) FROM modules") == [(0,)]


def test_without_dispatch_the_wrapped_functions_are_counted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import decimal; print(1)"]
    done = runs.recorded(command, tmp_path / "run", "calls", RANKSCOPE_DISPATCH="0")
    assert done.out == "1\n"
    run = runs.opened(tmp_path / "run")
    method, note, share = run.query("SELECT method, note, seen_share FROM calls_method")[0]
    assert method == "preload" and "RANKSCOPE_DISPATCH=0" in note and share is None
    counts = Counter(dict(run.query("SELECT call::VARCHAR, sum(calls)::BIGINT FROM system_calls GROUP BY call")))
    assert counts["newfstatat"] + counts["fstat"] > 20 and counts["openat"] > 5


def test_a_loaders_search_can_be_read_from_paths(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    command = [sys.executable, "-c", "import decimal"]
    done = runs.recorded(command, tmp_path / "run", "paths", LD_LIBRARY_PATH=str(tmp_path / "first"))
    assert done.code == 0
    missed = runs.opened(tmp_path / "run").query(
        f"SELECT count(*) FROM paths WHERE cause = 'loader' AND result = 'ENOENT' AND path LIKE '{tmp_path}/first/%'"
    )
    assert missed[0][0] >= 1  # the first of them before the recorder was loaded: libc is found in another folder


def test_killed_in_an_import(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import decimal, time\nprint('in', flush=True)\ntime.sleep(60)\n")
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from rankscope.cli import main; sys.exit(main())"
    words = [sys.executable, "-c", start, "run", "--out", str(tmp_path / "run"), "--imports", "calls", "--"]
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import slow"
    job = subprocess.Popen([*words, sys.executable, "-c", code], stdout=subprocess.PIPE, env=runs.environment())
    assert job.stdout is not None and job.stdout.readline() == b"in\n"
    time.sleep(0.05)
    os.kill(job.pid, signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    run = runs.opened(tmp_path / "run")
    assert run.query("SELECT ended FROM modules WHERE name = 'slow'") == [(False,)]
    assert run.query("SELECT count(*) FROM modules WHERE name = 'decimal' AND ended") == [(1,)]
    assert run.query("SELECT sum(calls) > 300 FROM system_calls") == [(True,)]


OTHER_PYTHONS = sorted({path for path in Path.home().glob(".pyenv/versions/3.*/bin/python") if path.exists()})


@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.parts[-3])
def test_other_pythons(python: Path, tmp_path: Path) -> None:
    code = """
import sys, threading, traceback
try:
    import no_such_module
except ImportError:
    traceback.print_exc()
thread = threading.Thread(target=__import__, args=("decimal",))
thread.start(); thread.join()
import subprocess
print(subprocess.Popen(["sh", "-c", "exit 3"]).wait(), [type(finder) for finder in sys.meta_path][-2:])
"""
    alone, with_us = runs.bare([python, "-c", code]), runs.recorded([python, "-c", code], tmp_path / "run", "calls")
    assert with_us == alone
    version = int(python.parts[-3].split(".")[1])
    found = runs.opened(tmp_path / "run").query(
        "SELECT failed FROM modules WHERE name IN ('decimal', 'no_such_module')"
    )
    assert sorted(found) == ([(False,), (True,)] if version >= 10 else [])


@pytest.mark.parametrize(
    "refused, method, told",
    [("dispatch", "preload", "not allowed here"), ("ptrace", "dispatch", "before the recorder")],
)
def test_where_the_kernel_refuses(refused: str, method: str, told: str, tmp_path: Path) -> None:
    program = tmp_path / "refuses"
    subprocess.run(["cc", "-o", program, ROOT / "tests/native/syscalls/refuses.c"], check=True)
    command = [program, refused, sys.executable, "-c", "import decimal; print(decimal.Decimal(1))"]
    assert runs.recorded(command, tmp_path / "run", "calls") == runs.bare(command)
    run = runs.opened(tmp_path / "run")
    rows = run.query("""SELECT method, note, sum(calls) FROM calls_method JOIN system_calls USING (process)
        JOIN ranks USING (process) WHERE command LIKE '%decimal%' AND executable LIKE '%python%' GROUP BY ALL""")
    assert len(rows) == 1 and rows[0][0] == method and told in rows[0][1] and rows[0][2] > 50
