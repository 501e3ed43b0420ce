"""Parameter-server metrics: every number of the csv files and of the tables in logs."""

from __future__ import annotations

import csv
import re
from decimal import Decimal
from pathlib import Path

import pytest

from formats.foreign_files import SHARED, reading, shared, warnings
from rankscope.model.records import BadFile, Reading

GRID = """\
some output
metrics for trainer=0
+--------+-----+-----+------+----------+-------+
| name   | min | max | mean | variance | stdev |
+========+=====+=====+======+==========+=======+
| a,fwd  |   1 |   3 |    2 |        1 |     1 |
+--------+-----+-----+------+----------+-------+
| a,back | 2.5 | 3.5 |    3 |     0.25 |   0.5 |
+--------+-----+-----+------+----------+-------+
and more
| not | a | table | row | at | all |
metrics for all trainer
+--------+-----+-----+------+----------+-------+
| name   | min | max | mean | variance | stdev |
+========+=====+=====+======+==========+=======+
| a,fwd  |   1 |   4 |  2.5 |      4.5 | 2.121 |
+--------+-----+-----+------+----------+-------+
"""


def numbers(found: Reading) -> dict[tuple[str, str, str], float]:
    return {(f.series, f.name, f.statistic): f.value for f in found.figures}


def test_grids() -> None:
    found = reading("ps_metrics", GRID)
    got = numbers(found)
    assert len(found.figures) == len(got) == 15
    assert got["trainer=0", "a,fwd", "min"] == 1_000_000
    assert got["trainer=0", "a,back", "variance"] == 0.25e12
    assert got["trainer=0", "a,back", "stdev"] == 500_000
    assert got["all trainer", "a,fwd", "mean"] == 2_500_000
    assert {f.unit for f in found.figures} == {"ns", "ns2"}
    assert warnings(found) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("| a,fwd  |   1 |   3 |", "| a,fwd  |  -1 |   3 |", "file.txt:6: a,fwd: the minimum -1 is negative"),
        ("|   3 |    2 |", "|   3 |    5 |", "file.txt:6: a,fwd: the mean 5"),
        ("|        1 |     1 |", "|        1 |     2 |", "file.txt:6: a,fwd: the standard deviation"),
        ("|     0.25 |   0.5 |", "|        9 |     3 |", "file.txt:8: a,back: the variance 9"),
        ("|        1 |     1 |", "|       -1 |     1 |", "file.txt:6: a,fwd: variance -1"),
    ],
)
def test_what_cannot_be(before: str, after: str, said: str) -> None:
    assert before in GRID
    assert [text for text in warnings(reading("ps_metrics", GRID.replace(before, after))) if text.startswith(said)]


@pytest.mark.parametrize("bad", ["nan", "inf", "1e999", "x", "", "9" * 5000])
def test_what_is_no_number_is_a_bad_file(bad: str) -> None:
    with pytest.raises(BadFile, match=r"file\.txt:6: "):
        reading("ps_metrics", GRID.replace("|   3 |    2 |", f"|   {bad} |    2 |"))


def test_seconds_of_the_host_clock_are_told_from_milliseconds_of_cuda_events() -> None:
    host = "name,min,max,mean,variance,stdev\nx,0.04291234567890123,0.08881234567890123,0.06,0.001,0.0316\n"
    found = reading("ps_metrics", host)
    assert numbers(found)["file", "x", "min"] == pytest.approx(42_912_345.67890123)
    assert any("seconds" in note.text for note in found.notes)


FILES = sorted((SHARED / "samples" / "ps_metrics").glob("*.csv"))


@pytest.mark.skipif(not FILES, reason="no real files beside the project")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_number_of_real_csv_files(path: Path) -> None:
    found = reading("ps_metrics", path.read_bytes())
    with path.open(newline="") as file:
        expected = [
            (
                "file",
                row["name"],
                statistic,
                float(Decimal(row[statistic]) * (10**12 if statistic == "variance" else 10**6)),
            )
            for row in csv.DictReader(file)
            for statistic in ("min", "max", "mean", "variance", "stdev")
        ]
    assert [(f.series, f.name, f.statistic, f.value) for f in found.figures] == expected
    assert warnings(found) == []


def test_every_number_of_the_tables_in_document_003() -> None:
    text = next(shared("seeds").glob("003*")).read_text()
    pattern = r"(?m)^\| (\S+) +\| +([\d.]+) +\| +([\d.]+) +\| +([\d.]+) +\| +([\d.]+) +\| +([\d.]+) +\|$"
    rows = re.findall(pattern, text)
    assert len(rows) == 4
    expected = {(row[0], statistic): row[1 + at] for row in rows for at, statistic in enumerate(("min", "max", "mean"))}
    found = reading("ps_metrics", text)
    got = {(f.name, f.statistic): f.value for f in found.figures}
    assert len(found.figures) == 5 * len(rows)
    for key, printed in expected.items():
        assert got[key] == float(Decimal(printed) * 10**6)
    for row in rows:
        assert got[row[0], "variance"] == float(Decimal(row[4]) * 10**12)
        assert got[row[0], "stdev"] == float(Decimal(row[5]) * 10**6)
    assert {f.series for f in found.figures} == {"trainer_metrics"}
    assert warnings(found) == []
