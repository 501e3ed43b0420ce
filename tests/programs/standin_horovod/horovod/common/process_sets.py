"""Who takes part."""

from __future__ import annotations


class ProcessSet:
    def __init__(self, number: int, ranks: list[int] | None) -> None:
        self.process_set_id, self.ranks = number, ranks

    def rank(self) -> int:
        assert self.ranks is not None
        return self.ranks.index(1)


global_process_set = ProcessSet(0, None)
