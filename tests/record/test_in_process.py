"""Blocks of a program that was started without `rankscope run`, and cells of a notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import rankscope as rs

BLOCKS = """\
import sys, time
sys.path.insert(0, sys.argv[1])
import rankscope
rankscope.step()  # nobody records
with rankscope.recording("run") as folder:
    for step in range(3):
        with rankscope.range("forward"):
            time.sleep(0.01)
        rankscope.step()
time.sleep(0.5)
with rankscope.range("forward"):
    pass
with rankscope.recording("run") as again:
    with rankscope.range("forward"):
        time.sleep(0.01)
    rankscope.step()
print(folder == again)
"""
PACKAGE = str(Path(rs.__file__).parents[1])


def test_blocks_of_one_process_are_one_run_and_what_is_between_them_is_no_step(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BLOCKS, PACKAGE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    run = rs.open(tmp_path / "run")
    assert list(run.query("SELECT rank, role, ended_steps, exit_code FROM ranks").rows) == [(0, "rank", 4, 0)]
    assert list(run.query("SELECT sum(calls)::INT FROM tallies WHERE name = 'forward'").rows) == [(4,)]
    [(longest_ns,)] = run.query("SELECT max(end_ns - begin_ns) FROM steps WHERE number > 1").rows
    assert longest_ns < 400e6


CELL = """\
import sys
sys.path.insert(0, sys.argv[1])
import rankscope

class Shell:
    def register_magic_function(self, function, magic_kind):
        setattr(self, f"{magic_kind}_{function.__name__}", function)
    def run_cell(self, cell):
        exec(cell, globals())

shell = Shell()
rankscope.load_ipython_extension(shell)
for cell in range(2):
    run = shell.cell_rankscope("run", "for step in range(3): rankscope.step()")
print(run.query("SELECT ended_steps FROM ranks").rows)
"""


def test_cells_of_a_notebook_answer_with_the_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CELL, PACKAGE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[(6,)]\n", "")
