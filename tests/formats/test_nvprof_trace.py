"""nvprof's traces, text and csv: events one by one and their sums."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.formats import sums as gpu_trace
from rankscope.formats.nvprof import read, sniff
from rankscope.model.records import Reading
from runs.loaded import run_of, text_source, warnings

HEAD = (
    "   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput"
    "  SrcMemType  DstMemType           Device   Context    Stream  Name\n"
)
DASHES = "                    -               -         -         -         -"
COPY = (
    f"182.84ms  23.136us{DASHES}  256.00KB  10.552GB/s    Pageable      Device"
    "  Tesla P100-PCIE         1         7  [CUDA memcpy HtoD]\n"
)
KERNEL = (
    "182.89ms  1.9769ms            (512 1 1)       (128 1 1)        31        0B        0B         -           -"
    "           -           -  Tesla P100-PCIE         1         7  fill(int*, long [3]) [118]\n"
)
WIDE = (
    KERNEL.replace("          (512 1 1)", "(2147483647 65535 65535)").replace("182.89", "190.00").replace("118", "120")
)
API = """\
   Start  Duration  Name
17.181ms  6.7400us  cuDeviceGet
17.200ms     260ns  cuDeviceGet
1.20000s  90.000ms  cudaFree
"""
TITLES = (
    "Start,Duration,Grid X,Grid Y,Grid Z,Block X,Block Y,Block Z,Registers Per Thread,Static SMem,Dynamic SMem,"
    "Size,Throughput,SrcMemType,DstMemType,Device,Context,Stream,Name,Correlation_ID"
)
CSV = f"""\
{",".join(f'"{title}"' for title in TITLES.split(","))}
us,us,,,,,,,,KB,KB,KB,GB/s,,,,,,,
0.000000,1.568000,,,,,,,,,,1.003906,0.610586,"Device",,"RTX (0)","1","7","[CUDA memset]",274
2.500000,4.000000,80,1,1,32,1,1,16,0.000000,0.000000,,,,,"RTX (0)","1","8","add<int, 4>(int*)",275
"""


def events(reading: Reading) -> list[tuple[Any, ...]]:
    return run_of([reading]).query(
        'SELECT layer, name, "group", start_ns, end_ns, bytes, correlation FROM events ORDER BY layer DESC, start_ns'
    )


def test_a_long_trace_comes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that memory does not grow with it; together they are the same events, each once."""
    lines = [KERNEL.replace("182.89ms", f"{182 + at}.89ms").replace("[118]", f"[{at}]") for at in range(7)]
    monkeypatch.setattr(gpu_trace, "BLOCK_EVENTS", 3)
    readings = list(read(text_source(f"==9== Profiling result:\n{HEAD}{''.join(lines)}")))
    assert [len(reading.event_columns["start_ns"]) for reading in readings] == [3, 3, 1]
    assert [reading.continues for reading in readings] == [False, True, True]
    assert [tally.calls for reading in readings for tally in reading.tallies] == [7]
    correlations = [number for reading in readings for number in reading.event_columns["correlation"].tolist()]
    assert correlations == list(range(7))


def test_a_text_trace() -> None:
    result = "==9== Profiling result:\n"
    text = f"{result}{HEAD}{COPY}{KERNEL}{WIDE}\nRegs: Number of registers\n{result}{API}"
    assert sniff(HEAD.encode()) and sniff(API.encode())
    (reading,) = read(text_source(text))
    group = "Tesla P100-PCIE/7"
    assert events(reading) == [
        ("gpu", "[CUDA memcpy HtoD]", group, 182_840_000, 182_863_136, 262_144, None),
        ("gpu", "fill(int*, long [3])", group, 182_890_000, 184_866_900, None, 118),
        ("gpu", "fill(int*, long [3])", group, 190_000_000, 191_976_900, None, 120),
        ("cuda_api", "cuDeviceGet", "", 17_181_000, 17_187_740, None, None),
        ("cuda_api", "cuDeviceGet", "", 17_200_000, 17_200_260, None, None),
        ("cuda_api", "cudaFree", "", 1_200_000_000, 1_290_000_000, None, None),
    ]
    sums = {(t.layer, t.name): (t.calls, t.total_ns, t.min_ns, t.max_ns, t.bytes) for t in reading.tallies}
    assert sums == {
        ("gpu", "[CUDA memcpy HtoD]"): (1, 23_136, 23_136, 23_136, 262_144),
        ("gpu", "fill(int*, long [3])"): (2, 3_953_800, 1_976_900, 1_976_900, None),
        ("cuda_api", "cuDeviceGet"): (2, 7_000, 260, 6_740, None),
        ("cuda_api", "cudaFree"): (1, 90_000_000, 90_000_000, 90_000_000, None),
    }
    assert warnings([reading]) == []


def test_a_csv_trace() -> None:
    (reading,) = read(text_source(f"======== Profiling result:\n{CSV}"))
    assert events(reading) == [
        ("gpu", "[CUDA memset]", "RTX (0)/7", 0, 1_568, 1_028, 274),
        ("gpu", "add<int, 4>(int*)", "RTX (0)/8", 2_500, 6_500, None, 275),
    ]


def test_old_traces_count_by_thousands() -> None:
    """As before CUDA 8: 409.60KB in 135.78us are 3.0167GB/s only if a KB is 1000 bytes."""
    old = HEAD.replace("  SrcMemType  DstMemType", "")
    row = COPY.replace("23.136us", "135.78us").replace("256.00KB", "409.60KB").replace("10.552GB/s", "3.0167GB/s")
    row = row.replace("    Pageable      Device", "")
    (reading,) = read(text_source(old + row))
    assert [tally.bytes for tally in reading.tallies] == [409_600]
    assert warnings([reading]) == []


def test_a_throughput_that_does_not_fit_is_told() -> None:
    told = warnings(read(text_source(HEAD + COPY.replace("10.552GB/s", "99.552GB/s"))))
    assert told == ["[CUDA memcpy HtoD]: 256.00KB in 23136 ns is not 99.552GB/s"]


def test_a_trace_beside_a_summary_is_not_counted_twice() -> None:
    summary = (
        "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name\n"
        " GPU activities:  100.00%  23.136us         1  23.136us  23.136us  23.136us  [CUDA memcpy HtoD]\n"
    )
    (reading,) = read(text_source(f"==9== Profiling result:\n{HEAD}{COPY}==9== Profiling result:\n{summary}"))
    assert [(t.name, t.calls) for t in reading.tallies] == [("[CUDA memcpy HtoD]", 1)]
    assert len(events(reading)) == 1


def test_too_many_events_are_still_in_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_trace, "MOST_EVENTS", 2)
    (reading,) = read(text_source(API))
    assert len(events(reading)) == 2
    assert sum(tally.calls or 0 for tally in reading.tallies) == 3
    assert warnings([reading]) == ["1 events after the first 2 are in the sums only"]
