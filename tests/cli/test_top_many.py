"""`rankscope top` of many ranks, on synthetic runs in the middle of their work: as their law says, no wall of rows."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rankscope.api.live import LiveView, Watched
from rankscope.cli.top import frame, run
from rankscope.model.tables import Table
from rankscope.output.text import to_text
from rankscope.rank_files.facts import Here
from rankscope.store.folder import Job
from synthetic_law import SECOND, Law
from synthetic_live import LiveRun
from synthetic_run import write_run

LAW = Law(ranks=96, collectives=1_200, tallies=12, log_capacity=128)
SWITCHES = {f"node{host:05d}": f"switch-{host // 2}" for host in range(8)}


def watched(
    folder: Path, law: Law, stuck: Mapping[int, int] | None = None, group_of: Mapping[str, str] | None = None
) -> LiveView:
    """The view after two looks, half a second of the law's time apart."""
    made = LiveRun(folder, law, stuck=stuck)
    moment = [made.at(SECOND + SECOND // 2)]
    view = LiveView(Watched(folder, Job(), Here(now_ns=lambda: moment[0])), 0, group_of)
    moment[0] = made.at(2 * SECOND + 60_000)
    view.look()
    return view


def tables(view: LiveView) -> dict[str, Table]:
    return {table.name: table for table in view.tables(10)}


def slowest(found: dict[str, Table]) -> str:
    job = found["job"]
    return str(job.rows[0][[one.name for one in job.columns].index("slowest")])


def test_the_straggler_is_named_first(tmp_path: Path) -> None:
    view = watched(tmp_path / "run", replace(LAW, stragglers=(31,)))
    found = tables(view)
    assert slowest(found).startswith("rank 31 (node00002): ")
    assert [row[:3] for row in found["outliers"].rows] == [(31, "node00002", "waited for")]
    assert found["standing"].rows[0][0] == 96
    assert "places" not in found, "its host is not to blame for one rank"
    assert len(to_text(view.tables(40), 120).splitlines()) < 40


def test_percentiles_are_those_of_the_law(tmp_path: Path) -> None:
    """Between the looks 500 collectives of 1 ms each end; all ranks have entered 1,000 at the second."""
    table = tables(watched(tmp_path / "run", LAW))["ranks_percentiles"]
    assert [row[0] for row in table.rows] == ["p0", "p5", "p50", "p95", "p100"]
    names = [column.name for column in table.columns]
    done, pace = names.index("collectives"), names.index("collectives_per_s")
    assert {row[done] for row in table.rows} == {1_000}
    assert all(row[pace] == pytest.approx(1_000, rel=0.01) for row in table.rows)
    assert table.rows[2][names.index("waiting")] == pytest.approx(0.001 + 0.05 + 0.025, abs=0.01)


@pytest.mark.parametrize("seed", range(1, 7))
def test_nobody_is_accused_where_all_are_alike(seed: int, tmp_path: Path) -> None:
    found = tables(watched(tmp_path / "run", replace(LAW, seed=seed), group_of=SWITCHES))
    assert slowest(found) == "none stands out"
    assert not found["outliers"].rows and found["outliers"].notes
    assert not {"places", "alike"} & found.keys()


def test_a_slow_host_and_its_switch(tmp_path: Path) -> None:
    """Each of twelve ranks is waited for as seldom as any rank may be by chance; together they are not."""
    law = replace(LAW, stragglers=tuple(range(24, 36)), straggler_share=0.9)
    found = tables(watched(tmp_path / "run", law, group_of=SWITCHES))
    told = {row[:4] for row in found["places"].rows}
    assert ("host", "node00002", 12, "waited for, together") in told
    assert {row[1] for row in told} <= {"node00002", "switch-1"}
    assert not found["outliers"].rows
    assert slowest(found).split(":")[0] in ("host node00002", "group switch-1")


@pytest.mark.parametrize("high", [18, 24, 30, 50])
def test_a_frame_fits_on_the_screen(high: int, tmp_path: Path) -> None:
    """What does not fit is left out from the end; the first lines say the most."""
    law = replace(LAW, stragglers=tuple(range(24, 36)), straggler_share=0.9)
    view = watched(tmp_path / "run", law, group_of=SWITCHES)
    lines = frame(view, Console(width=110, height=high, file=io.StringIO())).splitlines()
    assert len(lines) <= high
    assert any(line.startswith("Slowest rank") for line in lines)
    assert any("MPI_COMM_WORLD" in line for line in lines) == (high > 18)


def test_who_stands_where(tmp_path: Path) -> None:
    found = tables(watched(tmp_path / "run", LAW, stuck={5: 811, 17: 811}))
    told = [(row[0], row[1], row[2], row[4]) for row in found["standing"].rows]
    assert told == [
        (94, 8, "in MPI_Allreduce #812 of MPI_COMM_WORLD", "0-4, 6-16, 18-95"),
        (2, 2, "outside, after MPI_Allreduce #811 of MPI_COMM_WORLD", "5, 17"),
    ]
    assert slowest(found).startswith("ranks 5, 17 (2 hosts): ")


def test_the_command_takes_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    law = replace(LAW, stragglers=tuple(range(24, 36)), straggler_share=0.9)
    LiveRun(tmp_path / "run", law, start_ns=time.time_ns() - 2 * SECOND).at(2 * SECOND)
    mapping = "host,group\n" + "".join(f"{host},{group}\n" for host, group in SWITCHES.items())
    (tmp_path / "run" / "groups.csv").write_text(mapping)
    assert run([str(tmp_path / "run"), "--once", "--interval", "0.01"]) == 0
    own = capsys.readouterr().out
    assert "switch-1" in own and len(own.splitlines()) < 50
    (tmp_path / "other.csv").write_text("node00002,elsewhere\nnode00003,here\n")
    assert run([str(tmp_path / "run"), "--once", "--interval", "0.01", "--groups", str(tmp_path / "other.csv")]) == 0
    assert "switch-1" not in (other := capsys.readouterr().out) and "node00002" in other
    assert run([str(tmp_path / "run"), "--once", "--groups", str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


def test_a_job_that_has_ended_without_collectives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is measured, so that nobody is said to be like the others."""
    write_run(tmp_path / "run", replace(LAW, collectives=0))
    assert run([str(tmp_path / "run"), "--once", "--interval", "0.01"]) == 0
    told = capsys.readouterr().out
    assert "96 ranks: exit 0 (ranks 0-95)" in told and "The job has ended" in told
    assert "differ" not in told and "Slowest" not in told
