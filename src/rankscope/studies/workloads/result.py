"""What a rank of a cell leaves: one file, there as a whole or not at all."""

from __future__ import annotations

import json
import os
from typing import Any


def leave(folder: str, rank: int, **what: Any) -> None:
    """`wrong="…"` makes the cell a failed one: a figure of a wrong result is none."""
    place = os.path.join(folder, "results")
    os.makedirs(place, exist_ok=True)
    beside = os.path.join(place, f".{rank}.{os.getpid()}")
    with open(beside, "w", encoding="utf-8") as file:
        json.dump({"rank": rank, **what}, file)
    os.replace(beside, os.path.join(place, f"{rank}.json"))
