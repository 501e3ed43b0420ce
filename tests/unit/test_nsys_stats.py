"""Tables of nsys stats become tallies; the file is written here by hand, with what nsys prints around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.model import BadFile, Reading, Severity
from rankscope.readers import nsys_stats
from rankscope.readers.formats import recognised
from rankscope.readers.source import Hints, Source
from unit.test_kineto import notes

TEXT = """
Processing [job.sqlite] with [cuda_api_sum.py]...

 ** CUDA API Summary (cuda_api_sum):

Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000,3,1000.0,900.0,800,1300,264.6,cudaLaunchKernel_v7000
25.0,1000,1,1000.0,1000.0,1000,1000,0.0,cuModuleLoadData

Processing [job.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
66.7,200,3,66.7,60.0,40,100,30.6,"void gemm<float, 4>(int, T2)"
33.3,100,1,100.0,100.0,100,100,0.0,relu

Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
100.0,50,2,25.0,25.0,20,30,7.1,[CUDA memcpy Host-to-Device]

Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation
2.500,2,1.250,1.250,1.000,1.500,0.354,[CUDA memcpy Host-to-Device]

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Style,Range
100.0,700,7,100.0,100.0,100,100,0.0,PushPop,NCCL:ncclAllReduce

Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,90,1,90.0,90.0,90,90,0.0,poll
"""


def read(text: str, **hints: int) -> Reading:
    [reading] = nsys_stats.read(Source(Path("s.csv"), Hints(**hints), text.encode()))
    return reading


def test_every_table_by_hand() -> None:
    reading = read(TEXT, rank=2)
    found = [
        (one.layer, one.group, one.name, one.calls, one.total_ns, one.min_ns, one.max_ns) for one in reading.tallies
    ]
    assert found == [
        ("cuda_api", "", "cudaLaunchKernel", 3, 3000, 800, 1300),
        ("cuda_api", "", "cuModuleLoadData", 1, 1000, 1000, 1000),
        ("gpu", "", "void gemm<float, 4>(int, T2)", 3, 200, 40, 100),
        ("gpu", "", "relu", 1, 100, 100, 100),
        ("gpu", "", "[CUDA memcpy Host-to-Device]", 2, 50, 20, 30),
        ("nvtx", "NCCL", "ncclAllReduce", 7, 700, 100, 100),
        ("os", "", "poll", 1, 90, 90, 90),
    ]
    assert [one.bytes for one in reading.tallies] == [None] * 4 + [2_500_000, None, None]
    assert (reading.facts.rank, notes([reading])) == (2, [])
    squares = reading.tallies[4].sum_squares_ns2
    assert squares == pytest.approx(20**2 + 30**2, rel=0.01)  # the two copies took 20 and 30 ns


def test_the_older_titles_and_other_units() -> None:
    text = (
        "Time(%),Total Time (us),Instances,Average (us),Minimum (us),Maximum (us),Name\n100.0,3.5,2,1.75,1.5,2.0,gemm\n"
    )
    [tally] = read(text).tallies
    assert (tally.calls, tally.total_ns, tally.min_ns, tally.max_ns) == (2, 3500, 1500, 2000)


@pytest.mark.parametrize("old, new, told, line", [
    ("75.0,3000,3,1000.0", "75.0,3000,2,1000.0", "2 calls × 1000.0 on average is not the total of 3000 ns", 7),
    ("33.3,100,1", "3.3,100,1", "the shares of this table add up to 70.0 %", 12),
    ("25.0,25.0,20,30", "25.0,25.0,26,30", "the average 25.0 ns is not between 26 and 30 ns", 17),
])  # fmt: skip
def test_arithmetic_that_is_off_is_told_with_its_line(old: str, new: str, told: str, line: int) -> None:
    assert old in TEXT
    [note] = read(TEXT.replace(old, new)).notes
    assert (note.severity, note.text, note.where) == (Severity.WARNING, told, f"s.csv:{line}")


def test_titles_alone_are_a_bad_file() -> None:
    with pytest.raises(BadFile, match="has no rows"):
        read("Time (%),Total Time (ns),Instances,Avg (ns),Name\n")


def test_it_is_recognised_and_other_tables_are_not() -> None:
    known = recognised(Source(Path("s.csv"), content=TEXT.encode()))
    assert known is not None and known.name == "nsys_stats"
    assert not nsys_stats.sniff(b'"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n')
    samples = Path(__file__).parents[2].parent / "shared"
    paths = [path for path in samples.glob("**/*") if path.is_file() and path.stat().st_size]
    assert not [path for path in paths if nsys_stats.sniff(Source(path).head())]


def test_odd_numbers_do_no_harm() -> None:
    rows = "50.0,1e999999,1,1,a\n50.0,nan,1,1,b\n50.0,-5,1,1,c\n50.0,5,1,5,d\n"
    reading = read("Time (%),Total Time (ns),Instances,Avg (ns),Name\n" + rows)
    assert [one.name for one in reading.tallies] == ["d"]
    assert len([told for severity, told in notes([reading]) if severity is Severity.WARNING]) >= 3
