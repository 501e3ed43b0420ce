"""Horovod's timeline, whole and cut off."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from formats.foreign_files import reading, shared, warnings
from rankscope.model.records import BadFile

TEXT = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1000000}},
{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad_0"}},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1},{"ph": "X", "name": "0", "ts": 11, "pid": 1, "dur": 0},
{"ph": "X", "name": "1", "ts": 19, "pid": 1, "dur": 0},{"ph": "E", "ts": 20, "pid": 1},
{"ph": "B", "name": "ALLREDUCE", "ts": 30, "pid": 1},{"ph": "B", "name": "MPI_ALLREDUCE", "ts": 32, "pid": 1},
{"ph": "E", "ts": 40, "pid": 1},{"ph": "E", "ts": 44, "pid": 1, "args": {"dtype": "float32", "shape": "[10, 3]"}},
{"ph": "i", "name": "CYCLE_START", "ts": 50, "s": "g"},
{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 60, "pid": 1}]"""


def test_phases() -> None:
    found = reading("horovod_timeline", TEXT)
    rows = {(t.name, t.group): (t.calls, t.total_ns, t.bytes) for t in found.tallies}
    assert rows == {
        ("NEGOTIATE_ALLREDUCE", ""): (1, 10_000, None),
        ("ALLREDUCE", ""): (1, 14_000, 120),
        ("CYCLE_START", ""): (1, 0, None),
    }
    parts = {(t.name, t.group, t.within): (t.calls, t.total_ns, t.bytes) for t in found.range_tallies}
    assert parts == {
        ("last ready", "rank 1", "NEGOTIATE_ALLREDUCE"): (1, 8_000, None),
        ("MPI_ALLREDUCE", "", "ALLREDUCE"): (1, 8_000, None),
    }
    events = [(e.name, e.group, e.start_ns, e.end_ns) for e in found.events]
    assert ("ALLREDUCE", "grad_0", 1_000_030_000, 1_000_044_000) in events
    assert events[-1] == ("NEGOTIATE_ALLREDUCE", "grad_0", 1_000_060_000, None)
    assert (found.facts.rank, found.facts.world_size) == (0, 2)
    assert warnings(found) == []


@pytest.mark.parametrize("cut", range(TEXT.index('{"ph": "B", "name": "ALLREDUCE"') + 1, len(TEXT)))
def test_a_killed_job_is_read_to_its_last_whole_event(cut: int) -> None:
    kept = TEXT[:cut]
    found = reading("horovod_timeline", kept)
    done = sum(kept.count(text) for text in ('{"ph": "E", "ts": 20, "pid": 1}', '{"ph": "E", "ts": 40, "pid": 1}'))
    assert sum(e.end_ns is not None for e in found.events) - (cut >= TEXT.index("[10, 3]") + 10) == done
    inside = kept.count("{") != kept.count("}")
    assert any("killed" in note.text for note in found.notes) == inside


def test_what_cannot_be() -> None:
    found = reading("horovod_timeline", TEXT.replace('"ts": 44', '"ts": 39'))
    assert warnings(found) == ["file.txt:8: grad_0: time runs backwards by 1 us"]
    found = reading("horovod_timeline", TEXT.replace('{"ph": "B", "name": "ALLREDUCE", "ts": 30, "pid": 1},', ""))
    assert warnings(found) == ["file.txt:8: grad_0: a phase ends that never began"]


@pytest.mark.parametrize(
    "middle", ['{"a":' * 100_000, '{"ph": "B", "ts": NaN, "pid": 1}', "[{}]", '{"ph": "E", "ts": -1}', "x" * 100]
)
def test_hostile_files(middle: str) -> None:
    with pytest.raises(BadFile):
        reading("horovod_timeline", TEXT[:-1] + "," + middle + "," + "{}" * 100)


def test_real_file() -> None:
    text = shared("samples/horovod/timeline_cpu_n1.json").read_text()
    found = reading("horovod_timeline", text)
    names: Counter[str] = Counter()
    total_us: Counter[str] = Counter()
    begun: dict[int, list[tuple[str, int]]] = {}
    for one in json.loads(text):
        if one["ph"] == "B":
            begun.setdefault(one["pid"], []).append((one["name"], one["ts"]))
        elif one["ph"] == "E":
            name, start = begun[one["pid"]].pop()
            names[name] += 1
            total_us[name] += one["ts"] - start
    counted = [*found.tallies, *found.range_tallies]
    assert {t.name: t.calls for t in counted} == names
    assert {t.name: t.total_ns for t in counted} == {name: 1000 * us for name, us in total_us.items()}
    assert len(found.events) == names.total()
    assert warnings(found) == []
