"""Output of the OSU micro-benchmarks."""

from __future__ import annotations

import pytest

from formats.foreign_files import reading, warnings

TEXT = """\
mpirun -np 2 osu_bw
# OSU MPI Bandwidth Test v7.5
# Datatype: MPI_CHAR.
# Size      Bandwidth (MB/s)
1                       2.10
4194304             12254.16

# OSU MPI Allreduce Latency Test v5.6.2
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                      12.45             10.00             15.00        1000
8                      12.50             10.00             15.00        1000

real\t0m7.902s
# OSU MPI Multiple Bandwidth / Message Rate Test v5.6.2
# [ pairs: 1 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
2                      15.93        7962625.43
# OSU MPI Barrier Latency Test v5.8
# Avg Latency(us)
            12.57
# OSU MPI Init Test v5.6.2
nprocs: 4, min: 540 ms, max: 542 ms, avg: 541 ms
"""


def test_every_number() -> None:
    found = reading("osu", TEXT)
    got = {(f.series, f.name, f.scale, f.statistic): (f.value, f.unit) for f in found.figures}
    assert got == {
        ("MPI Bandwidth", "bandwidth", 1, ""): (2_100_000, "bytes/s"),
        ("MPI Bandwidth", "bandwidth", 4194304, ""): (12_254_160_000, "bytes/s"),
        ("MPI Allreduce Latency", "latency", 4, "mean"): (12_450, "ns"),
        ("MPI Allreduce Latency", "latency", 4, "min"): (10_000, "ns"),
        ("MPI Allreduce Latency", "latency", 4, "max"): (15_000, "ns"),
        ("MPI Allreduce Latency", "iterations", 4, ""): (1000, "count"),
        ("MPI Allreduce Latency", "latency", 8, "mean"): (12_500, "ns"),
        ("MPI Allreduce Latency", "latency", 8, "min"): (10_000, "ns"),
        ("MPI Allreduce Latency", "latency", 8, "max"): (15_000, "ns"),
        ("MPI Allreduce Latency", "iterations", 8, ""): (1000, "count"),
        ("MPI Multiple Bandwidth / Message Rate", "bandwidth", 2, ""): (15_930_000, "bytes/s"),
        ("MPI Multiple Bandwidth / Message Rate", "message rate", 2, ""): (7_962_625.43, "count"),
        ("MPI Barrier Latency", "latency", None, "mean"): (12_570, "ns"),
        ("MPI Init", "latency", 4, "min"): (540_000_000, "ns"),
        ("MPI Init", "latency", 4, "max"): (542_000_000, "ns"),
        ("MPI Init", "latency", 4, "mean"): (541_000_000, "ns"),
    }
    assert warnings(found) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "12.45             10.00",
            "9.45             10.00",
            "file.txt:10: MPI Allreduce Latency: the mean latency 9.45",
        ),
        ("15.93        7962625.43", "15.93        9962625.43", "file.txt:17: MPI Multiple Bandwidth"),
    ],
)
def test_what_cannot_be(before: str, after: str, said: str) -> None:
    found = warnings(reading("osu", TEXT.replace(before, after)))
    assert [text for text in found if text.startswith(said)], found
