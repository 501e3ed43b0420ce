"""Blocks of a program and cells of a notebook that are recorded alone: `rankscope.recording()`, `%%rankscope`."""

from __future__ import annotations

from typing import Any

from rankscope.record.in_process import IN_PROCESS

__all__ = ["IN_PROCESS", "register"]


def register(shell: Any) -> None:
    """Give the notebook `%%rankscope`, which records its cell and shows the run."""

    def rankscope(line: str, cell: str) -> Any:
        """Record this cell; `%%rankscope FOLDER` says where, in the first cell that is recorded."""
        folder = IN_PROCESS.begin(line.strip())
        try:
            shell.run_cell(cell)
        finally:
            IN_PROCESS.pause()
        from rankscope.api.run import Run  # a program that only records need not have what reads

        return Run(folder)

    shell.register_magic_function(rankscope, magic_kind="cell")
