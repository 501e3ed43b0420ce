"""Two tellings of one process become one."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from rankscope.model import RankFacts

DEFAULTS = RankFacts()
LISTS = ("source", "tool", "versions")  # of these both are kept


def completed(facts: RankFacts, by: RankFacts) -> RankFacts:
    """The facts, with what they do not say taken from the other telling."""
    filled: dict[str, Any] = {}
    for field in fields(RankFacts):
        mine, other = getattr(facts, field.name), getattr(by, field.name)
        if field.name in LISTS:
            filled[field.name] = "; ".join(dict.fromkeys(part for part in (*_parts(mine), *_parts(other))))
        elif mine == getattr(DEFAULTS, field.name):
            filled[field.name] = other
    return replace(facts, **filled)


def _parts(text: str) -> list[str]:
    return [part for part in text.split("; ") if part]
