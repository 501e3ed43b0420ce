"""Ends, ranks and numbers in words."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from rankscope.model.tables import Unit

MOST_RANGES = 6  # of ranks in one cell


def ending_text(ending: str, exit_code: int | None, end_signal: int | None) -> str:
    """exit 0, SIGKILL, MPI_Abort(1), still running ..."""
    if ending == "exited":
        return f"exit {exit_code}"
    if ending == "signalled":
        return _signal_name(end_signal)
    if ending == "aborted":
        return f"MPI_Abort({exit_code})"
    return {"running": "still running", "replaced": "replaced by exec", "stopped": "stopped by Ray"}.get(ending, ending)


def _signal_name(number: int | None) -> str:
    try:
        return signal.Signals(number or 0).name
    except ValueError:
        return f"signal {number}"


def counted(number: int, noun: str) -> str:
    """1 rank, 2 ranks."""
    return f"{number} {noun if number == 1 else noun + 's'}"


def ranges(numbers: Iterable[int]) -> str:
    """Ranks in few characters: 0-3, 7, 9-12."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:MOST_RANGES]]
    left = sum(last - first + 1 for first, last in runs[MOST_RANGES:])
    return ", ".join(shown) + (f" and {left} more" if left else "")


def at_host(rank: int, host: str, word: str = "rank") -> str:
    """rank 3 (node1); the host where it is known."""
    return f"{word} {rank} ({host})" if host else f"{word} {rank}"


def rank_words(numbers: Iterable[int]) -> str:
    """rank 3, ranks 0-2."""
    distinct = set(numbers)
    return f"rank{'s' * (len(distinct) != 1)} {ranges(distinct)}"


# ---------------------------------------------------------------- numbers in sentences
SIZES = ((1024.0**4, "TiB"), (1024.0**3, "GiB"), (1024.0**2, "MiB"), (1024.0, "KiB"))


def seconds(ns: float) -> str:
    """A time in three digits."""
    if abs(ns) >= 999.5e9:
        return f"{ns / 1e9:,.0f} s"
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.0f} ns"


def percent(share: float) -> str:
    return "less than 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def size(size_bytes: float) -> str:
    for scale, unit in SIZES:
        if size_bytes >= scale:
            return f"{size_bytes / scale:.3g} {unit}"
    return f"{size_bytes:.0f} B"


def in_words(value: float, unit: Unit) -> str:
    if unit is Unit.NS:
        return seconds(value)
    if unit is Unit.BYTES:
        return size(value)
    return percent(value) if unit is Unit.SHARE else f"{value:,.3g}"
