"""What is off inside hand-made tables, by rules that hold for any: units, swapped rows, falls, totals that stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

from rankscope.formats.handmade.columns import Measured, Point
from rankscope.formats.handmade.grid import KINDS

Problem = tuple[int, str]
NEAR, FAR = 1.5, 3.0  # factors: the same but for noise; surely not the same
ROUNDED = 1.001
FALL = 0.7  # of the steady value
STEADY = 1.25  # largest over smallest
MOST_COLUMNS, MOST_ROWS, MOST_PARTS = 300, 200, 10  # what a hand can make: larger tables are read, not checked
LONG_SCALE = 8.0  # largest scale over smallest


def table_problems(columns: Sequence[Measured]) -> Iterator[Problem]:
    """Line and text of everything found."""
    columns = [column for column in columns[:MOST_COLUMNS] if len(column.points) <= MOST_ROWS]
    strange = [(column, problem) for column in columns for problem in _strange_units(column)]
    yield from (problem for _, problem in strange)
    swapped = list(_swaps(columns))
    yield from (problem for problem, _, _ in swapped)
    exchanged = {(id(column), point.line) for _, column, point in swapped}
    odd = {(column.table, column.series, line) for column, (line, _) in strange}
    for column in columns:
        points = [point for point in _own_kind(column) if (id(column), point.line) not in exchanged]
        yield from _falls(column, [point for point in points if (column.table, column.series, point.line) not in odd])
    yield from _constant_totals(columns, exchanged)
    yield from _wrong_sums(columns)


def _own_kind(column: Measured) -> list[Point]:
    return [point for point in column.points if point.quantity.kind in ("", column.kind)]


def _strange_units(column: Measured) -> Iterator[Problem]:
    """A cell whose unit is of another kind than its column's."""
    stating = [point for point in column.points if point.quantity.kind == column.kind]
    most_state = 2 * len(stating) > len(column.points) and len(stating) >= 3
    for point in column.points:
        kind = point.quantity.kind
        if kind != column.kind and (kind or most_state):
            held = f"the column “{column.header}” of {column.series} holds {KINDS[column.kind]}"
            yield point.line, f"{held}, but {point.quantity.text} is {KINDS[kind]}"


def _swaps(columns: Sequence[Measured]) -> Iterator[tuple[Problem, Measured, Point]]:
    """Rows of two parts of a table that fit the rows around them only if swapped."""
    parts: dict[tuple[int, str], list[list[Measured]]] = {}
    for group in _groups(columns):
        parts.setdefault((group[0].table, group[0].series), []).append(group)
    for first, second in (pair for groups in parts.values() for pair in combinations(groups[:MOST_PARTS], 2)):
        if [column.kind for column in first] != [column.kind for column in second]:
            continue
        if first[0].block == second[0].block:
            continue
        for scale in sorted({point.scale for point in first[0].points}):
            pairs = [(a, b, _at(a, scale), _at(b, scale)) for a, b in zip(first, second, strict=True)]
            yield from _swapped(pairs, scale)


def _groups(columns: Sequence[Measured]) -> list[list[Measured]]:
    groups: dict[tuple[int, int, int, str], list[Measured]] = {}
    for column in columns:
        groups.setdefault((column.table, column.block, column.group, column.series), []).append(column)
    return list(groups.values())


def _at(column: Measured, scale: float) -> Point | None:
    return next((point for point in _own_kind(column) if point.scale == scale), None)


Pair = tuple[Measured, Measured, Point | None, Point | None]


def _swapped(pairs: list[Pair], scale: float) -> Iterator[tuple[Problem, Measured, Point]]:
    far = False
    for a, b, one, other in pairs:
        if one is None or other is None:
            return
        usual_a, usual_b = _usual(a, scale), _usual(b, scale)
        if usual_a is None or usual_b is None:
            return
        if _apart(one.quantity.value, usual_b) > NEAR or _apart(other.quantity.value, usual_a) > NEAR:
            return
        far = far or min(_apart(one.quantity.value, usual_a), _apart(other.quantity.value, usual_b)) > FAR
    if far:
        a, b, one, other = pairs[0]
        if one and other:
            text = f"{a.series} at {scale:g}: “{a.header}” {_row_text(pairs, 2)} and “{b.header}” {_row_text(pairs, 3)}"
            sentence = f"{text} (line {other.line}) fit the rows around them only if swapped"
            for column_a, column_b, point_a, point_b in pairs:
                for column, point in ((column_a, point_a), (column_b, point_b)):
                    if point:
                        yield (one.line, sentence if column is a else ""), column, point


def _row_text(pairs: list[Pair], which: int) -> str:
    return " | ".join(point.quantity.text for pair in pairs if isinstance(point := pair[which], Point))


def _usual(column: Measured, scale: float) -> float | None:
    """What the other rows of a column hold, if most of them agree."""
    others = [point.quantity.value for point in _own_kind(column) if point.scale != scale]
    if len(others) < 3:
        return None
    middle = median(others)
    agreeing = sum(1 for value in others if _apart(value, middle) <= NEAR)
    return middle if 2 * agreeing >= len(others) else None


def _apart(value: float, other: float) -> float:
    """The factor between two numbers, at least 1."""
    if value <= 0 or other <= 0:
        return 1.0 if value == other else float("inf")
    return max(value / other, other / value)


def _falls(column: Measured, points: Sequence[Point]) -> Iterator[Problem]:
    """A count or a number of bytes that was steady over some scales and is much less at larger ones."""
    if column.kind not in ("count", "bytes") or len(points) < 4:
        return
    for end in range(len(points) - 1, 2, -1):
        steady = [point.quantity.value for point in points[end - 3 : end]]
        fallen = points[end:]
        most = max(point.quantity.value for point in fallen)
        if max(steady) <= STEADY * min(steady) and most < FALL * median(steady):
            figures = ", ".join(f"{point.quantity.text} at {point.scale:g}" for point in fallen[:4])
            text = f"{column.said}: {points[end - 1].quantity.text} up to {points[end - 1].scale:g}, then {figures}"
            yield fallen[0].line, f"{text}: runs that failed or ended early, shown as results?"
            return


def _constant_totals(columns: Sequence[Measured], exchanged: set[tuple[int, int]]) -> Iterator[Problem]:
    """Totals over all nodes that do not grow with them."""
    by_line: dict[tuple[int, int], list[str]] = {}
    for column in columns:
        points = [point for point in _own_kind(column) if (id(column), point.line) not in exchanged]
        values = [point.quantity.value for point in points]
        if column.kind not in ("count", "bytes") or "total" not in column.header.lower() or len(points) < 4:
            continue
        scales = [point.scale for point in points]
        if column.scale_name in ("", "nodes", "ranks", "gpus") and max(scales) >= LONG_SCALE * max(1e-9, min(scales)):
            if min(values) > 0 and max(values) <= STEADY * min(values):
                ends = f"{points[0].quantity.text} at {points[0].scale:g}, {points[-1].quantity.text} at"
                text = f"{column.said} ({ends} {points[-1].scale:g})"
                by_line.setdefault((column.table, column.line), []).append(text)
    for (_, line), texts in by_line.items():
        yield (
            line,
            f"totals that do not grow with the scale: {'; '.join(texts)}: was one host measured instead of all?",
        )


def _wrong_sums(columns: Sequence[Measured]) -> Iterator[Problem]:
    """A column called total that is the sum of those before it in most rows, but not in all."""
    for group in _sides(columns):
        for at, column in enumerate(group[:20]):
            before = [other for other in group[:at] if other.kind == column.kind]
            if "total" not in column.header.lower() or len(before) < 2:
                continue
            sums = {point: total for point in column.points if (total := _summed(before, point.scale)) is not None}
            off = {point: total for point, total in sums.items() if _apart(total, point.quantity.value) > ROUNDED}
            for point, total in off.items() if 4 * len(off) <= len(sums) else ():
                share = total / point.quantity.value if point.quantity.value else float("inf")
                text = f"{point.quantity.text}, but the columns before it add up to {share:.4g} of that"
                yield point.line, f"{column.said} at {point.scale:g} is {text}"


def _sides(columns: Sequence[Measured]) -> list[list[Measured]]:
    sides: dict[tuple[int, int, int], list[Measured]] = {}
    for column in columns:
        sides.setdefault((column.table, column.block, column.group), []).append(column)
    return list(sides.values())


def _summed(columns: list[Measured], scale: float) -> float | None:
    points = [_at(column, scale) for column in columns]
    return sum(point.quantity.value for point in points if point) if all(points) else None
