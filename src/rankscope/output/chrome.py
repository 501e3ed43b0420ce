"""A timeline as the JSON that Chrome's tracing pages and Perfetto read: microseconds, a line for each slice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from rankscope.output.cells import printable
from rankscope.pictures import Actor, Slices, Track

Array = Any


def chrome_pieces(
    actors: Sequence[Actor], slices: Iterable[Slices], base_ns: int, flows: tuple[Array, Array]
) -> Iterator[str]:
    """The trace in pieces. Times are since base_ns, so that nanoseconds survive in a double."""
    head = {"displayTimeUnit": "ns", "otherData": {"begins_unix_ns": str(base_ns)}}
    yield json.dumps(head)[:-1] + ', "traceEvents": [\n'
    yield ",\n".join(_named("process_name", actor.process, 0, _label(actor)) for actor in actors)
    for block in slices:
        for track in block.new_tracks:
            yield f",\n{_named('thread_name', block.process, track.number, _track(track))}"
        yield _events(block, base_ns, flows)
    yield "\n]}\n"


def _label(actor: Actor) -> str:
    return f"{actor.name} ({actor.host}, pid {actor.pid})"


def _track(track: Track) -> str:
    return track.name + (f" ({track.lane + 1})" if track.lane else "")


def _named(what: str, process: int, track: int, name: str) -> str:
    event = {"ph": "M", "name": what, "pid": process + 1, "tid": track, "args": {"name": printable(name)}}
    return json.dumps(event)


def _events(block: Slices, base_ns: int, flows: tuple[Array, Array]) -> str:
    names = [json.dumps(printable(name)) for name in block.name.values]
    more = _flow_words(block, flows)
    start_us, length_us = (block.start_ns - base_ns) / 1e3, (block.end_ns - block.start_ns) / 1e3
    columns = (block.name.codes, block.track, start_us, length_us, block.bytes, more)
    lines = []
    for name, track, start, length, size, flow in zip(*(_listed(column) for column in columns), strict=True):
        kind = f'"X","dur":{length:.3f}' if length >= 0 else '"B"'
        args = f',"args":{{"bytes":{size}}}' if size else ""
        where = f'"pid":{block.process + 1},"tid":{track},"ts":{start:.3f}'
        lines.append(f',\n{{"ph":{kind},"name":{names[name]},{where}{args}{flow}}}')
    return "".join(lines)


def _listed(column: Any) -> list[Any]:
    return column if isinstance(column, list) else column.tolist()


def _flow_words(block: Slices, flows: tuple[Array, Array]) -> list[str]:
    """The first slice of a flow sends it out, the others take it in."""
    words = [""] * len(block.start_ns)
    rows = np.flatnonzero(block.flow)
    place = np.searchsorted(flows[0], block.flow[rows])
    for row, flow, at in zip(rows.tolist(), block.flow[rows].tolist(), place.tolist(), strict=True):
        way = "flow_out" if int(flows[1][at]) == block.process else "flow_in"
        words[row] = f',"bind_id":"0x{flow:x}","{way}":true'
    return words
