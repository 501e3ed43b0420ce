"""Output of nccl-tests, new and old."""

from __future__ import annotations

import pytest

from formats.foreign_files import readings, warnings

# 4 ranks; 1 MB in 50 us is 20 GB/s, on the bus × 6/4 = 30; in 40 us 25 and 37.5; with two zeros: 16.875 on average
TEXT = """\
# nThread 1 nGpus 4 minBytes 8 maxBytes 1000000 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1711 on node1 device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   1711 on node1 device  1 [0000:15:00] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid   1812 on node2 device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid   1812 on node2 device  1 [0000:15:00] NVIDIA A100-SXM4-40GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
node1:1711:1711 [0] NCCL INFO comm 0x576eb5d4d740 rank 1 nranks 4
           8             2     float     sum      -1    10.00    0.00    0.00      0    10.00    0.00    0.00      0
     1000000        250000     float     sum      -1    50.00   20.00   30.00      0    40.00   25.00   37.50      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 16.875
#
"""


def test_a_table() -> None:
    found = readings("nccl_tests", TEXT)
    assert [(r.facts.rank, r.facts.host, r.facts.pid, r.facts.world_size) for r in found] == [
        (0, "node1", 1711, 4),
        (1, "node1", 1711, 4),
        (2, "node2", 1812, 4),
        (3, "node2", 1812, 4),
    ]
    assert found[2].facts.devices == "0 NVIDIA A100-SXM4-40GB"
    values = {(f.series, f.name, f.scale): f.value for f in found[0].figures}
    assert len(values) == 12
    assert values["all_reduce out-of-place", "time", 1_000_000] == 50_000
    assert values["all_reduce in-place", "busbw", 1_000_000] == 37.5e9
    assert values["all_reduce in-place", "time", 8] == 10_000
    assert warnings(*found) == []
    assert found[0].notes[-1].text.startswith("all_reduce: 4 ranks on 2 hosts; nThread 1 nGpus 4 minBytes 8")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("50.00   20.00   30.00", "50.00   21.00   31.50", "file.txt:14: 1000000 bytes in 50.00 us is not 21.00 GB/s"),
        (
            "20.00   30.00",
            "20.00   35.00",
            "file.txt:14: a bus bandwidth of 35.00 GB/s does not fit 20.00 GB/s on 4 ranks",
        ),
        (": 16.875", ": 26.875", "file.txt:16: the bus bandwidths average 16.88 GB/s"),
        ("37.50      0", "37.50      3", "file.txt:14: 3 wrong values in-place at 1000000 bytes"),
        (": 0 OK", ": 6 FAILED", "file.txt:15: 6 values out of bounds"),
        ("#  Rank  3", "#  Rank  2", "file.txt:7: rank 2 is listed twice"),
    ],
)
def test_what_does_not_fit(before: str, after: str, said: str) -> None:
    assert before in TEXT
    found = warnings(*readings("nccl_tests", TEXT.replace(before, after, 1)))
    assert any(text.startswith(said) for text in found), found


def test_the_name_decides_the_factor() -> None:
    assert warnings(*readings("nccl_tests", "# Collective test starting: all_reduce_perf\n" + TEXT)) == []
    found = warnings(*readings("nccl_tests", "# Collective test starting: broadcast_perf\n" + TEXT))
    assert len(found) == 2


def test_old_columns_and_launchers_prefixes() -> None:
    text = (
        "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error\n"
        "     1000000        250000   float     sum    50.00   20.00   30.00  5e-07    40.00   25.00   37.50  5e-07\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 33.75\n"
    )
    (found,) = readings("nccl_tests", "\n".join(f" 0: {line}" for line in text.splitlines()))
    assert [f.value for f in found.figures if f.name == "time"] == [50_000, 40_000]
    assert warnings(found) == []


def test_two_tests_and_one_that_did_not_finish() -> None:
    found = readings("nccl_tests", TEXT + TEXT[: TEXT.index("# Out of")])
    assert len(found) == 8
    assert warnings(*found) == ["file.txt:31: the output ends without its closing lines: the test did not finish"]
