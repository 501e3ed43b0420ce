"""Every line of an accepted file is in the tables or counted as not understood: added, garbled, repeated, removed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from formats import test_mpip, test_nccl_tests, test_osu
from formats.foreign_files import readings
from fuzz.seeds import TEXTS
from rankscope.model.records import BadFile, Reading
from runs.loaded import SHARED

MPITRACE = next(text for text in TEXTS if "Data for MPI rank" in text)
SAMPLES = {
    "mpitrace": sorted((SHARED / "samples/mpitrace").glob("*/*.0"))[:3],
}
WRITTEN = {"mpitrace": MPITRACE, "mpip": test_mpip.REPORT, "osu": test_osu.TEXT, "nccl_tests": test_nccl_tests.TEXT}
FOREIGN = "the job says hello 17 times"
DIGITS = re.compile(r"\d")
NUMBERS = re.compile(r"\d+")


def contents(format_name: str) -> Iterator[str]:
    yield WRITTEN[format_name]
    yield from (path.read_text() for path in SAMPLES.get(format_name, ()))


def tables(found: list[Reading]) -> Any:
    """What is in the tables, without where it comes from."""
    return [(one.tallies, one.figures, one.facts) for one in found]


def told_lines(found: list[Reading]) -> set[int]:
    """The lines that notes speak of."""
    lines: set[int] = set()
    for one in found:
        for note in one.notes:
            _, _, at = note.where.rpartition(":")
            lines |= {int(at)} if at.isdecimal() else set()
            lines |= set(map(int, NUMBERS.findall(note.text.rpartition(": ")[2]))) if " line" in note.text else set()
    return lines


def said(found: list[Reading]) -> set[str]:
    return {note.text for one in found for note in one.notes}


def changed(format_name: str, lines: list[str]) -> list[Reading] | None:
    """None: the file is refused, which is said as well."""
    try:
        return readings(format_name, "\n".join(lines) + "\n")
    except (BadFile, AssertionError):
        return None


@pytest.mark.parametrize("format_name", WRITTEN)
def test_a_foreign_line_is_counted_wherever_it_stands(format_name: str) -> None:
    for text in contents(format_name):
        lines = text.splitlines()
        for at in range(0, len(lines) + 1, max(1, len(lines) // 40)):
            found = changed(format_name, [*lines[:at], FOREIGN, *lines[at:]])
            assert found is None or at + 1 in told_lines(found), (at + 1, lines[max(0, at - 1) : at + 1])


@pytest.mark.parametrize("format_name", WRITTEN)
def test_a_garbled_line_is_counted(format_name: str) -> None:
    """Of a line whose digits cannot be read any more, the tables need nothing, or it is told."""
    for text in contents(format_name):
        lines = text.splitlines()
        whole = tables(readings(format_name, text))
        for at in (at for at, line in enumerate(lines) if DIGITS.search(line)):
            garbled = [*lines[:at], DIGITS.sub("?", lines[at]), *lines[at + 1 :]]
            found = changed(format_name, garbled)
            if (
                found is None or tables(found) == whole or "?" in repr(tables(found))
            ):  # a command or host: kept as it is
                continue
            assert at + 1 in told_lines(found), lines[at]


@pytest.mark.parametrize("format_name", WRITTEN)
def test_a_line_that_comes_twice_is_not_counted_twice_in_silence(format_name: str) -> None:
    for text in contents(format_name):
        lines = text.splitlines()
        before = said(readings(format_name, text))
        for at in (at for at, line in enumerate(lines) if DIGITS.search(line)):
            found = changed(format_name, [*lines[: at + 1], *lines[at:]])
            assert found is None or said(found) - before or _is_same(found, text), lines[at]


def _is_same(found: list[Reading], text: str) -> bool:
    """Said twice, a fact of the program's surroundings is still one."""
    return tables(found) == tables(readings(_format_of(text), text))


def _format_of(text: str) -> str:
    return next(name for name, written in WRITTEN.items() if text == written or text in contents(name))


@pytest.mark.parametrize("format_name", ["mpitrace", "mpip", "nccl_tests"])
def test_a_row_that_is_missing_is_noticed(format_name: str) -> None:
    """Where the format says something twice: sums, counts and tables of all ranks."""
    rows = {
        "mpitrace": re.compile(r" +\d+ +\d+\.\d +\d+\.\d{3}$|MPI_\w+ +\d+ |total |user |system |max "),
        "mpip": re.compile(r"\w+ +\d+ +\d+ +\d+ |   \d "),
        "nccl_tests": re.compile(r" +\d+ +\d+ +float"),
    }[format_name]
    for text in contents(format_name):
        lines = text.splitlines()
        before = said(readings(format_name, text))
        for at in (at for at, line in enumerate(lines) if rows.match(line)):
            found = changed(format_name, [*lines[:at], *lines[at + 1 :]])
            assert found is None or said(found) - before or _is_nothing(lines[at]), lines[at]


def _is_nothing(row: str) -> bool:
    """A row whose numbers are as small as what is printed: its absence changes no sum."""
    values = [float(cell) for cell in row.split()[1:] if re.fullmatch(r"[\d.]+(?:e[+-]\d+)?", cell)]
    return not values or values[-1] < 0.01
