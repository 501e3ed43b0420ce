"""nvprof's output: every figure once, and back again as it was."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.api.run import Run as ApiRun
from rankscope.cli.load import run as load
from rankscope.cli.report import parser, selection_of
from rankscope.cli.report import rendered as rendered_by_command
from rankscope.formats.nvprof import read, sniff
from rankscope.formats.source import Hints, Source
from rankscope.model.records import BadFile, Reading
from rankscope.output.layouts.nvprof import time_text, to_nvprof, to_nvprof_csv
from rankscope.questions.layouts.nvprof import nvprof_processes, nvprof_rows
from rankscope.questions.selection import ALL, Selection
from rankscope.store.run import RunTables
from runs.loaded import run_of, shared_file, text_source, warnings

LOG = ROOT / "tests" / "formats" / "fixtures" / "nvprof_log.txt"
# nothing of the reader's: figures of a row by one expression, times by their own table
TIME = r" +([\d.]+[mun]?s)"
ROW = re.compile(rf"^(?: *[A-Za-z ]+:)? +([\d.]+)%{TIME} +(\d+){TIME}{TIME}{TIME}  (.+)$")
OWN_LINE = re.compile(
    r"==\d+==(?! (?:NVPROF|Warning))|\s+(?:Type|\d+\.\d+%)|\s*(?:GPU activities|API calls|Range):|No (?:kernels|API)"
)
SCALES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


def ns(text: str) -> float:
    digits = text.rstrip("mnus")
    return float(Decimal(digits) * SCALES[text[len(digits) :]])


def document() -> Path:
    return shared_file("seeds/003*")


def rendered(run: RunTables, selection: Selection = ALL, merged: bool = False) -> str:
    return to_nvprof(nvprof_processes(run, selection, merged), nvprof_rows(run, selection, merged))


def by_pid(path: Path) -> dict[int | None, Reading]:
    return {reading.facts.pid: reading for reading in read(Source(path))}


@pytest.fixture(params=["own", "document"])
def log(request: pytest.FixtureRequest) -> Path:
    return LOG if request.param == "own" else document()


def test_every_row_comes_out_once(log: Path) -> None:
    lines = [ROW.match(line) for line in log.read_text().splitlines()]
    expected = Counter((m[7], int(m[3]), ns(m[5]), ns(m[6])) for m in lines if m)
    tallies = [t for reading in read(Source(log)) for t in (*reading.tallies, *reading.range_tallies)]
    assert sum(expected.values()) > 10
    assert Counter((t.name, t.calls, t.min_ns, t.max_ns) for t in tallies) == expected


def test_every_time_is_the_printed_one_within_its_rounding(log: Path) -> None:
    rows = [m for line in log.read_text().splitlines() if (m := ROW.match(line))]
    tallies = [t for reading in read(Source(log)) for t in (*reading.tallies, *reading.range_tallies)]
    assert len(rows) == len(tallies)
    rows.sort(key=lambda row: (row[7], int(row[3]), ns(row[2])))
    tallies.sort(key=lambda tally: (tally.name, tally.calls or 0, tally.total_ns or 0))
    for row, tally in zip(rows, tallies, strict=True):
        assert tally.total_ns == pytest.approx(ns(row[2]), rel=6e-5)
    exact = sum(tally.total_ns == ns(row[2]) for row, tally in zip(rows, tallies, strict=True))
    assert exact > 0.8 * len(rows)  # the others were moved, since only then calls × average fits what is printed


def test_the_document_as_a_whole() -> None:
    found = by_pid(document())
    assert list(found) == [74122, 74120, 74121, 74075]  # in the order of their results
    assert [reading.facts.rank for reading in found.values()] == [None, 0, 1, None]
    assert Counter(t.layer for t in found[74120].tallies) == {"gpu": 37, "cuda_api": 46, "nvtx": 13}
    assert Counter(t.layer for t in found[74120].range_tallies) == {"gpu": 3, "cuda_api": 3}
    first = next(t for t in found[74120].tallies if t.layer == "gpu")
    assert (first.calls, first.total_ns, first.min_ns, first.max_ns) == (96, 294_350_000, 253_660, 37_947_000)


def test_attributed_activities_name_their_range() -> None:
    worker = by_pid(LOG)[201]
    assert {(t.layer, t.within, t.thread) for t in worker.range_tallies} == {
        ("gpu", "<unnamed>/step", 7),
        ("cuda_api", "<unnamed>/step", 7),
    }
    assert [(t.group, t.name, t.thread, t.calls) for t in worker.tallies if t.layer == "nvtx"] == [
        ("<unnamed>", "step", 7, 40),
        ("NCCL", 'say ""hi"" / there', 9, 1),
    ]
    assert [(group.name, group.identity) for group in worker.groups] == [("main", "7")]


def own_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if OWN_LINE.match(line)]


def test_the_layout_gives_back_every_line(log: Path) -> None:
    text = log.read_text()
    assert own_lines(rendered(run_of(read(Source(log))))) == own_lines(text)


def test_a_rendered_log_is_read_again_the_same(log: Path) -> None:
    once = rendered(run_of(read(Source(log))))
    assert rendered(run_of(read(text_source(once)))) == once


def test_csv_has_a_units_line_and_loses_nothing(log: Path) -> None:
    run = run_of(read(Source(log)))
    text = to_nvprof_csv(nvprof_processes(run), nvprof_rows(run))
    heads = [line for line in text.splitlines() if line.startswith('"Type"')]
    units = re.findall(r"^,%,[mun]s,,[mun]s,[mun]s,[mun]s,$", text, re.M)
    assert len(heads) == len(units) > 2
    assert warnings(read(text_source(text))) == []
    assert rendered(run_of(read(text_source(text)))) == rendered(run)


def test_one_rank_and_all_ranks_merged() -> None:
    run = run_of(read(Source(LOG)))
    assert rendered(run, Selection(frozenset({1}))).startswith("==202== Profiling application: python worker.py 1\n")
    assert "==201==" not in rendered(run, Selection(frozenset({1})))
    merged = rendered(run, merged=True)
    assert merged.startswith("======== Profiling result:\n")
    assert " GPU activities:   66.67%  2.00000s        80  25.000ms  11.000ms  90.000ms  ncclKernel_All" in merged
    assert "                   32.00%  960.00ms       800  1.2000ms" in merged
    assert "cuDeviceGet" not in merged  # of the launcher, which is no rank


def test_clean_logs_raise_no_alarm() -> None:
    assert warnings(read(Source(LOG))) == []
    found = set(warnings(read(Source(document()))))
    assert all("warm-up" in text for text in found) and len(found) == 1


def test_what_nvprof_itself_warns_of_is_kept() -> None:
    lost = "==5== Warning: 7 records have invalid timestamps due to insufficient device buffer space.\n"
    log = lost + "==5== Profiling result:\n" + TABLE
    assert warnings(read(text_source(log))) == [f"nvprof says: {lost[6:-1]}"]
    assert any("same start and end" in note.text for note in by_pid(LOG)[201].notes)


TABLE = """\
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   80.00%  800.00us         8  100.00us  50.000us  200.00us  one
                   15.00%  150.00us         3  50.000us  50.000us  50.000us  two
                    5.00%  50.000us         1  50.000us  50.000us  50.000us  three
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  100.00us  50.000us", "  101.00us  50.000us", "one: 0.8 ms in 8 calls is not 0.101 ms on average"),
        ("         8  ", "        18  ", "one: 0.8 ms in 18 calls is not 0.1 ms on average"),
        ("50.000us  200.00us", "150.00us  200.00us", "one: the shortest time 0.15 ms is above the average 0.1 ms"),
        ("50.000us  200.00us", "50.000us  90.000us", "one: the longest time 0.09 ms is below the average 0.1 ms"),
        ("50.000us  200.00us", "50.000us  900.00us", "one: the longest time 0.9 ms is above the total 0.8 ms"),
        ("15.00%", "25.00%", "GPU activities: the shares add up to 110.00 %"),
        ("15.00%", "25.00%", "two: 0.15 ms is not 25.00 % of the 1 ms of GPU activities"),
        ("  150.00us         3", "  150.00xs         3", "a row of the table cannot be read"),
        ("  150.00us         3", "  -15.00us         3", "a row of the table cannot be read"),
    ],
)
def test_what_does_not_add_up_is_told(old: str, new: str, told: str) -> None:
    assert old in TABLE
    found = warnings(read(text_source(TABLE.replace(old, new, 1))))
    assert any(text.startswith(told) for text in found), found


def test_a_cut_table_says_so_and_keeps_its_shares() -> None:
    cut = "".join(line + "\n" for line in TABLE.splitlines()[:2])
    assert warnings(read(text_source(cut))) == [
        "GPU activities: the shares add up to 80.00 %: rows with 20.00 % are missing"
    ]
    assert " GPU activities:   80.00%  800.00us" in rendered(run_of(read(text_source(cut))))


def test_old_headings_without_the_kind() -> None:
    old = TABLE.replace("            Type  Time", "Time").replace(" GPU activities:   80", "80").replace(" " * 19, "")
    text = f"==3== Profiling result:\n{old}\n==3== API calls:\n{old}"
    (reading,) = read(text_source(text))
    assert Counter(t.layer for t in reading.tallies) == {"gpu": 3, "cuda_api": 3}


def test_runs_one_after_the_other_are_not_ranks_of_one() -> None:
    part = "=={0}== NVPROF is profiling process {0}, command: a\n=={0}== Profiling result:\n" + TABLE
    found = list(read(text_source(part.format(1) + part.format(2) + part.format(1))))
    assert [(r.facts.pid, r.facts.rank, r.facts.world_size) for r in found] == [(1, 0, 1), (2, 1, 1), (1, 2, 1)]
    assert [len(r.tallies) for r in found] == [3, 3, 3]


def test_a_process_without_result_is_told() -> None:
    text = "==1== NVPROF is profiling process 1, command: a\n" + "==2== Profiling result:\n" + TABLE
    assert warnings(read(text_source(text))) == ["its profile begins here, but this file has no result for it"]


def test_the_users_rank_is_taken() -> None:
    source = text_source(TABLE)
    source.hints = Hints(rank=7)
    assert [reading.facts.rank for reading in read(source)] == [7]


def test_no_table_is_a_bad_file() -> None:
    with pytest.raises(BadFile, match="log: has no table of nvprof"):
        list(read(text_source("==1== NVPROF is profiling process 1, command: a\n")))


def test_only_nvprof_is_recognised() -> None:
    assert sniff(LOG.read_bytes()) and sniff(TABLE.encode())
    claimed = [path for path in every_shared_file() if sniff(Source(path).head())]
    assert [path.name[:3] for path in claimed] == ["003"]


def every_shared_file() -> Iterator[Path]:
    folder = document().parents[1]
    for part in ("seeds", "samples"):
        yield from (path for path in sorted((folder / part).rglob("*")) if path.is_file())


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0ns"),
        (999, "999ns"),
        (1000, "1.0000us"),
        (117_835, "117.84us"),
        (999_999, "1.0000ms"),
        (5_132_190_000, "5.13219s"),
        (154_623_000_000, "154.623s"),
        (12_345_678_000_000, "12345.7s"),
        (None, "-"),
    ],
)
def test_times_fill_eight_letters(nanoseconds: float | None, text: str) -> None:
    assert time_text(nanoseconds) == text


def test_the_report_command_knows_the_layout(tmp_path: Path) -> None:
    assert load([str(LOG), "--out", str(tmp_path / "run")]) == 0
    run = ApiRun(tmp_path / "run")

    def shown(*arguments: str) -> str:
        options = parser().parse_args(["--layout", "nvprof", *arguments])
        return rendered_by_command(run, selection_of(options), options)

    assert shown() == rendered(run.store())
    assert shown("--rank", "1").startswith("==202== Profiling application")
    assert shown("--merged").startswith("======== Profiling result:\n")
    assert '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,ms,ms,ms,\n' in shown("--format", "csv")


def test_unified_memory_results_are_named_and_passed_over() -> None:
    unified = '==5== Unified Memory profiling result:\nDevice "P100 (0)"\n      48  170.67KB  4.0000KB  0.9961MB\n'
    (reading,) = read(text_source(f"==5== Profiling result:\n{TABLE}\n{unified}"))
    assert len(reading.tallies) == 3
    assert [note.text for note in reading.notes] == [
        "not read: Unified Memory profiling result",
        "2 lines not in any table (other output, or not understood): 8, 9",
    ]
