"""The mpitrace layout, letter by letter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rankscope.output.layouts.mpitrace import to_mpitrace
from rankscope.questions.layouts.mpitrace import task_routines, task_sizes, tasks
from rankscope.questions.selection import Selection
from rankscope.rank_file import size_class
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import open_run
from runs.small_run import SECOND, mpi_rank, write_run

SAMPLE = Path(__file__).parents[4] / "shared/samples/mpitrace/thetagpu_cpu_n4/mpi_profile.182507.0"
MIB = 1 << 20


def rendered(folder: Path, *ranks: int) -> str:
    run, selection = open_run(folder, read_rank_file), Selection(ranks=frozenset(ranks))
    return to_mpitrace(tasks(run), task_routines(run, selection), task_sizes(run, selection), ranks)


def rank(number: int, size: int, elapsed_s: float, **usage: Any) -> RankFileWriter:
    """A rank with this span between MPI_Init and MPI_Finalize."""
    ends = SECOND + round(elapsed_s * SECOND)
    return mpi_rank(number, size, facts=usage, mpi_finalized_ticks=ends, ended_ticks=ends + 1)


def small(folder: Path) -> Path:
    ranks = [
        rank(0, 2, 4.5, user_ns=3_250_000_000, system_ns=SECOND, max_rss_bytes=100 * MIB, voluntary_switches=7),
        rank(1, 2, 4.25, max_rss_bytes=101 * MIB),
    ]
    ranks[0].tally("MPI_Init", 1, SECOND)
    ranks[0].tally("MPI_Allreduce", 10, 2 * SECOND, bytes=80, size_class=4)
    ranks[0].tally("MPI_Allreduce", 1, SECOND // 2, bytes=1_000_000, size_class=size_class(1_000_000))
    ranks[0].tally("MPI_Barrier", 3, SECOND // 1000)
    ranks[0].tally("MPI_Comm_rank", 5, 100)
    ranks[0].tally("MPI_Neighbor_allgather", 1, 0, bytes=1, size_class=1)
    ranks[1].tally("MPI_Allreduce", 11, SECOND)
    return write_run(folder, *ranks)


EXPECTED = """\
Data for MPI rank 0 of 2:
Times and statistics from MPI_Init() to MPI_Finalize().
-----------------------------------------------------------------------
MPI Routine                        #calls     avg. bytes      time(sec)
-----------------------------------------------------------------------
MPI_Comm_rank                           5            0.0          0.000
MPI_Barrier                             3            0.0          0.001
MPI_Allreduce                          11        90916.4          2.500
MPI_Neighbor_allgather                  1            1.0          0.000
-----------------------------------------------------------------
MPI task 0 of 2 had the maximum communication time.
total communication time = 2.501 seconds.
total elapsed time       = 4.500 seconds.
user cpu time            = 3.250 seconds.
system time              = 1.000 seconds.
max resident set size    = 100.000 MBytes.

Rank 1 reported the largest memory utilization : 101.00 MBytes
Rank 0 reported the largest elapsed time : 4.50 sec

-----------------------------------------------------------------
Message size distributions:

MPI_Allreduce             #calls    avg. bytes      time(sec)
                              10           8.0          2.000
                               1     1000000.0          0.500

MPI_Neighbor_allgather    #calls    avg. bytes      time(sec)
                               1           1.0          0.000

-----------------------------------------------------------------

Communication summary for all tasks:

  minimum communication time = 1.000 sec for task 1
  median  communication time = 1.000 sec for task 1
  maximum communication time = 2.501 sec for task 0


MPI timing summary for all ranks:
taskid       hostname     comm(s)  elapsed(s)     user(s)   system(s)    size(MB)    switches
     0          node0       2.50        4.50        3.25        1.00      100.00           7
     1          node0       1.00        4.25        0.00        0.00      101.00           0
"""


def test_the_first_rank_carries_the_summary(tmp_path: Path) -> None:
    assert rendered(small(tmp_path), 0) == EXPECTED


def test_other_ranks_end_with_their_sizes(tmp_path: Path) -> None:
    both = rendered(small(tmp_path), 0, 1)
    assert both.startswith(EXPECTED)
    rest = both.removeprefix(EXPECTED)
    assert "MPI task 1 of 2 had the minimum communication time.\nMPI task 1 of 2 had the median" in rest
    assert rest.startswith("Data for MPI rank 1 of 2:\n") and rest.endswith("Message size distributions:\n\n")


def test_a_real_profile_comes_out_as_it_went_in(tmp_path: Path) -> None:
    """The numbers of a profile that libmpitrace wrote, put into rank files, give that profile again."""
    if not SAMPLE.exists():
        pytest.skip(f"{SAMPLE.name} is not on this machine")
    text = SAMPLE.read_text()
    assert rendered(from_profile(text, tmp_path), 0) == text


def from_profile(text: str, folder: Path) -> Path:
    """The first rank with all it says of itself, the others with their line of the summary."""
    lines = re.findall(r"^ +(\d+) +(\S+)((?: +[\d.]+){6})$", text, re.M)
    finer = {number: seconds for seconds, number in re.findall(r"= ([\d.]+) sec for task (\d+)", text)}
    made = []
    for number, host, rest in lines:
        comm_s, _, user_s, system_s, size_mib, switches = map(float, rest.split())
        usage = {"user_ns": ns(user_s), "system_ns": ns(system_s), "voluntary_switches": int(switches)}
        made.append(rank(int(number), len(lines), total(text, "elapsed"), max_rss_bytes=round(size_mib * MIB), **usage))
        made[-1].set(host=host.encode())
        if number != "0":
            made[-1].tally("MPI_Allreduce", 1, ns(float(finer.get(number, comm_s))))
    fill_first(made[0], text)
    longest = int(re.findall(r"Rank (\d+) reported the largest elapsed", text)[0])
    made[longest].set(mpi_finalized_ticks=int(made[longest].header["mpi_finalized_ticks"][0]) + 1)
    return write_run(folder, *made)


def total(text: str, what: str) -> float:
    """A line such as `total elapsed time = 26.899 seconds.`"""
    return float(re.findall(rf"{what}[a-z ]* = ([\d.]+) ", text)[0])


def fill_first(first: RankFileWriter, text: str) -> None:
    """Routines without sizes as one row, the others by size; times are known to a millisecond, so the larger
    bins give up a few tenths to sum up to their routine."""
    memory, user, system = total(text, "max resident"), total(text, "user"), total(text, "system")
    first.set(facts={"user_ns": ns(user), "system_ns": ns(system), "max_rss_bytes": round(memory * MIB)})
    sized = dict(re.findall(r"^(MPI_\w+) +#calls.*\n((?: +\d.*\n)+)", text, re.M))
    for name, calls, time_s in re.findall(r"^(MPI_\w+) +(\d+) +[\d.]+ +([\d.]+)$", text, re.M):
        if name not in sized:
            first.tally(name, int(calls), ns(float(time_s)))
        for row in sized.get(name, "").splitlines():
            bin_calls, mean, bin_s = row.split()
            less = 300_000 if float(bin_s) > 0.1 else 0
            sizes = {"bytes": round(float(mean) * int(bin_calls)), "size_class": size_class(round(float(mean)))}
            first.tally(name, int(bin_calls), ns(float(bin_s)) - less, **sizes)


def ns(seconds: float) -> int:
    return round(seconds * SECOND)
