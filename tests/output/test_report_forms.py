"""Tables in every form: the numbers are there, and nothing in them can act on a terminal or a page."""

from __future__ import annotations

import csv
import io
import json

import pytest

from rankscope.model.tables import Column, Table, Unit
from rankscope.output.cells import printable, shown, size_text, time_text
from rankscope.output.csv import to_csv
from rankscope.output.json import to_json
from rankscope.output.markdown import to_markdown
from rankscope.output.text import to_text

EVIL = "\x1b[31mred\x9b1m [bold]x[/bold] \u202e| <b>*_\n"


def table(name: str = "things") -> Table:
    columns = (
        Column("name", Unit.NAME, "Name"),
        Column("rank", Unit.NAME, "Rank"),
        Column("calls", Unit.COUNT, "Calls"),
        Column("total_ns", Unit.NS, "Time", "time in all calls"),
        Column("share", Unit.SHARE, "Share"),
        Column("bytes", Unit.BYTES, "Bytes"),
        Column("nothing", Unit.NS, "Nothing"),
    )
    rows = [("MPI_Allreduce", 1234, 1234567, 1.5e9, 0.25, 4718592, None), (EVIL, 0, 0, None, None, 0, None)]
    return Table(name, "Things", columns, list(rows), ["a note"], ["a warning " + EVIL])


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, "0 s"), (0.39, "0.39 ns"), (19, "19.0 ns"), (999, "999 ns"), (1500, "1.50 µs"), (12_340_000, "12.3 ms"),
        (123_400_000, "123 ms"), (1.5e9, "1.50 s"), (9.94e9, "9.94 s"), (1234.5e9, "1234 s"), (123456e9, "123,456 s"),
    ],
)  # fmt: skip
def test_times(nanoseconds: float, expected: str) -> None:
    assert time_text(nanoseconds) == expected


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, "0 B"), (8, "8 B"), (129.5, "129.5 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (4718592, "4.50 MiB"),
     (3 * 1024**4, "3.00 TiB")],
)  # fmt: skip
def test_sizes(size: float, expected: str) -> None:
    assert size_text(size) == expected


def test_other_cells() -> None:
    assert shown(1234567, Unit.COUNT) == "1,234,567"
    assert shown(1234567, Unit.NAME) == "1234567"
    assert shown(0.1234, Unit.SHARE) == "12.3 %" and shown(0.0001, Unit.SHARE) == "<0.1 %"
    assert shown(-0.0001, Unit.SHARE) == shown(0.0, Unit.SHARE) == "0.0 %" and shown(-0.001, Unit.SHARE) == "-0.1 %"
    assert shown(None, Unit.NS) == "" and shown(1.2345, Unit.NUMBER) == "1.23"
    assert shown(2048.0, Unit.RATE) == "2.00 KiB/s"


def test_nothing_unprintable_passes() -> None:
    assert printable(EVIL) == r"\x1b[31mred\x9b1m [bold]x[/bold] \u202e| <b>*_\x0a"
    assert printable("größer µ 日本") == "größer µ 日本"


@pytest.mark.parametrize("width", [80, 120])
def test_text_keeps_to_the_width_and_loses_nothing(width: int) -> None:
    text = to_text([table()], width)
    assert max(map(len, text.splitlines())) <= width
    for part in ("MPI_Allreduce", "1234", "1,234,567", "1.50 s", "25.0 %", "4.50 MiB", "a note", "warning: a warning"):
        assert part in text
    assert "Nothing" not in text  # a column without any value
    assert "[bold]x[/bold]" in text
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def test_a_wide_table_drops_columns_and_says_which() -> None:
    names = ["rank", "stdev_ns", *(f"column_{at}" for at in range(12))]
    wide = Table("wide", "Wide", [Column(name, Unit.COUNT) for name in names], [tuple(range(14)), tuple(range(14))])
    lines = to_text([wide], 80).splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) == 6  # title, head, rule, two rows, and what is not there
    assert lines[1].split() == ["rank", *(f"column_{at}" for at in range(7))]
    assert lines[-1].startswith("6 columns dropped: stdev_ns, column_7, ") and lines[-1].endswith(
        "--format csv has all"
    )
    assert "dropped" not in to_text([wide], 200)


def test_a_long_name_is_on_one_line_where_there_is_room() -> None:
    long = "DistributedDataParallel.forward_of_a_model_with_a_long_name"
    named = Table("t", "T", table().columns[:2], [(long, "0-3")])
    assert long in to_text([named], 100) and long not in to_text([named], 60)
    assert all(len(line) <= 60 for line in to_text([named], 60).splitlines())


def test_colour_only_when_asked_for() -> None:
    assert "\x1b[" in to_text([table()], 80, colour=True)
    assert "\x1b[" not in to_text([table()], 80)


def test_a_vertical_table_is_a_list() -> None:
    one = Table("one", "One", table().columns, table().rows[:1], vertical=True)
    assert to_text([one], 80).splitlines()[1].split() == ["Name", "MPI_Allreduce"]


def test_a_vertical_table_of_two_rows_is_two_lists() -> None:
    two = Table("two", "Two", table().columns, table().rows[:2], vertical=True)
    text = to_text([two], 80)
    assert text.count("\nName ") == 2 and text.count("\n\n") == 1
    assert to_markdown([two]).count("| Name |") == 2


def test_csv_of_one_table_is_plain() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv([table()]))))
    assert rows[0]["total_ns"] == "1500000000.0" and rows[0]["bytes"] == "4718592" and rows[0]["nothing"] == ""
    assert rows[1]["name"] == printable(EVIL)


def test_csv_of_several_tables_names_them() -> None:
    lines = to_csv([table("a"), table("b")]).splitlines()
    assert lines[0] == "# a" and lines[4:6] == ["", "# b"]


def test_json_is_as_documented() -> None:
    told = json.loads(to_json([table()]))
    assert told["format"] == 1
    (only,) = told["tables"]
    assert set(only) == {"name", "title", "columns", "rows", "notes", "warnings"}
    assert only["columns"][3] == {"name": "total_ns", "unit": "ns", "formula": "time in all calls"}
    assert only["rows"][0] == ["MPI_Allreduce", 1234, 1234567, 1.5e9, 0.25, 4718592, None]
    assert only["rows"][1][0] == EVIL  # as it is: JSON escapes it
    assert to_json([table()]).isascii()


def test_json_has_no_infinity() -> None:
    odd = Table("odd", "Odd", [Column("x", Unit.NUMBER)], [(float("inf"),), (float("nan"),)])
    assert json.loads(to_json([odd]))["tables"][0]["rows"] == [[None], [None]]


def test_markdown_shows_names_as_they_are() -> None:
    text = to_markdown([table()])
    assert "| MPI_Allreduce | 1234 | 1,234,567 | 1.50 s | 25.0 % | 4.50 MiB |" in text
    assert "| --- | ---: |" not in text.splitlines()[0]
    assert r"\[bold\]x\[/bold\] \\u202e\| \<b\>\*\_" in text
    assert "\x1b" not in text


def test_lines_of_another_layout_are_shown_as_they_are() -> None:
    lines = [("  a   |b|",), ("```",), ("\x1b[31m <b>",)]
    verbatim = Table("layout", "Layout", [Column("line", Unit.NAME)], lines, verbatim=True)
    assert "````text\n  a   |b|\n```\n\\x1b[31m <b>\n````\n" in to_markdown([verbatim])
    assert "  a   |b|\n```\n\\x1b[31m <b>\n" in to_text([verbatim], 80)
