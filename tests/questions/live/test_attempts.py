"""Looking on while a job is started anew: the attempt that runs is the job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rankscope.api.live import watch

LAUNCHER = """\
import os, subprocess, sys
for restart in range(2):
    env = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RESTART_COUNT": str(restart)}
    subprocess.run([sys.executable, "-c", sys.argv[1], str(restart)], env=env)
    print("ended", flush=True)
    sys.stdin.readline()
"""
RANK = """\
import sys
import rankscope
for step in range(2 + int(sys.argv[1])):
    rankscope.step()
print("stepped", flush=True)
sys.stdin.readline()
raise SystemExit(1 - int(sys.argv[1]))
"""


def test_every_look_sees_the_attempt_that_runs(rankscope: Path, tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_")}
    job = subprocess.Popen(
        [rankscope, "run", "--out", "run", sys.executable, "-c", LAUNCHER, RANK],
        cwd=tmp_path, env=kept, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    assert job.stdout is not None and job.stdin is not None
    seen: list[tuple[str, int | None, bool]] = []
    watched = None
    for expected in ("stepped", "ended", "stepped", "ended"):
        assert job.stdout.readline().strip() == expected
        watched = watched or watch(tmp_path / "run")
        now = watched.look()
        [moment] = now.ranks.values()
        seen.append((moment.facts.ending, moment.steps, now.launcher_runs))
        job.stdin.write("\n")
        job.stdin.flush()
    assert job.wait(timeout=60) == 0
    assert seen == [("running", 2, True), ("exited", 2, True), ("running", 3, True), ("exited", 3, True)]
