"""Tally tables of THAPI's iprof: host calls by backend, device work, explicit memory traffic; as text or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from rankscope.formats.event_columns import UnreadLines
from rankscope.formats.json_stream import whole_object
from rankscope.formats.printed import NOTHING, Span, added, count, printed, settled
from rankscope.formats.source import Source
from rankscope.model.records import Figure, Layer, Note, RankFacts, Reading, Severity, Tally

# ---------------------------------------------------------------------------------------------------------------------
# The tally tables of THAPI's iprof as they are printed: sections of a header line and a table.
TIMES = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
# THAPI's versions call the tables differently (`BACKEND_CUDA`, `API calls`), but all count below what they were seen.
TITLE = re.compile(
    r"([A-Z][^|]{1,200}?) \| (\d{1,12} (?:Hostnames|Processes|Threads)\b.*|(?:Hostname|Process|Thread): .*)$"
)
COUNT = re.compile(r"(\d{1,12}) (Hostnames|Processes|Threads|Devices|Subdevices|Device pointers|Subdevice pointers)$")
PLACE = re.compile(r"(Hostname|Process|Thread|Device pointer|Subdevice pointer): (\S{1,255})$")
HEAD = re.compile(r"\s*Name \|\s+(Time|Byte) \|\s+(?:Time|Byte)\(%\) \|\s+Calls \|\s+Average \|\s+Min \|\s+Max \|")
TOTAL = re.compile(r"\s*Total \|\s*(\S*) \|\s*(\S*) \|\s*(\d{1,18}) \|\s*(?:(\d{1,18}) \|\s*)?$")
QUANTITY = re.compile(r"(\d{1,15}(?:\.\d\d)?)([a-zA-Z]{1,3})$")


@dataclass(slots=True)
class Row:
    """One line of a table: total, share, calls, average, smallest and largest, as printed."""

    line: int
    name: str
    total: str
    share: str
    calls: int
    average: str = ""
    least: str = ""
    most: str = ""
    errors: int = 0


@dataclass(slots=True)
class IprofSection:
    """One table with its header line."""

    line: int
    title: str
    counts: dict[str, int] = field(default_factory=dict)
    place: dict[str, str] = field(default_factory=dict)
    is_bytes: bool = False
    has_errors: bool = False
    times_failures: bool = False  # the average is over all calls: so under `Failed`, not under `Error`
    rows: list[Row] = field(default_factory=list)
    total: Row | None = None
    damaged: list[int] = field(default_factory=list)

    @property
    def units(self) -> dict[str, int]:
        return SIZES if self.is_bytes else TIMES


def quantity(text: str, units: dict[str, int], times: int = 1) -> Span | None:
    """What a number with a unit can have been, or so many times it: at least one of its unit, less than the next."""
    match = QUANTITY.match(text)
    if match is None or match[2] not in units:
        return None
    unit = units[match[2]]
    span = printed(match[1], unit, times)
    larger = min((other for other in units.values() if other > unit), default=10**30)
    least = 0 if unit == 1 else unit * times
    return span.narrowed(Span(min(least, span.at), span.at, max(larger * times - 1, span.at)))


def sections(lines: Iterable[tuple[int, str]], unread: UnreadLines) -> Iterator[IprofSection]:
    """Every section that has a table; what stands between them is unread; one without a title has an empty one."""
    now: IprofSection | None = None
    reading = False
    for number, text in lines:
        if match := TITLE.match(text):
            if now and reading:
                yield now
            now, reading = _begun(number, match), False
        elif head := HEAD.match(text):
            if now and reading:
                yield now
                now = None
            now = now or IprofSection(number, "")
            now.is_bytes, now.times_failures, reading = head[1] == "Byte", "Failed" in text, True
            now.has_errors = now.times_failures or "Error" in text
        elif now and reading:
            if not _taken(now, number, text):
                yield now
                now, reading = None, False
        elif text.strip():
            unread.add(number)
    if now and reading:
        yield now


def _begun(number: int, match: re.Match[str]) -> IprofSection:
    section = IprofSection(number, match[1])
    for part in match[2].split("|")[:16]:
        if counted := COUNT.match(part.strip()):
            section.counts[counted[2].lower().replace(" pointers", "s")] = int(counted[1])
        elif placed := PLACE.match(part.strip()):
            section.place[placed[1]] = placed[2]
    return section


def _taken(section: IprofSection, number: int, text: str) -> bool:
    """Whether the table goes on with this line: it ends with an empty one, or after its total."""
    if not text.strip():
        return False
    if match := TOTAL.match(text):
        section.total = Row(number, "Total", match[1], match[2], int(match[3]), errors=int(match[4] or 0))
        return False
    row = _row(section, number, text)
    if row is None:
        section.damaged.append(number)
    else:
        section.rows.append(row)
    return True


def _row(section: IprofSection, number: int, text: str) -> Row | None:
    """Names may hold bars, so the columns are counted from the right."""
    columns = 8 if section.has_errors else 7
    cells = [cell.strip() for cell in text.rsplit("|", columns)]
    if len(cells) != columns + 1:
        return None
    calls, errors = count(cells[3]), count(cells[7]) if section.has_errors else 0
    if calls is None or errors is None:
        return None
    values = [cells[at] for at in (1, 4, 5, 6)]
    failed = errors == calls and not any(values)
    if not failed and not all(quantity(value, section.units) for value in values):
        return None
    return Row(number, cells[0], cells[1], cells[2], calls, cells[4], cells[5], cells[6], errors)


# ---------------------------------------------------------------------------------------------------------------------
# Do the columns of an iprof table agree: total = calls × average, shares, bounds, and the last line with the sums?
PERCENT = re.compile(r"(\d{1,3}\.\d\d)%$")
HALF_PERCENT = Fraction(1, 20_000)  # half of the last digit of a share
Problem = tuple[int, str]


def share_of(row: Row) -> Fraction | None:
    """The printed share, 0 to 1; None where nothing was there to share."""
    match = PERCENT.match(row.share)
    return Fraction(match[1]) / 100 if match else None


def settled_totals(section: IprofSection) -> list[int]:
    """A total for each row that agrees with everything printed of it, as far as all of that can be true at once."""
    spans = [_by_average(row, section) or _total(row, section) for row in section.rows]
    total = _whole(section, spans)
    if total is None:
        return [span.at for span in spans]
    shared = [_by_share(row, span, total.at) for row, span in zip(section.rows, spans, strict=True)]
    return settled(shared, Span(total.at, total.at, total.at)) or [span.at for span in spans]


def _total(row: Row, section: IprofSection) -> Span:
    return quantity(row.total, section.units) or NOTHING


def _by_average(row: Row, section: IprofSection) -> Span | None:
    good = row.calls if section.times_failures else row.calls - row.errors
    product = quantity(row.average, section.units, good) if good > 0 else None
    return _total(row, section).narrowed(product)


def _whole(section: IprofSection, spans: list[Span]) -> Span | None:
    """What the sum of all rows can be, by the last line, by the rows, and by each row's share."""
    total: Span | None = added(spans)
    if section.total is not None and total is not None:
        total = total.narrowed(quantity(section.total.total, section.units))
    for row, span in zip(section.rows, spans, strict=True):
        share = share_of(row)
        if total is None or share is None or share <= HALF_PERCENT:
            continue
        low, high = span.low / (share + HALF_PERCENT), span.high / (share - HALF_PERCENT)
        total = total.narrowed(Span(int(low) + 1, total.at, max(int(low) + 1, int(high))))
    return total


def _by_share(row: Row, span: Span, total_ns: int) -> Span:
    share = share_of(row)
    if share is None:
        return span
    low, high = int(total_ns * (share - HALF_PERCENT)) + 1, int(total_ns * (share + HALF_PERCENT))
    return span.narrowed(Span(max(0, low), span.at, max(0, low, high))) or span


def problems(section: IprofSection) -> Iterator[Problem]:
    """Line and text of what does not agree."""
    for row in section.rows:
        yield from _row_problems(row, section)
    yield from _share_problems(section)
    yield from _sum_problems(section)


def _row_problems(row: Row, section: IprofSection) -> Iterator[Problem]:
    average, least, most = (quantity(text, section.units) for text in (row.average, row.least, row.most))
    if average is None or least is None or most is None:
        return
    if (row.calls > row.errors or section.times_failures) and _by_average(row, section) is None:
        yield row.line, f"{row.name}: {row.calls} calls of {row.average} do not make {row.total}"
    if least.low > average.high or average.low > most.high:
        yield row.line, f"{row.name}: the average {row.average} is not between {row.least} and {row.most}"


def _share_problems(section: IprofSection) -> Iterator[Problem]:
    shares = [share for row in section.rows if (share := share_of(row)) is not None]
    summed = sum(shares, Fraction(0))
    if shares and abs(summed - 1) > HALF_PERCENT * (len(shares) + 1):
        yield section.line, f"the shares add up to {float(100 * summed):.2f} %, not to 100 %"


def _sum_problems(section: IprofSection) -> Iterator[Problem]:
    total = section.total
    if total is None:
        yield section.line, "the table breaks off: it has no line of totals"
        return
    calls = sum(row.calls for row in section.rows)
    if calls != total.calls and not section.damaged:
        yield total.line, f"the calls add up to {calls}, the total says {total.calls}"
    printed_total = quantity(total.total, section.units)
    summed = added(_total(row, section) for row in section.rows)
    if printed_total and not section.damaged and not summed.meets(printed_total):
        unit = "bytes" if section.is_bytes else "ns"
        yield total.line, f"the rows add up to {summed.at} {unit}, the total says {total.total}"


# ---------------------------------------------------------------------------------------------------------------------
# The JSON form of iprof's tally: exact numbers, without the backends' names.
SNIFF = re.compile(
    rb'\s{0,100}\{\s{0,100}"(device|host|metadata|traffic|units)"\s{0,100}:(?=[^\0]{0,65536}"call"\s{0,10}:)'
)
LARGEST = 2**63 - 1  # what the tables hold; iprof's own "no minimum yet" is larger
PREFIXES = (
    ("MPI", Layer.MPI),
    ("zes", Layer.ZE),
    ("ze", Layer.ZE),
    ("cu", Layer.CUDA_API),
    ("hip", Layer.HIP_API),
    ("cl", Layer.OPENCL),
    ("omp", Layer.OMP),
    ("cxi", Layer.CXI),
)


def json_readings(source: Source) -> Iterator[Reading]:
    """One reading for all processes, or one for each where the tally is by process."""
    document = whole_object(source)
    readings_of: dict[tuple[str, int | None], Reading] = {}
    for kind in ("host", "device", "traffic"):
        for level, part in _parts(document.get(kind)):
            _add_json(kind, level, part, readings_of, source)
    if not readings_of:
        raise source.bad("no tally under host, device or traffic")
    yield from readings_of.values()


def _parts(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tallies of one kind: one, one for each level, and each perhaps a list by process."""
    if isinstance(value, list):
        yield from (("", part) for part in value if isinstance(part, dict))
    elif isinstance(value, dict) and "data" in value:
        yield "", value
    elif isinstance(value, dict):
        for level, below in value.items():
            for _, part in _parts(below) if isinstance(below, list) or "data" in (below or ()) else ():
                yield str(level), part


def _add_json(
    kind: str, level: str, part: dict[str, Any], readings: dict[tuple[str, int | None], Reading], source: Source
) -> None:
    host, pid = part.get("Hostname"), _whole_json(part.get("Process"))
    key = host if isinstance(host, str) else "", pid
    if key not in readings:
        readings[key] = Reading(RankFacts(host=key[0], pid=pid, versions="iprof", source=str(source)))
    data = part.get("data")
    rows = data.items() if isinstance(data, dict) else ()
    group = "Device profiling" if kind == "device" else f"level {level}" if kind == "host" else f"traffic {level}"
    for name, row in rows:
        if name != "Total" and isinstance(row, dict):
            _add_row(kind, group, str(name), row, _whole_json(part.get("Thread")) or 0, readings[key], source)


def _add_row(
    kind: str, group: str, name: str, row: dict[str, Any], thread: int, reading: Reading, source: Source
) -> None:
    numbers = {key: _whole_json(row.get(key)) for key in ("time", "call", "min", "max")}
    if None in numbers.values():
        raise source.bad(f"{name}: time, call, min and max must be whole numbers")
    total, calls, least, most = (value or 0 for value in numbers.values())
    errors = _whole_json(row.get("error")) or 0
    tally = Tally(_layer(kind, name), name, calls, 0.0, group, thread=thread, errors=errors)
    if kind == "traffic":
        tally.bytes = total
        bounds = (("min", least), ("max", most))
        reading.figures += [Figure(group, name, float(value), "bytes", statistic=which) for which, value in bounds]
    else:
        tally.total_ns = float(total)
        if calls > errors:
            tally.min_ns, tally.max_ns = float(least), float(most)
    reading.tallies.append(tally)


def _whole_json(value: Any) -> int | None:
    return min(value, LARGEST) if type(value) is int and value >= 0 else None


def _layer(kind: str, name: str) -> str:
    if kind != "host":
        return Layer.GPU if kind == "device" else Layer.MEMORY
    return next((layer for prefix, layer in PREFIXES if name.startswith(prefix)), Layer.HOST)


# ---------------------------------------------------------------- iprof
LAYERS = {
    "BACKEND_MPI": Layer.MPI,
    "BACKEND_ZE": Layer.ZE,
    "BACKEND_CUDA": Layer.CUDA_API,
    "BACKEND_HIP": Layer.HIP_API,
    "BACKEND_CL": Layer.OPENCL,
    "BACKEND_OMP": Layer.OMP,
    "BACKEND_CXI": Layer.CXI,
}
DEVICE = "Device profiling"
KNOWN = re.compile(rf"BACKEND_[A-Z_]|API calls$|{DEVICE}$|Explicit memory traffic(?: \([A-Z_,]{{1,200}}\))?$")
TABLE = re.compile(HEAD.pattern.removeprefix(r"\s*").replace(r"\s+", r"\s{1,200}").encode())


def sniff(head: bytes) -> bool:
    return TABLE.search(head) is not None or SNIFF.match(head) is not None


def read(source: Source) -> Iterator[Reading]:
    """One reading for the sum over all processes, or one for each process where the tables are by process."""
    if SNIFF.match(source.head()):
        yield from json_readings(source)
        return
    sections_read, unread = 0, UnreadLines()
    for profile in _profiles(source, unread):
        sections_read += 1
        for reading in _readings(profile, source):
            reading.facts.job = "" if sections_read == 1 else str(sections_read)
            yield reading
    if sections_read and unread.count:
        yield Reading(reading.facts, continues=True, notes=unread.notes(source))
    if not sections_read:
        raise source.bad("no table `Name | Time | Time(%) | Calls | …` under a header line")


def _profiles(source: Source, unread: UnreadLines) -> Iterator[list[IprofSection]]:
    """The sections of each profile: one that has been seen already begins the next profile."""
    now: dict[tuple[str, ...], IprofSection] = {}
    for section in sections(source.lines(), unread):
        key = section.title, *section.place.values()
        if key in now:
            yield list(now.values())
            now = {}
        now[key] = section
    if now:
        yield list(now.values())


def _readings(profile: list[IprofSection], source: Source) -> Iterator[Reading]:
    by_process: dict[tuple[str, str], Reading] = {}
    for section in profile:
        key = section.place.get("Hostname", ""), section.place.get("Process", "")
        if key not in by_process:
            by_process[key] = Reading(_facts(*key, source))
        _add(section, by_process[key], source)
    hosts = {section.title: section.counts.get("hostnames", 0) for section in profile}
    first = next(iter(by_process.values()))
    first.notes += [*_unequal_hosts(hosts), *_summed(profile)]
    yield from by_process.values()


def _facts(host: str, pid: str, source: Source) -> RankFacts:
    number = int(pid) if pid.isdecimal() and len(pid) < 12 else None
    return RankFacts(host=host, pid=number, versions="iprof", source=str(source))


def _summed(profile: list[IprofSection]) -> Iterator[Note]:
    processes = max(section.counts.get("processes", 0) for section in profile)
    if processes > 1:
        hosts = max(section.counts.get("hostnames", 0) for section in profile)
        yield Note(
            f"these are sums over {processes} processes on {hosts} host{'s' * (hosts != 1)}, not those of one rank"
        )


def _unequal_hosts(hosts: dict[str, int]) -> Iterable[Note]:
    counted = {title: count for title, count in hosts.items() if count}
    if len(set(counted.values())) > 1:
        text = ", ".join(f"{title} {count}" for title, count in counted.items())
        yield Note(f"the parts of this profile were seen on different numbers of hosts: {text}")


def layer_of(section: IprofSection, name: str) -> str:
    """The layer of a row: several backends of one level share one, named after the first."""
    if section.is_bytes:
        return Layer.MEMORY
    backend = section.title.split(",")[0]
    if section.title == DEVICE or not backend.startswith("BACKEND_"):
        return _layer("device" if section.title == DEVICE else "host", name)
    return LAYERS.get(backend, backend.lower())


def _add(section: IprofSection, reading: Reading, source: Source) -> None:
    """The rows of a section, and what is off in them."""
    totals = settled_totals(section)
    reading.figures += [
        Figure(section.title, name, float(count), "count", statistic="total") for name, count in section.counts.items()
    ]
    for row, total in zip(section.rows, totals, strict=True):
        least, most = (quantity(text, section.units) for text in (row.least, row.most))
        tally = Tally(layer_of(section, row.name), row.name, row.calls, 0.0, section.title, errors=row.errors)
        tally.thread = _thread(section)
        if section.is_bytes:
            tally.bytes = min(total, 2**63 - 1)
            bounds = (("min", least), ("max", most))
            reading.figures += [
                Figure(section.title, row.name, float(span.at), "bytes", statistic=which)
                for which, span in bounds
                if span
            ]
        else:
            tally.total_ns = float(total)
            tally.min_ns, tally.max_ns = (float(span.at) if span else None for span in (least, most))
        reading.tallies.append(tally)
    warnings = [*problems(section), *((line, "a line that cannot be read was skipped") for line in section.damaged)]
    if not KNOWN.match(section.title):
        warnings.append((section.line, "a table under an unknown heading; its calls count as the host's"))
    reading.notes += [
        Note(f"{section.title or 'no heading'}: {text}", Severity.WARNING, source.at(line)) for line, text in warnings
    ]


def _thread(section: IprofSection) -> int:
    return count(section.place.get("Thread", "")) or 0
