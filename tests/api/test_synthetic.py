"""A synthetic run gives, through the ordinary tables, the numbers that its law says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rankscope
from synthetic_law import Law
from synthetic_run import each_ns, main, write_run


def test_waiting_and_moving_are_those_of_the_law(tmp_path: Path) -> None:
    law = Law(ranks=9, ranks_per_host=9, collectives=400, stragglers=(5,))  # one clock: exact
    run = rankscope.open(write_run(tmp_path / "run", law))
    rows = {row["rank"]: row for row in run.table("waiting")}
    waits = np.array([law.waits_ns(rank) for rank in range(law.ranks)])
    for rank in range(law.ranks):
        assert rows[rank]["wait_ns"] == waits[rank].sum()
        assert rows[rank]["last"] == (law.last == rank).sum()
        assert rows[rank]["transfer_ns"] == law.transfers_ns().sum()
        assert rows[rank]["caused_ns"] == waits[:, law.last == rank].sum()
    assert rows[5]["verdict"] == "straggler"
    assert rows[5]["caused_ns"] == max(row["caused_ns"] for row in rows.values())


def test_tallies_are_those_of_the_law(tmp_path: Path) -> None:
    law = Law(ranks=3, collectives=100, tallies=30)
    run = rankscope.open(write_run(tmp_path / "run", law))
    counted = run.query("SELECT rank, count(*), sum(calls)::BIGINT FROM tallies JOIN ranks USING (process) GROUP BY 1")
    number = np.arange(25)
    expected = 100 + int((10 * (1 + number % 7)).sum())
    assert sorted(counted.rows) == [(rank, 30, expected) for rank in range(3)]
    sql = "SELECT sum(total_ns) FROM tallies JOIN ranks USING (process) WHERE rank = 2"
    stays = (law.waits_ns(2) + law.transfers_ns()).sum()
    rest = (10 * (1 + number % 7) * each_ns(law, 2, 25).astype(np.int64)).sum()
    assert run.query(sql).rows == [(float(stays + rest),)]


def test_steps_are_those_of_the_law(tmp_path: Path) -> None:
    law = Law(ranks=5, ranks_per_host=5, collectives=200, steps=50)
    run = rankscope.open(write_run(tmp_path / "run", law))
    rows = {row["rank"]: row for row in run.table("step_parts")}
    lengths = np.diff(law.step_edges_ns())[2:]  # without the warm-up
    for rank, row in rows.items():
        stays, waits = law.stays_ns(rank)[2:], law.waits_ns(rank)[8:]
        assert (row["steps"], row["step_ns"], row["exposed_ns"]) == (48, lengths.mean(), stays.mean())
        assert row["sum_share"] == pytest.approx(1.0)
        assert row["wait_ns"] == pytest.approx(waits.sum() / 48)
        assert row["data_ns"] == ((lengths - stays) // 10).mean()


def test_clocks_are_those_of_the_law(tmp_path: Path) -> None:
    law = Law(ranks=12, ranks_per_host=4, collectives=1000, skew_ns=2_000_000_000, drift_ppm=40)
    rows = list(rankscope.open(write_run(tmp_path / "run", law)).table("clocks"))
    assert [row["host"] for row in rows] == ["node00000", "node00001", "node00002"]
    for host, row in enumerate(rows[1:], 1):
        offset_ns, drift = law.clock(host)
        middle_ns = float(law.complete_ns.mean())
        assert row["offset_ns"] == pytest.approx(offset_ns + drift * middle_ns, abs=row["error_ns"] + 1_000)
        assert row["drift_ppm"] == pytest.approx(drift * 1e6, abs=row["drift_error_ppm"] + 1)


def test_losses_are_those_of_the_law(tmp_path: Path) -> None:
    law = Law(ranks=8, collectives=200, log_capacity=150, killed=(3,), lost_calls=7)
    run = rankscope.open(write_run(tmp_path / "run", law))
    sql = "SELECT rank, ending, overwritten_events, lost_calls FROM ranks ORDER BY rank"
    assert run.query(sql).rows == [
        (rank, "unknown" if rank == 3 else "exited", 0 if rank == 3 else 50, 7) for rank in range(8)
    ]
    [collectives] = run.query("SELECT count(*) FROM events JOIN ranks USING (process) WHERE rank = 3").rows
    assert collectives == (100,)
    assert sum(row["collectives"] for row in run.table("collectives")) == 50  # 51 to 100: all have them


def test_an_absent_rank_has_no_file(tmp_path: Path) -> None:
    run = rankscope.open(write_run(tmp_path / "run", Law(ranks=4, collectives=10, absent=(2,))))
    assert run.query("SELECT rank FROM ranks ORDER BY 1").rows == [(0,), (1,), (3,)]
    assert any("1 not recorded: 2" in told for told in run.table("coverage").warnings)
    assert "left no file" in " ".join(run.table("collectives").notes)


def test_what_cannot_be_made_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "run"), "--period-ns", "1000"]) == 2
    assert "does not fit in a period" in capsys.readouterr().err
    assert main([str(tmp_path / "run"), "--collectives", "10", "--steps", "3"]) == 2
    assert "not as many in each of 3 steps" in capsys.readouterr().err
    assert main([str(tmp_path), "--ranks", "2"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([str(tmp_path / "run"), "--ranks", "2", "--collectives", "4"]) == 0
    assert len(list((tmp_path / "run").glob("ranks/*/*.rank"))) == 2
