"""mpiP's reports, on an input written by hand after the format's description: every number is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.formats.mpip import UNSPLIT, read, sniff
from rankscope.formats.source import Source
from rankscope.model.records import BadFile, Figure, Reading
from rankscope.questions.mpi.routines import routines
from runs.loaded import run_of, warnings_of

LINE = "-" * 75
REPORT = f"""\
@ mpiP
@ Command : ./app -n 2
@ Version                  : 3.5.0
@ Start time               : 2024 01 02 03:04:05
@ MPI Task Assignment      : 0 node1
@ MPI Task Assignment      : 1 node2

{LINE}
@--- MPI Time (seconds) ---------------------------------------------------
{LINE}
Task    AppTime    MPITime     MPI%
   0         10          2    20.00
   1         10          4    40.00
   *         20          6    30.00
{LINE}
@--- Callsites: 2 ---------------------------------------------------------
{LINE}
 ID Lev File/Address        Line Parent_Funct             MPI_Call
  1   0 app.c                 20 main                     Send
  2   0 app.c                 30 main                     Barrier
{LINE}
@--- Aggregate Time (top twenty, descending, milliseconds) ----------------
{LINE}
Call                 Site       Time    App%    MPI%      Count    COV
Barrier                 2    3.5e+03   17.50   58.33          6   0.61
Send                    1    2.5e+03   12.50   41.67         15   0.28
{LINE}
@--- Callsite Time statistics (all, milliseconds): 4 ----------------------
{LINE}
Name              Site Rank  Count      Max     Mean      Min   App%   MPI%
Barrier              2    0      3      500      333      100  10.00  50.00
Barrier              2    1      3 1.2e+03      833      400  25.00  62.50
Barrier              2    *      6 1.2e+03      583      100  17.50  58.33

Send                 1    0     10      200      100       50  10.00  50.00
Send                 1    1      5      400      300      200  15.00  37.50
Send                 1    *     15      400      167       50  12.50  41.67
{LINE}
@--- Callsite Message Sent statistics (all, sent bytes) -------------------
{LINE}
Name              Site Rank   Count       Max      Mean       Min       Sum
Send                 1    0      10      2048      1024       512 1.024e+04
Send                 1    1       5      4096      4096      4096 2.048e+04
Send                 1    *      15      4096      2048       512 3.072e+04
{LINE}
@--- End of Report --------------------------------------------------------
{LINE}
"""


def read_text(text: str) -> list[Reading]:
    return list(read(Source(Path("app.mpiP"), content=text.encode())))


def test_tasks_and_callsites() -> None:
    first, second = read_text(REPORT)
    assert (first.facts.host, second.facts.host, first.facts.world_size) == ("node1", "node2", 2)
    assert first.facts.command == "./app -n 2" and first.facts.versions == "mpiP 3.5.0"
    assert first.facts.mpi_elapsed_ns == 10 * 10**9
    rows = [(t.name, t.group, t.calls, t.total_ns, t.min_ns, t.max_ns, t.bytes) for t in second.tallies]
    assert rows == [
        ("MPI_Barrier", "site 2", 3, 3 * 833e6, 400e6, 1200e6, None),
        ("MPI_Send", "site 1", 5, 1500e6, 200e6, 400e6, 20480),
    ]
    assert warnings_of([first, second]) == []


def test_the_whole_is_counted_once() -> None:
    """15 sends of 30,720 bytes, 6 barriers."""
    table = routines(run_of(read_text(REPORT)))
    assert [(row[0], row[1], row[8]) for row in table.rows] == [("MPI_Barrier", 6, 0), ("MPI_Send", 15, 30720)]


def test_reports_without_callsite_statistics() -> None:
    readings = read_text(REPORT[: REPORT.index(f"{LINE}\n@--- Callsite Time")])
    assert [(t.name, t.total_ns) for r in readings for t in r.tallies] == [(UNSPLIT, 2e9), (UNSPLIT, 4e9)]
    expected = Figure("MPI_Send, site 1", "time over all tasks", 2.5e9, "ns", statistic="total")
    assert expected in readings[0].figures and len(readings[0].figures) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("2    20.00", "2    25.00", "task 0: 2 s of 10 s are not 25.00 %"),
        ("20          6", "20          8", "MPI times of the tasks add up to 6 s, the total says 8 s"),
        ("200      100       50", "200      900       50", "the mean 900 ms is not between 50 and 200"),
        ("*      6 1.2e+03", "*      7 1.2e+03", "the tasks count 6 calls, but the line * has 7"),
        (
            "5      400      300      200  15",
            "5      400      390      200  15",
            "task 1: its callsites add up to 4.45 s",
        ),
        ("512 1.024e+04", "512 2.024e+04", "10 messages × 1024 bytes is not 2.024e+04"),
    ],
)
def test_what_is_off_is_told(old: str, new: str, said: str) -> None:
    assert old in REPORT
    line = REPORT[: REPORT.index(old)].count("\n") + 1
    notes = warnings_of(read_text(REPORT.replace(old, new)))
    assert any(said in note.text for note in notes), notes
    assert any(note.where in (f"app.mpiP:{line}", "app.mpiP:13") for note in notes)


def test_silence_is_no_result() -> None:
    text = REPORT[: REPORT.index(f"{LINE}\n@--- Callsites")].replace("2    20.00", "0  0.00")
    notes = warnings_of(read_text(text.replace("4    40.00", "0   0.00").replace("6    30.00", "0   0.00")))
    assert [note.text for note in notes if "large-count" in note.text]


def test_two_reports_in_a_file_are_two_jobs() -> None:
    assert [(r.facts.job, r.facts.rank, len(r.tallies)) for r in read_text(REPORT + REPORT)] == [
        ("", 0, 2),
        ("", 1, 2),
        ("2", 0, 2),
        ("2", 1, 2),
    ]


def test_recognition_and_bad_files() -> None:
    assert sniff(REPORT.encode()) and not sniff(b"@ other\n@ x : y\n") and not sniff(b"see @ mpiP\n@ x")
    with pytest.raises(BadFile, match="no task"):
        read_text("@ mpiP\n@ Command : x\n")
