"""Settles a damaged summary: counts and times that follow from the others, each told; contradictions stay empty."""

from __future__ import annotations

from decimal import Decimal

from rankscope.formats.printed import Printed
from rankscope.formats.summary_table import Row, Section, mean_fits, whole_ns
from rankscope.model import Severity
from rankscope.readers.damaged_rows import Block

NEAR = 0.02  # of the product: what is farther away needs no exact look
SURE = Decimal("0.5")  # calls: where rounding leaves more room than this, a whole number in it says nothing


def settle(block: Block) -> Section:
    """The rows with all that can be known of them."""
    for row in block.rows:
        _count(block, row)
    listed = _without_rows(block)
    column_survived = len(listed) >= len([row for row in block.rows if row.total is None])
    for row in [row for row in block.rows if row.total is None and row.mean and row.calls]:
        _time(block, row, listed, column_survived)
    _whole(block)
    _unnamed(block, listed)
    return Section("GPU activities", "gpu", rows=block.rows, complete=False)


def _count(block: Block, row: Row) -> None:
    """Calls from time ÷ average."""
    if row.calls is not None:
        return
    row.calls = _whole_quotient(row.total, row.mean) if row.total and row.mean else None
    if row.calls is None:
        block.tell(row.line, f"{row.name[:60]}: calls cannot be read and do not follow from the rest", Severity.WARNING)
    else:
        block.tell(row.line, f"{row.name[:60]}: {row.calls} calls, from time ÷ average")


def _whole_quotient(total: Printed, mean: Printed) -> int | None:
    """The one number of calls that time and average allow."""
    if mean.low <= 0:
        return None
    calls = int((total.value / mean.value).to_integral_value())
    low, high = total.low / (mean.high + 1), total.high / mean.low
    return calls if calls > 0 and low <= calls <= high and high - low < SURE else None


def _without_rows(block: Block) -> list[Printed]:
    """Times that stand alone, but for those that a row already has."""
    taken = {row.total.value for row in block.rows if row.total}
    return [time for _, time in block.loose if time.value not in taken]


def _time(block: Block, row: Row, listed: list[Printed], column_survived: bool) -> None:
    """The time of a row without one: the listed time that fits calls × average, or that product itself."""
    about_ns = float(row.mean.value) * row.calls if row.mean and row.calls else 0.0
    near = [time for time in listed if abs(float(time.value) - about_ns) < NEAR * about_ns]
    fitting = [time for time in near if _fits(row, time)]
    if len(fitting) == 1:
        _take(block, row, listed, fitting[0], "the listed time that is calls × average")
    elif column_survived:
        _misread_count(block, row, listed)
    else:
        _product(block, row)


def _fits(row: Row, time: Printed) -> bool:
    held, row.total = row.total, time
    fits = mean_fits(row)
    row.total = held
    return fits


def _take(block: Block, row: Row, listed: list[Printed], time: Printed, how: str) -> None:
    row.total = time
    listed.remove(time)
    block.tell(row.line, f"{row.name[:60]}: time {float(time.value) / 1e6:.6g} ms, {how}")


def _misread_count(block: Block, row: Row, listed: list[Printed]) -> None:
    """No listed time fits: a digit of the calls was misread or lost, if one listed time says so plainly."""
    assert row.mean is not None
    mean_ns = float(row.mean.value)
    near = [time for time in listed if mean_ns and _alike(round(float(time.value) / mean_ns), row.calls)]
    found = [(calls, time) for time in near if (calls := _whole_quotient(time, row.mean)) and _alike(calls, row.calls)]
    if len(found) != 1:
        told = (
            f"{row.name[:60]}: no listed time is {row.calls} calls × average: one of them was misread, time left empty"
        )
        block.tell(row.line, told, Severity.WARNING)
        return
    calls, time = found[0]
    block.tell(row.line, f"{row.name[:60]}: calls {row.calls} read as {calls}, as time ÷ average says")
    row.calls = calls
    _take(block, row, listed, time, "the listed time that is calls × average")


def _alike(calls: int, printed: int | None) -> bool:
    """Whether one digit was misread, or the first ones lost."""
    true, seen = str(calls), str(printed)
    if len(true) == len(seen):
        return sum(a != b for a, b in zip(true, seen, strict=True)) == 1
    return true.endswith(seen)


def _product(block: Block, row: Row) -> None:
    assert row.mean is not None and row.calls is not None
    product = Printed(row.mean.value * row.calls, row.mean.step * row.calls)
    name = row.name[:60]
    if row.most and (row.most.value > product.value + product.step or row.most.value < row.mean.value - row.mean.step):
        told = f"{name}: calls × average contradicts the longest time: one of them was misread, time left empty"
        block.tell(row.line, told, Severity.WARNING)
        return
    row.total = product
    block.tell(row.line, f"{name}: time {float(product.value) / 1e6:.6g} ms, calls × average: nothing else confirms it")


def _whole(block: Block) -> None:
    """A row without time but with a share has that part of the whole, as exactly as the share is printed."""
    found = whole_ns([*block.rows, *block.pairs])
    for row in block.rows:
        if row.total is None and row.share and found and row.share.value:
            value = (row.share.value * found[0] / 100).to_integral_value()
            row.total = Printed(value, row.share.step * found[0] / 100 + found[1])
            block.tell(row.line, f"{row.name[:60]}: time about {float(value) / 1e6:.4g} ms, share × the whole")


def _unnamed(block: Block, listed: list[Printed]) -> None:
    if listed:
        times = ", ".join(f"{float(time.value) / 1e6:.6g}" for time in listed)
        told = f"{len(listed)} times without a name, left out: {times} ms"
        block.tell(block.loose[0][0], told, Severity.WARNING)
