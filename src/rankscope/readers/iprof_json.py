"""The JSON form of iprof's tally: exact numbers, without the backends' names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from rankscope.formats.source import Source
from rankscope.model import Figure, RankFacts, Reading, Tally

SNIFF = re.compile(
    rb'\s{0,100}\{\s{0,100}"(device|host|metadata|traffic|units)"\s{0,100}:(?=[^\0]{0,65536}"call"\s{0,10}:)'
)
LARGEST = 2**63 - 1  # what the tables hold; iprof's own "no minimum yet" is larger
PREFIXES = (
    ("MPI", "mpi"),
    ("zes", "ze"),
    ("ze", "ze"),
    ("cu", "cuda_api"),
    ("hip", "hip_api"),
    ("cl", "opencl"),
    ("omp", "omp"),
    ("cxi", "cxi"),
)


def json_readings(source: Source) -> Iterator[Reading]:
    """One reading for all processes, or one for each where the tally is by process."""
    try:
        told = json.loads(source.text())
    except (ValueError, RecursionError) as problem:
        raise source.bad(f"is not JSON: {problem}", getattr(problem, "lineno", None)) from None
    if not isinstance(told, dict):
        raise source.bad("is not a JSON object")
    found: dict[tuple[str, int | None], Reading] = {}
    for kind in ("host", "device", "traffic"):
        for level, part in _parts(told.get(kind)):
            _add(kind, level, part, found, source)
    if not found:
        raise source.bad("no tally under host, device or traffic")
    yield from found.values()


def _parts(told: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tallies of one kind: one, one for each level, and each perhaps a list by process."""
    if isinstance(told, list):
        yield from (("", part) for part in told if isinstance(part, dict))
    elif isinstance(told, dict) and "data" in told:
        yield "", told
    elif isinstance(told, dict):
        for level, below in told.items():
            for _, part in _parts(below) if isinstance(below, list) or "data" in (below or ()) else ():
                yield str(level), part


def _add(
    kind: str, level: str, part: dict[str, Any], found: dict[tuple[str, int | None], Reading], source: Source
) -> None:
    host, pid = part.get("Hostname"), _whole(part.get("Process"))
    key = host if isinstance(host, str) else "", pid
    if key not in found:
        found[key] = Reading(RankFacts(host=key[0], pid=pid, versions="iprof", source=str(source)))
    data = part.get("data")
    rows = data.items() if isinstance(data, dict) else ()
    group = "Device profiling" if kind == "device" else f"level {level}" if kind == "host" else f"traffic {level}"
    for name, row in rows:
        if name != "Total" and isinstance(row, dict):
            _add_row(kind, group, str(name), row, _whole(part.get("Thread")) or 0, found[key], source)


def _add_row(
    kind: str, group: str, name: str, row: dict[str, Any], thread: int, reading: Reading, source: Source
) -> None:
    numbers = {key: _whole(row.get(key)) for key in ("time", "call", "min", "max")}
    if None in numbers.values():
        raise source.bad(f"{name}: time, call, min and max must be whole numbers")
    total, calls, least, most = (value or 0 for value in numbers.values())
    errors = _whole(row.get("error")) or 0
    tally = Tally(_layer(kind, name), name, calls, 0.0, group, thread=thread, errors=errors)
    if kind == "traffic":
        tally.bytes = total
        bounds = (("min", least), ("max", most))
        reading.figures += [Figure(group, name, float(value), "bytes", statistic=which) for which, value in bounds]
    else:
        tally.total_ns = float(total)
        if calls > errors:
            tally.min_ns, tally.max_ns = float(least), float(most)
    reading.tallies.append(tally)


def _whole(value: Any) -> int | None:
    return min(value, LARGEST) if type(value) is int and value >= 0 else None


def _layer(kind: str, name: str) -> str:
    if kind != "host":
        return "gpu" if kind == "device" else "memory"
    return next((layer for prefix, layer in PREFIXES if name.startswith(prefix)), "host")
