"""Execution traces: of torch itself, two ranks on Gloo, and Chakra's messages, written here byte by byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rankscope.formats.execution_trace import read, sniff
from rankscope.formats.source import Source
from rankscope.model.records import BadFile, Reading
from rankscope.questions.whatif.changes import Change
from rankscope.questions.whatif.whatif import model_of
from runs.loaded import run_of

FIXTURES = Path(__file__).parent / "fixtures" / "execution_trace"


def reading(content: bytes, rank: int | None = None) -> Reading:
    assert sniff(content)
    source = Source(Path("trace.et"), content=content)
    source.hints.rank = rank
    (made,) = read(source)
    return made


@pytest.mark.parametrize("rank", [0, 1])
def test_of_torch(rank: int) -> None:
    """u = t + t; all_reduce(u) of 1000 floats; 16 floats from rank 0 to rank 1 (torch 2.13)."""
    made = reading((FIXTURES / f"rank{rank}.json").read_bytes())
    told = {(one.layer, one.name): (one.calls, one.bytes, one.total_ns) for one in made.tallies}
    assert told["gloo", "all_reduce"] == (1, 4000, None)
    assert told["gloo", "send" if rank == 0 else "recv"] == (1, 64, None)
    assert told["torch", "aten::add"] == (1, None, None)
    assert [(group.name, group.size, group.collectives) for group in made.groups] == [("0", 2, 1)]
    assert not made.events and "no times" in made.notes[0].text
    figures = {one.name: one.value for one in made.figures}
    assert figures["longest chain"] >= 2 and figures["nodes"] == sum(one.calls or 0 for one in made.tallies)


def test_of_older_torch() -> None:
    """Until torch 2.1 (schema 1.0.1) a node's caller is its parent, and its inputs are a plain list."""
    new = json.loads((FIXTURES / "rank0.json").read_bytes())
    nodes = []
    for node in new["nodes"]:
        attributes = {each["name"]: each["value"] for each in node["attrs"]}
        about = {"name": node["name"], "id": node["id"], "rf_id": attributes["rf_id"], "parent": node["ctrl_deps"]}
        about |= {f"input_{what}": node["inputs"][what] for what in ("shapes", "types")}
        nodes.append({**about, "inputs": node["inputs"]["values"], "outputs": node["outputs"]["values"]})
    old = {"schema": "1.0.1", "pid": new["pid"], "time": new["time"], "start_ts": 1, "nodes": nodes}
    made, known = reading(json.dumps(old, indent=1).encode()), reading(json.dumps(new).encode())
    assert made.facts.versions == "execution trace 1.0.1"
    told = {(one.layer, one.name): (one.calls, one.bytes) for one in known.tallies}
    assert {(one.layer, one.name): (one.calls, one.bytes) for one in made.tallies} == told
    figures = {one.name: one.value for one in known.figures}
    assert {one.name: one.value for one in made.figures} == figures


# ---------------------------------------------------------------- Chakra
def varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def node(at: int, name: bytes, kind: int, before: list[int], start_us: int, took_us: int, **attributes: int) -> bytes:
    made = number(1, at) + text(2, name) + number(3, kind) + text(5, b"".join(map(varint, before)))
    made += number(6, start_us) + number(7, took_us)
    return made + b"".join(text(10, text(1, key.encode()) + number(9, value)) for key, value in attributes.items())


def chakra(*nodes: bytes) -> bytes:
    return b"".join(varint(len(one)) + one for one in (text(1, b"0.0.4"), *nodes))


def test_of_chakra_made_from_a_trace_of_pytorch() -> None:
    """As Chakra's converter writes it: no version but attributes, and of a collective the call beside its kernel."""
    about = [(b"schema", text(29, b"1.0.1")), (b"pid", number(13, 114598)), (b"time", text(29, b"2023-12-14 11:55:01"))]
    first = b"".join(text(2, text(1, name) + value) for name, value in about)
    call = number(1, 2) + text(2, b"c10d::broadcast_(0)") + number(3, 7) + number(7, 85)
    call += text(10, text(1, b"is_cpu_op") + number(27, 1)) + text(10, text(1, b"tid") + number(9, 1))
    kernel = node(3, b"ncclKernel_Broadcast", 7, [2], 0, 28, comm_type=5, comm_size=212480)
    rest = [node(1, b"aten::empty", 4, [], 0, 318), call, kernel]
    made = reading(b"".join(varint(len(one)) + one for one in (first, *rest)), rank=0)
    assert made.facts.versions == "Chakra of PyTorch's 1.0.1" and made.facts.pid == 114598
    told = {(one.layer, one.name): (one.calls, one.bytes, one.total_ns) for one in made.tallies}
    assert told["nccl", "broadcast"] == (1, 212480, 28_000)
    assert told["torch", "c10d::broadcast_(0)"] == (1, None, 85_000)
    assert not made.events and "no events, no what-if" in made.notes[0].text


def test_of_chakra_with_a_long_first_message() -> None:
    """Attributes may hold a whole file from which a converter made the trace."""
    about = text(2, text(1, b"schema") + text(29, b"1.0.2-chakra.0.0.4"))
    about += text(2, text(1, b"input_file") + text(29, b"<algo/>" * 5000))
    messages = (about, node(1, b"a", 4, [], 0, 7))
    made = reading(b"".join(varint(len(one)) + one for one in messages))
    assert made.facts.versions == "Chakra of PyTorch's 1.0.2-chakra.0.0.4"
    assert [(one.name, one.calls) for one in made.tallies] == [("a", 1)]


@pytest.mark.parametrize(
    ("name", "rank"), [("all_gather.10.et", 10), ("chakra.0.json", 0), ("trace.et", None), ("v1.2.et.gz", 2)]
)
def test_rank_of_chakra_by_its_name(name: str, rank: int | None) -> None:
    (made,) = read(Source(Path(name), content=chakra(node(1, b"a", 4, [], 0, 7))))
    assert made.facts.rank == rank


def test_of_chakra_as_json() -> None:
    graph = [
        {"Id": 216, "Name": "aten::cat", "NodeType": 4, "ctrlDeps": [3], "data_deps": [], "runtime": 318},
        {"Id": 432, "Name": "c10d::broadcast_", "NodeType": 7, "data_deps": [216], "runtime": 85, "is_cpu_op": True},
        {"Id": 435, "Name": "ncclKernel", "NodeType": 7, "data_deps": [432], "runtime": 28, "is_cpu_op": False},
    ]
    made = reading(json.dumps({"workload_graph": graph, "ngpus": 8}).encode(), rank=0)
    told = {(one.layer, one.name): (one.calls, one.total_ns) for one in made.tallies}
    assert told == {
        ("torch", "aten::cat"): (1, 318_000),
        ("torch", "c10d::broadcast_"): (1, 85_000),
        ("nccl", "ncclKernel"): (1, 28_000),
    }
    assert {one.name: one.value for one in made.figures}["longest chain"] == 3
    with pytest.raises(BadFile, match="node 1 has no Id"):
        list(read(Source(Path("x.json"), content=json.dumps({"workload_graph": [graph[0], {}]}).encode())))


def timed(compute_us: int, wait_us: int) -> bytes:
    """Compute, reduce 4000 bytes for 100 µs after the last has come, compute 50 µs."""
    reduce_us = wait_us + 100
    return chakra(
        node(1, b"mm", 4, [], 1000, compute_us),
        node(2, b"reduce", 7, [1], 1000 + compute_us, reduce_us, comm_type=0, comm_size=4000),
        node(3, b"step", 4, [2], 1000 + compute_us + reduce_us, 50),
    )


def test_of_chakra() -> None:
    made = reading(timed(300, 200), rank=0)
    told = {(one.layer, one.name): (one.calls, one.bytes, one.total_ns) for one in made.tallies}
    assert told["nccl", "all_reduce"] == (1, 4000, 300_000) and told["torch", "mm"] == (1, None, 300_000)
    assert {one.name: one.value for one in made.figures} == {"nodes": 3, "dependencies": 2, "longest chain": 3}
    assert [(one.name, one.start_ns, one.end_ns) for one in made.events][1] == ("all_reduce", 1_300_000, 1_600_000)


def test_what_if_of_chakra_traces_with_times() -> None:
    """Rank 1 computes 500 µs, rank 0 300: without rank 1 a step takes 300 + 100 + 50."""
    model = model_of(run_of([reading(timed(300, 200), 0), reading(timed(500, 0), 1)]))
    assert model.replayed_ns == pytest.approx([650_000]) and model.errors.max() < 1e-6
    assert model.changed_ns([Change("rank", ranks=(1,))]) == pytest.approx([450_000])


def test_chakra_without_times_says_so() -> None:
    made = reading(chakra(node(1, b"mm", 4, [], 0, 0), node(2, b"s", 5, [1], 0, 0, comm_dst=1, comm_size=8)))
    assert not made.events and {one.total_ns for one in made.tallies} == {None}
    assert any("no node of this Chakra trace has a duration" in note.text for note in made.notes)


@pytest.mark.parametrize("cut", [9, 20, 40])
def test_what_was_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(BadFile, match="truncated"):
        reading(timed(300, 0)[:cut])
