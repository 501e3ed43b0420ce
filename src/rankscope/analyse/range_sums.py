"""The ranges of one process (NVTX, framework, profiler), block by block: how long, and how much is their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rankscope.analyse.trace_twins import RANGE_SUM, empty_sums
from rankscope.analyse.vocabulary import Vocabulary
from rankscope.model import Words
from rankscope.questions.events.sums import sweep_ranges

ON_THREADS = ("nvtx", "torch", "step", "python")
ON_STREAMS = ("gpu_range",)  # lie in each other on their stream, which is their group
LAYERS = (*ON_THREADS, *ON_STREAMS)
NUMBERED = re.compile(r"#\d+$")  # ProfilerStep#17: every step has a name of its own
MOST_CELLS = 1 << 18
APART = "\x1f"

Array = Any
Key = tuple[str, str, str]  # layer, domain, name


class RangeWork:
    """The ranges of one process, by the thread or stream on which they lie in each other."""

    def __init__(self) -> None:
        self._names = Vocabulary()  # of layer, domain and name in one word
        self._streams = Vocabulary()
        self._lanes: dict[tuple[str, int], list[tuple[Array, Array, Array]]] = {}

    def add(self, columns: Mapping[str, Any], rows: Array) -> None:
        """Those rows of a block, which are ranges."""
        layer, name, group = (
            Words(columns[key].codes[rows], columns[key].values) for key in ("layer", "name", "group")
        )
        codes = self._codes(layer, group, name)
        start_ns, end_ns = (np.asarray(columns[key][rows], np.int64) for key in ("start_ns", "end_ns"))
        on_stream = np.array([value in ON_STREAMS for value in layer.values], np.bool_)[layer.codes]
        thread = threads_of(columns, rows)
        for kind, members, lane in (("thread", ~on_stream, thread), ("stream", on_stream, None)):
            if members.any():
                of = self._streams.codes(Words(group.codes[members], group.values)) if lane is None else lane[members]
                self._put(kind, of, start_ns[members], end_ns[members], codes[members])

    def _put(self, kind: str, lane: Array, *columns: Array) -> None:
        lanes = np.unique(lane) if len(lane) and (lane[0] != lane).any() else lane[:1]
        for one in lanes.tolist():
            own = slice(None) if len(lanes) == 1 else lane == one
            self._lanes.setdefault((kind, one), []).append(tuple(column[own] for column in columns))

    def _codes(self, layer: Words, group: Words, name: Words) -> Array:
        """One number for layer, domain and name: of cells of all three where these are few, else of those that come."""
        sizes = len(layer.values), len(group.values), len(name.values)
        cell = (layer.codes.astype(np.int64) * sizes[1] + group.codes) * sizes[2] + name.codes
        if sizes[0] * sizes[1] * sizes[2] <= MOST_CELLS:
            used = np.flatnonzero(np.bincount(cell, minlength=1))
            place = np.empty(int(used[-1]) + 1 if len(used) else 0, np.int32)
            place[used] = np.arange(len(used))
            inverse = place[cell]
        else:
            used, inverse = np.unique(cell, return_inverse=True)
        words = [_word(cell, layer.values, group.values, name.values) for cell in used.tolist()]
        return self._names.codes(Words(inverse, words))

    def keys(self) -> list[Key]:
        """Layer, domain and name of each sum."""
        return [tuple(word.split(APART, 2)) for word in self._names]

    def sums(self, calls: Mapping[int, tuple[Array, Array, Array]]) -> Array:
        """RANGE_SUM of each key; calls of each thread: start, activities launched and their time, by start."""
        sums = empty_sums(RANGE_SUM, len(self._names))
        nothing = (np.empty(0, np.int64),) * 3
        for (kind, lane), parts in self._lanes.items():
            start_ns, end_ns, codes = (np.concatenate(column) for column in zip(*parts, strict=True))
            start_ns, end_ns, codes = _outer_first(start_ns, end_ns, codes)
            launched = calls.get(lane, nothing) if kind == "thread" else nothing
            sweep_ranges((start_ns, end_ns), codes, launched, sums)
        return sums


def threads_of(columns: Mapping[str, Any], rows: Array) -> Array:
    """The thread of each of these rows; 0 where nobody tells."""
    told = columns.get("thread")
    return np.zeros(len(rows), np.int64) if told is None else np.asarray(told)[rows].astype(np.int64)


def _word(cell: int, layers: Sequence[str], groups: Sequence[str], names: Sequence[str]) -> str:
    rest, name = divmod(cell, len(names))
    layer, group = divmod(rest, len(groups))
    domain = groups[group] if layers[layer] == "nvtx" else ""
    return APART.join((layers[layer], domain, NUMBERED.sub("", names[name])))


def _outer_first(start_ns: Array, end_ns: Array, codes: Array) -> tuple[Array, Array, Array]:
    """By start; of those that begin together the longest first."""
    step_ns = np.diff(start_ns)
    if bool((step_ns > 0).all()):
        return start_ns, end_ns, codes
    if bool((step_ns < 0).any()):
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns, codes = start_ns[order], end_ns[order], codes[order]
    together = np.concatenate([[False], start_ns[1:] == start_ns[:-1]])
    together[:-1] |= together[1:]
    rows = np.flatnonzero(together)
    if len(rows):
        order = rows[np.lexsort((-end_ns[rows], start_ns[rows]))]
        start_ns[rows], end_ns[rows], codes[rows] = start_ns[order], end_ns[order], codes[order]
    return start_ns, end_ns, codes
