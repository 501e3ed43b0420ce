"""Every line of an accepted file is in the tables or counted as not understood: added, garbled, repeated, removed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from formats import test_mpip, test_nccl_tests, test_osu
from formats.foreign_files import readings
from fuzz.seeds import TEXTS
from rankscope.formats import recognition
from rankscope.formats.registry import recognised
from rankscope.formats.source import Source
from rankscope.model.records import BadFile, Reading
from runs.loaded import SHARED

SAMPLES = {
    "mpitrace": sorted((SHARED / "samples/mpitrace").glob("*/*.0"))[:3],
    "iprof": sorted((SHARED / "samples/iprof").glob("*")),
    "unitrace": sorted((SHARED / "samples/unitrace").glob("*")),
    "ps_metrics": sorted((SHARED / "samples/ps_metrics").glob("*"))[:2],
}
# told by other means: documents of any text, tables whose every row is a number, JSON
NO_LINES = ("handmade", "operations")


def texts_by_format() -> dict[str, list[str]]:
    """The seeds of every format that is read line by line."""
    texts = {"mpip": [test_mpip.REPORT], "osu": [test_osu.TEXT], "nccl_tests": [test_nccl_tests.TEXT]}
    for text in TEXTS:
        known = recognised(Source(Path("seed"), content=text.encode()))
        if known is not None and known.name not in (*NO_LINES, "mpip", "osu", "nccl_tests"):
            texts.setdefault(known.name, []).append(text)
    return texts


WRITTEN = texts_by_format()
FOREIGN = "the job says hello 17 times"
DIGITS = re.compile(r"\d")
NUMBERS = re.compile(r"\d+")


def contents(format_name: str) -> Iterator[str]:
    yield from WRITTEN[format_name]
    yield from (path.read_text() for path in SAMPLES.get(format_name, ()))


def tables(found: list[Reading]) -> Any:
    """What is in the tables, without where it comes from."""
    return [(one.tallies, one.range_tallies, one.figures, one.facts, one.groups, events(one)) for one in found]


def events(one: Reading) -> list[tuple[Any, ...]]:
    """Name, start and end of single events."""
    if not one.event_columns:
        return [(event.name, event.start_ns, event.end_ns) for event in one.events]
    names = one.event_columns["name"]
    times = (one.event_columns[column].tolist() for column in ("start_ns", "end_ns"))
    return list(zip((names.values[code] for code in names.codes), *times, strict=True))


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


@pytest.mark.parametrize("format_name", ["mpitrace", "mpip", "osu", "nccl_tests"])
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
    return next(name for name in WRITTEN if text in contents(name))


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


def test_every_format_of_lines_is_tried() -> None:
    text_formats = {"darshan", "deepspeed_comms", "imagenet", "importtime", "ipm", "iprof", "mpip", "mpitrace"}
    text_formats |= {"nccl_tests", "nsys_stats", "nvprof", "nvprof_damaged", "osu", "ps_metrics", "rocprof"}
    assert WRITTEN.keys() == text_formats | {"strace_log", "strace_summary", "thapi", "unitrace"}


def test_lines_of_a_table_that_another_reader_has_are_no_foreign_lines(tmp_path: Path) -> None:
    """Metrics printed in the output of a program that nvprof looks at."""
    profile = next(text for text in TEXTS if "NVPROF is profiling" in text).splitlines()
    grid = next(text for text in TEXTS if text.startswith("+---")).splitlines()
    path = tmp_path / "log.txt"
    path.write_text("\n".join([profile[0], "hello", *grid, *profile[1:]]) + "\n")
    source = Source(path)
    found = [reading for _, reading in recognition.readings(source, recognition.pieces(source))]
    assert told_lines(found) == {2} and any(one.figures for one in found) and any(one.tallies for one in found)


def test_events_of_a_timeline_that_no_table_has_are_counted() -> None:
    events = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "tensor.a"}},
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1},
        {"ph": "C", "name": "counter", "ts": 15, "pid": 1},
        {"ph": "E", "ts": 20, "pid": 1},
    ]
    text = "[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n"
    assert "1 line with events that are not in any table: 4" in said(readings("horovod_timeline", text))
