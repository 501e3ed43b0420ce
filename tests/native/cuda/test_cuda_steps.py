"""Steps on the device's clock, on a fake CUPTI in real time: parts and causes of idleness, against a plain sweep."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from native.builds import HERE, SANITIZERS, STRICT, compile_c, recording
from native.cuda.test_cuda import make_driver
from native.cuda.test_cuda_ranges import only
from rankscope.model.records import PHASES
from rankscope.rank_file import ChunkKind, DeviceStepFlag, Idle, LayerNumber, MarkKind
from rankscope.rank_files.chunks import open_rank_file
from rankscope.rank_files.live import read_moment
from scripts.gpu_step_truth import NEAR_NS, OPTIMIZER, Truth, a_step, expected, truth_of

VERIFY = Path(__file__).parents[3] / "scripts" / "gpu_truth_verify.py"
TOLERANCE_NS = 60_000  # beside the time between two readings of our clock that have the recorder's between them


@pytest.fixture(scope="module")
def driver(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"loop-{sanitizer}")
    make_driver(folder, sanitizer)
    found = (f"-L{folder}", f"-Wl,-rpath,{folder}", "-Wl,--no-as-needed", "-lrankscope", "-l:libcupti.so.13")
    return compile_c(folder / "loop", HERE / "cuda" / "cuda_loop.c", *SANITIZERS[sanitizer], *found)


def play(driver: Path, folder: Path, script: Sequence[str], code: int = 0, **settings: str) -> Truth:
    environment = recording(folder, **{**STRICT, "RANK": "0", "WORLD_SIZE": "1", "FAKE_CUPTI_CLOCK": "1", **settings})
    text = "\n".join(script) + "\n"
    done = subprocess.run(
        [str(driver)], input=text, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")
    (folder / "truth.txt").write_text(f"clocks {NEAR_NS // 2} {NEAR_NS // 2} 1.0\n{done.stdout}")
    return truth_of(done.stdout.splitlines())


def rows_of(folder: Path) -> Any:
    rows = open_rank_file(only(folder)).parts(ChunkKind.DEVICE_STEPS)[0].rows
    return rows[rows["number"] > 0]


def told(row: Any) -> dict[str, float]:
    names = {"compute": "compute_ns", "hidden": "hidden_ns", "exposed": "exposed_ns", "copy": "copy_ns"}
    return {name: float(row[column]) for name, column in names.items()} | {
        cause.name.lower(): float(row["idle_ns"][cause]) for cause in Idle
    }


def compare(rows: Any, steps: Sequence[dict[str, float]]) -> None:
    by_number = {int(row["number"]): row for row in rows}
    for number, wanted in enumerate(steps, 1):
        row, doubt = by_number[number], wanted["doubt"] + TOLERANCE_NS
        seen = told(row)
        length = int(row["end_ns"]) - int(row["begin_ns"])
        assert abs(sum(seen.values()) - seen["hidden"] - length) <= 1e-5 * length + 100, number
        assert int(row["kernels"]) == wanted["kernels"], number
        assert abs(int(row["end_ns"]) - wanted["end"]) < doubt, number
        for name, ns in seen.items():
            assert abs(ns - wanted.get(name, 0.0)) < doubt, (number, name, seen, wanted)


@pytest.mark.parametrize("seed", range(6))
def test_parts_and_causes_of_every_step(driver: Path, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    script = []
    for _ in range(dice.choice((20, 120))):
        script += a_step(dice)
        script += [f"d {thread}" for thread in (1, 0, 1) if dice.random() < 0.2]
    truth = play(driver, tmp_path, [*script, "d 1", "d 0"])
    compare(rows_of(tmp_path), expected(truth))


@pytest.mark.parametrize("seed", range(3))
def test_records_that_come_seconds_late_are_put_into_their_steps(driver: Path, tmp_path: Path, seed: int) -> None:
    """CUPTI keeps what a thread has launched for as long as one of it is under way: here for a second and a half."""
    dice = random.Random(100 + seed)
    script = []
    for number in range(300):
        script += [*a_step(dice), "s 10000", "d 0"]
        script += ["d 1"] * (number % 130 == 129)
    truth = play(driver, tmp_path, [*script, "d 1", "d 0"])
    rows = rows_of(tmp_path)
    assert len(rows) == len(expected(truth))  # none is written twice
    compare(rows, expected(truth))


def test_a_host_that_runs_ahead_launches_into_its_own_step(driver: Path, tmp_path: Path) -> None:
    """Ten steps are launched in a millisecond; the device needs 20 ms for each."""
    step = ["b backward", *["l 1 0 5000 compute"] * 4, "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}"]
    truth = play(driver, tmp_path, [*step * 10, "y 0 0", "d 0", "d 1"])
    rows = rows_of(tmp_path)
    assert [int(row["kernels"]) for row in rows] == [4] * 10
    compare(rows, expected(truth))
    assert all(abs(float(row["compute_ns"]) - 20e6) < 1000 for row in rows[1:])


def test_compiling_is_told_from_launching(driver: Path, tmp_path: Path) -> None:
    step = ["l 0 0 200 compute", "b backward", "l 1 0 200 compute", "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}"]
    truth = play(driver, tmp_path, ["b forward", "c 1", "s 20000", "c 0", "e forward", *step * 3, "d 1", "d 0"])
    first = rows_of(tmp_path)[0]
    assert float(first["idle_ns"][Idle.COMPILE]) > 19e6
    compare(rows_of(tmp_path), expected(truth))


def test_steps_are_there_before_the_end_and_after_a_kill(driver: Path, tmp_path: Path) -> None:
    step = ["b backward", "l 0 0 9000 compute", "y 0 0", "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}", "d 0"]
    truth = play(driver, tmp_path, [*step * 500, "K"], code=-9)
    rows = rows_of(tmp_path)
    assert len(truth.ends_ns) == 500
    lost_s = (truth.ends_ns[-1] - int(rows["end_ns"].max())) / 1e9
    assert 0 <= lost_s < 2.0  # 0.9 where nothing else runs
    compare(rows[:100], expected(truth)[: min(100, len(rows))])
    shares = read_moment(only(tmp_path)).device_shares
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-6) and shares["compute"] > 0.5


def test_a_step_of_which_the_log_was_overwritten_is_marked(driver: Path, tmp_path: Path) -> None:
    """A hundred thousand changes of the host before anybody has read one: what lies before the hole is not told."""
    step = ["b backward", "l 0 0 300 compute", "y 0 0", "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}"]
    truth = play(driver, tmp_path, ["h 1", *step * 3, "r 50000 forward", *step * 5, "h 0", "d 0"])
    rows = rows_of(tmp_path)
    assert [int(row["number"]) for row in rows] == [4, 5, 6, 7, 8]
    assert [bool(row["flags"] & DeviceStepFlag.CUT) for row in rows] == [True, False, False, False, False]
    by_number = dict(enumerate(expected(truth), 1))
    for row in rows[1:]:
        assert abs(float(row["compute_ns"]) - by_number[int(row["number"])]["compute"]) < 1000


def test_what_is_verified_on_a_gpu_can_fail(driver: Path, tmp_path: Path) -> None:
    """The same comparison as after scripts/gpu_truth.py: with the truth, and with one in which a kernel is longer."""
    dice = random.Random(7)
    play(driver, tmp_path, [line for _ in range(40) for line in [*a_step(dice), "d 0", "d 1"]])
    told = tmp_path / "truth.txt"
    wrong = tmp_path / "wrong.txt"
    lines = told.read_text().splitlines()
    at = max(i for i, line in enumerate(lines) if line.startswith("activity communication"))
    *words, end = lines[at].split()
    lines[at] = " ".join([*words, str(int(end) + 30_000_000)])
    wrong.write_text("\n".join(lines) + "\n")
    good, bad = (verified(tmp_path, path) for path in (told, wrong))
    assert "0 of 36 steps off" in good.stdout and good.returncode in (0, 1), (
        good.stderr
    )  # sums suffer on a busy machine
    assert "0 of 36 steps off" not in bad.stdout and bad.returncode == 1, bad.stderr


def verified(folder: Path, truth: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(VERIFY), str(folder), str(truth)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_phases_are_those_of_the_moment_not_of_the_delivery(driver: Path, tmp_path: Path) -> None:
    """Everything is delivered at the end: what the first step launched is the first step's."""
    after = ["y 0 0", "e backward", f"b {OPTIMIZER}", f"e {OPTIMIZER}"]
    first, other = (["b backward", *["l 1 0 500 compute"] * kernels, *after] for kernels in (4, 2))
    play(driver, tmp_path, [*first, *other * 3, "s 30000", "d 1", "d 0"])
    file = open_rank_file(only(tmp_path))
    rows = [row for part in file.parts(ChunkKind.TALLIES) for row in part.rows if row["layer"] == LayerNumber.GPU]
    calls: Counter[str] = Counter()
    for row in rows:
        calls[PHASES[int(row["phase"])]] += int(row["calls"])
    assert calls == {"first_step": 4, "steady": 6}
    assert MarkKind.CUDA_CONTEXT in {int(row["kind"]) for part in file.parts(ChunkKind.MARKS) for row in part.rows}
