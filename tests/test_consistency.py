"""No table contradicts another: over the committed runs, own files of every format, and samples beside the project."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fuzz.seeds import collected
from mpis import ROOT
from rankscope.cli.load import run as load
from rankscope.model.tables import Column, Unit
from rankscope.questions.findings.savings import LESS, MORE, TOO_LITTLE_COMPUTE
from runs.contradictions import contradictions, impossible, unexplained
from runs.loaded import SHARED
from runs.simulated import Skew, train, write
from runs.small_run import MILLI

RESULTS = ROOT / "benchmarks" / "results" / "h200"
ARCHIVES = {
    path.name.partition(".")[0]: path for path in (*RESULTS.glob("*.tar.xz"), *ROOT.glob("tests/runs/*.tar.?z"))
}
FEW = ("h200_runs",)  # in `make test`: two ranks of DDP
COMMON = ("horovod_timeline", "kineto", "mpitrace", "nsys", "nvprof")  # formats, in `make test`
SMALL = 4096  # bytes
SAMPLES = sorted(
    entry
    for folder in (*SHARED.glob("samples/*"), SHARED / "seeds")
    if folder.is_dir()
    for entry in (folder.iterdir() if folder.name in ("kineto", "mpitrace", "seeds") else [folder])
)


def looked_at(folder: Path) -> dict[str, list[str]]:
    """What contradicts itself, by run."""
    runs = sorted(path.parent for path in folder.rglob("run.json"))
    found = {str(run.relative_to(folder)): contradictions(run) for run in runs}
    assert found
    return {run: told for run, told in found.items() if told}


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in sorted(ARCHIVES)]
)
def test_committed_runs(name: str, tmp_path: Path) -> None:
    with tarfile.open(ARCHIVES[name]) as packed:
        if not any(member.name.endswith("run.json") for member in packed):
            pytest.skip("an archive of measurements, not of runs")
        packed.extractall(tmp_path, filter="data")
    assert looked_at(tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_samples(sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other tools' files, each a run; with ../shared missing there are none."""
    if load([str(sample), "--out", str(tmp_path / "run")]) > 1:
        assert capsys.readouterr().err.startswith("rankscope: ")  # nothing that could be read, and it says so
    else:
        assert contradictions(tmp_path / "run") == []


def own_files() -> dict[str, bytes]:
    """The seeds of the fuzz harness: a few lines of each format, the last where there are several."""
    return {seed.format: seed.data for seed in collected() if seed.format and len(seed.data) < SMALL}


@pytest.mark.parametrize(
    "name", [name if name in COMMON else pytest.param(name, marks=pytest.mark.slow) for name in sorted(own_files())]
)
def test_own_files_of_every_format(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(own_files()[name])
    if load([str(tmp_path / name), "--out", str(tmp_path / "run")]) == 0:
        assert contradictions(tmp_path / "run") == []


@pytest.mark.parametrize("make", [lambda random: {}, lambda random: {2: 5.0 * MILLI}], ids=["all alike", "one late"])
def test_simulated_runs_on_clocks_that_disagree(make: Callable[..., dict[int, float]], tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    truth = train(random, 4, 200, jitter=0.3, late=make(random))
    write(tmp_path / "run", truth, Skew([0, 0, 1, 1], [0, 2e9], [0, 5e-5]))
    assert contradictions(tmp_path / "run") == []


def test_what_cannot_be_is_seen() -> None:
    """The rules themselves: a test that cannot fail would prove nothing."""
    time, share = Column("wait_ns", Unit.NS), Column("share", Unit.SHARE)
    assert impossible(time, -1.0) and impossible(share, 1.2) and impossible(share, float("nan"))
    assert not impossible(time, 0) and not impossible(share, 1.0) and not impossible(time, None)
    assert not impossible(Column("offset_ns", Unit.NS, formula="ahead; negative: behind"), -5)


EXPOSED = "Exposed transfer takes 292 µs of each 877 µs step (33 %)"


@pytest.mark.parametrize(
    ("title", "saved", "is_well"),
    [
        (EXPOSED, 42.5, False),
        (EXPOSED, 5.0, False),
        (EXPOSED, 32.6, True),
        (f"{EXPOSED}; overlapping it would save 373 µs per step: {MORE['overlap']}", 42.5, True),
        (f"{EXPOSED}; overlapping it would save 373 µs per step: {LESS['overlap']}", 42.5, False),
        (f"{EXPOSED}; overlapping it would save 44 µs per step: {TOO_LITTLE_COMPUTE}", 5.0, True),
        (f"{EXPOSED}; overlapping it would save 44 µs per step: {TOO_LITTLE_COMPUTE}", 42.5, False),
        (f"{EXPOSED}; overlapping it would save 44 µs per step: {MORE['overlap']}", 5.0, False),
        (f"{EXPOSED}; overlapping it would save 44 µs per step", 5.0, False),
        ("Checkpoints block the loop: 2 s, 20 % of the steps", 31.0, False),
        ("Rank 3 is late by 5 ms per step: forward", 31.0, True),
    ],
)
def test_a_title_and_a_saving_that_do_not_go_together_are_seen(title: str, saved: float, is_well: bool) -> None:
    assert (unexplained(title, saved) == "") == is_well
