"""Four nodes with networks, host names and slow mounts of their own: what the shared file system is asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from mpis import ROOT
from slow_file_system import skip_unless_runnable
from stage.jobs import Environment, clean_variables

ROW = re.compile(r"^\| 4 \| (in-place|staged) \| ([\d,]+) \| [\d,]+ \| ([\d,.]+) \|$", re.MULTILINE)


def test_four_nodes_on_a_slow_file_system(environment: Environment, tmp_path: Path) -> None:
    skip_unless_runnable()
    options = ["--nodes", "4", "--ranks", "3", "--latency", "100us", "--local", str(tmp_path), "--import", "alpha"]
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "stage.py", *options, "--environment", environment.folder],
        env={**clean_variables(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked = {way: (int(count.replace(",", "")), float(size)) for way, count, size in ROW.findall(done.stdout)}
    nodes = [line.split(" | ")[1] for line in done.stdout.splitlines() if re.match(r"\| \S+-[0-9a-f]{8} \|", line)]
    assert sorted(nodes) == ["a peer"] * 3 + ["shared file"], done.stdout
    in_place, staged = asked["in-place"], asked["staged"]
    assert staged[0] < in_place[0]
    assert "did not meet" not in done.stdout and "ran in place" not in done.stdout
