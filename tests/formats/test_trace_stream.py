"""Events are cut out of a trace whole, whatever their strings hold and wherever a block ends."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.formats import json_stream
from rankscope.formats.json_stream import TraceStream
from rankscope.formats.source import Source
from rankscope.model.records import BadFile

NASTY = st.text(alphabet='{}[],:"\\ \nabé', max_size=12)
VALUES = st.recursive(
    NASTY | st.integers(-5, 5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NASTY, inner, max_size=3)
)
EVENTS = st.lists(st.dictionaries(NASTY, VALUES, max_size=3), max_size=12)


def stream_of(content: bytes) -> TraceStream[Any]:
    return TraceStream(Source(Path("t.json"), content=content), msgspec.json.Decoder(list[dict[str, Any]]).decode)


def events_of(stream: TraceStream[Any]) -> list[Any]:
    return [event for block in stream.blocks() for event in block]


@given(EVENTS, st.integers(8, 200), st.sampled_from([None, 1]), NASTY, NASTY)
def test_all_events_come_out_whole(events: list[Any], block: int, indent: int | None, before: str, after: str) -> None:
    text = json.dumps({"before": before, "traceEvents": events, "after": {after: [{}, {}]}}, indent=indent)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_stream, "BLOCK_BYTES", block)
        patched.setattr(json_stream, "PIECE_BYTES", block)
        stream = stream_of(text.encode())
        assert events_of(stream) == events
    assert (stream.before, stream.after) == ({"before": before}, {"after": {after: [{}, {}]}})
    assert (stream.bad_events, stream.broken) == (0, "")


@given(st.data())
def test_what_is_whole_in_a_truncated_trace_is_kept(data: st.DataObject) -> None:
    texts = [json.dumps({"name": "{a}, {b}", "n": number}) for number in range(5)]
    whole = '{"traceEvents": [' + ", ".join(texts) + '], "x": 1}'
    length = data.draw(st.integers(len('{"traceEvents": ['), len(whole) - 1))
    stream = stream_of(whole[:length].encode())
    ends = [whole.index(text) + len(text) for text in texts]
    assert [event["n"] for event in events_of(stream)] == list(range(sum(end <= length for end in ends)))
    assert "ends early" in stream.broken


def test_a_damaged_event_is_counted_with_its_place_and_the_others_are_read() -> None:
    text = b'{"traceEvents": [{"n": 1}, {"n": nan}, {"s": "\xff"}, {"n": 2}]}'
    stream = stream_of(text)
    assert events_of(stream) == [{"n": 1}, {"s": "�"}, {"n": 2}]
    assert (stream.bad_events, stream.first_bad_byte) == (1, text.index(b'{"n": nan'))


def test_the_key_inside_a_string_is_not_the_key() -> None:
    stream = stream_of(json.dumps({"note": 'a "traceEvents": [', "traceEvents": [{"n": 1}]}).encode())
    assert events_of(stream) == [{"n": 1}]


def test_a_compressed_trace_that_breaks_off_keeps_its_beginning() -> None:
    events = [{"n": number, "s": "x" * (number % 97)} for number in range(50_000)]
    packed = gzip.compress(json.dumps({"traceEvents": events}).encode())
    stream = stream_of(packed[: len(packed) // 2])
    found = events_of(stream)
    assert 1_000 < len(found) < 50_000 and found == events[: len(found)]
    assert "ends early" in stream.broken and "damaged" in stream.broken


def test_no_list_of_events_is_a_bad_file() -> None:
    with pytest.raises(BadFile, match=r"^t.json: no list of traceEvents in the first 10 bytes"):
        events_of(stream_of(b'{"other":1'))


def test_an_event_without_end_is_a_bad_file_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "EVENT_BYTES", 1000)
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 100)
    monkeypatch.setattr(json_stream, "PIECE_BYTES", 100)
    with pytest.raises(BadFile, match=r"the event at byte 27 is longer"):
        events_of(stream_of(b'{"traceEvents": [{"n": 1}, {"s": "' + b"{" * 5000))


def test_deep_nesting_is_a_damaged_event() -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    stream = stream_of(b'{"traceEvents": [{"n": 1}, ' + deep + b', {"n": 2}]}')
    assert events_of(stream) == [{"n": 1}, {"n": 2}]
    assert stream.bad_events == 1
