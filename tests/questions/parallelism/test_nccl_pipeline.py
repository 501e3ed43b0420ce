"""Pipelines of two stages on NCCL, recorded on an H200, their second stage slowed down to half its speed."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import rankscope
from mpis import ROOT
from rankscope.api.whatif import Asked, ask_whatif
from rankscope.questions.messages import matched_messages

ARCHIVE = ROOT / "benchmarks" / "results" / "h200" / "gpu_windows_late-2026-11-16.tar.xz"
# a step of the same program without the slow stage, bare and recorded
WITHOUT_MS = {"gpipe1": (113.3, 117.2), "1f1b1": (120.1, 120.4)}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipeline")
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            if any(f"/pipelines/{name}/" in member.name for name in WITHOUT_MS):
                archive.extract(member, folder, filter="data")
    return folder / "late" / "runs" / "pipelines"


@pytest.fixture(scope="module")
def run(recorded: Path) -> rankscope.Run:
    return rankscope.open(recorded / "gpipe1")


def test_every_message_is_matched(run: rankscope.Run) -> None:
    rows = {row["what"]: row for row in run.table("message_coverage").to_arrow().to_pylist()}
    assert {what: (row["sends"], row["receives"]) for what, row in rows.items()} == {"matched": (964, 964)}


def test_the_stages_are_in_the_order_of_their_messages(run: rankscope.Run) -> None:
    assert [row["place"] for row in run.table("parallelism").to_arrow().to_pylist()] == ["(pp 0)", "(pp 1)"]


def test_the_slow_stage_is_named_first(run: rankscope.Run) -> None:
    first = run.table("findings").to_arrow().to_pylist()[0]
    assert first["rule"] == "slow_pipeline_part" and "stage 1 (rank 1)" in first["finding"]


@pytest.mark.parametrize("name", WITHOUT_MS)
def test_whatif_foretells_the_step_without_it(recorded: Path, name: str) -> None:
    answer = ask_whatif(recorded / name, Asked(without=["rank=1"]))
    assert not answer.refusal
    table = answer.tables[1]
    row = dict(zip([column.name for column in table.columns], table.rows[0], strict=True))
    bare, as_recorded = WITHOUT_MS[name]
    # as fast as stage 0, which has no loss: that is 1.2 ms a micro-batch more on stage 1
    assert 0.9 * bare < row["step_ns"] / 1e6 < 1.05 * as_recorded


def test_a_kernel_that_sends_and_receives_lasts_until_it_has_received(recorded: Path) -> None:
    """1F1B: NCCL's plugin hears of its end when it has sent, which may be before the other side sends at all."""
    tables = rankscope.open(recorded / "1f1b1").store(events=True)
    heard = tables.query("""SELECT count(*) FROM message_ends AS r JOIN message_ends AS s ON s.number = r.number
        AND s.kind = 'send' AND s.process <> r.process WHERE r.kind = 'receive' AND r.end_ns < s.begin_ns""")[0][0]
    assert heard > 100
    found = matched_messages(tables)
    assert len(found) > 900 and (found.recv_end_ns >= found.send_begin_ns).all()
    stages = {row["stage"]: row for row in rankscope.open(recorded / "1f1b1").table("bubbles").to_arrow().to_pylist()}
    assert stages[1]["compute_ns"] > 1.7 * stages[0]["compute_ns"] and stages[0]["bubble_share"] > 0.45
