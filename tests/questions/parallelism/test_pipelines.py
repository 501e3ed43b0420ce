"""Real pipelines of torch on Gloo: stages, micro-batches, bubbles, and the one thing that is slow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT, job_environment
from programs.jobs import PROGRAMS
from rankscope.api.run import Run
from rankscope.questions.findings.pipelines import OF_A_HOST, slow_pipeline_part
from rankscope.questions.findings.stragglers import straggler
from rankscope.questions.messages.matching import ends_left_out
from rankscope.questions.parallelism.bubbles import bubbles_of, interleaved_sends, slow_parts
from rankscope.questions.parallelism.groups import parallelism
from rankscope.questions.stragglers.causes import causes_of

BINARIES = ROOT / ".envs" / "torch" / "bin"


def recorded(folder: Path, ranks: int, *options: str) -> Run:
    if not (BINARIES / "torchrun").exists():
        pytest.skip(".envs/torch is missing: run make envs")
    environment = {**job_environment(BINARIES, {}), "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    record = [sys.executable, "-m", "rankscope", "run", "--imports", "off", "--out", str(folder / "run"), "--"]
    launch = [str(BINARIES / "torchrun"), "--standalone", "--nproc-per-node", str(ranks)]
    command = [*record, *launch, str(PROGRAMS / "pipelines.py"), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Run(folder / "run")


@pytest.mark.timeout(200)
@pytest.mark.slow
def test_four_stages(tmp_path: Path) -> None:
    """GPipe with 5 micro-batches: 3 of 8 slots of each stage are idle by the schedule alone."""
    run = recorded(tmp_path, 4, "--schedule", "gpipe", "--micro-batches", "5", "--steps", "5")
    tables = run.store(events=True)
    assert not ends_left_out(tables)
    found = bubbles_of(tables)
    assert found is not None
    assert (found.pipelines, found.micro_batches, found.chunks, found.schedule) == ([(0, 1, 2, 3)], 5, 1, "GPipe")
    assert found.analytic_share == pytest.approx(3 / 8)
    idle = sum(found.parts[name].mean() for name in ("warmup", "drain", "transfer", "imbalance"))
    assert 0.3 < idle / found.window.mean() < 0.6  # a busy machine makes it larger
    total = sum(values for values in found.parts.values())
    assert total == pytest.approx(found.window[:, None, :].repeat(4, axis=1), rel=1e-6)
    phases = {row[0] for row in tables.query("SELECT DISTINCT phase FROM tallies WHERE name LIKE 'Optimizer.step%'")}
    assert "steady" in phases, "no collective: yet the first step ends"
    given = Run(run.folder, groups="pp=3,2,1,0").table("parallelism")
    assert [row[1] for row in given.rows] == ["(pp 3)", "(pp 2)", "(pp 1)", "(pp 0)"]
    shown = run.screen().bars
    assert shown is not None
    bars = {bar.label: bar.share for bar in shown.bars}
    assert bars["pipeline bubble"] > 2 * bars.get("exposed communication", 0.0)


@pytest.mark.timeout(200)
def test_two_stages_twice_one_rank_slow(tmp_path: Path) -> None:
    slow = ("--slow", "rank=3:2.5")
    run = recorded(tmp_path, 4, "--schedule", "1f1b", "--micro-batches", "4", "--stages", "2", *slow)
    tables = run.store(events=True)
    assert [row[1] for row in parallelism(tables).rows] == [
        "(dp 0, pp 0)",
        "(dp 0, pp 1)",
        "(dp 1, pp 0)",
        "(dp 1, pp 1)",
    ]
    found = bubbles_of(tables)
    assert found is not None and found.pipelines == [(0, 1), (2, 3)]
    assert [(one.kind, one.ranks) for one in slow_parts(found)][:1] == [("rank", (3,))]
    [finding] = slow_pipeline_part(tables)
    assert "rank 3 of stage 1" in finding.title
    late = {one.late.rank: one.name for one in causes_of(tables)}
    if 3 in late and late[3] not in OF_A_HOST:  # else a busy machine has made it late
        assert "causes: " in finding.evidence[-1]
        assert not any("Rank 3 " in one.title for one in straggler(tables)), "it is named once"


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize(("ranks", "stages"), [(2, 2), (3, 3)])
def test_interleaved(tmp_path: Path, ranks: int, stages: int) -> None:
    run = recorded(tmp_path, ranks, "--schedule", "interleaved", "--micro-batches", str(2 * stages))
    found = bubbles_of(run.store(events=True))
    assert found is not None
    assert (found.stages, found.micro_batches, found.chunks, found.schedule) == (stages, 2 * stages, 2, "interleaved")
    filling = found.parts["warmup"].mean() + found.parts["drain"].mean()
    assert filling > found.parts["imbalance"].mean(), "warm-up and drain are told apart, of two ranks too"


def test_which_messages_of_two_interleaved_ranks_go_forward() -> None:
    """Two chunks, four micro-batches: rank 0 has stages 0 and 2, rank 1 has 1 and 3, which sends nothing forward."""
    there, back = True, False
    first = interleaved_sends(0, 4, 2)
    assert first[:5] == [there] * 5 and first.count(there) == 8 and first.count(back) == 4
    last = interleaved_sends(1, 4, 2)
    assert last[:4] == [there, there, back, back] and last.count(there) == 4 and last.count(back) == 8
    assert not last[-1] and not first[-1]


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_slow_link(tmp_path: Path) -> None:
    run = recorded(tmp_path, 2, "--schedule", "1f1b", "--micro-batches", "4", "--slow", "link=0-1:40")
    found = bubbles_of(run.store(events=True))
    assert found is not None
    assert [(one.kind, one.ranks) for one in slow_parts(found)] == [("link", (0, 1))]
