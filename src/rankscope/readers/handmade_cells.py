"""What a cell of a hand-made table holds: a number with its unit and a remark."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

# Lower-case name, the unit it becomes, and how many of that.
UNITS: dict[str, tuple[str, float]] = {
    "ns": ("ns", 1.0),
    **dict.fromkeys(("us", "µs", "usec"), ("ns", 1e3)),
    **dict.fromkeys(("ms", "msec"), ("ns", 1e6)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), ("ns", 1e9)),
    **dict.fromkeys(("min", "mins", "minutes"), ("ns", 6e10)),
    **dict.fromkeys(("h", "hours"), ("ns", 3.6e12)),
    **dict.fromkeys(("b", "byte", "bytes"), ("bytes", 1.0)),
    **{f"{prefix}b": ("bytes", 1e3**power) for power, prefix in enumerate("kmgtp", 1)},
    **{f"{prefix}ib": ("bytes", 2.0 ** (10 * power)) for power, prefix in enumerate("kmgtp", 1)},
    "%": ("share", 0.01),
    **dict.fromkeys(("calls", "count", "counts", "ops"), ("count", 1.0)),
}
KINDS = {"ns": "a time", "bytes": "bytes", "share": "a share", "count": "a count", "": "a plain number"}
NUMBER = r"[-+]?\d[\d,]{0,24}(?:\.\d{0,18})?(?:[eE][-+]?\d{1,3})?"
CELL = re.compile(rf"\**({NUMBER})\**\s{{0,9}}([a-zA-Zµ%]{{1,8}})?\s{{0,9}}(?:\(([^()]{{0,80}})\))?$")
THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3}){1,8}(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in our units (ns, bytes, 0..1) with the kind it states itself ("" where it states none)."""

    value: float
    kind: str
    text: str
    remark: str = ""


def number_of(text: str) -> float | None:
    """A plain number, with commas between thousands or without."""
    if "," in text and not THOUSANDS.match(text):
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@lru_cache(1 << 16)
def quantity_of(text: str) -> Quantity | None:
    """The number in a cell; None for words and empty cells."""
    found = CELL.match(text) if len(text) < 200 else None
    if found is None or number_of(found[1]) is None:
        return None
    if found[2] and found[2].lower() not in UNITS:
        return None
    kind, factor = UNITS[found[2].lower()] if found[2] else ("", 1.0)
    value = scaled(found[1], factor)
    return Quantity(value, kind, text, found[3] or "") if math.isfinite(value) else None


def scaled(number: str, factor: float) -> float:
    """A printed number in another unit, rounded once: 2.09 min is 125400000000 ns."""
    return float(Decimal(number.replace(",", "")) * Decimal(repr(factor)))


STATED = re.compile(r"[\[(]\s{0,3}([a-zA-Zµ%]{1,8})\s{0,3}[\])]")
WORDS = ((r"\bcalls?\b|\bcount\b|\bnumber of\b", "calls"), (r"\bbytes?\b", "bytes"), (r"\btime\b", "s"))


def stated_unit(text: str) -> str | None:
    """The unit that a heading states: in brackets, or by a word such as calls, bytes or time (seconds then)."""
    lowered = text.lower()
    for found in STATED.finditer(lowered[:400]):
        if found[1] in UNITS:
            return found[1]
    return next((unit for pattern, unit in WORDS if re.search(pattern, lowered[:400])), None)
