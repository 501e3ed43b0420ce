"""Imports inside which a program changes stacks, forks or ends: as bare, and what is recorded of them makes sense."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from mpis import ROOT
from native.syscalls import runs

PYTHON = ROOT / ".envs" / "packages" / "bin" / "python"

# Python calls Python without C's stack: through_c takes some of it, so that stacks lie over one another.
BEGIN = """
import importlib, os, sys
sys.path.insert(0, sys.argv[1])
def write(name, *lines):
    with open(f"{sys.argv[1]}/{name}.py", "w") as file:
        file.write("\\n".join(lines) + "\\n")
    importlib.invalidate_caches()
def through_c(levels, call):
    return max([0], key=lambda _: out.append(through_c(levels - 1, call)) or 0) * 0 or out.pop() if levels else call()
out = []
load = importlib.import_module
"""
DEEPER = """
import greenlet
for n in range(200):
    write(f"switches{n}", "import greenlet", "greenlet.getcurrent().parent.switch()", "value = 1")
    write(f"plain{n}", "value = 2")
    inner = greenlet.greenlet(lambda: load(f"switches{n}").value)
    inner.switch()
    through_c(n % 60, lambda: load(f"plain{n}"))
    inner.switch()
print("done", len(out))
"""
THREE = """
import greenlet
for n in range(3):
    write(f"three{n}", "import greenlet", "for n in range(3000): greenlet.getcurrent().parent.switch()",
          "import json.tool, decimal", f"value = {n}")
each = [greenlet.greenlet(lambda n=n: through_c(n * 7, lambda: load(f"three{n}").value)) for n in range(3)]
values = []
while each:
    for one in list(each):
        value = one.switch()
        if one.dead:
            values.append(value)
            each.remove(one)
print(sorted(values))
"""
FORKS = """
import greenlet
for n in range(3):
    write(f"waits{n}", "import greenlet", "greenlet.getcurrent().parent.switch()", "import json.tool", "value = 1")
write("forks", "import os, decimal", "pid = os.fork()", "if pid == 0:", "    import colorsys")
each = [greenlet.greenlet(lambda n=n: load(f"waits{n}").value) for n in range(3)]
for one in each:
    one.switch()
pid = through_c(30, lambda: load("forks").pid)
if pid == 0:
    import fractions
    os._exit(5 if [one.switch() for one in each] == [1, 1, 1] else 6)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), [one.switch() for one in each])
"""
DIES = """
import gc, greenlet
for n in range(4200):
    if n < 50:
        write(f"dies{n}", "import greenlet", "greenlet.getcurrent().parent.switch()")
    def run(n=n):
        try:
            load(f"dies{n % 50}")
        finally:
            ended.append(n)
    ended = []
    one = greenlet.greenlet(run)
    one.switch()
    del one, run
    gc.collect() if n % 2000 == 0 else None
    sys.modules.pop(f"dies{n % 50}", None)
print(ended)
import json.tool
"""
THREADS = """
import greenlet, threading
def run(n):
    left = greenlet.greenlet(lambda: load(f"parks{n}"))
    left.switch()
    kept.append(left)
kept = []
for n in range(60):
    write(f"parks{n}", "import greenlet", "greenlet.getcurrent().parent.switch()")
    thread = threading.Thread(target=run, args=(n,))
    thread.start(); thread.join()
    kept.clear()
import json.tool
print("done")
"""
UNWINDS = """
write("raises", "import json.tool", "1 / 0")
write("generates", "def numbers():", "    import colorsys", "    yield 1", "    import wave", "    yield 2")
for n in range(300):
    try:
        load("raises")
    except ZeroDivisionError:
        pass
    each = load("generates").numbers()
    next(each)
    each.close() if n % 2 else next(each)
def exits():
    write("exits", "import sys", "sys.exit()")
    load("exits")
import threading
thread = threading.Thread(target=exits)
thread.start(); thread.join()
print("done")
"""
GEVENT = """
from gevent import monkey; monkey.patch_all()
import gevent
for n in range(60):
    write(f"sleeps{n}", "import gevent", "for i in range(5): gevent.sleep(0)", f"import waits{n}, shared",
          f"value = waits{n}.value")
    write(f"waits{n}", "import gevent", f"for i in range(5): gevent.sleep(0.0001 * ({n} % 3))", f"value = {n}")
write("shared", "import time", "time.sleep(0.01)")
jobs = [gevent.spawn(through_c, n % 17, lambda n=n: load(f"sleeps{n}").value) for n in range(60)]
gevent.joinall(jobs, raise_error=True)
print(sum(job.value for job in jobs))
"""
PROGRAMS = {
    "deeper": DEEPER,
    "three": THREE,
    "forks": FORKS,
    "dies": DIES,
    "threads": THREADS,
    "unwinds": UNWINDS,
    "gevent": GEVENT,
}


@cache
def missing() -> str:
    if not PYTHON.exists():
        return ".envs/packages is missing: run make envs"
    found = subprocess.run([PYTHON, "-c", "import greenlet, gevent"], capture_output=True)
    return "" if found.returncode == 0 else ".envs/packages has no greenlet and gevent: remove it, then make envs"


@pytest.mark.parametrize("mode", ["time", "paths"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_bare(name: str, mode: str, tmp_path: Path) -> None:
    if missing():
        pytest.skip(missing())
    program = tmp_path / "program.py"
    program.write_text(BEGIN + PROGRAMS[name])
    ended = []
    for run in (runs.bare, runs.recorded):
        folder = tmp_path / run.__name__
        folder.mkdir()
        command = [PYTHON, program, folder]
        ended.append(run(command) if run is runs.bare else run(command, tmp_path / "run", mode))
    assert ended[0].code == 0, ended[0].err
    assert ended[1] == ended[0]
    makes_sense(tmp_path / "run")
    if name in ("dies", "threads"):  # more than can go on at a time: none of them does
        assert runs.opened(tmp_path / "run").query("SELECT ended FROM modules WHERE name = 'json.tool'") == [(True,)]


def makes_sense(folder: Path) -> None:
    """Of every import of every process: parents that began before, parts no larger than the whole."""
    run = runs.opened(folder)
    assert run.query("SELECT count(*) > 10 FROM modules") == [(True,)]
    wrong = """SELECT * FROM modules m LEFT JOIN modules p ON m.process = p.process AND m.parent = p.module
        WHERE (m.parent > 0 AND (p.module IS NULL OR p.begin_ns > m.begin_ns)) OR m.self_wall_ns > m.wall_ns
        OR m.self_cpu_ns > m.cpu_ns OR m.wall_ns < 0 OR m.self_wall_ns < 0 OR m.wall_ns > 100e9"""
    assert run.query(wrong) == []


def test_an_import_after_a_fork_inside_one_belongs_to_the_childs_own(tmp_path: Path) -> None:
    """The outer import's row is the parent's; the child has rows of its own, whole ones."""
    program = tmp_path / "outer.py"
    program.write_text("import os\npid = os.fork()\nimport colorsys\nif pid: os.waitpid(pid, 0)\nelse: os._exit(0)\n")
    command = [
        PYTHON if PYTHON.exists() else "python3",
        "-c",
        f"import sys; sys.path.insert(0, '{tmp_path}'); import outer",
    ]
    assert runs.recorded(command, tmp_path / "run", "time").code == 0
    run = runs.opened(tmp_path / "run")
    rows = run.query("""SELECT r.role::VARCHAR, m.ended, m.parent > 0 FROM modules m JOIN ranks r USING (process)
        WHERE m.name = 'colorsys' ORDER BY r.parent_pid = 0, m.process""")
    assert sorted(rows) == [("helper", True, False), ("rank", True, True)]
    assert run.query("SELECT count(*) FROM modules WHERE name = 'outer' AND ended") == [(1,)]
