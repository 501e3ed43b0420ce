"""Messages of torch.distributed on Gloo: all of them are matched, and the slow stage is the one that is waited for."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mpis import ROOT, job_environment
from programs.jobs import PROGRAMS
from rankscope.questions.messages import matched_messages
from rankscope.questions.messages.matching import ends_left_out
from rankscope.questions.messages.messages import messages
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run

BINARIES = ROOT / ".envs" / "torch" / "bin"
LATE_MS = 30


@pytest.mark.timeout(200)
@pytest.mark.slow
def test_messages_of_gloo(tmp_path: Path) -> None:
    if not (BINARIES / "torchrun").exists():
        pytest.skip(".envs/torch is missing: run make envs")
    environment = {**job_environment(BINARIES, {}), "PYTHONPATH": str(ROOT / "src")}
    record = [sys.executable, "-m", "rankscope", "run", "--out", str(tmp_path / "run"), str(BINARIES / "torchrun")]
    launch = ["--standalone", "--nproc-per-node", "3", str(PROGRAMS / "gloo_messages.py"), str(LATE_MS)]
    done = subprocess.run([*record, *launch], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "run", read_rank_file)
    known = matched_messages(run)
    columns = (known.sender, known.receiver, known.tag, known.bytes)
    ring = [(rank, (rank + 1) % 3, tag, 4 * (10 + n)) for rank in range(3) for n, tag in enumerate((0, 0, 2, 0))]
    expected = Counter([(0, 1, 1, 4000), (1, 2, 1, 4000)] * 5 + ring + [(1, 0, 0, 52), (2, 0, 0, 52)])
    assert Counter(zip(*(column.tolist() for column in columns), strict=True)) == expected
    assert not ends_left_out(run)
    waits = {(row[0], row[1]): row[4] / 1e6 for row in messages(run).rows}
    assert waits[1, 2] > 4 * LATE_MS  # 5 times; the last stage has computed nothing
    assert (known.wait_ns >= 0).all() and (known.transfer_ns >= 0).all()
