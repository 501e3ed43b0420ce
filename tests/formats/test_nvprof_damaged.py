"""Damaged nvprof tables: what other cells confirm is recovered, the rest stays empty, and each repair is told."""

from __future__ import annotations

import re

import pytest

from rankscope.formats.nvprof_damaged import name_cell, read, share_cell, sniff, time_cell
from rankscope.formats.source import Source
from rankscope.model.records import Reading
from rankscope.questions.gpu.checks import gpu_checks
from rankscope.questions.gpu.kernels import gpu_ranks
from runs.loaded import run_of, shared_file, text_source, warnings

BEGIN = "#\\_7== NVPROF is profiling process 7, command: python a\\_b.py ==7== Profiling application: python a\\_b.py\n"
TABS = "Type\tTime(%)\tTime\tCalls\tAvg\tMin\tMax\tName\n"


def only(text: str) -> Reading:
    (reading,) = read(text_source(BEGIN + text))
    return reading


def told(reading: Reading) -> str:
    return " | ".join(note.text for note in reading.notes)


def test_calls_follow_from_time_and_average() -> None:
    reading = only(TABS + "GPU activities:\t7.70%\t34.978ms\t\t603.06us\t\t\t[CUDA memcpy HtoD]\t\t\n")
    (tally,) = reading.tallies
    assert (tally.calls, tally.min_ns, tally.max_ns) == (58, None, None)  # 34.978 / 0.60306 = 58.0
    assert "58 calls, from time ÷ average" in told(reading)
    assert reading.facts.command == "python a_b.py" and reading.facts.pid == 7


def test_what_does_not_follow_stays_empty() -> None:
    reading = only(TABS + "\t2.76%\t19.125ms\t\t\t\t\tsgemm\n")
    assert [(t.calls, t.total_ns) for t in reading.tallies] == [(None, 19_125_000)]
    assert warnings([reading]) == ["sgemm: calls cannot be read and do not follow from the rest"]


def test_loose_times_find_their_rows() -> None:
    reading = only(
        "18.978ms\n 2.42%\n18.649ms\n141 134.59us 96.196us 238.57us one\n68 388.53us 92.323us 742.36us two\n"
    )
    assert [(t.name, t.calls) for t in reading.tallies] == [("one", 141), ("two", 48)]
    assert [round(t.total_ns or 0, -3) for t in reading.tallies] == [18_978_000, 18_649_000]
    assert "calls 68 read as 48" in told(reading)


def test_no_count_is_invented_where_nothing_fits() -> None:
    reading = only("37.318ms\n32 1.0959ms 1.0225ms 1.1595ms one\n")
    assert [(t.calls, t.total_ns) for t in reading.tallies] == [(32, None)]
    assert any("time left empty" in text for text in warnings([reading]))
    assert any("1 times without a name" in text for text in warnings([reading]))


def test_calls_times_average_unless_the_longest_call_contradicts() -> None:
    reading = only("512 181.20us 992ns 1.7872ms one\n4 2.4097ms 284.14us 12.026ms two\n")
    assert [(t.calls, t.total_ns) for t in reading.tallies] == [(512, 92_774_400), (4, None)]
    assert "calls × average: nothing else confirms it" in told(reading)


def test_a_share_tells_about_the_time() -> None:
    rows = "\t50.00%\t100.00ms\t10\t10.000ms\t1.0000ms\t20.000ms\tone\n\t2.25%\t20 E02me\t20\t\t\t\ttwo\n"
    reading = only(TABS + rows)
    assert [t.total_ns for t in reading.tallies] == [100_000_000, 4_500_000]
    assert "time about 4.5 ms, share × the whole" in told(reading)
    assert [(figure.series, figure.value) for figure in reading.figures] == [("gpu", 200_000_000)]


def test_a_row_that_stands_there_twice_counts_once() -> None:
    reading = only("8 100.00us 90.000us 200.00us one\n8 100.00us 90.000us 200.00us one\n")
    assert [t.calls for t in reading.tallies] == [8]
    assert "counted once" in told(reading)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("294.35ms", 294_350_000),
        ("992ns", 992),
        ("5.13219s", 5_132_190_000),
        ("312.19u", 312_190),
        ("37 070mc", 37_070_000),
        ("1.446lsm", 1_446_100),
        ("41.336ns", None),  # ns have no decimals
        ("364.128us", None),  # one digit too many
        ("331 A211c", None),
        ("128.16.35us", None),
        ("104 2200", None),
        ("", None),
    ],
)
def test_times_that_a_scanner_read(text: str, value: int | None) -> None:
    found, how = time_cell(text)
    assert (found and found.value) == value
    assert bool(how) == (value is not None and re.fullmatch(r"[\d.]+(ns|us|ms|s)", text) is None)


def test_shares_and_names() -> None:
    share, how = share_cell("2 06%")
    assert share is not None and float(share.value) == 2.06 and how
    assert share_cell("2x06%")[0] is None
    name = 'void f <addop<float>, int=1&gt;(Info<addop<floa\\$< td=""></addop<floa\\$<></addop<float>'
    assert name_cell(name) == ("void f<addop<float>, int=1>(Info<addop<floa$", "")
    assert name_cell('void g <float, bool="1" int="5,">(int)</float,>')[1] != ""


def document() -> list[Reading]:
    return list(read(Source(shared_file("seeds/002*"))))


def test_the_document_gives_every_whole_row() -> None:
    """Counted by one expression that knows nothing of the reader: tabs, seven full cells."""
    cell = r"\t([\d.]+[mun]s)"
    whole = re.compile(rf"\t[\d.]+%{cell}\t(\d+){cell}{cell}{cell}\t")
    text = shared_file("seeds/002*").read_text()
    expected = sorted((int(calls), least, most) for _, calls, _, least, most in whole.findall(text))
    assert len(expected) == 65
    scale = {"ns": 1, "us": 1e3, "ms": 1e6}
    wanted = [(calls, *(round(float(t[:-2]) * scale[t[-2:]]) for t in times)) for calls, *times in expected]
    found = [(t.calls, t.min_ns, t.max_ns) for reading in document() for t in reading.tallies if t.total_ns]
    for row in wanted:
        found.remove(row)


def test_the_document_is_eleven_runs() -> None:
    found = document()
    assert [r.facts.pid for r in found] == [13335, 13339, 13679, 13675, None, None, 12833, None, 153128, 153528, 153812]
    assert {r.facts.world_size for r in found} == {1}
    whole_ms = [round(figure.value / 1e6) for r in found[:4] for figure in r.figures]
    assert whole_ms == [
        454,
        534,
        692,
        1797,
    ]  # by hand: 92.639 / 0.2041, 92.543 / 0.1733, 92.581 / 0.1338, 149.30 / 0.0831


def test_what_the_document_gives_away() -> None:
    run = run_of(document())
    rows = gpu_checks(run).rows
    assert any("all profiles have call counts that are multiples of 16" in str(row[5]) for row in rows)
    fixed_ns, part = next((row[3], row[4]) for row in rows if row[0] == "fixed cost" and row[2] == "")
    assert (round(float(fixed_ns or 0) / 1e6), round(float(part or 0), 2)) == (213, 0.47)
    spinning = {row[1]: float(row[4] or 0) for row in rows if row[0] == "waiting inside"}
    assert spinning.keys() == {"8", "10"} and min(spinning.values()) > 0.9  # 4 GPUs, batch 16 and 128
    assert not any(row[0] == "uneven collective" for row in rows)  # runs of their own are not compared
    shares = {row[0]: round(float(row[5] or 0), 2) for row in gpu_ranks(run).rows}
    assert (shares[8], shares[10]) == (0.37, 0.20)


def test_only_damaged_tables_are_recognised() -> None:
    assert sniff((BEGIN + "GPU activities:").encode())
    assert sniff(shared_file("seeds/002*").read_bytes())
    assert not sniff(shared_file("seeds/003*").read_bytes())
