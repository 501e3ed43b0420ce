"""How an end is put into words."""

from __future__ import annotations

import signal


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
