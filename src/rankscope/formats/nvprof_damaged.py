"""nvprof summaries that went through a scanner or a converter: what can be recovered is, and every repair is told."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from rankscope.formats import nvprof
from rankscope.formats.event_columns import OtherLines
from rankscope.formats.printed import Printed, count, percent, time_ns
from rankscope.formats.source import Source
from rankscope.formats.summary_table import ProfileSection, Row, check, mean_fits, tallies, unlisted, whole_ns
from rankscope.model.records import Layer, Note, RankFacts, Reading, Severity

# ---------------------------------------------------------------------------------------------------------------------
# Cells that a scanner misread: what they can only have been, or None.
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
    match = PARTS.fullmatch(text.strip())
    if match is None:
        return None, ""
    digits, unit = match[1].replace(" ", ".").translate(LETTERS), _unit(match[2])
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
    share = percent(read) if read.count(".") == 1 and read.endswith("%") else None
    return share, f"{text!r} read as {read}" if share else ""


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


# ---------------------------------------------------------------------------------------------------------------------
# Lines of a damaged summary: rows with missing or misread cells, and times and shares that lost their row.
KIND = re.compile(r"\s*(?:GPU activities|API calls):\s*")
SHARE = re.compile(r"\d{1,3}[. ]\d{1,2}%", re.ASCII)
CELLS = 7  # share, time, calls, average, least, most, name
TITLES = ["Type", "Time(%)", "Time", "Calls", "Avg", "Min", "Max", "Name"]
TIMES = ("average", "least time", "longest time")
MOST_CELLS = 400
MOST_ROWS = 200  # of one profile, rows and lone figures together: each is compared with each


@dataclass(slots=True)
class Block:
    """One profile of a damaged document."""

    heading: str
    line: int
    pid: int | None = None
    command: str = ""
    rows: list[Row] = field(default_factory=list)
    loose: list[tuple[int, Printed]] = field(default_factory=list)  # times that stand alone, with their line
    full: bool = False  # there were more rows than are looked at
    pairs: list[Row] = field(default_factory=list)  # share and time side by side, without a name
    remarks: list[tuple[int, str, Severity]] = field(default_factory=list)
    lines: dict[tuple[str, int | None, Printed | None, Printed | None], int] = field(default_factory=dict)

    def tell(self, line: int, text: str, severity: Severity = Severity.NOTE) -> None:
        self.remarks.append((line, text, severity))


def read_line(block: Block, number: int, line: str) -> bool:
    """Take what the line holds of a table, if anything."""
    kind = KIND.match(line)
    text = line[kind.end() :] if kind else line
    if len(block.rows) + len(block.loose) >= MOST_ROWS:
        block.full = True
        return False
    if "\t" in text.strip():
        return _tabbed(block, number, text)
    return _spaced(block, number, text.split(None, MOST_CELLS))


def _tabbed(block: Block, number: int, text: str) -> bool:
    """A row of a converted table: empty cells are still there."""
    cells = [cell.strip() for cell in text.strip("\r\n").split("\t")]
    while cells and not cells[0]:
        del cells[0]
    while cells and not cells[-1]:
        del cells[-1]
    if len(cells) != CELLS or not SHARE.fullmatch(cells[0]):
        return cells == TITLES
    _add(block, number, cells[0], cells[1], cells[2], cells[3:6], cells[6])
    return True


def _spaced(block: Block, number: int, words: list[str]) -> bool:
    """A row of a scanned table: cells that are missing leave no trace but their kind."""
    share = words.pop(0) if words and SHARE.fullmatch(words[0]) else ""
    total = words.pop(0) if words and looks_like_time(words[0]) else ""
    calls = words.pop(0) if words and count(words[0]) is not None else ""
    times = []
    while words and looks_like_time(words[0]):
        times.append(words.pop(0))
    if calls and times and words:
        _add(block, number, share, total, calls, times, " ".join(words))
        return True
    return not calls and not words and _alone(block, number, share, total)


def _alone(block: Block, number: int, share: str, total: str) -> bool:
    percent, time = share_cell(share)[0], time_cell(total)[0]
    if time is not None:
        block.loose.append((number, time))
    if time is not None and percent is not None:
        block.pairs.append(Row("", number, percent, time, None, *_NO_TIMES))
    return time is not None or percent is not None


def _add(block: Block, number: int, share: str, total: str, calls: str, times: list[str], name: str) -> None:
    title, lost = name_cell(name)
    row = Row(
        title, number, _share(block, number, share), _time(block, number, total, "time"), count(calls), *_NO_TIMES
    )
    if lost:
        block.tell(number, f"{title[:60]}: {lost}")
    if len(times) > len(TIMES):
        sentence = f"{title[:60]}: {len(times)} times instead of {len(TIMES)}: only the first, the average, is used"
        block.tell(number, sentence, Severity.WARNING)
        times = times[:1]
    times += [""] * (len(TIMES) - len(times))
    row.mean, row.least = (_time(block, number, text, what) for text, what in zip(times[:2], TIMES, strict=False))
    row.most = _longest(block, row, times[2])
    _keep(block, row)


_NO_TIMES = (None, None, None)


def _keep(block: Block, row: Row) -> None:
    """A row that stands there twice is one row."""
    line = block.lines.setdefault((row.name, row.calls, row.mean, row.most), row.line) if row.mean else row.line
    if line != row.line:
        block.tell(row.line, f"{row.name[:60]}: same row as in line {line}: counted once")
    else:
        block.rows.append(row)


def _share(block: Block, number: int, text: str) -> Printed | None:
    share, how = share_cell(text)
    if how:
        block.tell(number, f"share {how}")
    return share


def _time(block: Block, number: int, text: str, what: str) -> Printed | None:
    time, how = time_cell(text)
    if how:
        block.tell(number, f"{what} {how}")
    elif time is None and text:
        block.tell(number, f"the {what} {text!r} cannot be read", Severity.WARNING)
    return time


def _longest(block: Block, row: Row, text: str) -> Printed | None:
    """A longest time in an impossible unit can often be told from its neighbours."""
    total = row.total
    if total is None and row.calls and row.mean:
        total = row.mean.times(row.calls)
    longest, how = unit_by_neighbours(text, row.mean, total) if time_cell(text)[0] is None else (None, "")
    if longest is None:
        return _time(block, row.line, text, TIMES[2])
    block.tell(row.line, f"{TIMES[2]} {how}")
    return longest


# ---------------------------------------------------------------------------------------------------------------------
# Settles a damaged summary: counts and times that follow from the others, each told; contradictions stay empty.
NEAR = 0.02  # of the product: what is farther away needs no exact look
SURE = Decimal("0.5")  # calls: where rounding leaves more room than this, a whole number in it says nothing


def settle(block: Block) -> ProfileSection:
    """The rows with all that can be known of them."""
    for row in block.rows:
        _count(block, row)
    listed = _without_rows(block)
    column_survived = len(listed) >= len([row for row in block.rows if row.total is None])
    for row in [row for row in block.rows if row.total is None and row.mean and row.calls]:
        _time_of_total(block, row, listed, column_survived)
    _whole(block)
    _unnamed(block, listed)
    return ProfileSection("GPU activities", Layer.GPU, rows=block.rows, complete=False)


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


def _time_of_total(block: Block, row: Row, listed: list[Printed], column_survived: bool) -> None:
    """The time of a row without one: the listed time that fits calls × average, or that product itself."""
    about_ns = float(row.mean.value) * row.calls if row.mean and row.calls else 0.0
    near = [time for time in listed if abs(float(time.value) - about_ns) < NEAR * about_ns]
    fitting = [time for time in near if _fits(row, time)]
    if len(fitting) == 1:
        _take(block, row, listed, fitting[0], "the listed time that equals calls × average")
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
    fitting = [
        (calls, time) for time in near if (calls := _whole_quotient(time, row.mean)) and _alike(calls, row.calls)
    ]
    if len(fitting) != 1:
        text = (
            f"{row.name[:60]}: no listed time is {row.calls} calls × average: one of them was misread, time left empty"
        )
        block.tell(row.line, text, Severity.WARNING)
        return
    calls, time = fitting[0]
    block.tell(row.line, f"{row.name[:60]}: calls {row.calls} read as {calls}, as time ÷ average says")
    row.calls = calls
    _take(block, row, listed, time, "the listed time that equals calls × average")


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
        text = f"{name}: calls × average contradicts the longest time: one of them was misread, time left empty"
        block.tell(row.line, text, Severity.WARNING)
        return
    row.total = product
    block.tell(row.line, f"{name}: time {float(product.value) / 1e6:.6g} ms, calls × average: nothing else confirms it")


def _whole(block: Block) -> None:
    """A row without time but with a share has that part of the whole, as exactly as the share is printed."""
    total = whole_ns([*block.rows, *block.pairs])
    for row in block.rows:
        if row.total is None and row.share and total and row.share.value:
            value = (row.share.value * total[0] / 100).to_integral_value()
            row.total = Printed(value, row.share.step * total[0] / 100 + total[1])
            block.tell(row.line, f"{row.name[:60]}: time about {float(value) / 1e6:.4g} ms, share × the whole")


def _unnamed(block: Block, listed: list[Printed]) -> None:
    if listed:
        times = ", ".join(f"{float(time.value) / 1e6:.6g}" for time in listed)
        text = f"{len(listed)} times without a name, left out: {times} ms"
        block.tell(block.loose[0][0], text, Severity.WARNING)


# ---------------------------------------------------------------- nvprof damaged
STARTED = re.compile(r"NVPROF is profiling process (\d{1,10}), command: ")
HEADING = re.compile(r"#{1,6} +\S")
OWN = ("NVPROF is profiling", "Profiling application", "Profiling result")
KNOWN = re.compile(rb"NVPROF is profiling process \d{1,10}, command: ")
LONGEST = 200  # letters of a heading that are told again


def sniff(head: bytes) -> bool:
    """Whether nvprof is named but none of its lines begins as nvprof's: those are left to the reader of whole logs."""
    return KNOWN.search(head) is not None and b"GPU activities" in head and not nvprof.sniff(head)


def read(source: Source) -> Iterator[Reading]:
    """One reading per profile."""
    other = OtherLines(source)
    damaged = [block for block in blocks(source, other) if _has_rows(block, other)]
    if not damaged:
        raise source.bad("has no readable row of nvprof")
    yield from other.told_with_last(
        reading(block, source, rank if len(damaged) > 1 else source.hints.rank, len(damaged))
        for rank, block in enumerate(damaged)
    )


def _has_rows(block: Block, other: OtherLines) -> bool:
    """Without a row, what else stands below a heading is in no table."""
    if not block.rows:
        other.add(block.line, block.heading)
        for line, _ in block.loose:
            other.add(line, "a time")
    return bool(block.rows)


def blocks(source: Source, other: OtherLines) -> Iterator[Block]:
    """The text between two headings or two beginnings of a profile."""
    block = Block("", 1)
    for number, line in source.lines():
        begins = STARTED.search(line)
        if HEADING.match(line) and not any(mark in line for mark in OWN):
            yield block
            block = Block(line.strip("#* ")[:LONGEST], number)
        elif begins:
            if block.rows:
                yield block
                block = Block("", number)
            block.pid, block.command = int(begins[1]), _command(line[begins.end() :])
        elif not read_line(block, number, line) and (OWN[0] in line or not any(mark in line for mark in OWN[1:])):
            other.add(number, line)
    yield block


def _command(text: str) -> str:
    return text.partition(" ==")[0].replace("\\_", "_").strip()


def reading(block: Block, source: Source, rank: int | None, profiles: int) -> Reading:
    """One profile, settled and checked; profiles in one file are runs of their own, not ranks of one."""
    facts = RankFacts(pid=block.pid, rank=rank, command=block.command, source=str(source.path))
    if profiles > 1:
        facts.rank_source, facts.world_size = "order in the file", 1
    section, loose = settle(block), ProfileSection("", Layer.GPU, rows=block.pairs)
    parsed = Reading(facts, tallies=tallies(section), figures=unlisted(section) or unlisted(loose))
    if block.heading:
        parsed.notes.append(Note(f"under the heading {block.heading!r}", Severity.NOTE, source.at(block.line)))
    parsed.notes += [Note(text, severity, source.at(line)) for line, text, severity in block.remarks]
    parsed.notes += check(section, source)
    if block.full:
        parsed.notes.append(Note(f"only the first {MOST_ROWS} rows are read", Severity.WARNING, source.at(block.line)))
    return parsed
