"""Figures with a unit as profilers print them, in ns or bytes."""

from __future__ import annotations

import re
from decimal import Decimal

from rankscope.formats.printed import Printed, exactly

TIME_NS = {"ns": 10**0, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9}
SIZE_STEPS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
FIGURE = re.compile(r"(\d{1,18}(?:\.\d{1,12})?)([a-zA-Zµμ%/]{0,6})", re.ASCII)
LARGEST = Decimal(2**62)


def figure_and_unit(text: str) -> tuple[Printed, str] | None:
    """A number and its unit, or None where the text is no such thing."""
    found = FIGURE.fullmatch(text.strip())
    if found is None:
        return None
    digits, unit = found.groups()
    return exactly(digits), unit


def scaled(text: str, unit: str, units: dict[str, int]) -> Printed | None:
    """A figure in one of these units; `unit` is the one that stands elsewhere, as in a csv file's second line."""
    found = figure_and_unit(text)
    if found is None:
        return None
    figure, own = found
    factor = units.get(own or unit)
    if factor is None or (own and unit) or figure.value * factor > LARGEST:
        return None
    return figure.times(factor)


def time_ns(text: str, unit: str = "") -> Printed | None:
    """A time: 294.35ms, 992ns, 5.13219s."""
    return scaled(text, unit, TIME_NS)


def size_bytes(text: str, unit: str = "", base: int = 1024) -> Printed | None:
    """A size: 256.00KB, 0B."""
    return scaled(text, unit, {name: base**power for name, power in SIZE_STEPS.items()})


def rate_bytes(text: str, unit: str = "", base: int = 1024) -> Printed | None:
    """A throughput in bytes a second: 10.552GB/s."""
    return scaled(text, unit, {f"{name}/s": base**power for name, power in SIZE_STEPS.items()})


def percent(text: str, unit: str = "") -> Printed | None:
    """A share as printed, 76.61%, in hundredths of the whole."""
    return scaled(text, unit, {"%": 1})
