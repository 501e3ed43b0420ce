"""What is kept of every step of a job, however many there are: blocks of steps, in a fixed number of rows."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from programs import recorded
from rankscope import rank_file
from rankscope.model.records import BadFile
from rankscope.rank_files.chunks import open_rank_file
from rankscope.rank_files.steps import step_block_rows_of, step_rows_of

PROGRAM = Path(__file__).parents[2] / "programs" / "paces.c"
BLOCK = 32
SMALL = ("--size", "256K")  # 512 steps in the ring and 64 blocks


@pytest.fixture(scope="session")
def paces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("paces") / "paces"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", "-o", made, PROGRAM, "-ldl"], check=True)
    return made


def job(rankscope: str, folder: Path, paces: Path, options: tuple[str, ...], *pieces: str) -> list[str]:
    return [rankscope, "run", "--out", str(folder / "run"), *options, str(paces), str(folder / "truth"), *pieces]


def run(rankscope: str, folder: Path, paces: Path, options: tuple[str, ...], *pieces: str) -> recorded.Reading:
    subprocess.run(job(rankscope, folder, paces, options, *pieces), check=True, timeout=60)
    return reading_of(folder)


def reading_of(folder: Path) -> recorded.Reading:
    (path,) = recorded.rank_files(folder / "run")
    return recorded.read(path)


def check_whole(reading: recorded.Reading) -> None:
    """Each step is in one block, and the blocks are the time of the job."""
    blocks = reading.step_block_columns
    assert blocks["first"][0] == 1 and blocks["steps"][0] == 2 and blocks["warmup"].tolist()[:2] == [True, False]
    assert (np.diff(blocks["first"]) == blocks["steps"][:-1]).all()
    assert (blocks["begin_ns"][1:] == blocks["end_ns"][:-1]).all()
    own = sum(blocks[name] for name in blocks if name.startswith("own_"))
    assert np.allclose(own + blocks["exposed_ns"], blocks["end_ns"] - blocks["begin_ns"], rtol=1e-4)


def test_blocks_are_the_steps_of_the_ring(rankscope: str, tmp_path: Path, paces: Path) -> None:
    reading = run(rankscope, tmp_path, paces, (), "3000:20")
    check_whole(reading)
    steps, blocks = reading.step_columns, reading.step_block_columns
    lengths = (steps["end_ns"] - steps["begin_ns"]).astype(float)
    # the newest wait until the system was asked about them, which takes longer than many steps of 20 µs
    assert set(blocks["steps"][1:]) == {BLOCK} and 3 * BLOCK < blocks["steps"].sum() <= 3000
    for at in range(1, len(blocks["first"])):
        those = slice(blocks["first"][at] - 1, blocks["first"][at] - 1 + BLOCK)
        ordered = np.sort(lengths[those])
        expected = [ordered[0], ordered[8], (ordered[15] + ordered[16]) / 2, ordered[23], ordered[31]]
        names = ("least_ns", "quarter_ns", "median_ns", "three_quarters_ns", "most_ns")
        assert [blocks[name][at] for name in names] == pytest.approx(expected, rel=1e-4, abs=20)
        beyond = ordered[ordered > 1.25 * expected[2]] - expected[2]
        assert blocks["long_steps"][at] == pytest.approx(len(beyond), abs=1)
        assert blocks["long_ns"][at] == pytest.approx(beyond.sum(), rel=1e-3, abs=0.3 * expected[2])
        for name in ("cpu_ns", "runnable_ns", "gc_ns"):
            assert blocks[name][at] == pytest.approx(steps[name][those].sum(), rel=1e-4, abs=50)


def test_a_thousand_steps_are_kept_in_four_kilobytes(rankscope: str, tmp_path: Path, paces: Path) -> None:
    run(rankscope, tmp_path, paces, (), "10000:10")
    (path,) = recorded.rank_files(tmp_path / "run")
    blocks = len(step_block_rows_of(open_rank_file(path)))
    assert blocks * rank_file.STEP_BLOCK.itemsize <= 4096 * 10


def test_a_long_job_fits_and_a_change_of_pace_keeps_its_place(rankscope: str, tmp_path: Path, paces: Path) -> None:
    """20,000 steps in 64 rows, the ring holds 512 of them; step 5,001 to 5,400 took twice as long."""
    reading = run(rankscope, tmp_path, paces, SMALL, "5000:20", "400:40", "14600:20")
    check_whole(reading)
    blocks, truth = reading.step_block_columns, np.loadtxt(tmp_path / "truth")
    assert len(blocks["first"]) < 64 and 20000 - 512 < blocks["steps"].sum() <= 20000
    assert len(reading.step_columns["number"]) == 512
    slow = np.flatnonzero(blocks["median_ns"] > 30_000)[1:]  # without the warm-up, which may be
    slow = slow[(blocks["first"][slow] > 4900) & (blocks["first"][slow] < 5500)]
    assert abs(blocks["first"][slow[0]] - 5001) < BLOCK
    assert abs(blocks["first"][slow[-1]] + blocks["steps"][slow[-1]] - 5401) < BLOCK
    # the first step begins with the process; between the program's clock and ours somebody else may have the processor
    ends = np.cumsum(truth)
    firsts = blocks["first"][1:] - 1
    sums = ends[firsts + blocks["steps"][1:] - 1] - ends[firsts - 1]
    off = np.abs(blocks["end_ns"][1:] - blocks["begin_ns"][1:] - sums)
    assert (off <= np.maximum(0.02 * sums, 20_000)).mean() > 0.9 and off.max() < 20e6


def test_a_killed_job_leaves_every_step(rankscope: str, tmp_path: Path, paces: Path) -> None:
    """Where a new block takes the rows of two that were joined, again and again, until a kill at some moment."""
    command = job(rankscope, tmp_path, paces, SMALL, "1000000:2")
    with subprocess.Popen(command) as process:
        while reading_steps(tmp_path) < 20000:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    check_whole(reading_of(tmp_path))
    ring, overwritten = step_rows_of(open_rank_file(recorded.rank_files(tmp_path / "run")[0]))
    blocks = reading_of(tmp_path).step_block_columns
    assert blocks["first"][-1] + blocks["steps"][-1] > overwritten and len(ring) >= 511


def reading_steps(folder: Path) -> int:
    """While it is being written, too: each step in one block."""
    paths = [path for path in (folder / "run").rglob("*.rank") if path.stat().st_size]  # none, then an empty one
    try:
        rows = step_block_rows_of(open_rank_file(paths[0])) if paths else []
    except BadFile:  # it has its size, and its first bytes are yet to come
        return 0
    if len(rows):
        assert (np.diff(rows["first"]) == rows["steps"][:-1]).all()
    return int(rows["steps"].sum()) if len(rows) else 0
