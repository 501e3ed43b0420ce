"""Long logs are read in pieces: memory does not grow with their rows, and the pieces are the same rows."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections import Counter
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from formats.foreign_files import readings
from mpis import ROOT
from rankscope.formats import block_file, event_columns, sums
from rankscope.model.records import BadFile, Reading

sys.path.insert(0, str(ROOT / "benchmarks"))
from long_logs import LOGS, measured

FORMATS = {
    "nvprof GPU trace": "nvprof",
    "nvprof csv trace": "nvprof",
    "nvprof summary": "nvprof",
    "nvprof NVTX ranges": "nvprof",
    "nvprof processes": "nvprof",
    "THAPI events": "thapi",
    "THAPI intervals": "thapi",
    "unitrace timeline": "unitrace",
    "rocprof kernels": "rocprof",
}
WORDS, NUMBERS = ("layer", "name", "group"), ("start_ns", "end_ns", "bytes", "correlation")
MOST_GROWTH = {"operations": 4.0}  # peers are looked for in the whole table


def contents(found: list[Reading]) -> Any:
    """All that is in the tables, whatever piece it came in, and the notes."""
    records = [(one.facts.pid, record) for one in found for record in (*one.tallies, *one.range_tallies, *one.figures)]
    notes = [(one.facts.pid, note.text, note.where) for one in found for note in one.notes]
    events = [(one.facts.pid, *row) for one in found for row in event_rows(one.event_columns)]
    return Counter((pid, astuple(record)) for pid, record in records), Counter(notes), events


def event_rows(columns: Any) -> list[tuple[Any, ...]]:
    """The events of a piece, in the order of the file."""
    words = [[column.values[code] for code in column.codes] for column in map(columns.get, WORDS) if column]
    return list(zip(*words, *(columns[name].tolist() for name in NUMBERS if name in columns), strict=True))


@pytest.mark.parametrize("log", FORMATS)
def test_many_pieces_are_the_same_rows(log: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(LOGS[log](230)) + "\n"
    whole = contents(readings(FORMATS[log], text))
    monkeypatch.setattr(block_file, "BLOCK_RECORDS", 7)
    monkeypatch.setattr(block_file, "HELD_BYTES", 100)
    monkeypatch.setattr(sums, "BLOCK_EVENTS", 50)
    monkeypatch.setattr(event_columns, "BLOCK_EVENTS", 50)
    in_pieces = readings(FORMATS[log], text)
    assert contents(in_pieces) == whole
    assert any(one.continues for one in in_pieces) or log == "nvprof processes"


def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "HELD_BYTES", 100)
    monkeypatch.setattr(block_file, "BLOCK_RECORDS", 7)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(BadFile, match=r"no room to read a long file .*: set TMPDIR"):
            readings("nvprof", "\n".join(LOGS["nvprof summary"](500)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_file, "HELD_BYTES", 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    readings("nvprof", "\n".join(LOGS["nvprof processes"](500)))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("log", LOGS)
def test_four_times_the_rows_need_hardly_more_memory(log: str, tmp_path: Path) -> None:
    peaks = []
    for rows in (100_000, 400_000):
        (folder := tmp_path / str(rows)).mkdir()
        peaks.append(measured(log, rows, folder)[1])
    assert peaks[1] < MOST_GROWTH.get(log, 1.5) * peaks[0], peaks


def test_the_benchmark_says_what_arrived() -> None:
    script = ROOT / "benchmarks/long_logs.py"
    command = [sys.executable, str(script), "--rows", "3000", "--logs", "nvprof summary,strace"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "| nvprof summary | 3,000 |" in told and "| 3,000 tallies |" in told and "| strace | 3,000 |" in told
