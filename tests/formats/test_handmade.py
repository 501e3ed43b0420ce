"""Hand-made tables: every cell becomes a figure, and what is wrong with them is found by rules that fit any table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rankscope.formats
from rankscope.formats.handmade import read, sniff
from rankscope.formats.source import Hints, Source
from rankscope.model.records import BadFile, Figure, Note, Reading
from rankscope.questions.scaling.scaling import of_documents
from runs.loaded import SHARED, run_of, warnings_of

TALLIES = next(iter((SHARED / "seeds").glob("000*")), SHARED / "seeds/000")
IMPORTS = next(iter((SHARED / "seeds").glob("001*")), SHARED / "seeds/001")
CLEAN = sorted((SHARED / "samples/aurora").glob("*.md"))
here = pytest.mark.skipif(not TALLIES.exists() or not CLEAN, reason="the shared samples are not on this machine")
MAPPINGS = Path(rankscope.formats.__file__).parent / "mappings"
SECONDS = {"ms": 10**6, "s": 10**9, "min": 6 * 10**10}
BYTES = {"MB": 10**6, "GB": 10**9}


def read_file(path: Path, mapping: Path | None = None) -> Reading:
    (reading,) = read(Source(path, Hints(mapping=mapping)))
    return reading


def read_text(text: str, mapping: Path | None = None) -> Reading:
    (reading,) = read(Source(Path("table.md"), Hints(mapping=mapping), text.encode()))
    return reading


def told(reading: Reading, *words: str) -> list[int]:
    """The lines of the warnings that hold all these words."""
    found = [note for note in warnings_of([reading]) if all(word in note.text for word in words)]
    return [int(note.where.rpartition(":")[2]) for note in found]


def line_of(path: Path, start: str, which: int = 0) -> int:
    return [at for at, text in enumerate(path.read_text().splitlines(), 1) if text.startswith(start)][which]


@here
def test_mistakes_of_the_tallies_are_found_with_their_lines() -> None:
    reading = read_file(TALLIES)
    lines = [line_of(TALLIES, "| 2 |", 0)]
    for library in ("CCL", "HVD", "MPI4py"):
        assert told(reading, f"{library} at 2:", "only if swapped", str(line_of(TALLIES, "| 2 |", 1))) == lines
    assert told(reading, "Hostnames", "512") == [line_of(TALLIES, "CCL BACKEND_ZE")]
    assert told(reading, "Total Mem Bytes", "1.04s is a time") == [line_of(TALLIES, "| 512 |", 2)]
    fallen = line_of(TALLIES, "| 64 |", 2)
    assert told(reading, "HVD, Total Mem Bytes", "3.07GB at 64", "595.59MB at 128", "failed") == [fallen]
    assert told(reading, "do not grow", "CCL, Total CPU calls (350753 at 1, 389735 at 256)") != []
    assert not told(reading, "CCL", "failed") and not told(reading, "MPI4py", "failed")


@here
def test_mistakes_of_the_import_times_are_found_with_their_lines() -> None:
    """145,367 × 512 × 12 / 600,000 = 1,488.6 s, where 8.2 s were measured; 605.25613 / 8.24698 = 73."""
    reading = read_file(IMPORTS)
    assert told(reading, "19,053,543,424", "8.8 h", "upper bound", "1,489 s at 512 nodes × 12") == [
        line_of(IMPORTS, "For 64 (ppn)")
    ]
    assert told(reading, "/soft is 4 X slower", "73 times") == [line_of(IMPORTS, "4. Eventhough")]
    pays = told(reading, "soft-CCL between 128 and 256", "soft-HVD between 128 and 256")
    assert pays == [line_of(IMPORTS, "7. The benefit")]
    assert not told(reading, "lus-CCL between") and len(warnings_of([reading])) == 3


@here
@pytest.mark.parametrize("path", CLEAN, ids=lambda path: path.name)
def test_no_false_alarm(path: Path) -> None:
    assert warnings_of([read_file(path)]) == []


def cells(path: Path) -> list[list[str]]:
    """Rows of the tables, by hand: broken lines joined, cells cut at the bars."""
    text = re.sub(r"\| *\n *\n *(?=1 \|)", "| ", path.read_text())
    return [
        [cell.strip() for cell in row.strip("| \n").split("|")] for row in text.splitlines() if row.startswith("| ")
    ]


@here
def test_every_cell_of_the_tallies_is_a_figure_once() -> None:
    expected: list[tuple[str, float, float]] = []
    for row in cells(TALLIES):
        if not row[0].isdigit():
            continue
        for at in (1, 5, 9):
            for cell in row[at + 1 : at + 3]:
                if cell and cell != "1.04s":  # a time among bytes: told of, not passed on
                    number, unit = re.fullmatch(r"([\d.]+)(\w*)", cell).groups()  # type: ignore[union-attr]
                    factor = {**SECONDS, **BYTES, "": 1}[unit]
                    expected.append((row[at], float(row[0]), round(float(number) * factor, 3)))
    figures = [figure for figure in read_file(TALLIES).figures if figure.scale is not None]
    found = [(figure.series, figure.scale or 0, round(figure.value, 3)) for figure in figures]
    assert sorted(found) == sorted(expected) and len(found) == 165


@here
def test_every_number_of_the_import_times_is_a_figure_once() -> None:
    """As many figures as number cells that are no scale, and the same sum."""
    total, count = 0.0, 0
    for row in cells(IMPORTS):
        numbers = [float(cell) for cell in row if re.fullmatch(r"[\d.]+", cell)]
        scales = 3 if len(row) > 10 and row[5] == row[10] == row[0] else 2 if len(row) > 5 and row[5] == row[0] else 1
        if row[0].isdigit():
            total, count = total + sum(numbers) - scales * float(row[0]), count + len(numbers) - scales
    reading = read_file(IMPORTS, MAPPINGS / "import_times.toml")
    times = [figure for figure in reading.figures if figure.unit == "ns"]
    assert len(times) == count and sum(figure.value for figure in times) / 1e9 == pytest.approx(total)
    assert {figure.name for figure in times} == {"import"} and {figure.scale_name for figure in times} == {"nodes"}
    calls = {figure.series: figure.value for figure in reading.figures if figure.unit == "count"}
    assert calls["Total Torch CCL"] == 145367 and calls["stats MPI4py"] == 47608 and len(calls) == 9


@here
def test_values_of_the_all_reduce_tables() -> None:
    """Two tables of five columns and ten rows; two cells of each were measured at 400 nodes."""
    reading = read_file(next(path for path in CLEAN if path.name == "all_reduce.md"))
    assert len(reading.figures) == 100 and {figure.unit for figure in reading.figures} == {"ns"}
    assert Figure("Torch CCL Aurora", "First all_reduce", 315_814_300_000, "ns", 512, "nodes") in reading.figures
    assert Figure("HVD Polaris", "Second all_reduce", 1_044_720_000, "ns", 400, "nodes") in reading.figures
    assert sum(1 for figure in reading.figures if figure.scale == 400) == 4


@here
def test_the_mapping_names_scale_and_columns() -> None:
    reading = read_file(TALLIES, MAPPINGS / "tallies_by_nodes.toml")
    assert Figure("HVD", "memory traffic", 3_070_000_000, "bytes", 64, "nodes") in reading.figures
    assert told(reading, "512 nodes")
    counts = {(f.series, f.name): f.value for f in reading.figures if f.scale is None}
    assert len(counts) == 3 * 3 + 3 * 5 and counts["HVD BACKEND_ZE", "threads"] == 72
    assert counts["MPI4py Device profiling", "subdevices"] == 13
    assert {figure.scale_name for figure in reading.figures if figure.scale} == {"nodes"}


TABLE = """\
# Scaling
Total PPN 4. The file system does 1000 operations per second at most: OPS is 1000.

| Nodes | A Total calls | A bytes (MB) | A time (s) |
| --- | --- | --- | --- |
| 1 | 100 | 1.5 | 2 |
| 2 | 200 | 3 | 2.5 |
| 4 | 400 | 6 | 2.5 |
| 8 | 800 | 12 | 3 |
"""


def test_a_column_that_numbers_ranks_is_no_scale() -> None:
    """No job has 0 ranks: 0 to 3 say which rank it is, 1, 2 and 4 may say how many."""
    numbered = read_text("rank,time (s)\n0,1.5\n1,1.6\n2,1.7\n3,1.4\n")
    assert [(f.scale, f.scale_name, f.value) for f in numbered.figures[:2]] == [(0, "rank", 1.5e9), (1, "rank", 1.6e9)]
    assert of_documents(run_of([numbered])) == []
    sized = read_text("ranks,time (s)\n1,1.5\n2,1.6\n4,1.7\n")
    assert {f.scale_name for f in sized.figures} == {"ranks"}
    assert [len(series.points) for series in of_documents(run_of([sized]))] == [3]


def test_units_by_header() -> None:
    reading = read_text(TABLE)
    assert reading.figures[-1] == Figure("A time (s)", "Scaling", 3e9, "ns", 8, "nodes")
    assert Figure("A bytes (MB)", "Scaling", 1_500_000, "bytes", 1, "nodes") in reading.figures
    assert Figure("A Total calls", "Scaling", 800, "count", 8, "nodes") in reading.figures
    assert warnings_of([reading]) == [] and sniff(TABLE.encode())


@pytest.mark.parametrize(
    ("changes", "words", "line"),
    [
        ({"400 |": "110 |", "800 |": "105 |", "200 |": "104 |"}, ("do not grow", "A Total calls"), 4),
        (
            {"400 |": "410 |", "200 |": "400 |", "100 |": "400 |", "800 |": "7 |"},
            ("410 up to 4", "7 at 8", "failed"),
            9,
        ),
        ({"| 2.5 |\n| 4": "| 2.5GB |\n| 4"}, ("A time (s)", "2.5GB is bytes"), 7),
        ({"# Scaling\n": "# Scaling\n3 * 100 = 301\n"}, ("is 300, not 301"), 2),
    ],
)
def test_mistakes_made_on_purpose(changes: dict[str, str], words: tuple[str, ...] | str, line: int) -> None:
    text = TABLE
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    assert told(read_text(text), *([words] if isinstance(words, str) else words)) == [line]


def test_true_claims_pass() -> None:
    text = TABLE.replace("# Scaling\n", "# Scaling\n3 * 100 = 300\n\nThe benefit of A starts beyond 8 nodes.\n")
    assert warnings_of([read_text(text)]) == []


def test_sums_of_totals() -> None:
    rows = "".join(f"| {n} | 10 | {n} | {10 + n} |\n" for n in (1, 2, 4, 8, 16))
    text = "time\n\n| Nodes | stage | run | Total |\n|---|---|---|---|\n" + rows
    assert warnings_of([read_text(text)]) == []
    assert told(read_text(text.replace("| 14 |", "| 24 |")), "Total at 4 is 24", "add up to 0.5833") == [7]


def test_csv_and_pairs_in_cells(tmp_path: Path) -> None:
    mapping = tmp_path / "map.toml"
    mapping.write_text(
        '[[table]]\nscale = "np"\nscale_name = "ranks"\n[table.columns."lib *"]\nseries = "mine"\n'
        'cells = ["time:ms", "calls:calls"]\n[table.columns.remark]\nskip = true\n'
    )
    reading = read_text("np,lib one,remark\n1,2.5 / 10,7\n2,3 / 20,8\n4,3.5 / 40,9\n", mapping)
    found = [(f.series, f.name, f.value, f.unit, f.scale, f.scale_name) for f in reading.figures]
    assert found[:3] == [("mine", "time", value, "ns", n, "ranks") for value, n in ((2.5e6, 1), (3e6, 2), (3.5e6, 4))]
    assert found[3:] == [("mine", "calls", value, "count", n, "ranks") for value, n in ((10, 1), (20, 2), (40, 4))]


@pytest.mark.parametrize("text", ["[[table]]\nscale = 3\n", "table = 3\n", "x = [", "[[table]]\nnothing = 'a'\n"])
def test_bad_mappings_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "map.toml").write_text(text)
    with pytest.raises(BadFile, match=r"map\.toml"):
        read_text(TABLE, tmp_path / "map.toml")


def test_bad_files_are_told() -> None:
    for text in ("", "no table here\n", "| a | b |\n| --- | --- |\n| c | d |\n"):
        with pytest.raises(BadFile, match=r"table\.md"):
            read_text(text)
    assert not sniff(b"| a | b |\n| --- | --- |\n| c | d |\n") and not sniff(b"time,calls\n1,2\n")


def test_wide_and_long_tables_end_soon() -> None:
    wide = "| Nodes |" + " total |" * 5000 + "\n|" + " --- |" * 5001 + "\n" + "".join(
        f"| {n} |" + " 7 |" * 5000 + "\n" for n in (1, 2, 4, 8)
    )  # fmt: skip
    assert len(read_text(wide).figures) == 20_000
    assert isinstance(read_text(TABLE + "".join(f"| {n} | 1 | 1 | 1 |\n" for n in range(9, 9000))).notes, list)
    assert all(isinstance(note, Note) for note in read_text(TABLE + "a" * 1000).notes)
