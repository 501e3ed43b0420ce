"""The clock of GPU records against the host's: by hand, with a known law, and as an H200 recorded it."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpis import ROOT
from rankscope.questions.collectives.clocks import gpu_clocks
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.small_run import SECOND, START, mpi_rank, write_run

ARCHIVES = [ROOT / "tests" / "runs" / name for name in ("h200_runs.tar.gz", "h200_alexnet.tar.gz")]
ARCHIVES += sorted((ROOT / "benchmarks" / "results" / "h200").glob("gpu_matrix*.tar.xz"))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    table = gpu_clocks(open_run(folder, read_rank_file))
    return [dict(zip([one.name for one in table.columns], row, strict=True)) for row in table.rows]


def written(folder: Path, **fields: int) -> dict[str, Any]:
    """A tick of this process is 1 ns, tick t at START + t."""
    made = mpi_rank(0, 1)
    made.cuda(**fields)
    (row,) = rows_of(write_run(folder, made))
    return row


def test_two_readings_by_hand(tmp_path: Path) -> None:
    """Read at 1 s (took 2 us, CUPTI 5 ms ahead of its middle) and at 11 s (took 4 us, 5.3 ms ahead)."""
    row = written(
        tmp_path, started_ticks=SECOND + 1_000, started_ns=START + SECOND + 5_000_000, started_width_ticks=2_000,
        flushed_ticks=11 * SECOND + 2_000, flushed_ns=START + 11 * SECOND + 5_300_000, flushed_width_ticks=4_000,
    )  # fmt: skip
    assert row["offset_ns"] == pytest.approx(5_150_000) and row["error_ns"] == pytest.approx(3_000)
    assert row["drift_ppm"] == pytest.approx(30, rel=1e-4) and row["span_ns"] == 10 * SECOND + 300_000
    assert row["drift_error_ppm"] == pytest.approx(0.5, rel=1e-3) and row["by"] == "readings"


def test_any_law_lies_within_the_error(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    for case in range(40):
        ahead, drift = random.uniform(-2e9, 2e9), random.uniform(-50e-6, 50e-6)
        took = random.exponential(5_000, 2) + 50
        when = np.array([SECOND, SECOND + random.uniform(1, 100) * SECOND])
        read = when + took * random.random(2)  # CUPTI's moment is anywhere within the reading
        shown = START + read + ahead + drift * (read - SECOND)
        fields = {}
        for at, name in enumerate(("started", "flushed")):
            fields[f"{name}_ticks"], fields[f"{name}_ns"] = int(when[at] + took[at]), int(shown[at])
            fields[f"{name}_width_ticks"] = int(took[at])
        row = written(tmp_path / str(case), **fields)
        middle = ahead + drift * (when.mean() - SECOND)
        assert abs(row["offset_ns"] - middle) <= row["error_ns"]
        assert abs(row["drift_ppm"] - drift * 1e6) <= row["drift_error_ppm"]


def test_what_is_not_known_is_not_told(tmp_path: Path) -> None:
    once = written(tmp_path / "once", started_ticks=SECOND, started_ns=START + SECOND)
    assert (once["offset_ns"], once["error_ns"], once["drift_ppm"], once["span_ns"]) == (0, 11_000, None, None)
    assert once["by"] == "readings of unknown length"
    both = {"started_ticks": SECOND, "started_ns": START + SECOND, "flushed_ticks": SECOND + 1_000_000}
    short = written(tmp_path / "short", **both, flushed_ns=START + SECOND + 1_000_500)
    assert short["drift_ppm"] is None and short["error_ns"] == 11_250
    assert rows_of(write_run(tmp_path / "none", mpi_rank(0, 1))) == []


def test_a_clock_that_does_not_run_evenly_is_a_warning(tmp_path: Path) -> None:
    made = mpi_rank(0, 1)
    made.cuda(started_ticks=SECOND, started_ns=SECOND, flushed_ticks=2 * SECOND, flushed_ns=3 * SECOND)
    table = gpu_clocks(open_run(write_run(tmp_path, made), read_rank_file))
    assert table.warnings == ["Rank 0: the clock of its GPU records is not steady; no rate is used."]


def test_on_the_h200_it_is_the_clock_of_the_host(tmp_path: Path) -> None:
    """Every rank that was recorded there: within a microsecond and a millionth, and so within the error."""
    seen = drifts = 0
    for number, archive in enumerate(ARCHIVES):
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path / str(number), filter="data")
        for folder in sorted({path.parents[2] for path in (tmp_path / str(number)).rglob("*.rank")}):
            for row in rows_of(folder):
                seen += 1
                assert abs(row["offset_ns"]) < 1_000 < row["error_ns"]
                if row["drift_ppm"] is not None:
                    drifts += 1
                    assert abs(row["drift_ppm"]) < 1 and abs(row["drift_ppm"]) <= row["drift_error_ppm"]
    assert seen > 60 and drifts > 50
