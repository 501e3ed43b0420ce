"""Ends, ranks and numbers in words."""

from __future__ import annotations

import signal
from collections.abc import Iterable

MOST_RANGES = 6  # of ranks in one cell


def ending_text(ending: str, exit_code: int | None, end_signal: int | None) -> str:
    """exit 0, SIGKILL, MPI_Abort(1), still running ..."""
    if ending == "exited":
        return f"exit {exit_code}"
    if ending == "signalled":
        return _signal_name(end_signal)
    if ending == "aborted":
        return f"MPI_Abort({exit_code})"
    return {"running": "still running", "replaced": "replaced by exec"}.get(ending, ending)


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
    found = set(numbers)
    return f"rank{'s' * (len(found) != 1)} {ranges(found)}"
