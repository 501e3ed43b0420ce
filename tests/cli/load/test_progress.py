"""On a terminal a bar shows how far loading is; elsewhere there is none."""

from __future__ import annotations

import os
import pty
from contextlib import suppress
from pathlib import Path

import pytest

from rankscope.cli.load import byte_bar


def all_of(master: int) -> str:
    """What was written to the terminal, which hands it over in pieces and fails behind the last one."""
    shown = b""
    with suppress(OSError):
        while piece := os.read(master, 100_000):
            shown += piece
    return shown.decode()


def test_the_bar_names_the_file_and_counts_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        with byte_bar([(Path("a[red]\x1b[2J.log"), 1000), (Path("b.log"), 3000)]) as show:
            show(0, 400)
            show(0, 200)  # opened once more: what was taken stays taken
            show(0, 5000)
            show(1, 3000)
    shown = all_of(master)
    os.close(master)
    assert "b.log" in shown and "4.0/4.0 kB" in shown and "\x1b[2J" not in shown


def test_no_bar_where_nobody_looks(capfd: pytest.CaptureFixture[str]) -> None:
    with byte_bar([(Path("a"), 10)]) as show:
        show(0, 10)
    assert capfd.readouterr() == ("", "")
