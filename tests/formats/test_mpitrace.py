"""libmpitrace's profiles: every printed number is kept, none is counted twice, and they can be printed again."""

from __future__ import annotations

import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

from rankscope.api.layouts import as_mpitrace
from rankscope.api.run import Wrong
from rankscope.formats.mpitrace import UNSPLIT, read, sniff
from rankscope.formats.registry import recognised
from rankscope.formats.source import Source
from rankscope.model.records import Reading
from rankscope.questions.mpi.messages import sizes
from rankscope.questions.ranks.ranks import balance
from rankscope.questions.selection import ALL, Selection
from rankscope.store.run import RunTables
from runs.loaded import SHARED, run_of, warnings_of

FOLDERS = sorted((SHARED / "samples/mpitrace").glob("*"))
DOCUMENTS = sorted((SHARED / "seeds").glob("004*"))
here = pytest.mark.skipif(not FOLDERS or not DOCUMENTS, reason="the shared samples are not on this machine")
START = re.compile(r"^Data for MPI rank", re.M)


def read_text(text: str) -> list[Reading]:
    return list(read(Source(Path("mpi_profile.1.0"), content=text.encode())))


def read_files(files: list[Path]) -> list[Reading]:
    return [reading for file in files for reading in read(Source(file))]


def printed_again(run: RunTables, rank: int, new: bool = False) -> str:
    return as_mpitrace(run, Selection(ranks=frozenset([rank])), [rank], new)


def texts_of(document: Path) -> list[str]:
    """The profiles in the document, by the markdown fences around them."""
    return re.findall(r"```bash\n(Data for MPI rank.*?)\n*```", document.read_text(), re.S)


@here
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_files_come_out_as_they_went_in(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: int(file.suffix[1:]))
    readings = read_files(files)
    whole = as_mpitrace(run_of(readings), ALL, [int(file.suffix[1:]) for file in files], new=False)
    assert whole == "".join(file.read_text() for file in files)
    assert warnings_of(readings) == []
    for file in files:
        rank = int(file.suffix[1:])
        again = printed_again(run_of(read(Source(file))), rank)
        assert again.startswith(file.read_text()) and (rank or again == file.read_text())


@here
def test_the_document_comes_out_as_it_went_in() -> None:
    readings = list(read(Source(DOCUMENTS[0])))
    jobs: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        jobs[reading.facts.job].append(reading)
    texts = texts_of(DOCUMENTS[0])
    assert [len(job) for job in jobs.values()] == [16, 8] and len(texts) == 2
    assert printed_again(run_of(readings), 0) == "".join(text + "\n" for text in texts)
    assert warnings_of(readings) == []


def numbers_of(text: str) -> dict[tuple[str, ...], str]:
    """Every number in the tables of a profile, by its place, from an independent look at the text."""
    found: dict[tuple[str, ...], str] = {}
    routine = ""
    for line in text.splitlines():
        words = line.split()
        if line.startswith("MPI_") and "#calls" in line:
            routine, bin_number = words[0], 0
        elif line.startswith("MPI_"):
            found |= {(words[0], key): word for key, word in zip(("calls", "mean", "time"), words[1:], strict=False)}
        elif len(words) == 3 and routine and words[0].isdigit():
            bin_number += 1
            keys = ("calls", "mean", "time")
            found |= {(routine, str(bin_number), key): word for key, word in zip(keys, words, strict=False)}
        elif len(words) == 8 and words[0].isdigit():
            keys = ("host", "comm", "elapsed", "user", "system", "size", "switches")
            found |= {("task", words[0], key): word for key, word in zip(keys, words[1:], strict=False)}
    return found


def model_numbers(job: list[Reading]) -> dict[tuple[str, ...], str]:
    """The same numbers from the model, added up here."""
    found: dict[tuple[str, ...], str] = {}
    own = job[0]
    for name in dict.fromkeys(tally.name for tally in own.tallies):
        tallies = [tally for tally in own.tallies if tally.name == name]
        calls = sum(tally.calls for tally in tallies)
        size = sum(tally.bytes or 0 for tally in tallies)
        found |= {(name, "calls"): str(calls), (name, "mean"): f"{size / calls:.1f}"}
        found[name, "time"] = f"{sum(tally.total_ns for tally in tallies) / 1e9:.3f}"
        sized = [tally for tally in tallies if tally.size_class is not None]
        for number, tally in enumerate(sorted(sized, key=lambda tally: tally.size_class or 0), 1):
            key = (name, str(number))
            found |= {(*key, "calls"): str(tally.calls), (*key, "mean"): f"{(tally.bytes or 0) / tally.calls:.1f}"}
            found[(*key, "time")] = f"{tally.total_ns / 1e9:.3f}"
    for reading in job:
        facts, key = reading.facts, ("task", str(reading.facts.rank))
        comm_ns = sum(tally.total_ns for tally in reading.tallies)
        found |= {(*key, "host"): facts.host, (*key, "switches"): str(facts.switches)}
        times = {"comm": comm_ns, "elapsed": facts.mpi_elapsed_ns, "user": facts.user_ns, "system": facts.system_ns}
        found |= {(*key, name): f"{(value or 0) / 1e9:.2f}" for name, value in times.items()}
        found[(*key, "size")] = f"{(facts.max_rss_bytes or 0) / 2**20:.2f}"
    return found


@here
def test_every_number_of_the_document_is_in_the_model_once() -> None:
    readings = list(read(Source(DOCUMENTS[0])))
    texts = texts_of(DOCUMENTS[0])
    for text, job in zip(texts, ("", "2"), strict=False):
        expected = numbers_of(text)
        assert len(expected) == {"": 21 + 24 * 3 + 16 * 7, "2": 24 + 8 * 3 + 8 * 7}[job]
        assert model_numbers([reading for reading in readings if reading.facts.job == job]) == expected


@here
def test_the_new_layout_can_be_asked_for() -> None:
    text = printed_again(run_of(read_files([DOCUMENTS[0]])), 0, new=True)
    assert "Times from MPI_Init()" in text and "size(MiB)" in text and " MBytes" not in text


@here
def test_values_worked_out_by_hand() -> None:
    """From rank 0 of 16 in the document: 7428 all-reduces of 8 bytes; 49 gathers of no bytes."""
    first = next(read(Source(DOCUMENTS[0])))
    smallest = [tally for tally in first.tallies if tally.name == "MPI_Allreduce" and tally.size_class == 4]
    assert [(tally.calls, tally.bytes) for tally in smallest] == [(7428, 59424)]
    assert [(t.calls, t.bytes, t.size_class) for t in first.tallies if t.name == "MPI_Gatherv"] == [(49, 0, None)]
    assert first.facts.max_rss_bytes == 1655 * 2**20 and first.facts.mpi_elapsed_ns == 15_548_000_000
    assert sum(t.calls for t in first.tallies) == 5 + 3 + 123 + 8161 + 49 + 49 + 2
    assert abs(sum(t.total_ns for t in first.tallies) - 10_602_000_000) < 500_000


@here
def test_ranks_with_and_without_their_own_file_are_counted_once() -> None:
    """Rank 0's table tells of 16 ranks, four of which have their own file too."""
    folder = next(folder for folder in FOLDERS if folder.name == "thetagpu_ddp_n16")
    run = run_of(read_files(sorted(folder.iterdir())))
    rows = run.query("SELECT rank, second_hand, host FROM ranks WHERE role = 'rank' ORDER BY rank")
    assert [row[0] for row in rows] == list(range(16))
    assert [row[0] for row in rows if not row[1]] == [0, 5, 9, 12]
    assert {row[2] for row in rows} == {"thetagpu18", "thetagpu19"}  # also of ranks whose own file has no host
    unsplit = run.query(
        "SELECT count(*) FROM tallies JOIN ranks USING (process) WHERE role = 'rank' AND name = ?", [UNSPLIT]
    )
    assert unsplit == [(12,)]


@here
def test_the_listed_facts_are_told() -> None:
    """8-byte all-reduces take 54 % of the all-reduce time on 16 ranks, all of it on 8; rank 2 is waited for."""
    readings = list(read(Source(DOCUMENTS[0])))
    cpu, gpu = (run_of([r for r in readings if r.facts.job == job]) for job in ("", "2"))
    told = [note for note in sizes(cpu).notes if "MPI_Allreduce" in note]
    assert len(told) == 1 and "54 %" in told[0] and "8 bytes" in told[0]
    told = [note for note in sizes(gpu).notes if "MPI_Allreduce" in note]
    assert len(told) == 1 and "100 %" in told[0]
    assert any(note.startswith("Rank 2 (thetagpu19) spends the least") for note in balance(gpu).notes)


PROFILE = """\
Data for MPI rank 0 of 2:
Times and statistics from MPI_Init() to MPI_Finalize().
-----------------------------------------------------------------------
MPI Routine                        #calls     avg. bytes      time(sec)
-----------------------------------------------------------------------
MPI_Send                               10           50.0          2.000
MPI_Barrier                             3            0.0          1.000
-----------------------------------------------------------------
MPI task 0 of 2 had the maximum communication time.
total communication time = 3.000 seconds.
total elapsed time       = 9.000 seconds.
user cpu time            = 8.000 seconds.
system time              = 1.000 seconds.
max resident set size    = 100.000 MBytes.

Rank 1 reported the largest memory utilization : 101.00 MBytes
Rank 0 reported the largest elapsed time : 9.00 sec

-----------------------------------------------------------------
Message size distributions:

MPI_Send                  #calls    avg. bytes      time(sec)
                               5         100.0          1.500

-----------------------------------------------------------------

Communication summary for all tasks:

  minimum communication time = 2.000 sec for task 1
  median  communication time = 2.000 sec for task 1
  maximum communication time = 3.000 sec for task 0


MPI timing summary for all ranks:
taskid       hostname     comm(s)  elapsed(s)     user(s)   system(s)    size(MB)    switches
     0          node0       3.00        9.00        8.00        1.00      100.00           7
     1          node0       2.00        8.50        8.00        1.00      101.00           9
"""


def test_what_the_sizes_leave_is_a_row_without_one() -> None:
    """10 sends, 5 of which carry 100 bytes each: the others carry none and take the remaining half second."""
    own, told = read_text(PROFILE)
    sends = [(t.calls, t.bytes, t.size_class, t.total_ns) for t in own.tallies if t.name == "MPI_Send"]
    assert sends == [(5, 500, 8, 1.5e9), (5, 0, None, 0.5e9)]
    assert (told.facts.rank, told.facts.second_hand, told.facts.host) == (1, True, "node0")
    assert [(t.name, t.calls, t.total_ns) for t in told.tallies] == [(UNSPLIT, 0, 2e9)]
    assert warnings_of([own, told]) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("time = 3.000 seconds", "time = 4.000 seconds", 10, "total communication time is 4.000 s, but the routines"),
        ("time = 3.000 seconds", "time = 4.000 seconds", 10, "table of all ranks (line 36) says 3.00"),
        ("  minimum communication time = 2.000", "  minimum communication time = 2.500", 29, "line 37) says 2.00"),
        ("time = 3.000 sec for task 0", "time = 2.000 sec for task 1", 31, "maximum communication time, 2.000 s, but"),
        (
            "Rank 1 reported the largest memory utilization : 101",
            "Rank 0 reported the largest memory utilization : 100",
            16,
            "but rank 1 has more",
        ),
        (
            "Rank 0 reported the largest elapsed time : 9.00",
            "Rank 0 reported the largest elapsed time : 9.90",
            17,
            "says 9.00",
        ),
        (
            "                               5         100.0          1.500",
            "                              15         100.0          1.500",
            6,
            "MPI_Send has 10 calls, but 15 by message size",
        ),
        (
            "5         100.0          1.500",
            "5         100.0          2.500",
            6,
            "takes 2.000 s, but 2.500 s by message",
        ),
        (
            "                               5         100.0",
            "                              10         100.0",
            6,
            "MPI_Send has 50.0 bytes per call, but 100.0 by",
        ),
        (
            "                               5         100.0          1.500\n",
            "                               1         100.0          0.500\n",
            6,
            "MPI_Send has 50.0 bytes per call, but 10.0 by message size; 9 of 10 calls have no size",
        ),
        (
            "MPI_Send                  #calls    avg. bytes      time(sec)\n                               5 ",
            "MPI_Bcast                 #calls    avg. bytes      time(sec)\n                               5 ",
            6,
            "MPI_Send has 50.0 bytes per call, but no line of message sizes",
        ),
        ("MPI_Barrier                             3", "MPI_Barrier                             x", 7, "cannot be read"),
        ("     1          node0", "     0          node0", 36, "a rank twice"),
        ("task 0 of 2 had the maximum", "task 0 of 2 had the minimum", 9, "the summary names rank 1"),
        ("user cpu time            = 8.000 seconds.\n", "", 36, "is truncated: no user cpu time"),
    ],
)
def test_what_is_off_is_told_with_its_line(old: str, new: str, line: int, said: str) -> None:
    assert old in PROFILE
    notes = warnings_of(read_text(PROFILE.replace(old, new)))
    assert any(said in note.text and note.where == f"mpi_profile.1.0:{line}" for note in notes), notes


def test_own_file_against_the_summary(tmp_path: Path) -> None:
    """Rank 0's table gives rank 1 two seconds of communication; its own file says three."""
    from rankscope.questions.mpi.routines import second_hand

    other = PROFILE.replace("rank 0 of", "rank 1 of").replace("task 0 of", "task 1 of")
    own_only = other[: other.index("-----------------------------------------------------------------\n\nComm")]
    table = second_hand(run_of([*read_text(PROFILE), *read_text(own_only)]))
    assert [row[:2] for row in table.rows] == [(1, "MPI time"), (1, "elapsed"), (1, "memory")]
    assert len(table.warnings) == 1 and "1 of 1 ranks" in table.warnings[0]
    assert second_hand(run_of(read_text(PROFILE))).rows == []


def test_strict_recognition_and_bad_files() -> None:
    assert sniff(PROFILE.encode()) and not sniff(b"Data for MPI rank 0\n") and not sniff(b"MPI_Send 3 4")
    known = recognised(Source(Path("x"), content=PROFILE.encode()))
    assert known is not None and known.name == "mpitrace"
    hostile = PROFILE.replace("2.000", "9" * 400 + ".000").replace("rank 0 of 2", "rank 0 of 999999999")
    assert len(read_text(hostile)) == 2


@here
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_sums_against_another_way_to_add(folder: Path) -> None:
    """Calls, bytes and time of every file, added from the text by hand."""
    for file in folder.iterdir():
        own = next(read(Source(file)))
        rows = re.findall(r"^MPI_\w+ +(\d+) +([\d.]+) +([\d.]+)$", file.read_text(), re.M)
        assert sum(t.calls for t in own.tallies) == sum(int(calls) for calls, _, _ in rows)
        slack = sum(int(calls) for calls, _, _ in rows) * Decimal("0.05") + len(rows)
        assert abs(sum(t.bytes or 0 for t in own.tallies) - sum(int(c) * Decimal(m) for c, m, _ in rows)) <= slack
        told = float(re.findall(r"total communication time = ([\d.]+)", file.read_text())[0])
        assert abs(sum(t.total_ns for t in own.tallies) / 1e9 - told) < 0.0005


def test_a_run_without_ranks_has_no_such_layout() -> None:
    with pytest.raises(Wrong, match="has no ranks"):
        as_mpitrace(run_of([]), ALL, [], new=False)
