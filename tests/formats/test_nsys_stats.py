"""Csv tables of `nsys stats`, with old and new titles."""

from __future__ import annotations

import pytest

from rankscope.formats.nsys_stats import read, sniff
from rankscope.formats.source import Source
from rankscope.model.records import BadFile, Reading
from runs.loaded import shared_file, text_source, warnings

KERNELS = """\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000,3,1000.0,900.0,800,1300,12.5,"void add<float, 4>(float *, int)"
25.0,1000,2,500.0,500.0,400,600,10.0,gemm
"""
CALLS = """\
Time(%),Total Time (ns),Num Calls,Average,Minimum,Maximum,Name
100.0,7000,7,1000.0,500,2000,cudaLaunchKernel
"""
COPY_TIMES = """\
Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,4000,4,1000.0,1000.0,900,1100,1.0,[CUDA memcpy Host-to-Device]
"""
COPY_SIZES = """\
Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation
1.024,4,0.256,0.256,0.001,0.512,0.1,[CUDA memcpy Host-to-Device]
"""
RANGES = """\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range
100.0,9000,3,3000.0,3000.0,2000,4000,5.0,PushPop,NCCL:ncclAllReduce
"""
OLD_SIZES = "Total,Operations,Average,Minimum,Maximum,Operation\n2000.000,4,500.000,1.000,900.000,[CUDA memcpy HtoD]\n"


def rows(reading: Reading) -> list[tuple[str, str, int | None, float | None, float | None, float | None, int | None]]:
    return [(t.layer, t.name, t.calls, t.total_ns, t.min_ns, t.max_ns, t.bytes) for t in reading.tallies]


def test_all_reports_of_one_output() -> None:
    between = "\nProcessing [run.sqlite] with [cuda_api_sum.py]...\n\n"
    (reading,) = read(text_source(between.join((KERNELS, CALLS, COPY_TIMES, COPY_SIZES, RANGES))))
    assert rows(reading) == [
        ("gpu", "void add<float, 4>(float *, int)", 3, 3000, 800, 1300, None),
        ("gpu", "gemm", 2, 1000, 400, 600, None),
        ("cuda_api", "cudaLaunchKernel", 7, 7000, 500, 2000, None),
        ("gpu", "[CUDA memcpy HtoD]", 4, 4000, 900, 1100, 1_024_000),
        ("nvtx", "ncclAllReduce", 3, 9000, 2000, 4000, None),
    ]
    assert reading.tallies[-1].group == "NCCL"
    assert warnings([reading]) == []


def test_a_unit_other_than_ns() -> None:
    text = KERNELS.replace("(ns)", "(us)")
    (reading,) = read(text_source(text))
    assert [tally.total_ns for tally in reading.tallies] == [3_000_000, 1_000_000]


def test_what_does_not_add_up_is_told() -> None:
    (reading,) = read(text_source(KERNELS.replace("75.0,3000,3,", "75.0,3000,4,")))
    assert warnings([reading]) == ["void add<float, 4>(float *, int): 0.003 ms in 4 calls is not 0.001 ms on average"]


def test_rows_that_are_none() -> None:
    (reading,) = read(text_source(KERNELS + "x,y,z,1,1,1,1,1,bad\n"))
    assert warnings([reading]) == ["1 line of tables cannot be read: 4"]
    with pytest.raises(BadFile, match="no readable table of nsys stats"):
        list(read(text_source(KERNELS.splitlines()[0] + "\n")))


def test_sizes_without_a_unit_are_not_guessed() -> None:
    (reading,) = read(text_source(COPY_TIMES + OLD_SIZES))
    assert [tally.bytes for tally in reading.tallies] == [None]
    assert warnings([reading]) == ["1 line of tables cannot be read: 4"]


def test_calls_of_the_operating_system_are_none_of_cuda() -> None:
    (reading,) = read(text_source(CALLS.replace("cudaLaunchKernel", "poll")))
    assert [(tally.layer, tally.name, tally.calls) for tally in reading.tallies] == [("os", "poll", 7)]


def test_calls_of_mpi_are_no_kernels() -> None:
    (reading,) = read(text_source(KERNELS.replace('"void add<float, 4>(float *, int)"', "MPI_Recv")))
    assert {tally.layer for tally in reading.tallies} == {"mpi"}


@pytest.mark.parametrize("text", [KERNELS, CALLS, COPY_TIMES, COPY_SIZES, RANGES])
def test_each_report_is_recognised(text: str) -> None:
    assert sniff(text.encode())


def test_no_other_file_is_recognised() -> None:
    folder = shared_file("seeds/003*").parents[1]
    files = [path for part in ("seeds", "samples") for path in (folder / part).rglob("*") if path.is_file()]
    assert [path.name for path in files if sniff(Source(path).head())] == []


def test_lines_that_are_in_no_table_are_counted_with_their_numbers() -> None:
    (reading,) = read(text_source(f"hello\n{KERNELS}\nProcessing [run.sqlite] with [x.py]...\nbye\n"))
    assert [note.text for note in reading.notes] == ["2 lines not understood: 1, 7"]
