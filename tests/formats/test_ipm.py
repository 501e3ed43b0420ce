"""IPM's banners, on inputs written by hand after the format: every number is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.formats.ipm import read, sniff
from rankscope.formats.source import Source
from rankscope.model.records import BadFile, Reading
from rankscope.questions.mpi.routines import routines
from runs.loaded import run_of, warnings_of

BANNER = """\
output of the program
##IPMv2.0.6########################################################
#
# command   : ./app in.txt
# start     : Tue Jan 02 03:04:05 2024   host      : node1
# stop      : Tue Jan 02 03:04:15 2024   wallclock : 10.05
# mpi_tasks : 4 on 2 nodes               %comm     : 25.00
# files     :                            %i/o      : 0.00
# mem [GB]  : 2.00                       gflop/sec : 0.00
#
#           :       [total]        <avg>          min          max
# wallclock :         40.00        10.00         9.95        10.05
# MPI       :         10.00         2.50         2.00         3.00
# %wall     :
#   MPI     :                      25.00        20.00        30.00
# #calls    :
#   MPI     :           400          100           90          110
# mem [GB]  :          2.00         0.50         0.50         0.50
#
#                             [time]        [count]        <%wall>
# MPI_Allreduce                 7.00            300          17.50
# MPI_Bcast                     3.00            100           7.50
#
###################################################################
"""
OLD = """\
##IPMv0.983#########################################################
#
# command : ./old (completed)
# host    : node7/x86_64_Linux             mpi_tasks : 2 on 1 nodes
# start   : 01/02/09/03:04:05              wallclock : 4.000000 sec
# stop    : 01/02/09/03:04:09              %comm     : 50.00
# gbytes  : 1.00000e+00 total              gflop/sec : 0.00000e+00 total
#
# region  : *       [ntasks] =      2
#
#                           [total]         <avg>           min           max
# entries                          2             1             1             1
# wallclock                     8.00          4.00          4.00          4.00
# mpi                           4.00          2.00          1.50          2.50
#
#                            [time]       [calls]        <%mpi>      <%wall>
# MPI_Waitall                   3.00            20         75.00        37.50
# MPI_Isend                     1.00            20         25.00        12.50
####################################################################
"""
REGION = """\
# region    :'solve'
#
#           :       [total]        <avg>          min          max
# wallclock :          8.00         2.00         1.95         2.05
# MPI       :          4.00         1.00         0.50         1.50
# #calls    :
#   MPI     :            40           10           10           10
# MPI_Allreduce                 4.00             40          50.00
"""


def read_text(text: str) -> list[Reading]:
    return list(read(Source(Path("job.out"), content=text.encode())))


def test_a_full_banner() -> None:
    (reading,) = read_text(BANNER)
    assert (reading.facts.host, reading.facts.command) == ("node1", "./app in.txt")
    assert reading.facts.elapsed_ns == 10_050_000_000 and reading.facts.versions == "IPM 2.0.6"
    rows = [(t.layer, t.name, t.calls, t.total_ns) for t in reading.tallies]
    assert rows == [("mpi", "MPI_Allreduce", 300, 7e9), ("mpi", "MPI_Bcast", 100, 3e9)] and not reading.range_tallies
    figures = {(f.series, f.name, f.statistic): (f.value, f.unit) for f in reading.figures}
    assert figures["job", "tasks", ""] == (4, "count") and figures["job", "nodes", ""] == (2, "count")
    assert figures["job", "MPI", "min"] == (2e9, "ns") and figures["job", "MPI calls", "max"] == (110, "count")
    assert figures["job", "mem", "total"] == (2 * 2**30, "bytes") and figures["job", "wallclock", "mean"] == (
        1e10,
        "ns",
    )
    assert warnings_of([reading]) == []


def test_a_short_banner_has_no_calls() -> None:
    (reading,) = read_text(BANNER[: BANNER.index("#                             [time]")])
    assert reading.tallies == [] and len(reading.figures) == 4 + 4 * 4 and warnings_of([reading]) == []


def test_the_older_banner() -> None:
    (reading,) = read_text(OLD)
    assert [(t.name, t.calls, t.total_ns) for t in reading.tallies] == [
        ("MPI_Waitall", 20, 3e9),
        ("MPI_Isend", 20, 1e9),
    ]
    assert reading.facts.elapsed_ns == 4 * 10**9 and reading.facts.command == "./old"
    assert warnings_of([reading]) == []


def test_regions_are_attributed_and_several_banners_are_several_jobs() -> None:
    first, second = read_text(BANNER + REGION + OLD)
    assert [(t.name, t.calls) for t in first.tallies] == [("MPI_Allreduce", 300), ("MPI_Bcast", 100)]
    assert [(t.name, t.within, t.calls) for t in first.range_tallies] == [("MPI_Allreduce", "solve", 40)]
    assert (first.facts.job, second.facts.job) == ("", "2") and warnings_of([first, second]) == []


def test_calls_of_a_region_count_once() -> None:
    """A region's calls are among those of the whole: 300 calls, not 340."""
    table = routines(run_of(read_text(BANNER + REGION)))
    at = [[column.name for column in table.columns].index(name) for name in ("name", "calls", "total_ns")]
    assert [tuple(row[place] for place in at) for row in table.rows] == [
        ("MPI_Allreduce", 300, 7e9),
        ("MPI_Bcast", 100, 3e9),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("%comm     : 25.00", "%comm     : 35.00", 7, "%comm is 35.0, but MPI is 25.00 %"),
        (
            "40.00        10.00         9.95",
            "44.00        10.00         9.95",
            12,
            "4 tasks × 10 on average is not 44",
        ),
        (
            "2.50         2.00         3.00",
            "2.50         2.00         1.00",
            13,
            "the average 2.5 is not between 2 and 1",
        ),
        ("7.00            300", "7.00            301", 17, "the calls add up to 401, the total says 400"),
        ("7.00            300", "9.00            300", 13, "the calls add up to 12.00 s, the total says 10.00"),
        ("mpi_tasks : 4 on 2 nodes", "", 2, "does not say how many tasks"),
    ],
)
def test_what_is_off_is_told_with_its_line(old: str, new: str, line: int, said: str) -> None:
    assert old in BANNER
    notes = warnings_of(read_text(BANNER.replace(old, new)))
    assert any(said in note.text and note.where == f"job.out:{line}" for note in notes), notes


def test_recognition_and_bad_files() -> None:
    assert sniff(BANNER.encode()) and sniff(OLD.encode()) and not sniff(b"## IPM is a tool ##\n# command : x\n")
    with pytest.raises(BadFile, match="no banner"):
        read_text("nothing\n")
