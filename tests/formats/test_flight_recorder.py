"""PyTorch's flight recorder: JSON dumps are read, pickles are refused unread."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from formats.foreign_files import reading, warnings
from rankscope.formats.json_stream import whole_object
from rankscope.formats.source import Source
from rankscope.model.records import BadFile


def entry(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "record_id": 5 + number,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": 7 + number,
        "p2p_seq_id": 0,
        "op_id": 7 + number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_700_000_000_000_000_000 + number * 1000,
        "duration_ms": 0.25,
        "input_sizes": [[3, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[3, 4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "time_discovered_started_ns": 1_700_000_000_000_000_100 + number * 1000,
        "time_discovered_completed_ns": 1_700_000_000_000_000_900 + number * 1000,
        "retired": True,
        "timeout_ms": 600000,
        "is_p2p": False,
        **changes,
    }


def dump(*entries: dict[str, Any]) -> str:
    status = {"last_enqueued_collective": "9", "last_started_collective": "8", "last_completed_collective": "8"}
    return json.dumps(
        {
            "version": "2.5",
            "nccl_version": "2.21.5",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {"0": status},
            "entries": list(entries),
        }
    )


def test_collectives() -> None:
    hung = entry(2, state="started", time_discovered_completed_ns=0, input_sizes=[[5]], input_dtypes=["BFloat16"])
    del hung["duration_ms"]
    found = reading("flight_recorder", dump(entry(0), entry(1), hung), rank=1)
    start = 1_700_000_000_000_000_000
    assert [(e.layer, e.name, e.start_ns, e.end_ns, e.sequence, e.bytes) for e in found.events] == [
        ("nccl", "all_reduce", start, start + 900, 7, 48),
        ("nccl", "all_reduce", start + 1000, start + 1900, 8, 48),
        ("nccl", "all_reduce", start + 2000, None, 9, 10),
    ]
    assert [(t.calls, t.total_ns, t.bytes, t.kind) for t in found.tallies] == [
        (2, 500_000, 96, "progress"),
        (1, 0, 10, "progress"),
    ]
    (group,) = found.groups
    assert (group.name, group.size, group.collectives) == ("default_pg #0", 2, 3)
    assert (found.facts.rank, found.facts.world_size, found.facts.overwritten_events) == (1, 2, 5)
    told = [note.text for note in found.notes]
    assert told == ["1 collectives had not completed; the first is all_reduce 9 of default_pg #0 (started)"]


def test_gloo_has_no_end() -> None:
    one = entry(0, profiling_name="gloo:all_reduce", state="scheduled")
    one |= {"time_discovered_started_ns": None, "time_discovered_completed_ns": None}
    found = reading("flight_recorder", dump(one))
    assert [(e.layer, e.end_ns) for e in found.events] == [("gloo", None)]
    assert warnings(found) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"time_discovered_completed_ns": 5}, "completed before it started"),
        ({"time_discovered_started_ns": 5}, "started before it was created"),
        ({"state": "started"}, "its state is started, but it has a completion time"),
        ({"collective_seq_id": 3}, "comes after number 7"),
    ],
)
def test_what_cannot_be(changes: dict[str, Any], said: str) -> None:
    found = warnings(reading("flight_recorder", dump(entry(0), entry(1, **changes))))
    assert len(found) == 1
    assert found[0].startswith("file.txt: entry 1, all_reduce")
    assert found[0].endswith(said)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_are_never_loaded(protocol: int) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (pytest.fail, ("the pickle was loaded",))

    with pytest.raises(BadFile, match="a pickle, which can run arbitrary code") as problem:
        reading("flight_recorder", pickle.dumps({"entries": Trap()}, protocol=protocol))
    assert "json.dump(pickle.load" in str(problem.value)


@pytest.mark.parametrize(
    "text",
    [
        dump(entry(0))[:-30],
        '{"collective_seq_id":' + "[" * 200_000,
        '{"entries": {}, "collective_seq_id": 1}',
        '{"entries": [1], "collective_seq_id": 1}',
        '{"x": "collective_seq_id", "collective_seq_id": ' + "9" * 10_000 + "}",
    ],
)
def test_hostile_files(text: str) -> None:
    with pytest.raises(BadFile):
        reading("flight_recorder", text)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{\n"entries": }', r":2: is not JSON: Expecting value"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"entries": [' + b"9" * 5000 + b"]}", "is not readable JSON"),
        (b"[1, 2]", "is not a JSON object"),
    ],
)
def test_what_is_not_one_json_object_is_refused_with_its_place(content: bytes, why: str) -> None:
    with pytest.raises(BadFile, match=why):
        whole_object(Source(Path("dump.json"), content=content))
