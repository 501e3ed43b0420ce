"""DeepSpeed's communication logger: single lines, summaries, the straggler table, a real log."""

from __future__ import annotations

import re

import pytest

from formats.foreign_files import reading, shared, warnings

NAMES = "Comm. Op|Message Size|Count|Total Latency(ms)|Avg Latency(ms)|tput_avg (Gbps)|busbw_avg (Gbps)"
STRAGGLERS = "Comm. Op|Message Size|Count|Total comm lat(ms)|Total straggler(ms)|Avg comm lat(ms)|Avg straggler(ms)"
HEAD, TAIL = ("".join(f"{name:<20}" for name in names.split("|")) + "\n" for names in (NAMES, STRAGGLERS))


def row(*cells: object) -> str:
    return " " * 20 + "".join(f"{cell!s:<20}" for cell in cells) + "\n"


# 4 ranks: an all-reduce of 1 MiB in 2 ms moves 2 × 8388608 bits: 8.39 Gbps, on the bus 3/4 of that
SUMMARY = (
    "Discovered MPI settings of world_rank=0, local_rank=0, world_size=4, master_addr=h\n"
    "Initializing TorchBackend in DeepSpeed with backend gloo\n"
    + HEAD
    + "all_reduce\n"
    + row("1.0 MB", 1, "2.00", "2.00", "8.39", "6.29")
    + row("2.0 MB", 40, "602.29", "9.69", "3.46", "2.60")
    + "broadcast | [Caller Func: _broadcast_model]\n"
    + row("1.5 KB", 3, "0.30", "0.10", "0.12", "0.12")
)


def test_summary() -> None:
    found = reading("deepspeed_comms", SUMMARY)
    assert [(t.layer, t.name, t.calls, t.total_ns, t.bytes) for t in found.tallies] == [
        ("gloo", "all_reduce", 1, 2_000_000, 2**20),
        ("gloo", "all_reduce", 40, 602_290_000, 40 * 2**21),
        ("gloo", "broadcast | [Caller Func: _broadcast_model]", 3, 300_000, 3 * 1536),
    ]
    assert [t.size_class for t in found.tallies] == [21, 22, 12]
    values = {(f.series, f.name, f.scale): f.value for f in found.figures}
    assert values["all_reduce", "busbw", 2**20] == 6.29e9 / 8
    assert (found.facts.rank, found.facts.world_size) == (0, 4)
    assert warnings(found) == []


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (row("1.5 KB", 3, "0.30", "0.10"), row("1.5 KB", 3, "0.50", "0.10"), "file.txt:8: broadcast"),
        (row("2.0 MB", 40, "602.29"), row("2.0 MB", 40, "302.29"), "file.txt:6: all_reduce of 2097152 bytes: 40 calls"),
        (
            "8.39                6.29",
            "8.39                4.29",
            "file.txt:5: all_reduce of 1048576 bytes: a bus bandwidth",
        ),
        (
            "8.39                6.29",
            "5.39                4.04",
            "file.txt:5: all_reduce of 1048576 bytes: 5.39 Gbps does not match",
        ),
        ("0.12                0.12", "0.12                0.22", "file.txt:8: broadcast"),
    ],
)
def test_what_does_not_add_up(before: str, after: str, said: str) -> None:
    changed = SUMMARY.replace(before.rstrip("\n"), after.rstrip("\n"))
    assert changed != SUMMARY
    found = warnings(reading("deepspeed_comms", changed))
    assert any(text.startswith(said) for text in found), found


def test_straggler_table() -> None:
    table = TAIL + "all_reduce\n" + row("1.0 MB", 1, "0.50", "1.50", "0.50", "1.50")
    found = reading("deepspeed_comms", SUMMARY + "____\nBreakdown with straggler effect\n----\n" + table)
    values = {(f.series, f.name, f.scale, f.statistic): f.value for f in found.figures}
    assert values["all_reduce", "wait for the slowest rank", 2**20, "total"] == 1_500_000
    assert warnings(found) == []
    wrong = table.replace("0.50                1.50", "0.50                2.50", 1)
    found = reading("deepspeed_comms", SUMMARY + "Breakdown with straggler effect\n" + wrong)
    assert any("is not the 2.00 ms above" in text for text in warnings(found))


def test_single_operations() -> None:
    line = "[2022-06-26 01:39:55,722] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 | comm op: all_gather_base | "
    text = f"{line}time (ms): 2.00 | msg size: 1.0 MB | algbw (Gbps): 4.19  | busbw (Gbps): 3.15 \n" * 3
    (tally,) = reading("deepspeed_comms", text).tallies
    assert (tally.layer, tally.name, tally.calls, tally.total_ns, tally.bytes) == (
        "nccl",
        "all_gather_base",
        3,
        6_000_000,
        3 * 2**20,
    )
    (tally,) = reading("deepspeed_comms", text.replace("rank=0 | ", "").replace("  |", " |")).tallies
    assert tally.calls == 3


def test_a_later_summary_replaces_an_earlier_one() -> None:
    found = reading("deepspeed_comms", SUMMARY + "epoch 2\n" + SUMMARY.replace(" 40 ", " 41 ", 1))
    assert sum(t.calls for t in found.tallies) == 45


def test_real_log() -> None:
    text = shared("samples/deepspeed/Communication_Logging.log").read_text()
    table = text[text.index("Comm. Op") :]
    rows = re.findall(r"(?m)^ {20}(\S+) ?([KMG]?B) +(\d+) +(\S+) +(\S+) +(\S+) +(\S+)", table)
    rows = rows or []
    found = reading("deepspeed_comms", text)
    assert len(found.tallies) == len(re.findall(r"(?m)^ {20}\d", table)) == 9
    assert sum(t.calls for t in found.tallies) == sum(int(cells[2]) for cells in rows)
    assert sum(t.total_ns for t in found.tallies) == pytest.approx(1e6 * sum(float(cells[3]) for cells in rows))
    assert {t.layer for t in found.tallies} == {"nccl"}
    assert found.facts.world_size == 4
    assert [t.bytes for t in found.tallies] == [40, 64, 128, 256, 640, 1147, 72 * 1024, 576 * 1024, 0]
    assert warnings(found) == []
