"""Growth of a study's figures: which series its tables hold, and what is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from questions.scaling.asking import scaled
from rankscope.cli.scale import run as scale
from rankscope.model.tables import Column, Table, Unit
from rankscope.questions.scaling.growth import growth
from rankscope.studies.document import growing, growth_tables, series_of_tables
from rankscope.studies.plan import Cell, Outcome, Study
from studies.studying import squares, study

LONG = (
    Column("backend", Unit.NAME, "Backend"),
    Column("ranks", Unit.COUNT, "Ranks"),
    Column("bytes", Unit.BYTES, "Size"),
    Column("latency_ns", Unit.NS, "Latency"),
    Column("bus", Unit.RATE, "Bus bandwidth"),
    Column("calls", Unit.COUNT, "Calls"),
)


def table(rows: list[tuple[str, int, int, float, float, int]]) -> Table:
    return Table("allreduce", "All-reduce", LONG, list(rows))


def test_series_are_told_apart_by_what_stands_left_of_the_values() -> None:
    rows = [(backend, ranks, size, 1e3 * ranks, 1e9, 7) for backend in "ab" for ranks in (1, 2) for size in (4, 4096)]
    found = [one for one in series_of_tables([table(rows)]) if one.axis == "ranks"]
    assert {(one.name, one.what, one.unit) for one in found} == {
        (backend, f"{what}, {size}", unit)
        for backend in "ab"
        for size in ("4 B", "4 KiB")
        for what, unit in (("Latency", "ns"), ("Bus bandwidth", "bytes/s"))
    }
    assert found[0].points == ((1, 1e3), (2, 2e3)) and found[0].axis == "ranks"


def test_columns_side_by_side_are_series_of_the_table() -> None:
    wide = (
        Column("ranks", Unit.COUNT, "Ranks"),
        Column("a_ns", Unit.NS, "disk-a"),
        Column("b_ns", Unit.NS, "b"),
    )
    found = series_of_tables([Table("times", "Import time", wide, [(1, 5.0, None), (2, 6.0, 7.0)])])
    assert [(one.name, one.what, one.points) for one in found] == [
        ("disk-a", "Import time", ((1, 5.0), (2, 6.0))),
        ("b", "Import time", ((2, 7.0),)),
    ]


def test_times_of_messages_are_series_over_their_sizes_too() -> None:
    """A latency of 20 µs and 1 ns for every byte; the other backend has 5 µs and 2 ns: they meet at 15,000 bytes."""
    sizes = [4, 1024, 65536, 1 << 20, 1 << 24]
    rows = [("a", 2, size, 20e3 + size, 1e9, 7) for size in sizes]
    rows += [("b", 2, size, 5e3 + 2 * size, 1e9, 7) for size in sizes]
    found = series_of_tables([table(rows)])
    assert [(one.name, one.what) for one in found if one.axis == "bytes"] == [
        ("a", "Latency, 2 ranks"),
        ("b", "Latency, 2 ranks"),
    ]
    made = {one.name: one for one in growth_tables([growth(one) for one in found if len(one.points) > 1])}
    assert [row[8] for row in made["size_laws"].rows] == ["alpha-beta", "alpha-beta"]
    (meeting,) = made["size_break_even"].rows
    assert meeting[5] is not None and abs(float(meeting[5]) - 15_000) < 1
    assert meeting[6] == "b is faster up to about 14.6 KiB, a from there on"
    units = {column.name: column.unit for column in made["size_break_even"].columns}
    assert {units[name] for name in ("smallest", "largest", "break_even")} == {Unit.BYTES}


def test_a_column_for_each_backend_and_what_is_shown_twice() -> None:
    columns = (*LONG[1:3], Column("a_ns", Unit.NS, "a"), Column("b_ns", Unit.NS, "b"))
    rows = [(ranks, 4, 1.0 * ranks, 2.0 * ranks) for ranks in (1, 2)]
    long = table([("a", ranks, 4, 1.0 * ranks, 1e9, 7) for ranks in (1, 2)])
    found = series_of_tables([long, Table("w", "Latency by backend", columns, list(rows))])
    named = [(one.name, one.what) for one in found if one.axis == "ranks" and one.unit == "ns"]
    assert named == [("a", "Latency, 4 B"), ("b", "Latency by backend, 4 B")]


def test_rows_that_are_no_series_are_left_alone() -> None:
    twice = [("a", 1, 4, 1.0, 1.0, 1), ("a", 1, 4, 2.0, 1.0, 1)]
    assert series_of_tables([table(twice)]) == []
    assert series_of_tables([Table("t", "T", LONG[2:], [(4, 1.0, 1.0, 1)])]) == []


def test_counts_tell_series_apart_only_where_names_do_not() -> None:
    columns = (
        Column("model", Unit.NAME, "Model"),
        Column("ranks", Unit.COUNT, "Ranks"),
        Column("parameters", Unit.COUNT, "Parameters"),
        Column("step_ns", Unit.NS, "Step"),
    )
    rows = [("a", 1, 9, 1.0), ("a", 2, 9, 2.0), ("b", 1, 7, 3.0)]
    assert [one.name for one in series_of_tables([Table("t", "T", columns, list(rows))])] == ["a", "b"]
    found = series_of_tables([Table("t", "T", columns, [*rows, ("a", 1, 8, 5.0)])])
    assert [(one.name, one.what) for one in found] == [("a", "Step, 9"), ("b", "Step, 7"), ("a", "Step, 8")]


def test_how_many_operations_there_are_stands_behind_their_name() -> None:
    columns = (*LONG[:2], Column("name", Unit.NAME), LONG[2], Column("collectives", Unit.COUNT), LONG[3])
    rows = [("gloo", 2, "all_reduce", size, count, 1.0 * size) for size in (4, 4096) for count in (9, 1204)]
    found = series_of_tables([Table("t", "Wait", columns, list(rows))])
    assert {(one.name, one.what) for one in found if one.axis == "bytes"} == {
        ("gloo", "Latency, all_reduce (9), 2 ranks"),
        ("gloo", "Latency, all_reduce (1,204), 2 ranks"),
    }
    assert "Latency, all_reduce (9), 4 KiB" in {one.what for one in found if one.axis == "ranks"}


def test_tables_side_by_side_name_themselves() -> None:
    columns = [Column("ranks", Unit.COUNT, "Ranks")]
    for library in "ab":
        columns += [Column(library, Unit.NAME, " "), Column(f"{library}_ns", Unit.NS, "Total"), Column("n", Unit.COUNT)]
    found = series_of_tables(
        [Table("t", "T", columns, [(1, "CCL", 5.0, 9, "HVD", 6.0, 9), (2, "CCL", 7.0, 9, "HVD", 8.0, 9)])]
    )
    assert [(one.name, one.what, one.points) for one in found] == [
        ("CCL", "T: Total", ((1, 5.0), (2, 7.0))),
        ("HVD", "T: Total", ((1, 6.0), (2, 8.0))),
    ]


def test_of_many_pairs_those_that_meet_are_shown_and_the_others_counted() -> None:
    rows = [
        (name, n, size, 1e3 * (n if name == "a" else 3), 1e9, 7) for name in "ab" for n in (1, 4) for size in range(40)
    ]
    rows += [("c", n, size, 1e6, 1e9, 7) for n in (1, 4) for size in range(40)]
    grown = [growth(one) for one in series_of_tables([table(rows)]) if one.unit == "ns" and one.axis == "ranks"]
    made = {one.name: one for one in growth_tables(grown)}["scale_break_even"]
    assert len(made.rows) == 30 and {row[5] for row in made.rows} == {3.0}
    assert "Never in range: a is faster than c at every size (40 quantities)" in made.notes
    assert "The first 30 of 40 that meet; `rankscope scale` shows all." in made.notes


def study_of(values: dict[tuple[int, int], float]) -> tuple[Study, list[Outcome]]:
    """A study whose only figure is given by ranks and repeat."""
    columns = (Column("ranks", Unit.COUNT, "Ranks"), Column("images_per_s", Unit.NUMBER, "Images/s"))

    def tables(outcomes: object, _: object) -> list[Table]:
        assert isinstance(outcomes, list)
        cells = [one.cell for one in outcomes]
        return [Table("t", "Throughput", columns, [(cell.ranks, values[cell.ranks, cell.repeat]) for cell in cells])]

    made = Study("s", "S", "", lambda _: {}, lambda *_: None, tables)  # type: ignore[arg-type,return-value]
    return made, [Outcome(Cell((), ranks, repeat), "done") for ranks, repeat in values]


def test_repeats_are_points_of_their_own_and_throughputs_have_a_speed_up() -> None:
    study, outcomes = study_of({(n, repeat): 100 * n**0.5 + repeat for n in (1, 2, 4, 8) for repeat in (1, 2)})
    (grown,) = growing(study, outcomes, {})
    assert len(grown.series.points) == 8 and grown.series.unit == "/s"
    made = {one.name: one for one in growth_tables([grown], [16, 1000])}
    last = made["scale_speed_up"].rows[-1]
    assert last[2] == 8 and 2.7 < float(str(last[4])) < 2.9 and 0.33 < float(str(last[5])) < 0.37
    near, far = made["scale_projection"].rows
    assert near[-1] is None and "8 times" in str(far[-1])


def test_a_study_of_ones_own_is_read_from_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file is not needed; --to is refused in the document, because there are two scales only."""
    done = study(squares(tmp_path / "squares.toml"), "--out", tmp_path / "s", "--to", "4")
    assert done.returncode == 0, done.stderr
    assert "only 2 scales: measure at least 4" in (tmp_path / "s" / "squares.md").read_text().split("## Projection")[1]
    (tmp_path / "squares.toml").unlink()
    _, tables = scaled(capsys, tmp_path / "s", "--series", "elapsed")
    assert [(row["series"], row["largest"]) for row in tables["scale_laws"]] == [("2", 2), ("3", 2)]
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "study.json").write_text("{}")
    assert scale([str(tmp_path / "empty")]) == 2
    assert "no cell of this study has finished" in capsys.readouterr().err


def test_a_study_of_one_scale_has_no_growth() -> None:
    study, outcomes = study_of({(2, 1): 5.0})
    assert growing(study, outcomes, {}) == [] and growth_tables([]) == []


def test_a_long_section_shows_the_steepest() -> None:
    rows = [(f"b{n}", ranks, 4, 1e3 * ranks ** (n / 100), 1e9, 7) for n in range(60) for ranks in (1, 2, 4, 8)]
    grown = [growth(one) for one in series_of_tables([table(rows)]) if one.unit == "ns" and one.axis == "ranks"]
    laws = growth_tables(grown)[0]
    assert len(laws.rows) == 40 and laws.rows[-1][0] == "b59" and "rankscope scale" in laws.notes[-1]


def test_figures_that_a_table_of_their_own_shows_again_are_one_series() -> None:
    """As in a study whose first table has all parts and whose others have one part of each backend."""
    ranks, backend = Column("ranks", Unit.COUNT, "Ranks"), Column("backend", Unit.NAME, "Backend")
    all_parts = Table(
        "all", "All", [backend, ranks, Column("import_ns", Unit.NS, "Import")], [("gloo", 1, 5), ("gloo", 2, 9)]
    )
    of_one = Table("import", "Import", [ranks, Column("gloo_ns", Unit.NS, "gloo import")], [(1, 5), (2, 9)])
    assert [(one.name, one.what) for one in series_of_tables([all_parts, of_one])] == [("gloo", "Import")]
