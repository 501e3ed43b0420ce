"""CSV files of AMD's rocprofv3 and of the rocprof before it: traces, summaries and counters, by their columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankscope.formats.event_columns import EventColumns, UnreadLines
from rankscope.formats.printed import Printed, count, number
from rankscope.formats.source import Source
from rankscope.formats.summary_table import ProfileSection, Row, cells_of, check, tallies
from rankscope.formats.sums import Sums
from rankscope.model.records import Figure, Layer, Note, RankFacts, Reading, Severity

HSA = "hsa"  # calls below HIP: a layer of their own
STATS = ("Name", "Calls", "TotalDurationNs", "AverageNs", "Percentage")
TIMES = (("Start_Timestamp", "End_Timestamp"), ("BeginNs", "EndNs"))
COUNTERS = ("Counter_Name", "Counter_Value")
SNIFFED = re.compile(
    rb'\A"?(?:Kind|Domain)"?,[^\n]{1,600}"?Start_Timestamp"?,"?End_Timestamp"?'
    rb'|\A"?Name"?,"?Calls"?,"?TotalDurationNs"?,"?AverageNs"?,"?Percentage"?'
    rb'|\A"?Index"?,"?KernelName"?,[^\n]{1,600}"?BeginNs"?,"?EndNs"?'
    rb'|\A"?Correlation_Id"?,"?Dispatch_Id"?,[^\n]{1,600}"?Counter_Name"?,"?Counter_Value"?'
)
DOMAINS = {
    "HIP": Layer.HIP_API,
    "HSA": HSA,
    "MARKER": Layer.NVTX,
    "RCCL": Layer.NCCL,
    "KOKKOS": Layer.NVTX,
    "OMPT": Layer.OMP,
    "OPENMP": Layer.OMP,
}
SUMMED_DOMAIN = re.compile(r"[A-Z][A-Z0-9_]{3,60}$")  # KERNEL_DISPATCH, HIP_API: sums of what other files list
DIRECTIONS = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD", "HOST_TO_HOST": "HtoH"}
AGENT = re.compile(r"(\d{1,6})\D*$")
MOST_KEYS = 200_000


def sniff(head: bytes) -> bool:
    """The titles of one of its files stand in the first line."""
    return SNIFFED.match(head) is not None


@dataclass(slots=True)
class Titles:
    """Where the columns of the file are."""

    width: int
    at: dict[str, int]

    def cell(self, cells: list[str], *names: str) -> str:
        """The first of these columns that the file has."""
        return next((cells[self.at[name]].strip() for name in names if name in self.at), "")

    def whole(self, cells: list[str], *names: str) -> int | None:
        return count(self.cell(cells, *names))


@dataclass(slots=True)
class RocprofFile:
    """What the file has told so far."""

    source: Source
    titles: Titles
    processes: dict[int | None, EventColumns] = field(default_factory=dict)
    sections: dict[str, ProfileSection] = field(default_factory=dict)
    counters: dict[tuple[str, str], float] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    hsa: dict[int | None, Sums] = field(default_factory=dict)
    bad: UnreadLines = field(default_factory=lambda: UnreadLines("cannot be read", Severity.WARNING))

    def take(self, line: int, text: str) -> None:
        """One row: in a table, or counted as one that cannot be read."""
        cells = cells_of(text)
        if len(cells) != self.titles.width:
            self.bad.add(line)
        elif all(title in self.titles.at for title in STATS):
            self._taken(self._summary(line, cells), line)
        elif all(title in self.titles.at for title in COUNTERS):
            self._taken(self._counter(cells), line)
        else:
            self._taken(self._activity(cells), line)

    def _taken(self, is_taken: bool, line: int) -> None:
        if not is_taken:
            self.bad.add(line)

    # ------------------------------------------------------------ single events
    def _activity(self, cells: list[str]) -> bool:
        titles = self.titles
        start, end = titles.whole(cells, "Start_Timestamp", "BeginNs"), titles.whole(cells, "End_Timestamp", "EndNs")
        if start is None or end is None:
            return False
        kind = titles.cell(cells, "Domain", "Kind") or "KERNEL_DISPATCH"
        pid = titles.whole(cells, "Process_Id", "pid")
        process = self.processes.setdefault(pid, EventColumns())
        layer, name, group, size = self._what(kind, cells)
        if not name:
            return False
        if layer == HSA:
            sums = self.hsa.setdefault(pid, Sums(self.source))
            sums.add(HSA, name, max(end - start, 0))
        return process.add(
            layer,
            name,
            start,
            end,
            group,
            titles.whole(cells, "Thread_Id", "tid") or 0,
            size,
            titles.whole(cells, "Correlation_Id"),
            user_range=layer == Layer.NVTX,
        )

    def _what(self, kind: str, cells: list[str]) -> tuple[str, str, str, int | None]:
        """Layer, name, group and bytes of a row."""
        titles = self.titles
        if kind.startswith("KERNEL"):
            device = _agent(titles.cell(cells, "Agent_Id", "gpu-id"))
            queue = titles.cell(cells, "Queue_Id", "queue-id")
            return Layer.GPU, titles.cell(cells, "Kernel_Name", "KernelName"), f"{device}/{queue}", None
        if kind.startswith("MEMORY_COPY"):
            direction = titles.cell(cells, "Direction").removeprefix("MEMORY_COPY_")
            place = "Source_Agent_Id" if direction == "DEVICE_TO_HOST" else "Destination_Agent_Id"
            name = f"[HIP memcpy {DIRECTIONS.get(direction, direction)}]"
            size = titles.whole(cells, "Bytes", "Size", "Copy_Size")
            return Layer.GPU, name, f"{_agent(titles.cell(cells, place))}/?", size
        if kind.startswith(("MEMORY_ALLOCATION", "SCRATCH")):
            what = titles.cell(cells, "Operation") or kind
            return Layer.MEMORY, what, "", titles.whole(cells, "Allocation_Size")
        layer = next((layer for word, layer in DOMAINS.items() if kind.startswith(word)), kind.lower())
        return layer, titles.cell(cells, "Function", "Name", "Operation"), "", None

    # ------------------------------------------------------------ sums
    def _summary(self, line: int, cells: list[str]) -> bool:
        titles = self.titles
        name, calls = titles.cell(cells, "Name"), titles.whole(cells, "Calls")
        values = {title: number(titles.cell(cells, title)) for title in (*STATS[2:], "MinNs", "MaxNs")}
        total, mean, share = (values[title] for title in STATS[2:])
        if not name or calls is None or total is None or mean is None or share is None or total.value < 0:
            return False
        if SUMMED_DOMAIN.match(name):
            self.figures.append(
                Figure(name, "time of all of its operations", float(total.value), "ns", statistic="total")
            )
            return True
        layer = self._summed_layer(name)
        section = self.sections.setdefault("all", ProfileSection("rocprof's summary", layer))
        row = Row(name, line, _rounded(share), total, calls, _rounded(mean), values["MinNs"], values["MaxNs"])
        section.rows.append(row)
        return len(section.rows) < MOST_KEYS

    def _summed_layer(self, name: str) -> str:
        if name.startswith("hip") or name.startswith("__hip"):
            return Layer.HIP_API
        if name.startswith("hsa_"):
            return HSA
        if name.startswith("nccl"):
            return Layer.NCCL if not name.startswith(("ncclDev", "ncclKernel")) else Layer.GPU
        return Layer.NVTX if "marker" in self.source.path.name else Layer.GPU

    def _counter(self, cells: list[str]) -> bool:
        kernel, name = self.titles.cell(cells, "Kernel_Name"), self.titles.cell(cells, "Counter_Name")
        value = number(self.titles.cell(cells, "Counter_Value"))
        if not name or value is None or (len(self.counters) >= MOST_KEYS and (kernel, name) not in self.counters):
            return False
        self.counters[kernel, name] = self.counters.get((kernel, name), 0.0) + float(value.value)
        return True

    # ------------------------------------------------------------ all of it
    def readings(self) -> Iterator[Reading]:
        active = {pid: events for pid, events in self.processes.items() if len(events)}
        rows = sum(len(section.rows) for section in self.sections.values())
        self.figures += [
            Figure(kernel, name, value, "count", statistic="total") for (kernel, name), value in self.counters.items()
        ]
        if not active and not rows and not self.figures:
            raise self.source.bad("has no readable row of rocprof")
        about = self.bad.notes(self.source)
        if not active:
            yield self._summed(about)
        for place, (pid, events) in enumerate(active.items()):
            rank = self.source.hints.rank if len(active) == 1 else None
            reading = Reading(RankFacts(rank=rank, pid=pid, source=str(self.source.path)))
            reading.tallies = self.hsa[pid].tallies() if pid in self.hsa else []
            reading.figures = [] if place else self.figures
            text = "the trace has times of the machine's own clock, not Unix times"
            reading.notes = [
                *([] if place else [Note(text, where=str(self.source)), *about]),
                *events.notes(self.source),
            ]
            for block in events.blocks():
                reading.event_columns = block
                yield reading
                reading = Reading(reading.facts, continues=True)

    def _summed(self, about: list[Note]) -> Reading:
        reading = Reading(RankFacts(rank=self.source.hints.rank, source=str(self.source.path)), figures=self.figures)
        reading.notes = about
        for section in self.sections.values():
            section_tallies = tallies(section)
            for tally in section_tallies:
                tally.layer = self._summed_layer(tally.name)
            reading.tallies += section_tallies
            reading.notes += check(section, self.source)
        return reading


def _rounded(value: Printed) -> Printed:
    """rocprof prints shares and means with more digits than it computes."""
    return Printed(value.value, max(value.step, abs(value.value) / 10**6))


def _agent(text: str) -> str:
    """The number in `1` or `Agent 1`."""
    match = AGENT.search(text)
    return match[1] if match else "0"


def read(source: Source) -> Iterator[Reading]:
    """A process for each that the rows name, else one."""
    trace: RocprofFile | None = None
    for line, text in source.lines():
        if trace is None:
            titles = [cell.strip() for cell in cells_of(text)]
            trace = RocprofFile(source, Titles(len(titles), {title: at for at, title in enumerate(titles)}))
        elif text.strip():
            trace.take(line, text)
    if trace is None:
        raise source.bad("is empty")
    yield from trace.readings()
