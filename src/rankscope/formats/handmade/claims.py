"""What the text around hand-made tables claims, against the numbers in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from math import prod

from rankscope.formats.handmade.columns import Labelled, Measured, Point, TableColumns
from rankscope.formats.handmade.grid import NUMBER, Document, number_of

Problem = tuple[int, str]
WORD = r"(?:\s{0,3}\(\s{0,3}[\w ]{1,30}\))?"
FACTOR = rf"{NUMBER}{WORD}"
CHAIN = rf"({FACTOR}(?:\s{{0,3}}[*×]\s{{0,3}}{FACTOR}){{1,5}})"
PRODUCT = re.compile(rf"{CHAIN}\s{{0,3}}(?:=|would be|makes|is|are)\s{{0,3}}\**\s{{0,3}}({NUMBER})")
PER_SECOND = r"\b(?:OPS|IOPS|operations per second|calls per second|ops/s)\b"
RATE = re.compile(rf"{PER_SECOND}[^\d\n]{{0,30}}({NUMBER})\s{{0,2}}([KMG])?\b", re.I)
PER_NODE = re.compile(r"\b(?:ppn|ranks per node|processes per node)\b\s{0,3}[:=]?\s{0,3}(\d{1,6})\b", re.I)
HOSTS = re.compile(r"\b(\d{1,9}) Hostnames?\b")
RATIO = re.compile(r"/?(\w{2,30}) is (\d{1,6}(?:\.\d{1,6})?) ?[xX×] (slower|faster) than /?(\w{2,30})")
BENEFIT, BEYOND = r"(?:benefit|pays|break.?even|kicks? in)", r"(?:beyond|above|after|over|from)"
PAYS = re.compile(rf"{BENEFIT}\b([^.\n]{{0,120}}?)\b{BEYOND}\s{{1,3}}(\d{{1,9}})\s{{0,3}}(nodes|ranks|gpus)", re.I)
CLAIM = re.compile(rf"[*×]|slower|faster|{BENEFIT}", re.I)
TOKEN = re.compile(r"[a-z0-9]+")
NO_MATTER = frozenset(("slash", "import", "time", "the", "of", "for", "total"))
LONGEST_LINE, MOST_LINES, MOST_COLUMNS, MOST_CLAIMS = 4000, 5000, 300, 100  # of a page written by a person
MOST_IN_A_LINE = 5  # claims of one kind
WRONG = 1.5  # a claimed factor may be off by this much
MUCH_LESS = 0.5  # of a projection
MULTIPLES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}


def claim_problems(page: Document, columns: TableColumns) -> Iterator[Problem]:
    """Line and text of every claim that the numbers contradict."""
    lines = [(number, text) for number, text in page.text if len(text) <= LONGEST_LINE][:MOST_LINES]
    measured = columns.measured[:MOST_COLUMNS]
    known = TableColumns(measured, columns.labelled[:MOST_COLUMNS])
    yield from _hosts(lines, measured)
    rates = _rates(lines)
    claims = [(number, text) for number, text in lines if CLAIM.search(text)]
    for number, text in claims[:MOST_CLAIMS]:
        yield from _products(number, text, rates, known)
        yield from _ratios(number, text, measured)
        yield from _break_even(number, text, measured)


def _hosts(lines: Sequence[tuple[int, str]], columns: Sequence[Measured]) -> Iterator[Problem]:
    """Profiles of fewer hosts than the tables go up to, told at the first of them."""
    along = [column for column in columns if column.scale_name in ("", "nodes")]
    largest = max((point.scale for column in along for point in column.points), default=0.0)
    fewer = [(number, match[0]) for number, text in lines for match in HOSTS.finditer(text) if int(match[1]) < largest]
    if fewer:
        named = "nodes" if any(column.scale_name == "nodes" for column in along) else "(nodes, by the header lines)"
        more = f" (and {len(fewer) - 1} more lines)" if len(fewer) > 1 else ""
        sentence = f"“{fewer[0][1]}” were profiled{more}, but the tables go up to {largest:g} {named}"
        yield fewer[0][0], f"{sentence}: does each row show one host?"


def _rates(lines: Sequence[tuple[int, str]]) -> tuple[float, int] | None:
    """Operations a second and ranks per node, where the text says both."""
    rate = next((match for _, text in lines if (match := RATE.search(text))), None)
    per_node = next((match for _, text in lines if (match := PER_NODE.search(text))), None)
    if rate is None or per_node is None:
        return None
    per_second = (number_of(rate[1]) or 0.0) * MULTIPLES[(rate[2] or "").upper()]
    return (per_second, int(per_node[1])) if per_second > 0 else None


def _products(number: int, text: str, rates: tuple[float, int] | None, columns: TableColumns) -> Iterator[Problem]:
    for match in islice(PRODUCT.finditer(text), MOST_IN_A_LINE):
        factors = [number_of(re.match(NUMBER, part.strip())[0]) for part in re.split(r"[*×]", match[1])]  # type: ignore[index]
        claimed = number_of(match[2])
        if None in factors or claimed is None:
            continue
        product = prod(factor for factor in factors if factor is not None)
        if abs(product - claimed) > _half_digit(match[2]):
            yield number, f"{match[1].strip()} is {product:,.0f}, not {match[2]}"
        for label in columns.labelled:
            if rates and label.quantity.value in factors:
                yield from _projection(number, product, label, rates, columns.measured)


def _half_digit(text: str) -> float:
    """Half of the last digit that a number was written with; zeros at the end of a whole number may be rounding."""
    digits, _, decimals = text.replace(",", "").partition(".")
    return 0.5 * (10.0 ** -len(decimals) if decimals else 10.0 ** (len(digits) - len(digits.rstrip("0"))))


def _projection(
    number: int, product: float, label: Labelled, rates: tuple[float, int], columns: Sequence[Measured]
) -> Iterator[Problem]:
    """Calls × ranks ÷ rate against the times that were measured: more than them, it is only an upper bound."""
    per_second, per_node = rates
    ends = _largest_scale(label, columns)
    if not ends:
        return
    scale = ends[0][1].scale
    predicted_s = label.quantity.value * scale * per_node / per_second
    if min(point.quantity.value for _, point in ends) / 1e9 < MUCH_LESS * predicted_s:
        hours = product / per_second / 3600
        text = f"{product:,.0f} calls at {per_second:,.0f} per second are {hours:.1f} h, which is only an upper bound"
        gives = f"the same product gives {predicted_s:,.0f} s at {scale:g} nodes × {per_node}, where"
        measured = ", ".join(
            f"{column.header} took {p.quantity.value / 1e9:,.1f} s (line {p.line})" for column, p in ends[:6]
        )
        yield number, f"{text}: {gives} {measured}"


def _largest_scale(label: Labelled, columns: Sequence[Measured]) -> list[tuple[Measured, Point]]:
    """The measured times at the largest scale, of columns that share a word with the label."""
    beside = _tokens(label.label)
    candidates = [
        (column, max(times, key=lambda point: point.scale))
        for column in columns
        if column.scale_name == "nodes"
        and beside & _tokens(column.header)
        and "total" not in column.header.lower()
        and (times := _times(column))
    ]
    largest = max((point.scale for _, point in candidates), default=0.0)
    return [(column, point) for column, point in candidates if point.scale == largest]


def _times(column: Measured) -> list[Point]:
    return [point for point in column.points if column.kind == "ns" and point.quantity.kind in ("", "ns")]


@lru_cache(4096)
def _tokens(text: str) -> frozenset[str]:
    return frozenset(TOKEN.findall(text.lower())) - NO_MATTER


def _ratios(number: int, text: str, columns: Sequence[Measured]) -> Iterator[Problem]:
    """One thing is said to be so many times slower than another: over all rows that have both."""
    for match in islice(RATIO.finditer(text), MOST_IN_A_LINE):
        slow, fast = (match[1], match[4]) if match[3] == "slower" else (match[4], match[1])
        ratios = list(_measured_ratios(slow.lower(), fast.lower(), columns))
        if len(ratios) < 2:
            continue
        (low, low_line), (high, high_line) = min(ratios), max(ratios)
        claimed = float(match[2])
        if low < claimed / WRONG or high > claimed * WRONG:
            sentence = f"“{match[0]}”: in the tables it is {low:.2g} times (line {low_line}) to {high:.2g} times"
            yield number, f"{sentence} (line {high_line})"


def _measured_ratios(slow: str, fast: str, columns: Sequence[Measured]) -> Iterator[tuple[float, int]]:
    for column in columns:
        for other in columns:
            mine, others = _tokens(column.header), _tokens(other.header)
            if slow in mine and fast in others and column.table == other.table and mine - {slow} == others - {fast}:
                places = {point.scale: point for point in _times(other)}
                for point in _times(column):
                    if point.scale in places and places[point.scale].quantity.value > 0:
                        yield point.quantity.value / places[point.scale].quantity.value, point.line


def _break_even(number: int, text: str, columns: Sequence[Measured]) -> Iterator[Problem]:
    """A method is said to pay only beyond a scale: where does its total first stay below the others' times?"""
    for match in islice(PAYS.finditer(text), MOST_IN_A_LINE):
        claimed = float(match[2])
        words = TOKEN.findall(text.lower())
        crossings = []
        for column in columns:
            method = _method(column, words)
            if method and column.scale_name == match[3].lower():
                crossings += [place for other in columns if (place := _crossing(column, other, method, claimed))]
        if crossings:
            yield number, f"“{match[0].strip()}”: in the tables it pays at smaller scales: {'; '.join(crossings)}"


def _method(column: Measured, words: list[str]) -> str:
    """The word of a total column's header that the sentence speaks of (`tmp` for `temp`)."""
    if "total" not in column.header.lower() or column.kind != "ns":
        return ""
    tokens = _tokens(column.header)
    return next(
        (token for token in sorted(tokens) for word in words if len(token) > 2 and _abbreviates(token, word)), ""
    )


def _abbreviates(short: str, word: str) -> bool:
    letters = iter(word)
    return short[0] == word[0] and len(word) - len(short) <= 2 and all(letter in letters for letter in short)


def _crossing(method: Measured, other: Measured, word: str, claimed: float) -> str:
    """Where the method's total falls below the other's time for good, if that is before the claimed scale."""
    beside = _tokens(method.header) - {word}
    if other.table != method.table or word in _tokens(other.header) or not beside <= _tokens(other.header):
        return ""
    totals = {point.scale: point.quantity.value for point in _times(method)}
    times = {point.scale: point for point in _times(other) if point.scale in totals}
    paying = sorted(scale for scale, point in times.items() if totals[scale] < point.quantity.value)
    dear = [scale for scale, point in times.items() if totals[scale] >= point.quantity.value]
    steady = [scale for scale in paying if scale > max(dear, default=0.0)]
    if not steady or steady[0] >= claimed:
        return ""
    between = f"between {max(dear):g} and {steady[0]:g}" if dear else f"from {steady[0]:g}"
    point = times[steady[0]]
    return f"against {other.header} {between} (line {point.line}: {point.quantity.text})"
