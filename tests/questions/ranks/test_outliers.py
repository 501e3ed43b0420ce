"""The ranks that differ are named with what they differ in, and those that behave alike stand together."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.questions.ranks.behaviour import alike
from rankscope.questions.ranks.outliers import far_places, outliers, places
from rankscope.questions.registry import default_tables
from rankscope.questions.selection import Selection
from rankscope.rank_files.read import read_rank_file
from rankscope.store.folder import NoRun
from rankscope.store.run import OpenOptions, RunTables, open_run
from runs.small_run import MILLI, mpi_rank, write_run

MIB = 1 << 20


def sixteen(folder: Path) -> RunTables:
    """Ranks 12 to 15 hold twice the memory; rank 3 receives for four times as long, and rank 5 is half as busy."""
    ranks = []
    for number in range(16):
        memory = 2_000 * MIB if number >= 12 else 1_000 * MIB
        cpu_ns = 2_000 * MILLI if number == 5 else (4_000 + number) * MILLI
        facts = {"max_rss_bytes": memory + number * MIB // 8, "user_ns": cpu_ns}
        made = mpi_rank(number, 16, host=f"node{number // 4}".encode(), facts=facts)
        made.tally("MPI_Recv", 10, (2_000 if number == 3 else 500 + number % 3) * MILLI)
        made.tally("MPI_Send", 10, 100 * MILLI)
        ranks.append(made)
    return open_run(write_run(folder, *ranks), read_rank_file)


def test_ranks_that_differ_come_first(tmp_path: Path) -> None:
    rows = outliers(sixteen(tmp_path)).rows
    assert [(row[0], row[2]) for row in rows] == [
        (3, "in MPI_Recv"),
        *((rank, "memory") for rank in (15, 14, 13, 12)),
        (5, "CPU time"),
    ]
    # spread: 1 % of the median of 501 ms, which is more than 1.4826 × the median distance of 1 ms
    assert rows[0] == (3, "node0", "in MPI_Recv", 2000.0, 501.0, "ms", (2000 - 501) / 5.01, "")
    assert rows[-1][3] == 2000.0 and rows[-1][4] == 4007.5


def test_ranks_that_behave_alike_stand_together(tmp_path: Path) -> None:
    assert alike(sixteen(tmp_path)).rows == [
        (1, 10, 3, "0-2, 4, 6-11", ""),
        (2, 4, 1, "12-15", "memory 2,002 against 1,001 MiB"),
        (3, 1, 1, "5", "CPU time 2,000 against 4,006 ms"),
        (4, 1, 1, "3", "in MPI_Recv 2,000 against 501 ms"),
    ]


def test_hosts_and_groups_that_differ_come_first(tmp_path: Path) -> None:
    sixteen(tmp_path)
    (tmp_path / "groups.csv").write_text("host,group\nnode0,near\nnode1,near\n\nnode2, far\n")
    table = places(open_run(tmp_path, read_rank_file))
    first = table.rows[0]
    assert first[:5] == ("host", "node3", 4, "memory", "MiB")
    assert first[5:10] == (2001.5, 2001.6875, pytest.approx(2001.85625), 2001.875, 1000.9375)
    assert first[10] == pytest.approx((2001.6875 - 1000.9375) / 10.009375)
    by_group = {(row[1], row[3]): row for row in table.rows if row[0] == "group"}
    assert {name for name, _ in by_group} == {"near", "far"}
    assert by_group["near", "in MPI_Recv"][8] == 2000.0
    assert table.notes == ["1 host of no group of the mapping file."]


def test_hosts_of_which_none_differs_are_not_said_to(tmp_path: Path) -> None:
    ranks = [mpi_rank(number, 16, host=f"node{number // 4}".encode()) for number in range(16)]
    for number, one in enumerate(ranks):
        one.tally("MPI_Recv", 10, (500 + number % 3) * MILLI)
    table = places(open_run(write_run(tmp_path, *ranks), read_rank_file))
    assert table.rows and not far_places(table).rows
    assert table.title == "Hosts and groups of hosts, the most different first"
    assert table.notes == ["None differs: all are within 3.5 spreads of the median in everything."]


def test_a_wrong_mapping_is_told_with_its_line(tmp_path: Path) -> None:
    sixteen(tmp_path)
    mapping = tmp_path / "mapping"
    mapping.write_text("node0,a\nnode1\n")
    with pytest.raises(NoRun, match="mapping:2: write a host and its group"):
        open_run(tmp_path, read_rank_file, OpenOptions(groups=mapping))
    with pytest.raises(NoRun, match="absent: cannot be read"):
        open_run(tmp_path, read_rank_file, OpenOptions(groups=tmp_path / "absent"))


def test_they_are_shown_of_many_ranks_only(tmp_path: Path) -> None:
    run = sixteen(tmp_path)
    assert not {"outliers", "alike", "places"} & set(default_tables(run))
    assert [row[0] for row in outliers(run, Selection(frozenset({5}))).rows] == [5]
    few = open_run(write_run(tmp_path / "two", mpi_rank(0, 2), mpi_rank(1, 2)), read_rank_file)
    assert not outliers(few).rows and not alike(few).rows
