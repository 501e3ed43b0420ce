"""Python's import timer, by hand and for real."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from formats.foreign_files import reading, readings, warnings

TEXT = """\
import time: self [us] | cumulative | imported package
import time:        10 |         10 |     a.b
import time:         5 |         15 |   a
import time:         7 |          7 |   c
import time:       100 |        122 | top
import time:         3 |          3 | last
"""


def test_self_and_whole_times_with_their_importers() -> None:
    found = reading("importtime", TEXT)
    own = {t.name: t.total_ns for t in found.tallies}
    assert own == {n: us * 1000 for n, us in (("a.b", 10), ("a", 5), ("c", 7), ("top", 100), ("last", 3))}
    whole = {t.name: (t.total_ns, t.within) for t in found.range_tallies}
    assert whole == {
        "a.b": (10_000, "a"),
        "a": (15_000, "top"),
        "c": (7_000, "top"),
        "top": (122_000, ""),
        "last": (3_000, ""),
    }
    assert {(t.layer, t.kind) for t in (*found.tallies, *found.range_tallies)} == {
        ("import", "call"),
        ("import", "whole"),
    }
    assert warnings(found) == []


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("122 | top", "222 | top", "file.txt:5: top"),
        ("5 |         15", "25 |         15", "file.txt:3: a: 25 us self time"),
    ],
)
def test_times_that_do_not_add_up(before: str, after: str, place: str) -> None:
    found = warnings(reading("importtime", TEXT.replace(before, after)))
    assert any(text.startswith(place) for text in found), found


def test_two_processes_with_output_between() -> None:
    found = readings("importtime", TEXT + "hello from the program\n" + TEXT)
    assert [sum(t.total_ns for t in one.tallies) for one in found] == [125_000, 125_000]


def test_a_real_run_is_read_whole_and_raises_no_alarm() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import json, email.message, http.client"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = reading("importtime", done.stderr)
    numbers = [(int(a), int(b)) for a, b in re.findall(r"(?m)^import time:\s+(\d+) \|\s+(\d+) \|", done.stderr)]
    assert sum(t.total_ns for t in found.tallies) == 1000 * sum(a for a, _ in numbers)
    assert sum(t.total_ns for t in found.range_tallies) == 1000 * sum(b for _, b in numbers)
    assert warnings(found) == []
    top_us = [int(b) for b, _ in re.findall(r"(?m)^import time:\s+\d+ \|\s+(\d+) \| (\S+)$", done.stderr)]
    outermost = [t for t in found.range_tallies if not t.within]
    assert sum(t.total_ns for t in outermost) == 1000 * sum(top_us)
