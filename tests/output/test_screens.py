"""The first screen of every kind of run is one screen, and is as it was looked at."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rankscope as rs
from output.screens import KEPT, WIDTHS, kept, runs, shown
from rankscope.api.run import Layout, Run, Selection
from rankscope.api.words import explain
from rankscope.model.tables import Unit, Wrong
from rankscope.output.screen import MOST_LINES, WIDEST_TEXT, to_screen
from rankscope.questions.page import PageOptions, page_of
from rankscope.questions.run.screen import host_bars
from rankscope.questions.wording import seconds
from runs.small_run import mpi_rank, write_run

KINDS = sorted({path.stem.rpartition("-")[0] for path in KEPT.glob("*.txt")})
CALL = [sys.executable, "-c", "import sys; from rankscope.cli.report import run; sys.exit(run(sys.argv[1:]))"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return dict(runs(tmp_path_factory.mktemp("runs")))


def test_every_kind_is_kept(made: dict[str, Path]) -> None:
    assert sorted(made) == KINDS and len(KINDS) >= 8
    assert sorted(path.name for path in KEPT.iterdir()) == sorted(kept(kind, w).name for kind in KINDS for w in WIDTHS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_screen_is_as_it_was(kind: str, made: dict[str, Path]) -> None:
    for width in WIDTHS:
        text = shown(made[kind], width)
        assert text == kept(kind, width).read_text(encoding="utf-8"), "after a look: .venv/bin/python tools/screens.py"
        assert text.count("\n") <= MOST_LINES and max(map(len, text.splitlines())) <= width
        prose = [line for line in text.splitlines() if line.startswith(("INCOMPLETE", "Complete", "1 ", "Not", "More"))]
        assert prose or kind in ("study",)
        assert all(len(line) <= WIDEST_TEXT for line in prose)


@pytest.mark.parametrize(
    ("kind", "opens", "names"),
    [
        ("mpi_toy", "rankscope  train_mpi4py.py", "exposed communication"),
        ("ddp_straggler", "rankscope  train_ddp.py", "1 HIGH  Rank 1 (vm) is late"),
        ("gpu_launch_bound", "rankscope  problems.py launch", "launch kernels"),
        ("gpu_data_bound", "rankscope  problems.py data", "data loader"),
        ("gpu_pageable", "rankscope  problems.py pageable", "pin_memory=True"),
        (
            "gpu_item",
            "rankscope  problems.py item",
            "1 MED   Synchronising host and GPU costs 2.03 ms",
        ),
        ("gpu_ddp", "rankscope  problems.py ddp", "1 HIGH  Exposed communication on the GPUs takes"),
        ("gpu_inference", "rankscope  infers.py", "1 HIGH  The GPU is idle for 8.87 s of the 9.7 s recorded (91 %)"),
        ("kineto", "rankscope  kineto", "1 HIGH  Exposed communication on the GPUs takes"),
        ("nsys", "rankscope  nsys", "1 HIGH  GPU idle time of unknown cause takes 4.88 ms"),
        ("nvprof", "rankscope  worker.py", "1 HIGH  Communication kernels take 67 % of GPU time"),
        ("mpitrace", "rankscope  mpitrace", "34 % of wall time"),
        ("document", "rankscope  document", "32.00 ×"),
        ("iprof", "rankscope  iprof   loaded from iprof, 2 processes on 1 host, summed", "one sum over all processes"),
        ("pipeline", "rankscope  pipeline", "1 HIGH  The pipeline waits for stage 3 (ranks 6-7)"),
        (
            "incomplete",
            "INCOMPLETE: 1 of 4 ranks not recorded (rank 3): sums",
            "1 HIGH  Every rank is blocked in communication",
        ),
        ("kineto_one_of_two", "INCOMPLETE: 1 of 2 ranks loaded (rank 0)", "rankscope load FILES --out"),
        ("study", "FAILED: 1 of 3 cells", "no end after 60 s"),
        ("many_ranks", "rankscope  train.py", "1 MED   Rank 17 (node00001) is late"),
    ],
)
def test_a_screen_opens_with_the_answer(kind: str, opens: str, names: str) -> None:
    text = kept(kind, 100).read_text(encoding="utf-8")
    assert text.startswith(opens) and names in text


def test_every_label_is_explained(made: dict[str, Path]) -> None:
    for kind in sorted(set(KINDS) - {"study"}):
        screen = rs.open(made[kind]).screen()
        labels = [label for label, _, unit in screen.bars.figures if unit is not Unit.COUNT] if screen.bars else []
        if screen.step_ns and screen.bars:
            labels += [bar.label for bar in screen.bars.bars]
        labels += [bar.label for bar in screen.run.bars] if screen.run else []
        labels += [column.title for column in screen.ranks.columns if column.title] if screen.ranks else []
        for label in labels:
            assert explain(label), (kind, label)


def test_the_numbers_are_those_of_the_tables(made: dict[str, Path]) -> None:
    """Worked out once more from CSV, not by the screen."""
    [found] = rs.open(made["mpi_toy"]).answers(["step_parts"], Selection())
    rows = [dict(zip((column.name for column in found.columns), row, strict=True)) for row in found.rows]
    mean = sum(row["step_ns"] for row in rows) / len(rows)
    exposed = sum(row["exposed_ns"] for row in rows) / len(rows)
    text = shown(made["mpi_toy"], 100)
    assert f"mean {mean / 1e6:.2f} ms" in text
    [line] = [line for line in text.splitlines() if line.startswith("  exposed communication")]
    assert line.split()[-4:] == [f"{exposed / 1e6:.2f}", "ms", f"{100 * exposed / mean:.0f}", "%"]


def test_findings_are_of_the_step_that_the_screen_shows(made: dict[str, Path]) -> None:
    """The passes of a pipeline are shorter than the step, which also reduces gradients and updates."""
    screen = rs.open(made["pipeline"]).screen()
    assert screen.step_ns is not None
    said = [re.search(r"of each (\S+ \S+) step", advice.title) for advice in screen.advice]
    assert [match[1] for match in said if match] == [seconds(screen.step_ns)] * 2
    proofs = [text for advice in screen.advice for _, text in advice.proofs]
    assert any("forward +" in text for text in proofs) and not any("+0 ns" in text for text in proofs)


def test_a_pipeline_s_page_has_its_bubble_among_the_key_figures(made: dict[str, Path]) -> None:
    run = Run(made["pipeline"])
    figures = {figure.label: figure.value for figure in page_of(run.store(), "pipeline", PageOptions()).figures}
    bars = run.screen().bars
    [bubble] = [bar for bar in bars.bars if bar.label == "pipeline bubble"] if bars else []
    assert figures["Pipeline bubble"] == f"{100 * bubble.share:.0f} %"


def test_wait_and_transfer_are_parts_of_exposed_communication() -> None:
    """A stage that is done waits in a collective for the others: that is the pipeline's bubble, not counted twice."""
    exposed = {"exposed_ns": 60, "exposed_wait_ns": 40, "exposed_transfer_ns": 10, "exposed_unmatched_ns": 10}
    stages = [{"warmup_ns": 25, "drain_ns": 20, "imbalance_ns": 0, "transfer_ns": 5, "window_ns": 90}]
    bars = {bar.label: bar.ns for bar in host_bars([{"step_ns": 100, "compute_ns": 40, **exposed}], stages)}
    assert bars["pipeline bubble"] == 45 and bars["exposed communication"] == 15
    assert bars.get("wait", 0) + bars["transfer"] + bars.get("unmatched", 0) == 15


def test_what_is_in_no_operation_of_a_pipeline_is_its_bubble() -> None:
    stages = [{"warmup_ns": 25, "drain_ns": 20, "imbalance_ns": 0, "transfer_ns": 0, "window_ns": 90}]
    rows = [{"step_ns": 100, "forward_ns": 50, "other_ns": 20, "exposed_ns": 30, "exposed_unmatched_ns": 30}]
    bars = {bar.label: bar.ns for bar in host_bars(rows, stages)}
    assert (bars["pipeline bubble"], bars["other"], bars["forward"]) == (45, 5, 50)


def test_a_layout_that_the_run_has_nothing_for_says_so(made: dict[str, Path]) -> None:
    for layout in ("iprof", "mpitrace"):
        with pytest.raises(Wrong, match=f"--layout {layout}: this run has no .*; rankscope report shows"):
            rs.open(made["document"]).layout(Layout(layout), Selection())


def test_on_a_terminal_of_ascii_alone(made: dict[str, Path]) -> None:
    plain = {**os.environ, "LC_ALL": "C", "COLUMNS": "80"}
    for options in ([], ["--full"]):
        done = subprocess.run([*CALL, made["ddp_straggler"], *options], capture_output=True, env=plain, check=True)
        text = done.stdout.decode("ascii")
        assert "\\" not in text and max(map(len, text.splitlines())) <= 80
        assert options or "####" in text


def test_ranks_can_be_chosen(made: dict[str, Path]) -> None:
    text = to_screen(rs.open(made["many_ranks"]).screen(Selection(frozenset((16, 17, 18)))), 100)
    assert [line.split()[0] for line in text.partition("RANKS")[2].splitlines()[1:4]] == ["16", "17", "18"]


def test_a_job_that_failed_says_so_first(tmp_path: Path) -> None:
    failed = write_run(tmp_path / "failed", *(mpi_rank(rank, 2, exit_code=rank) for rank in range(2)))
    first, second, *_ = to_screen(rs.open(failed).screen(), 100).splitlines()
    assert first == "FAILED: 1 rank ended abnormally (exit 1): 1"
    assert second.endswith("1 × exit 0 (rank 0), 1 × exit 1 (rank 1)")
