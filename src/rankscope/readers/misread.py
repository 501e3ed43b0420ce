"""Cells that a scanner misread: what they can only have been, or None."""

from __future__ import annotations

import html
import re

from rankscope.formats.printed import Printed
from rankscope.readers.units import percent, time_ns

TIME_LIKE = re.compile(r"\d[\d./lIO]*[a-zA-Zµ]{1,3}", re.ASCII)
PARTS = re.compile(r"(\d[\dlIO]*(?:[. ][\dlIO]+)?) ?([mun]?[a-z]{1,2})", re.ASCII)
LETTERS = str.maketrans({"l": "1", "I": "1", "O": "0"})
DIGITS = {"us": 5, "ms": 5, "s": 6}  # that nvprof prints; ns are whole
UNITS = {"m": "ms", "u": "us", "n": "ns"}
SWAPPED = {"sm": "ms", "su": "us", "sn": "ns"}
MARKUP = re.compile(r"<pre>|< ?td=\"\">")
ATTRIBUTES = re.compile(r"<[^<>]*=\"")


def looks_like_time(text: str) -> bool:
    return TIME_LIKE.fullmatch(text) is not None


def time_cell(text: str) -> tuple[Printed | None, str]:
    """The time, and how the cell was read where it does not stand there plainly."""
    plain = time_ns(text)
    if plain is not None and _as_nvprof_prints(text):
        return plain, ""
    found = PARTS.fullmatch(text.strip())
    if found is None:
        return None, ""
    digits, unit = found[1].replace(" ", ".").translate(LETTERS), _unit(found[2])
    read = f"{digits}{unit}"
    return (time_ns(read), f"{text!r} read as {read}") if _as_nvprof_prints(read) else (None, "")


def _unit(letters: str) -> str:
    return SWAPPED.get(letters) or UNITS.get(letters[0], "s")


def _as_nvprof_prints(text: str) -> bool:
    """nvprof fills its columns: a figure with more or fewer digits has been damaged."""
    digits, unit = text.strip().rstrip("nums"), text.strip().lstrip("0123456789.")
    return digits.isdecimal() if unit == "ns" else len(digits.replace(".", "")) == DIGITS.get(unit)


def share_cell(text: str) -> tuple[Printed | None, str]:
    """The share, likewise."""
    plain = percent(text)
    if plain is not None:
        return plain, ""
    read = text.strip().replace(" ", ".", 1)
    found = percent(read) if read.count(".") == 1 and read.endswith("%") else None
    return found, f"{text!r} read as {read}" if found else ""


def unit_by_neighbours(text: str, mean: Printed | None, total: Printed | None) -> tuple[Printed | None, str]:
    """The longest time of a row whose unit is impossible: the one unit that lies between average and total."""
    digits = text.rstrip("nums")
    if mean is None or total is None or len(digits.replace(".", "")) != 5:
        return None, ""
    fits = [unit for unit in ("us", "ms") if _between(time_ns(digits + unit), mean, total)]
    if len(fits) != 1:
        return None, ""
    return time_ns(digits + fits[0]), f"{text!r} read as {digits}{fits[0]}, the only unit between average and total"


def _between(time: Printed | None, mean: Printed, total: Printed) -> bool:
    return time is not None and mean.value <= time.value <= total.value


def name_cell(text: str) -> tuple[str, str]:
    """The name without the markup of a conversion, and what that cost."""
    opened = text.partition("</")[0]  # a converter closes at the end of the cell all that it took for tags
    plain = html.unescape(MARKUP.sub("", opened.replace("\\_", "_").replace("\\$", "$")))
    plain = plain.replace(" <", "<").strip()
    if ATTRIBUTES.search(plain):
        return plain, "its template arguments were taken for markup: some are lost"
    return plain, ""
