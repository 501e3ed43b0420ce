"""Text traces of THAPI: single events (`iprof -t`, babeltrace2), intervals (`to_interval`), sums (`to_aggreg`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rankscope.formats.event_columns import EventColumns, UnreadLines
from rankscope.formats.source import Source
from rankscope.model.records import Layer, Note, RankFacts, Reading, Severity, Tally

# 12:00:00.000000001 - host - vpid: 10, vtid: 1 - lttng_ust_ze:zeInit_entry: { flags: 0 }        (THAPI's own printer)
# [12:00:00.000000001] (+0.000000123) host lttng_ust_ze:zeInit_entry: { … }, { vpid = 1, vtid = 1 }, { flags = 0 }
OWN = re.compile(
    r"(\d\d):(\d\d):(\d\d)\.(\d{9}) - (\S{1,255}) - (?=[^{]*?\bvpid: (\d{1,10}))(?=[^{]*?\bvtid: (\d{1,10}))"
    r"[^{]{1,300}? - (lttng_ust_\w{1,60}|lttng):([\w:]{1,200}): (\{.*)$"
)
BABELTRACE = re.compile(
    r"\[(\d\d):(\d\d):(\d\d)\.(\d{9})\] \(\+[^)]{1,40}\) (\S{1,255}) (lttng_ust_\w{1,60}):([\w:]{1,200}): (\{.*)$"
)
VPID, VTID = re.compile(r"\bvpid = (\d{1,10})\b"), re.compile(r"\bvtid = (\d{1,10})\b")
# lttng:host: { hostname = "h", vpid = 1, vtid = 1, ts = 5, backend = 3 }, { name = "f", dur = 10, err = false }
# hostname: "h", vpid: 1, vtid: 1, ts: 5, backend: 3 - lttng:host: { name: "f", dur: 10, err: false }
INTERVAL = re.compile(
    r"(?:lttng|aggreg):(host|device|traffic)(?:_name)?: \{|hostname: \".*? - (?:lttng|aggreg):(host|device|traffic): \{"
)
MEMBER = re.compile(r'(\w{1,60}) ?[=:] ?("(?:[^"\\]|\\.){0,100000}"|[^,{}\s][^,{}\s]{0,200})')
SNIFFED = re.compile(
    rb"^\d\d:\d\d:\d\d\.\d{9} - [^\n]{1,600}? - lttng_ust_\w{1,60}:\w"
    rb"|^\[\d\d:\d\d:\d\d\.\d{9}\] \(\+[^)\n]{1,40}\) \S{1,255} lttng_ust_\w"
    rb"|^(?:lttng|aggreg):(?:host|device|traffic): \{ hostname = \""
    rb"|^hostname: \"[^\n]{1,300} - (?:lttng|aggreg):(?:host|device|traffic): \{",
    re.M,
)
PROVIDERS = {
    "ze": Layer.ZE,
    "opencl": Layer.OPENCL,
    "cuda": Layer.CUDA_API,
    "cudart": Layer.CUDA_API,
    "hip": Layer.HIP_API,
    "mpi": Layer.MPI,
    "ompt": Layer.OMP,
    "omp": Layer.OMP,
    "itt": Layer.NVTX,
    "cxi": Layer.CXI,
}
BACKENDS = dict(
    enumerate(
        (
            Layer.HOST,
            Layer.ZE,
            Layer.OPENCL,
            Layer.CUDA_API,
            Layer.OMP,
            Layer.OMP,
            Layer.HIP_API,
            Layer.MPI,
            Layer.CXI,
            Layer.NVTX,
        )
    )
)
DAY_NS = 86_400 * 10**9
GOOD = ("CUDA_SUCCESS", "cudaSuccess", "hipSuccess", "ZE_RESULT_SUCCESS", "CL_SUCCESS", "MPI_SUCCESS", "0")
RESULT = re.compile(r"(?:cuResult|cudaResult|hipResult|zeResult|errcode_ret_val|mpiResult) ?[:=] ?(-?\w{1,60})")
# which argument of a call is the handle of a kernel, and which calls give one to a name
FUNCTION_NAMED = ("cuModuleGetFunction", "cuLibraryGetKernel", "hipModuleGetFunction")
KERNEL_OF = {
    "clEnqueueNDRangeKernel": "kernel",
    **dict.fromkeys(
        ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel", "hipModuleLaunchKernel"), "f"
    ),
    **dict.fromkeys(FUNCTION_NAMED, ""),
}
OMPT_KIND = re.compile(r"(?:kind|optype) ?[:=] ?\(?\"? ?ompt_(?:target_data_)?(\w{1,60})")
WHOLE = re.compile(r"-?\d{1,19}")
MOST_PROCESSES = 100_000
MOST_OPEN = 1_000_000


def sniff(head: bytes) -> bool:
    """A line as THAPI, or babeltrace2 of its traces, prints it."""
    return SNIFFED.search(head) is not None


@dataclass(slots=True)
class Call:
    """A call that has begun and not ended."""

    layer: str
    name: str
    start_ns: int
    thread: int
    events: list[str] = field(default_factory=list)  # profiling events that the call has asked for
    kernel: str = ""  # that it launches, or that it gives a handle to


@dataclass(slots=True)
class Device:
    """Work of a device whose times are still to come: the call that launched it."""

    name: str
    start_ns: int
    thread: int


@dataclass(slots=True)
class ThapiProcess:
    """What is told of one process."""

    facts: RankFacts
    events: EventColumns = field(default_factory=EventColumns)
    tallies: list[Tally] = field(default_factory=list)
    open: dict[int, list[Call]] = field(default_factory=dict)  # by thread
    launched: dict[str, Device] = field(default_factory=dict)  # by profiling event
    early: dict[str, int] = field(default_factory=dict)  # lengths that came before their call's end
    kernels: dict[str, str] = field(default_factory=dict)  # names by handle
    lone_exits: int = 0
    unit_less: int = 0  # times of devices in ticks


class ThapiText:
    """The state of reading one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.processes: dict[tuple[str, int], ThapiProcess] = {}
        self.unread = UnreadLines()
        self.other = UnreadLines("of other events (in no table)")
        self.days_ns = 0
        self.last_ns = 0
        self.has_clock = False  # times are those of a day

    def process(self, host: str, pid: int) -> ThapiProcess:
        key = (host, pid)
        if key not in self.processes:
            if len(self.processes) >= MOST_PROCESSES:
                raise self.source.bad(f"more than {MOST_PROCESSES} processes: not a trace of THAPI")
            self.processes[key] = ThapiProcess(RankFacts(host=host, pid=pid, source=str(self.source.path)))
        return self.processes[key]

    def take(self, line: int, text: str) -> None:
        """One line: in a table, or counted."""
        if not text.strip():
            return
        if match := OWN.match(text):
            *clock, host, pid, tid, provider, event, payload = match.groups()
            taken = self._event(clock, host, int(pid), int(tid), provider, event, payload)
        elif match := BABELTRACE.match(text):
            *clock, host, provider, event, payload = match.groups()
            of_pid, of_tid = VPID.search(payload), VTID.search(payload)
            if of_pid is None or of_tid is None:
                self.unread.add(line)
                return
            taken = self._event(clock, host, int(of_pid[1]), int(of_tid[1]), provider, event, payload)
        elif match := INTERVAL.match(text):
            taken = self._interval(match[1] or match[2], text)
            if not taken:
                self.unread.add(line)
                return
        else:
            self.unread.add(line)
            return
        if not taken:
            self.other.add(line)

    # ------------------------------------------------------------ single events
    def _moment(self, clock: list[str]) -> int:
        """Nanoseconds from the first midnight; a time that is much earlier than the last is of the next day."""
        hours, minutes, seconds, rest = (int(word) for word in clock)
        at_ns = ((hours * 60 + minutes) * 60 + seconds) * 10**9 + rest + self.days_ns
        if at_ns < self.last_ns - DAY_NS // 2:
            self.days_ns += DAY_NS
            at_ns += DAY_NS
        self.last_ns, self.has_clock = max(at_ns, self.last_ns), True
        return at_ns

    def _event(self, clock: list[str], host: str, pid: int, tid: int, provider: str, event: str, payload: str) -> bool:
        at_ns = self._moment(clock)
        process = self.process(host, pid)
        backend, _, part = provider.removeprefix("lttng_ust_").partition("_")
        layer = PROVIDERS.get(backend, backend or "thapi")
        if part == "profiling":
            return self._profiling(process, tid, event, payload)
        if part == "arguments" and event == "kernel_info":
            members = dict(MEMBER.findall(payload))
            if len(process.kernels) < MOST_OPEN:
                process.kernels[members.get("kernel", "")] = members.get("function_name", "").strip('"')
            return True
        if "ompt_scope_" in payload:
            return self._scope(process, layer, event, at_ns, tid, payload)
        if event.endswith("_entry"):
            return self._enter(process, Call(layer, event.removesuffix("_entry"), at_ns, tid), payload)
        if event.endswith("_exit"):
            return self._leave(process, layer, event.removesuffix("_exit"), at_ns, tid, payload)
        return False

    def _enter(self, process: ThapiProcess, call: Call, payload: str) -> bool:
        stack = process.open.setdefault(call.thread, [])
        if len(stack) > MOST_OPEN // 100 or len(process.open) > MOST_OPEN:
            raise self.source.bad("calls that never end: not a trace of THAPI")
        members = dict(MEMBER.findall(payload)) if call.name in KERNEL_OF else {}
        call.kernel = process.kernels.get(members.get(KERNEL_OF.get(call.name, ""), ""), "")
        if call.name in FUNCTION_NAMED:
            call.kernel = members.get("name_val", "").strip('"')
        stack.append(call)
        return True

    def _scope(self, process: ThapiProcess, layer: str, event: str, at_ns: int, tid: int, payload: str) -> bool:
        """OpenMP tells the beginning and the end of what it does by the same name."""
        kind = OMPT_KIND.search(payload)
        name = f"{event}:{kind[1]}" if kind else event
        if "ompt_scope_begin" in payload:
            return self._enter(process, Call(layer, name, at_ns, tid), "")
        return self._leave(process, layer, name, at_ns, tid, "")

    def _leave(self, process: ThapiProcess, layer: str, name: str, at_ns: int, tid: int, payload: str) -> bool:
        stack = process.open.get(tid, [])
        place = next((at for at in range(len(stack) - 1, -1, -1) if stack[at].name == name), None)
        if place is None:
            process.lone_exits += 1
            return True
        call = stack[place]
        del stack[place:]  # what was begun inside of it and has not ended never will
        result = RESULT.search(payload)
        failed = result is not None and result[1] not in GOOD
        process.events.add(layer, name, call.start_ns, at_ns, "", tid, failed=failed)
        if name in FUNCTION_NAMED and call.kernel and len(process.kernels) < MOST_OPEN:
            process.kernels[dict(MEMBER.findall(payload)).get("hfunc_val", "")] = call.kernel
        for event in call.events:
            self._launched(process, event, Device(call.kernel or name, call.start_ns, tid))
        return True

    def _launched(self, process: ThapiProcess, event: str, device: Device) -> None:
        if event in process.early:
            self._on_device(process, device, process.early.pop(event))
        elif len(process.launched) < MOST_OPEN:
            process.launched[event] = device

    def _profiling(self, process: ThapiProcess, tid: int, event: str, payload: str) -> bool:
        """A call asks for the times of what it launches; they come later, or before it has ended."""
        members = dict(MEMBER.findall(payload))
        handle = members.get("hStart") or members.get("hEvent") or members.get("event") or ""
        if event == "event_profiling":
            stack = process.open.get(tid)
            if not stack:
                return False
            stack[-1].events.append(handle)
            return True
        if event != "event_profiling_results":
            return False
        length_ns = _length(members)
        if length_ns is None:
            process.unit_less += 1
            process.launched.pop(handle, None)
        elif handle in process.launched:
            self._on_device(process, process.launched.pop(handle), length_ns)
        elif len(process.early) < MOST_OPEN:
            process.early[handle] = length_ns
        return True

    def _on_device(self, process: ThapiProcess, device: Device, length_ns: int) -> None:
        """The trace has lengths on the device's clock only: as THAPI does, they begin with the call."""
        process.events.add(Layer.GPU, device.name, device.start_ns, device.start_ns + length_ns, "0/?", device.thread)

    # ------------------------------------------------------------ intervals and sums
    def _interval(self, kind: str, text: str) -> bool:
        members = {key: value.strip().strip('"') for key, value in MEMBER.findall(text)}
        numbers: dict[str, int] = {
            key: int(value) for key, value in members.items() if WHOLE.fullmatch(value) and abs(int(value)) < 2**62
        }
        name, pid = members.get("name", ""), numbers.get("vpid")
        if not name or pid is None or pid < 0:
            return False
        process = self.process(members.get("hostname", ""), pid)
        layer = {"device": Layer.GPU, "traffic": Layer.MEMORY}.get(kind) or BACKENDS.get(
            numbers.get("backend", 0), Layer.HOST
        )
        if {"min", "max", "total", "count"} <= numbers.keys():
            return self._sum(process, layer, name, numbers)
        failed, tid = members.get("err") == "true", numbers.get("vtid", 0)
        if kind == "traffic":
            size = numbers.get("size")
            return size is not None and size >= 0 and self._traffic(process, name, size)
        start_ns, length_ns = numbers.get("ts"), numbers.get("dur")
        if start_ns is None or length_ns is None or length_ns < 0:
            return False
        group = f"{numbers.get('did', 0)}/?" if kind == "device" else ""
        return process.events.add(layer, name, start_ns, start_ns + length_ns, group, tid, failed=failed)

    def _sum(self, process: ThapiProcess, layer: str, name: str, numbers: dict[str, int]) -> bool:
        total, calls = numbers["total"], numbers["count"]
        if min(total, calls, numbers["min"], numbers["max"]) < 0:
            return False
        if layer == Layer.MEMORY:
            process.tallies.append(Tally(layer, name, calls, None, bytes=total))
        else:
            tally = Tally(layer, name, calls, float(total), min_ns=float(numbers["min"]), max_ns=float(numbers["max"]))
            tally.errors = max(0, numbers.get("err_count", 0))
            process.tallies.append(tally)
        return True

    def _traffic(self, process: ThapiProcess, name: str, size: int) -> bool:
        tally = next((tally for tally in process.tallies if tally.layer == Layer.MEMORY and tally.name == name), None)
        if tally is None:
            tally = Tally(Layer.MEMORY, name, 0, None, bytes=0)
            process.tallies.append(tally)
        tally.calls = (tally.calls or 0) + 1
        tally.bytes = min((tally.bytes or 0) + size, 2**63 - 1)
        return True

    # ------------------------------------------------------------ all of it
    def readings(self) -> Iterator[Reading]:
        active = [process for process in self.processes.values() if len(process.events) or process.tallies]
        if not active:
            raise self.source.bad("holds no call, kernel or sum of THAPI")
        for place, process in enumerate(active):
            blocks = process.events.blocks()
            reading = Reading(process.facts, tallies=process.tallies, event_columns=next(blocks, {}))
            reading.notes = [*self._notes(process), *([] if place else self._about_file())]
            yield reading
            for block in blocks:
                yield Reading(process.facts, continues=True, event_columns=block)

    def _notes(self, process: ThapiProcess) -> list[Note]:
        notes, where = process.events.notes(self.source), str(self.source)
        counts = {
            "calls had begun and not ended: left out": sum(len(stack) for stack in process.open.values()),
            "ends of calls without a beginning: left out": process.lone_exits,
            "activities of the device have times in ticks of an unknown length: left out": process.unit_less,
            "launches on the device whose times never came: left out": len(process.launched),
            "times of the device without a launch: left out": len(process.early),
        }
        of = f"process {process.facts.pid}"
        return notes + [Note(f"{of}: {n} {what}", Severity.WARNING, where) for what, n in counts.items() if n]

    def _about_file(self) -> list[Note]:
        notes = [*self.unread.notes(self.source), *self.other.notes(self.source)]
        if self.has_clock:
            text = "times of the trace are those of a day: they count from its midnight, not from 1970"
            notes.append(Note(text, where=str(self.source)))
        return notes


def _length(members: dict[str, str]) -> int | None:
    """Of work on a device, in ns; None where the trace has it in ticks of the device."""
    if "milliseconds" in members:
        text = members["milliseconds"].strip()
        return round(float(text) * 1e6) if re.fullmatch(r"\d{1,12}(?:\.\d{1,12})?", text) else None
    if "start" in members and "end" in members and "submit" in members:
        start, end = members["start"].strip(), members["end"].strip()
        if re.fullmatch(r"\d{1,19}", start) and re.fullmatch(r"\d{1,19}", end) and int(end) >= int(start):
            return int(end) - int(start)
    return None


def read(source: Source) -> Iterator[Reading]:
    """A reading for each process in the trace."""
    trace = ThapiText(source)
    for line, text in source.lines():
        trace.take(line, text)
    yield from trace.readings()
