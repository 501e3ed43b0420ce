"""The Python line of a rank, from what py-spy prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.cli.hang import find_py_spy, innermost, python_lines

# as py-spy 0.4 prints it with --json, with fewer fields
DUMP = """[{"pid": 7, "thread_id": 1, "thread_name": "MainThread", "owns_gil": false, "frames": [
 {"name": "all_reduce", "filename": "/env/lib/python3.11/site-packages/torch/distributed/c10d.py", "line": 3252},
 {"name": "step", "filename": "/home/me/train.py", "line": 46}, {"name": "<module>", "filename": "t.py", "line": 9}]},
 {"pid": 7, "thread_id": 2, "thread_name": "loader", "frames": [{"name": "get", "filename": "q.py", "line": 1}]}]"""


def test_the_programs_own_line() -> None:
    assert innermost(json.loads(DUMP)) == "train.py:46 step"


def test_our_own_frames_are_nobodys_line() -> None:
    wrapper = {"name": "wait", "filename": "/opt/rankscope/agent/torch_collectives.py", "line": 7}
    [main, _] = json.loads(DUMP)
    main["frames"].insert(0, wrapper)
    assert innermost([main]) == "train.py:46 step"
    assert innermost([{"thread_name": "MainThread", "frames": [wrapper]}]) == "torch_collectives.py:7 wait"


def test_without_frames() -> None:
    assert innermost([]) == ""
    assert innermost([{"thread_name": "MainThread", "frames": []}]) == ""


def test_a_py_spy_that_fails_or_answers_nonsense(tmp_path: Path) -> None:
    for script, told in (("echo no permission >&2; exit 1", "no permission"), ("echo {", "py-spy: ")):
        fake = tmp_path / "py-spy"
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        lines, notes = python_lines({0: os.getpid()}, str(fake))
        assert lines == {} and told in notes[0]


def test_a_real_process() -> None:
    py_spy = find_py_spy()
    if py_spy is None:
        pytest.skip("py-spy is not installed")
    program = "import time\nprint('up', flush=True)\ndef load():\n    time.sleep(1000)\nload()\n"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None and child.stdout.readline() == b"up\n"
            lines, notes = python_lines({3: child.pid}, py_spy)
        finally:
            child.kill()
    if notes and "ermission" in notes[0]:
        pytest.skip(notes[0])
    assert lines == {3: "<string>:4 load"}
