"""The NCCL Inspector's objects, as lines and set out over lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from formats.foreign_files import reading, readings, warnings
from rankscope.model.records import BadFile


def one(sequence: int = 1, rank: int = 2, pid: int = 77, **performance: Any) -> dict[str, Any]:
    # 8 MB in 100 us: 80 GB/s; an all-reduce on 8 ranks: × 14/8 = 140 GB/s on the bus
    return {
        "header": {"id": "0xabc", "rank": rank, "n_ranks": 8, "nnodes": 1},
        "metadata": {
            "inspector_output_format_version": "v4.0",
            "git_rev": "",
            "rec_mechanism": "profiler_plugin",
            "dump_timestamp_us": 1_748_030_377_748_202,
            "hostname": "node1",
            "pid": pid,
        },
        "coll_perf": {
            "coll": "AllReduce",
            "coll_sn": sequence,
            "coll_msg_size_bytes": 8_000_000,
            "coll_exec_time_us": 100,
            "coll_algobw_gbs": 80.0,
            "coll_busbw_gbs": 140.0,
            **performance,
        },
    }


TRACE = {
    "coll_start_ts": 1_000_000,
    "coll_stop_ts": 1_000_005,
    "kernel_events": [
        {"channel_id": 0, "kernel_start_ts": 1_000_010, "kernel_stop_ts": 1_000_100},
        {"channel_id": 1, "kernel_start_ts": 1_000_012, "kernel_stop_ts": 1_000_110},
    ],
}


@pytest.mark.parametrize("indent", [None, 2])
def test_collectives(indent: int | None) -> None:
    text = "\n".join(json.dumps(one(n, event_trace_ts=TRACE), indent=indent) for n in (1, 2, 3))
    found = reading("nccl_inspector", text)
    (tally,) = found.tallies
    assert (tally.layer, tally.name, tally.calls, tally.total_ns, tally.bytes) == (
        "nccl",
        "AllReduce",
        3,
        300_000,
        24_000_000,
    )
    assert [(e.start_ns, e.end_ns, e.sequence) for e in found.events] == [
        (1_000_010_000, 1_000_110_000, n) for n in (1, 2, 3)
    ]
    (group,) = found.groups
    assert (group.identity, group.size, group.my_rank, group.collectives) == ("0xabc", 8, 2, 3)
    assert (found.facts.host, found.facts.pid, found.facts.rank, found.facts.world_size) == ("node1", 77, 2, 8)
    assert warnings(found) == []


def test_sizes_of_one_rank() -> None:
    # 2 GiB × 8 ranks in 41057 us
    changes = {"coll": "ReduceScatter", "coll_msg_size_bytes": 2**31, "coll_exec_time_us": 41057}
    found = reading("nccl_inspector", json.dumps(one(**changes, coll_algobw_gbs=418.439467, coll_busbw_gbs=366.134533)))
    assert warnings(found) == []


@pytest.mark.parametrize(
    ("key", "value"), [("coll_algobw_gbs", 90.0), ("coll_busbw_gbs", 80.0), ("coll_exec_time_us", 200)]
)
def test_bandwidths_that_do_not_fit(key: str, value: float) -> None:
    found = warnings(reading("nccl_inspector", json.dumps(one()) + "\n" + json.dumps(one(**{key: value}))))
    assert found
    assert all(text.startswith("file.txt:2: AllReduce of 8000000 bytes: ") for text in found)


def test_processes_and_a_killed_job() -> None:
    text = json.dumps(one()) + json.dumps(one(rank=3, pid=78)) + json.dumps(one(rank=3, pid=78))[:-9]
    found = readings("nccl_inspector", text)
    assert [(r.facts.rank, r.tallies[0].calls) for r in found] == [(2, 1), (3, 1)]
    assert "killed" in found[1].notes[-1].text


def test_what_is_missing_is_a_bad_file() -> None:
    with pytest.raises(BadFile, match=r"file\.txt:1: a collective without"):
        reading("nccl_inspector", json.dumps(one(coll_exec_time_us=-5)))
