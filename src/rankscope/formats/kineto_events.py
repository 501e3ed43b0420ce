"""Events of a Kineto trace as they stand in the file, decoded, with their times exact to the nanosecond."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

ABSENT = -1
NO_TIME = -(2**63)
EXACT_BELOW_US = 1 << 43  # a double tells the nanoseconds of smaller times in microseconds
LARGEST_US = 2**62 // 1000  # 146 years
FRACTION = re.compile(rb'"ts"\s*:\s*(\d{13,16})\.\d')
LOOKED_AT_BYTES = 8 << 10
NOTHING = msgspec.Raw(b"[]")


class Arguments(msgspec.Struct, gc=False):
    """The arguments that are read; each category of events has some of them."""

    correlation: Any = ABSENT
    stream: Any = ABSENT
    device: Any = ABSENT
    bytes: Any = ABSENT
    name: Any = None  # of metadata events
    labels: Any = None
    dims: msgspec.Raw = msgspec.field(default=NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=NOTHING, name="Input type")
    collective: Any = msgspec.field(default=None, name="Collective name")
    sequence: Any = msgspec.field(default=None, name="Seq")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    dtype: Any = None
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    group_id: Any = msgspec.field(default=None, name="Process Group ID")


class TraceEvent(msgspec.Struct, gc=False):
    """One event; those with a duration are the ones that count."""

    name: str = ""
    cat: str = ""
    ts: Any = None  # µs
    dur: Any = None  # µs
    pid: Any = None
    tid: Any = None
    args: Arguments | None = None


PLAIN = msgspec.json.Decoder(list[TraceEvent])
EXACT = msgspec.json.Decoder(list[TraceEvent], float_hook=Decimal)  # slower


def decode(block: bytes) -> list[TraceEvent]:
    """The events of a JSON array."""
    fraction = FRACTION.search(block, 0, LOOKED_AT_BYTES)
    large = fraction is not None and int(fraction[1]) >= EXACT_BELOW_US
    return (EXACT if large else PLAIN).decode(block)


def nanoseconds(times_us: Sequence[Any]) -> Ints:
    """Times in microseconds as whole nanoseconds; NO_TIME for what is none."""
    try:
        found = np.array(times_us, None if times_us else np.int64)
    except (ValueError, OverflowError):  # lists among them
        found = np.empty(0, object)
    if found.dtype == np.int64 and (np.abs(found) < LARGEST_US).all():
        return np.asarray(found * 1000, np.int64)
    if found.dtype == np.float64 and (np.abs(found) < EXACT_BELOW_US).all():
        return np.asarray(np.rint(found * 1000), np.int64)
    return np.fromiter(map(_one_time, times_us), np.int64, len(times_us))


def _one_time(time_us: Any) -> int:
    if not isinstance(time_us, (int, float, Decimal)) or not -LARGEST_US < time_us < LARGEST_US:  # nan is not either
        return NO_TIME
    return round(Decimal(time_us) * 1000)


def integers(values: Sequence[Any], otherwise: int = ABSENT) -> Ints:
    """Whole numbers; anything else is replaced."""
    try:
        return np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        return np.fromiter((_integer(value, otherwise) for value in values), np.int64, len(values))


def _integer(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and abs(value) < 2**63 else otherwise
