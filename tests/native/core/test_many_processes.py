"""A thousand real processes under one `rankscope run`, and a node whose files are gone: who is missing is said."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from many_processes import traced

import rankscope as api
from installed import ROOT, Run, library_of

PROGRAM = ROOT / "tests" / "programs" / "starts_ranks.py"
RANKS = 1000
NODE = 12  # ranks


@pytest.fixture
def recorder(rankscope: str) -> str:
    if library_of(Path(rankscope)).stat().st_size < 100_000:
        pytest.skip("the recorder is not built: run make native")
    return rankscope


def test_a_thousand_processes_are_all_in_the_report(recorder: str, run: Run, work: Path) -> None:
    """Started from outside, as most users do: the ranks are followed."""
    done = run(recorder, "run", "--out", "prof", sys.executable, str(PROGRAM), str(RANKS), "true")
    assert done.returncode == 0 and done.stdout == f"{RANKS} ranks, 0 failed\n".encode()
    found = api.open(work / "prof")
    ranks = found.query("SELECT rank, world_size, ending, exit_code FROM ranks WHERE role = 'rank' ORDER BY rank").rows
    assert ranks == [(rank, RANKS, "exited", 0) for rank in range(RANKS)]
    told = {row[0]: row[1:] for row in found.table("coverage").rows}
    assert told["ranks expected by world size"] == (RANKS, "") and told["ranks seen"] == (RANKS, f"0-{RANKS - 1}")
    assert told["ended: exit 0"] == (RANKS, f"0-{RANKS - 1}")
    assert not found.bad_files and not found.table("coverage").warnings


def test_ranks_that_start_themselves_agree_without_listing_folders(recorder: str, run: Run, work: Path) -> None:
    """`rankscope run` in each rank: one folder for all."""
    done = run(sys.executable, str(PROGRAM), "40", recorder, "run", "--out", "prof", "true")
    assert done.returncode == 0
    assert api.open(work / "prof").query("SELECT count(DISTINCT rank) FROM ranks WHERE role = 'rank'").rows == [(40,)]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is missing: it counts the calls")
@pytest.mark.parametrize(("local", "most"), [(False, 8), (True, 8)])
def test_a_rank_asks_little_of_the_runs_folder(recorder: str, work: Path, local: bool, most: int) -> None:
    """However many ranks there are: no folder is listed, and each rank makes its few calls."""
    node = ["--local", str(work / "node")] if local else []
    command = [sys.executable, str(PROGRAM), "60", recorder, "run", *node, "true"]
    counted = traced(command, work, (f"{work}/rankscope-runs",))
    assert len(list(work.glob("rankscope-runs/2*/ranks/*/*.rank"))) == 60
    assert counted.in_run.total() <= most * 60, counted.in_run
    assert counted.listings == 0


def nodes(recorder: str, run: Run, work: Path) -> Path:
    """Four nodes of real rank files, made of one host's by moving them."""
    run(recorder, "run", "--out", "prof", sys.executable, str(PROGRAM), str(4 * NODE), "true")
    found = api.open(work / "prof").query("SELECT rank, source FROM ranks WHERE role = 'rank'").rows
    for rank, source in found:
        node = work / "prof" / "ranks" / f"node{rank // NODE}"
        node.mkdir(exist_ok=True)
        Path(source).rename(node / Path(source).name)
    return work / "prof"


def test_a_lost_node_costs_only_its_own_ranks(recorder: str, run: Run, work: Path) -> None:
    folder = nodes(recorder, run, work)
    whole = api.open(folder).table("ranks", top=None).rows
    shutil.rmtree(folder / "ranks" / "node2")
    rest = api.open(folder)
    assert rest.table("ranks", top=None).rows == [row for row in whole if row[0] // NODE != 2]
    [told] = [text for text in rest.table("coverage").warnings if "not recorded" in text]
    assert f"of {4 * NODE} ranks expected by world size, {NODE} not recorded: 24-35" in told


@pytest.mark.parametrize("damage", ["cut", "zeros", "empty"])
def test_damaged_files_of_a_node_are_named_and_the_others_read(
    recorder: str, run: Run, work: Path, damage: str
) -> None:
    folder = nodes(recorder, run, work)
    damaged = sorted((folder / "ranks" / "node1").glob("*.rank"))
    for path in damaged:
        size = path.stat().st_size
        path.write_bytes({"cut": path.read_bytes()[:500], "zeros": bytes(size), "empty": b""}[damage])
    rest = api.open(folder)
    seen = [row[0] for row in rest.query("SELECT rank FROM ranks WHERE role = 'rank' ORDER BY rank").rows]
    assert seen == [rank for rank in range(4 * NODE) if rank // NODE != 1]
    assert {text.partition(":")[0] for text in rest.bad_files} == {str(path) for path in damaged}
    assert any(f"{NODE} not recorded: 12-23" in text for text in rest.table("coverage").warnings)
