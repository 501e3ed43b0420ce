"""Execution traces: of torch itself, two ranks on Gloo, and Chakra's messages, written here byte by byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.formats.execution_trace import read, sniff
from rankscope.formats.source import Source
from rankscope.model import BadFile, Reading
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
    assert not made.events and "has no times" in made.notes[0].text
    figures = {one.name: one.value for one in made.figures}
    assert figures["longest chain"] >= 2 and figures["nodes"] == sum(one.calls or 0 for one in made.tallies)


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
    with pytest.raises(BadFile, match="cut off"):
        reading(timed(300, 0)[:cut])
