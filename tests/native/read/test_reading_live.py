"""A file that is being written is read without ever seeing a row half old and half new."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from native.read import in_python
from rankscope import rank_file
from rankscope.model.records import BadFile
from rankscope.rank_file import COLLECTIVE
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files import chunks
from rankscope.rank_files.read import read_rank_file

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "src/rankscope/native"
READINGS = 10_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    subprocess.run(["cc", "-O2", "-Wall", "-o", folder / "writer", HERE / "live_writer.c"], check=True)
    library = ["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", folder / "read.so", NATIVE / "read" / "reading.c"]
    subprocess.run(library, check=True)
    return folder


@pytest.fixture
def growing(built: Path, tmp_path: Path) -> Iterator[Path]:
    writer = RankFileWriter(host=b"elsewhere", pid=1)
    for name in range(20):
        writer.tally(f"MPI_{name}", 1, 7, bytes=3)
    writer.collectives(np.zeros(0, COLLECTIVE), capacity=64)
    path = writer.write(tmp_path / "1.rank")
    with subprocess.Popen([built / "writer", path]) as process:
        yield path
        assert process.poll() is None, "the writer must have been writing all the time"
        process.kill()


def check(path: Path) -> int:
    reading = read_rank_file(path)
    tallies, events = reading.tally_columns, reading.event_columns
    assert len(tallies["calls"]) == 20
    settled = tallies["calls"] * 7 == tallies["total_ns"]
    assert (~settled).sum() <= reading.facts.torn_rows
    assert (tallies["bytes"][settled] == tallies["calls"][settled] * 3).all()
    assert (events["bytes"] == events["sequence"] * 3).all()
    assert (events["end_ns"] - events["start_ns"] == events["sequence"]).all()
    assert (np.diff(events["sequence"]) > 0).all()
    return int(tallies["calls"].sum())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_readings_by_the_library(built: Path, growing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = chunks.native_function("rankscope_read_rows", built / "read.so")
    monkeypatch.setattr(chunks, "native_function", lambda name: function)
    counts = [check(growing) for _ in range(READINGS)]
    assert counts == sorted(counts) and counts[-1] > counts[0]


def test_readings_by_python_alone(growing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "copy_by", lambda native, *arguments: in_python.copy_rows(*arguments))
    counts = [check(growing) for _ in range(1000)]
    assert counts == sorted(counts) and counts[-1] > counts[0]


def test_a_row_left_odd_by_a_kill_is_given_and_counted(built: Path, tmp_path: Path) -> None:
    writer = RankFileWriter(host=b"elsewhere")
    writer.tally("MPI_Send", 5, 60, seq=9)
    writer.tally("MPI_Recv", 5, 60, seq=10)
    path = writer.write(tmp_path / "1.rank")
    for native in (chunks.native_function("rankscope_read_rows", built / "read.so"), None):
        part = next(iter(rankfile_parts(path)))
        copied, unsettled = chunks.copy_by(native, part, "seq", False) if native else python_copy(part)
        assert copied["calls"].tolist() == [5, 5]
        assert unsettled.tolist() == [True, False]
    assert read_rank_file(path).facts.torn_rows == 1


def rankfile_parts(path: Path) -> Iterator[rank_file.Rows]:
    from rankscope.rank_files.chunks import open_rank_file

    for part in open_rank_file(path).parts(rank_file.ChunkKind.TALLIES):
        yield part.rows


def python_copy(part: rank_file.Rows) -> tuple[rank_file.Rows, chunks.Unsettled]:
    return in_python.copy_rows(part, "seq", False)


def test_without_the_library_it_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.so.*: build it with hatch_build\.py, or install rankscope again$"):
        chunks.native_function("rankscope_read_rows", tmp_path / "none.so")
