"""`rankscope compare`, called as the dispatcher calls it, on rank files whose every number is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import rankscope as rs
from rankscope.api.compare import side_of, unquoted_pattern
from rankscope.api.run import NoRun
from rankscope.cli.compare import run
from rankscope.questions.compare.tables import signed
from rankscope.questions.compare.verdicts import BadLimit, parse_limit
from rankscope.rank_file import Part
from runs.small_run import mpi_rank, write_run
from runs.step_runs import steps

EVIL = "MPI_<b>\x1b[2J|evil"


def write(folder: Path, seed: int, forward_ms: float = 20.0, ranks: int = 2, call_ms: float = 100.0) -> Path:
    random = np.random.default_rng(seed)
    whole = random.lognormal(0, 0.003)
    made = []
    for rank in range(ranks):
        writer = mpi_rank(rank, ranks)
        lengths = random.lognormal(0, 0.01, (40, 2)) * whole
        writer.steps(steps([{Part.FORWARD: forward_ms * f, Part.BACKWARD: 30.0 * b} for f, b in lengths]))
        writer.tally("MPI_Allreduce", 40, round(call_ms * whole * 1e6), bytes=80, size_class=4)
        writer.tally(EVIL, 1, round(50e6 * random.lognormal(0, 0.01)))
        made.append(writer)
    return write_run(folder, *made, expected_ranks=ranks)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5 runs called old, 5 called same, 5 called slow, whose forward takes 10 % longer."""
    folder = tmp_path_factory.mktemp("runs")
    for at in range(5):
        write(folder / f"old-{at}", at)
        write(folder / f"same-{at}", 10 + at)
        write(folder / f"slow-{at}", 20 + at, forward_ms=22.0)
    return folder


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, dict[str, object]]]:
    """Table, then first cell, then column: what --format json said."""
    told = json.loads(capsys.readouterr().out)
    return {
        table["name"]: {
            row[0]: {column["name"]: cell for column, cell in zip(table["columns"], row, strict=True)}
            for row in table["rows"]
        }
        for table in told["tables"]
    }


def test_a_slower_part_is_named_with_its_size(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([f"{runs}/old-*", f"{runs}/slow-*", "--format", "json"]) == 0
    found = answer(capsys)["changes"]
    assert found["part.forward"]["verdict"] == found["step_p50"]["verdict"] == "slower"
    assert found["part.forward"]["change"] == pytest.approx(0.10, abs=0.02)
    assert found["part.forward"]["before_ns"] == pytest.approx(20e6, rel=0.02)
    low, high = (float(str(found["part.forward"][name])) for name in ("low", "high"))
    assert low < 0.10 < high or low == pytest.approx(0.10, abs=0.02)
    assert found["part.backward"]["verdict"] == found["operation.MPI_Allreduce"]["verdict"] == "equal"


def test_the_same_is_equal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([f"before={runs}/old-*", f"after={runs}/same-*"]) == 0
    assert "after and before are equal within ±2 %: step_p50 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("limit", "other", "code"),
    [
        ("step_p50 > +2%", "slow", 1),
        ("step_p50 > +9%", "slow", 0),
        ("step_p50 > +2%", "same", 0),
        ("part.forward > +9.9%", "slow", 2),
        ("part.forward < -5%", "same", 0),
        ("part.nothing > 5%", "same", 2),
        ("step_p50 >> 5", "same", 2),
    ],
)
def test_limits_decide_the_exit_code(
    limit: str, other: str, code: int, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([f"{runs}/old-*", f"{runs}/{other}-*", "--fail-if", limit]) == code


def test_one_exceeded_limit_of_several_is_enough(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["--fail-if", "nothing > 5%", "--fail-if", "part.forward > +5%"]
    assert run([f"{runs}/old-*", f"{runs}/slow-*", *limits]) == 1
    assert "exceeded" in capsys.readouterr().out


def test_names_of_kernels_in_limits_may_hold_signs() -> None:
    limit = parse_limit("kernel.void gemm<float, 4>(int) > +5%")
    assert (limit.metric, limit.above, limit.change) == ("kernel.void gemm<float, 4>(int)", True, 0.05)
    for text in ("> 5%", "step_p50 > 5", "step_p50 = 5%", ""):
        with pytest.raises(BadLimit, match="as in 'step_p50"):
            parse_limit(text)


def test_markdown_is_for_a_pull_request(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([f"{runs}/old-*", f"{runs}/slow-*", "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert "| step\\_p50 | step |" in text or "| step_p50 | step |" in text
    assert "\x1b" not in text and "<b>" not in text.replace("\\<b\\>", "")


def test_the_page_begins_with_the_verdict(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert run([f"{runs}/old-*", f"{runs}/slow-*", "--html", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    told = re.search(r'<p class="verdict">slow is slower than old\. A step takes ([\d.]+) % more time', text)
    assert told and 2.5 < float(told[1]) < 5.5  # 2 of 50 ms
    assert re.search(r"SLOWER</span> <strong>forward of a step \+(9|10)\.\d\s% \(\+(1\.9|2|2\.\d+)\sms\)", text)
    assert run([f"{runs}/old-0", f"{runs}/same-0", "--html", str(page)]) == 0
    assert re.search(
        r'"verdict">(same-0 and old-0 are equal|Cannot tell whether same-0 is)', page.read_text(encoding="utf-8")
    )
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert "<b>" not in markup and "\x1b" not in text
    capsys.readouterr()
    assert run([f"{runs}/old-0", f"{runs}/slow-0", "--html", str(page), "--format", "csv"]) == 2
    assert "--html cannot be combined with" in capsys.readouterr().err


def test_three_sides_are_each_held_against_the_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([f"{runs}/old-*", f"{runs}/same-*", f"{runs}/slow-*"]) == 0
    text = capsys.readouterr().out
    assert "same and old are equal" in text and "slow is slower than old" in text


def test_a_pattern_that_the_shell_expanded_is_noticed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each repeat has become a side of its own."""
    expanded = [str(runs / f"{name}-{at}") for name in ("old", "slow") for at in range(2)]
    assert run(expanded) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "4 sides of one run each" in said and f"'{runs}/old-*' '{runs}/slow-*'" in said
    assert unquoted_pattern(["runs/2026-11-15T10-00-00-a", "runs/2026-11-15T10-00-09-a", "runs/b"], 3)[0].endswith(
        "as in 'runs/*-a' 'runs/b'"
    )
    assert unquoted_pattern(["runs/a", "runs/b", "runs/c"], 3) == []


def test_one_run_a_side_says_what_it_assumes(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([f"{runs}/old-0", f"{runs}/same-0", "--fail-if", "step_p50 > 1%"]) == 2
    text = " ".join(capsys.readouterr().out.split())
    assert "Cannot tell same-0 from old-0" in text and "5 % (--run-to-run)" in text
    assert run([f"{runs}/old-0", f"{runs}/slow-0", "--run-to-run", "1%", "--fail-if", "part.forward > 5%"]) == 1


def test_what_makes_sides_hard_to_compare_is_a_warning(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for at in range(4):
        write(tmp_path / f"four-{at}", at, ranks=4)
    (tmp_path / "four-3" / "ranks" / "node0" / "100.rank").write_bytes(b"x")
    assert run([f"{runs}/old-*", f"{tmp_path}"]) == 0
    text = capsys.readouterr().out
    assert "differ in ranks" in text and "1 file could not be read" in text


def test_metrics_are_listed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([f"{runs}/old-0", f"{runs}/same-0", "--list-metrics"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert {"step_p50", "elapsed", "part.forward", "operation.MPI_Allreduce"} <= set(listed)


def test_sides_are_runs_lists_patterns_and_folders(runs: Path, tmp_path: Path) -> None:
    assert side_of(f"{runs}/old-1") == ("old-1", [runs / "old-1"])
    assert side_of(f"new={runs}/old-1,{runs}/old-2") == ("new", [runs / "old-1", runs / "old-2"])
    assert len(side_of(f"{runs}/s*")[1]) == 10 and len(side_of(str(runs))[1]) == 15
    (runs / "latest").symlink_to("old-1")
    assert len(side_of(str(runs))[1]) == 15
    with pytest.raises(NoRun, match="no run found"):
        side_of(str(tmp_path))


@pytest.mark.parametrize(
    "arguments", [["RUNS/old-0"], ["RUNS/old-0", "nowhere"], ["RUNS/old-*", "RUNS/s*", "--equal", "x"]]
)
def test_bad_requests_are_one_line_and_exit_2(
    arguments: list[str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word.replace("RUNS", str(runs)) for word in arguments]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("rankscope: ") and told.err.count("\n") == 1 and told.out == ""


def test_programs_can_compare_too(runs: Path) -> None:
    found = rs.compare(f"{runs}/old-*", f"{runs}/slow-*", fail_if=["step_p50 > +2%"])
    assert found.exit_code == 1 and "part.forward" in repr(found)
    assert "part.forward" in found.changes()["metric"]


def test_a_change_that_rounds_to_nothing_has_no_sign() -> None:
    assert [signed(share) for share in (-0.0001, 0.0, 0.0004, -0.001, 0.01)] == ["0.0 %"] * 3 + ["-0.1 %", "+1.0 %"]
