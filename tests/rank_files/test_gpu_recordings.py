"""How much of the time a process's GPUs were recorded, where the first windows have been overwritten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from rankscope.rank_file import CUDA, WINDOW
from rankscope.rank_files.cuda import gpu_recordings

S = 1_000_000_000
STARTED_NS, FIRST_NS, EVERY_NS, LENGTH_NS, ROOM = 100 * S, 105 * S, 30 * S, 2 * S, 256
CLOCK = cast(Any, SimpleNamespace(known=True, unix_ns=lambda ns: ns))


@pytest.mark.parametrize(("count", "since_ns"), [(256, FIRST_NS), (3000, STARTED_NS)])
def test_time_is_counted_from_the_first_window_even_if_it_is_overwritten(count: int, since_ns: int) -> None:
    """A day of inference: what is left of the ring are its last hours."""
    how, ring = np.zeros(1, CUDA), np.zeros(ROOM, WINDOW)
    how["started_ns"], how["windows"], how["window_ns"] = STARTED_NS, count, count * LENGTH_NS
    for number in range(1, count + 1):
        begin_ns = FIRST_NS + (number - 1) * EVERY_NS
        ring[(number - 1) % ROOM] = (number, begin_ns, begin_ns + LENGTH_NS, *[0] * 7)
    file = cast(Any, SimpleNamespace(parts=lambda kind: [SimpleNamespace(rows=ring)]))
    end_ns = FIRST_NS + count * EVERY_NS
    (recording,) = gpu_recordings(file, how, CLOCK, end_ns)
    assert recording.watched_ns == end_ns - since_ns
    assert recording.recorded_ns / recording.watched_ns == pytest.approx(LENGTH_NS / EVERY_NS, rel=0.01)
