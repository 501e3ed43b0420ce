"""The layout of nvprof's summaries, column by column, so that eyes and scripts used to them need not change."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from itertools import groupby

from rankscope.model.records import Layer
from rankscope.model.tables import Table
from rankscope.output.cells import printable

HEAD = f"{'Type':>16}  Time(%)  {'Time':>8}  {'Calls':>8}  {'Avg':>8}  {'Min':>8}  {'Max':>8}  Name"
CSV_HEAD = '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"'
KINDS: dict[str, str] = {Layer.NVTX: "Range", Layer.GPU: "GPU activities", Layer.CUDA_API: "API calls"}
NONE: dict[str, str] = {Layer.GPU: "No kernels were profiled", Layer.CUDA_API: "No API activities were profiled"}
UNITS = (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9))
WIDTH = 8


@dataclass(frozen=True, slots=True)
class NvprofLine:
    """One row of a profile."""

    process: int
    thread: int
    thread_name: str
    domain: str
    range: str
    layer: str
    share: float | None
    total_ns: float | None
    calls: int | None
    mean_ns: float | None
    min_ns: float | None
    max_ns: float | None
    name: str


# its rows, and where they are from ("": the whole process; None: a range of which only its own time is known)
Body = Callable[[list[NvprofLine], str | None], Iterator[str]]


def to_nvprof(processes: Table, rows: Table, warnings: Table | None = None) -> str:
    """The profile of each process as text."""
    return _profiles(processes, rows, warnings, _text_table)


def to_nvprof_csv(processes: Table, rows: Table, warnings: Table | None = None) -> str:
    """The same with each table as csv, its second line the units."""
    return _profiles(processes, rows, warnings, _csv_table)


def _profiles(processes: Table, rows: Table, warnings: Table | None, body: Body) -> str:
    lines = [NvprofLine(*row) for row in rows.rows]  # type: ignore[arg-type]
    output: list[str] = [] if processes.rows else ["======== Warning: No CUDA application was profiled."]
    for process, pid, command, attributed in processes.rows:
        tag = "========" if pid is None else f"=={pid}=="
        if command:
            output.append(f"{tag} Profiling application: {printable(str(command))}")
        noted = warnings.rows if warnings else []
        output += [f"{tag} Warning: {printable(str(text))}." for whose, text in noted if whose == process]
        output += _profile(tag, bool(attributed), [line for line in lines if line.process == process], body)
    return "".join(line + "\n" for line in output)


def _profile(tag: str, attributed: bool, lines: list[NvprofLine], body: Body) -> Iterator[str]:
    yield f"{tag} Profiling result:"
    yield from body([line for line in lines if not line.range], "")
    ranged = [line for line in lines if line.range]
    if ranged:
        yield from ("", f"{tag} NVTX result:")
        yield from _ranges(tag, ranged, body, " in this range" if attributed else None)


def _ranges(tag: str, lines: list[NvprofLine], body: Body, where: str | None) -> Iterator[str]:
    for (thread, name), of_thread in groupby(lines, key=lambda line: (line.thread, line.thread_name)):
        yield f'{tag}   Thread "{printable(name)}" (id = {thread})'
        for domain, of_domain in groupby(of_thread, key=lambda line: line.domain):
            yield f'{tag}     Domain "{printable(domain)}"'
            for title, of_range in groupby(of_domain, key=lambda line: line.range):
                yield f'{tag}       Range "{printable(title)}"'
                yield from body(list(of_range), where)
                yield ""


def _text_table(lines: list[NvprofLine], where: str | None) -> Iterator[str]:
    by_layer = {layer: [line for line in lines if line.layer == layer] for layer in KINDS}
    if not by_layer[Layer.GPU] and where == "":
        yield f"{NONE[Layer.GPU]}."
    yield HEAD
    for layer, title in KINDS.items():
        for at, line in enumerate(by_layer[layer]):
            yield _text_row(line, f"{title}:" if at == 0 else "")
        if not by_layer[layer] and layer in NONE and where is not None and (where or layer != Layer.GPU):
            yield f"{NONE[layer]}{where}."


def _text_row(line: NvprofLine, kind: str) -> str:
    share = "-" if line.share is None else f"{100 * line.share:.2f}%"
    times = [time_text(time) for time in (line.total_ns, line.mean_ns, line.min_ns, line.max_ns)]
    calls = "-" if line.calls is None else str(line.calls)
    cells = [f"{cell:>{WIDTH}}" for cell in (times[0], calls, *times[1:])]
    return "  ".join([f"{kind:>16}", f"{share:>7}", *cells, printable(line.name)])


def time_text(nanoseconds: float | None) -> str:
    """A time in eight letters: five digits with us and ms, six with s, whole ns."""
    if nanoseconds is None:
        return "-"
    for unit, scale in UNITS:
        text = _filled(Decimal(nanoseconds) / scale, unit)
        if unit == "s" or float(text.removesuffix(unit)) < 1000:
            return text
    return ""


def _filled(number: Decimal, unit: str) -> str:
    places = 0 if unit == "ns" else max(0, WIDTH - len(unit) - 1 - len(str(int(number))))
    return f"{number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)}{unit}"  # halves go up, as nvprof's do


def _csv_table(lines: list[NvprofLine], where: str | None) -> Iterator[str]:
    for layer, none in NONE.items():
        missing = where is not None and not any(line.layer == layer for line in lines)
        if missing and (where or layer == Layer.GPU):
            yield f"{none}{where}."
    columns = [[getattr(line, name) for line in lines] for name in ("total_ns", "mean_ns", "min_ns", "max_ns")]
    units = [_column_unit(column) for column in columns]
    yield CSV_HEAD
    yield f",%,{units[0][0]},,{','.join(unit for unit, _ in units[1:])},"
    for layer in KINDS:
        for line in (line for line in lines if line.layer == layer):
            yield _csv_row(line, [scale for _, scale in units])


def _column_unit(column: list[float | None]) -> tuple[str, int]:
    """The unit of a column: that of its largest time, but no coarser than prints ns in six decimals."""
    largest = max((time for time in column if time is not None), default=0)
    return next((unit for unit in reversed(UNITS[:3]) if largest >= unit[1]), UNITS[0])


def _csv_row(line: NvprofLine, scales: list[int]) -> str:
    times = (line.total_ns, line.mean_ns, line.min_ns, line.max_ns)
    total, *rest = ["" if time is None else f"{time / scale:.6f}" for time, scale in zip(times, scales, strict=True)]
    share = "" if line.share is None else f"{100 * line.share:.6f}"
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="").writerow([printable(line.name)])
    calls = "" if line.calls is None else line.calls
    return f'"{KINDS[line.layer]}",{share},{total},{calls},{",".join(rest)},{buffer.getvalue()}'
