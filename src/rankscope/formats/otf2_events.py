"""Prints an OTF2 trace line by line: python -m rankscope.formats.otf2_events ANCHOR

A process of its own, because the library behind it is C and reads files that others wrote. A line is a JSON array: what
is defined ("clock", "location", "region"), or an event: enter "E" and leave "L" with location, time and region, bytes
"B" of the call around it, and at the end the number of events of each other kind.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib import import_module
from typing import Any

MISSING = 3  # how it ends where there is no otf2
UNDEFINED = 2**64 - 1  # as OTF2 writes what a trace does not say


def main() -> int:
    try:
        otf2: Any = import_module("otf2")
    except ImportError:
        return MISSING
    with otf2.reader.open(sys.argv[1], batch_events=10_000) as trace:
        define(trace)
        tell(trace)
    return 0


def put(*values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")


def define(trace: Any) -> None:
    clock = trace.definitions.clock_properties
    began_ns = getattr(clock, "realtime_timestamp", None) or 0
    put("clock", clock.timer_resolution, clock.global_offset, 0 if began_ns == UNDEFINED else began_ns)
    for location in trace.definitions.locations:
        group, node = location.group, location.group.system_tree_parent
        kind = str(location.type).rpartition(".")[2]
        put("location", location._ref, location.name, kind, group._ref, group.name, node.name if node else "")
    for region in trace.definitions.regions:
        put("region", region._ref, region.name, str(region.paradigm).rpartition(".")[2])


def tell(trace: Any) -> None:
    others: Counter[str] = Counter()
    for location, event in trace.events:
        kind = type(event).__name__
        if kind in ("Enter", "Leave"):
            put("E" if kind == "Enter" else "L", location._ref, event.time, event.region._ref)
        elif kind == "MpiCollectiveEnd":
            put("B", location._ref, event.size_sent + event.size_received)
        elif kind in ("MpiSend", "MpiRecv", "MpiIsend", "MpiIrecv"):
            put("B", location._ref, event.msg_length)
        else:
            others[kind] += 1
    put("others", others)


if __name__ == "__main__":
    sys.exit(main())
