"""Text traces of THAPI: single events (`iprof -t`, babeltrace2), intervals (`to_interval`), sums (`to_aggreg`)."""

from __future__ import annotations

import math
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
GOOD = re.compile(r"0|\w{0,40}(?:_SUCCESS|[a-z]Success)")
RESULT = re.compile(r"(?:cuResult|cudaResult|hipResult|zeResult|errcode_ret_val|mpiResult) ?[:=] ?(-?\w{1,60})")
# which argument of a call is the handle of a kernel; which calls give one to a name: its members at entry and at exit
KERNEL_OF = {
    "clEnqueueNDRangeKernel": "kernel",
    **dict.fromkeys(
        ("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchCooperativeKernel", "hipModuleLaunchKernel"), "f"
    ),
    **dict.fromkeys(
        (
            "zeCommandListAppendLaunchKernel",
            "zeCommandListAppendLaunchCooperativeKernel",
            "zeCommandListAppendLaunchKernelIndirect",
        ),
        "hKernel",
    ),
}
FUNCTION_NAMED = {
    **dict.fromkeys(("cuModuleGetFunction", "cuLibraryGetKernel", "hipModuleGetFunction"), ("name_val", "hfunc_val")),
    "zeKernelCreate": ("desc__pKernelName_val", "phKernel_val"),
}
# calls that move memory, and where their bytes stand; cudaMemcpy calls one of the driver, which is in the trace too
MOVING = re.compile(r"cuMemcpy|hipMemcpy|clEnqueue|zeCommandListAppendMemory")
MOVED = ("ByteCount", "sizeBytes", "size")
SHAPE = ("WidthInBytes", "Height", "Depth")
OMPT_BYTES = re.compile(r"\bbytes ?[:=] ?(\d{1,18})\b")
TIMER = re.compile(r"\btimerResolution ?[:=] ?(\d{1,18})\b")
TIMER_BITS = re.compile(r"\bkernelTimestampValidBits ?[:=] ?(\d{1,2})\b")
PER_SECOND = re.compile(r"DEVICE_PROPERTIES_1_2")  # these give ticks a second, others nanoseconds a tick
STATUS_FAILED = re.compile(r"_status ?[:=] ?-\d")
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
    moved_bytes: int | None = None


@dataclass(slots=True)
class Device:
    """Work of a device whose times are still to come: the call that launched it."""

    name: str
    start_ns: int
    thread: int
    is_timed: bool = False  # work of a command list may be done, and timed, several times


@dataclass(slots=True)
class Timed:
    """What a profiling event says: how long, and whether that is an error's."""

    length_ns: int
    failed: bool = False


@dataclass(slots=True)
class ThapiProcess:
    """What is told of one process."""

    facts: RankFacts
    events: EventColumns = field(default_factory=EventColumns)
    tallies: list[Tally] = field(default_factory=list)
    open: dict[int, list[Call]] = field(default_factory=dict)  # by thread
    launched: dict[str, Device] = field(default_factory=dict)  # by profiling event
    early: dict[str, Timed | None] = field(default_factory=dict)  # came before their call's end; None: in ticks
    last: dict[int, Call] = field(default_factory=dict)  # by thread: the call that ended last
    kernels: dict[str, str] = field(default_factory=dict)  # names by handle
    tick_ns: set[float] = field(default_factory=set)  # of its devices
    tick_bits: int = 64
    tasks: dict[tuple[int, str], list[tuple[str, int]]] = field(default_factory=dict)  # ITT's: by thread and domain
    marks: dict[str, str] = field(default_factory=dict)  # ITT's events: names by number
    lone_exits: int = 0
    unit_less: int = 0  # times of devices in ticks
    unended: int = 0  # tasks of ITT
    untimed: int = 0  # launches whose events were used again before they had times


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
        if layer == Layer.NVTX:
            return self._itt(process, event, at_ns, tid, payload)
        if part == "properties":
            return self._properties(process, event, payload)
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
        if call.name in KERNEL_OF:
            call.kernel = process.kernels.get(dict(MEMBER.findall(payload)).get(KERNEL_OF[call.name], ""), "")
        elif call.name in FUNCTION_NAMED:
            call.kernel = dict(MEMBER.findall(payload)).get(FUNCTION_NAMED[call.name][0], "").strip('"')
        elif MOVING.match(call.name):
            call.moved_bytes = _moved(dict(MEMBER.findall(payload)))
        stack.append(call)
        return True

    def _scope(self, process: ThapiProcess, layer: str, event: str, at_ns: int, tid: int, payload: str) -> bool:
        """OpenMP tells the beginning and the end of what it does by the same name."""
        kind = OMPT_KIND.search(payload)
        name = f"{event}:{kind[1]}" if kind else event
        if "ompt_scope_begin" in payload:
            moved = OMPT_BYTES.search(payload) if "data_op" in event else None
            call = Call(layer, name, at_ns, tid, moved_bytes=int(moved[1]) if moved else None)
            return self._enter(process, call, "")
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
        failed = result is not None and GOOD.fullmatch(result[1]) is None
        process.events.add(layer, name, call.start_ns, at_ns, "", tid, failed=failed)
        if call.moved_bytes is not None and not failed:
            self._traffic(process, name, call.moved_bytes)
        if name in FUNCTION_NAMED and call.kernel and len(process.kernels) < MOST_OPEN:
            process.kernels[dict(MEMBER.findall(payload)).get(FUNCTION_NAMED[name][1], "")] = call.kernel
        for event in call.events:
            self._launched(process, event, Device(call.kernel or name, call.start_ns, tid))
        if len(process.last) < MOST_OPEN:
            process.last[tid] = call
        return True

    def _launched(self, process: ThapiProcess, event: str, device: Device) -> None:
        if event in process.early:
            timed = process.early.pop(event)
            device.is_timed = True
            if timed is not None:
                self._on_device(process, device, timed)
        if len(process.launched) < MOST_OPEN:
            process.launched[event] = device

    def _forget(self, process: ThapiProcess, event: str) -> None:
        """A profiling event that is used again."""
        before = process.launched.pop(event, None)
        process.untimed += before is not None and not before.is_timed

    def _profiling(self, process: ThapiProcess, tid: int, event: str, payload: str) -> bool:
        """A call asks for the times of what it launches; they come later, or before it has ended."""
        members = dict(MEMBER.findall(payload))
        handle = members.get("hStart") or members.get("hEvent") or members.get("event") or ""
        if event == "event_profiling":
            self._forget(process, handle)
            stack, last = process.open.get(tid), process.last.get(tid)
            if stack:
                stack[-1].events.append(handle)
            elif last is not None:  # told after the call
                self._launched(process, handle, Device(last.kernel or last.name, last.start_ns, tid))
            return bool(stack) or last is not None
        if event != "event_profiling_results":
            return False
        length_ns = _length(members, process)
        process.unit_less += length_ns is None
        timed = None if length_ns is None else Timed(length_ns, STATUS_FAILED.search(payload) is not None)
        if handle in process.launched:
            process.launched[handle].is_timed = True
            if timed is not None:
                self._on_device(process, process.launched[handle], timed)
        elif len(process.early) < MOST_OPEN:
            process.early[handle] = timed
        return True

    def _on_device(self, process: ThapiProcess, device: Device, timed: Timed) -> None:
        """The trace has lengths on the device's clock only: as THAPI does, they begin with the call."""
        end_ns = device.start_ns + (0 if timed.failed else timed.length_ns)
        process.events.add(Layer.GPU, device.name, device.start_ns, end_ns, "0/?", device.thread, failed=timed.failed)

    def _properties(self, process: ThapiProcess, event: str, payload: str) -> bool:
        """How long a tick of a device is, and of how many bits its times are."""
        timer, bits = TIMER.search(payload), TIMER_BITS.search(payload)
        if event not in ("device", "subdevice") or timer is None or int(timer[1]) == 0:
            return False
        number = int(timer[1])
        process.tick_ns.add(1e9 / number if PER_SECOND.search(payload) else float(number))
        process.tick_bits = min(process.tick_bits, int(bits[1]) if bits and int(bits[1]) else 64)
        return True

    def _itt(self, process: ThapiProcess, event: str, at_ns: int, tid: int, payload: str) -> bool:
        """Ranges of the program: tasks lie inside each other in a domain, events by their number."""
        members = {key: value.strip('"') for key, value in MEMBER.findall(payload)}
        if event == "__itt_event_create":
            if len(process.marks) < MOST_OPEN:
                process.marks[members.get("ittResult", "")] = members.get("name_val", "")
            return True
        number = members.get("event", "")
        if event in ("__itt_task_begin", "__itt_event_start"):
            of, name = (
                members.get("domain", ""),
                f"{members.get('domain__nameA_val', '')}:{members.get('name__strA_val', '')}",
            )
            if event == "__itt_event_start":
                of, name = f"event {number}", process.marks.get(number, f"event {number}")
            begun = process.tasks.setdefault((tid, of), [])
            if len(begun) > MOST_OPEN // 100 or len(process.tasks) > MOST_OPEN:
                raise self.source.bad("ranges that never end: not a trace of THAPI")
            begun.append((name, at_ns))
            return True
        if event in ("__itt_task_end", "__itt_event_end"):
            of = members.get("domain", "") if event == "__itt_task_end" else f"event {number}"
            begun = process.tasks.get((tid, of), [])
            if not begun:
                process.lone_exits += 1
                return True
            name, start_ns = begun.pop()
            process.events.add(Layer.NVTX, name, start_ns, at_ns, "", tid, user_range=True)
            return True
        return False

    def _end_marks(self, process: ThapiProcess) -> int:
        """Events of ITT need no end: then they are marks. Tasks that have none are left out; their number."""
        unended = 0
        for (tid, of), begun in process.tasks.items():
            for name, at_ns in begun:
                if of.startswith("event "):
                    process.events.add(Layer.NVTX, name, at_ns, at_ns, "", tid, user_range=True)
                else:
                    unended += 1
            begun.clear()
        return unended

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
        for process in self.processes.values():
            process.unended = self._end_marks(process)
        active = [process for process in self.processes.values() if len(process.events) or process.tallies]
        if not active:
            raise self.source.bad("holds no call, kernel or sum of THAPI")
        # processes of which no table has anything are told of, too
        others = (process for process in self.processes.values() if not (len(process.events) or process.tallies))
        silent = [note for process in others for note in self._notes(process)]
        for place, process in enumerate(active):
            blocks = process.events.blocks()
            reading = Reading(process.facts, tallies=process.tallies, event_columns=next(blocks, {}))
            reading.notes = [*self._notes(process), *([] if place else [*silent, *self._about_file()])]
            yield reading
            for block in blocks:
                yield Reading(process.facts, continues=True, event_columns=block)

    def _notes(self, process: ThapiProcess) -> list[Note]:
        notes, where = process.events.notes(self.source), str(self.source)
        counts = {
            "calls or ranges had begun but not ended: left out": sum(map(len, process.open.values())) + process.unended,
            "ends of calls without a beginning: left out": process.lone_exits,
            "activities of the device have times in ticks of an unknown length: left out": process.unit_less,
            "device launches whose times never arrived: left out": process.untimed
            + sum(not device.is_timed for device in process.launched.values()),
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


def _moved(members: dict[str, str]) -> int | None:
    """Bytes that a call moves, of one with a shape the volume."""
    for name in MOVED:
        if re.fullmatch(r"\d{1,18}", members.get(name, "")):
            return int(members[name])
    sides = [int(members[name]) for name in SHAPE if re.fullmatch(r"\d{1,18}", members.get(name, ""))]
    return min(math.prod(sides), 2**63 - 1) if "WidthInBytes" in members and sides else None


def _length(members: dict[str, str], process: ThapiProcess) -> int | None:
    """Of work on a device, in ns; None where the trace has it in ticks of the device."""
    if "milliseconds" in members:
        text = members["milliseconds"].strip()
        return round(float(text) * 1e6) if re.fullmatch(r"\d{1,12}(?:\.\d{1,12})?", text) else None
    if "start" in members and "end" in members and "submit" in members:
        start, end = members["start"].strip(), members["end"].strip()
        if re.fullmatch(r"\d{1,19}", start) and re.fullmatch(r"\d{1,19}", end) and int(end) >= int(start):
            return int(end) - int(start)
    start, end = members.get("globalStart", "").strip(), members.get("globalEnd", "").strip()
    if len(process.tick_ns) == 1 and re.fullmatch(r"\d{1,20}", start) and re.fullmatch(r"\d{1,20}", end):
        (tick_ns,) = process.tick_ns
        return round((int(end) - int(start) & (1 << process.tick_bits) - 1) * tick_ns)
    return None


def read(source: Source) -> Iterator[Reading]:
    """A reading for each process in the trace."""
    trace = ThapiText(source)
    for line, text in source.lines():
        trace.take(line, text)
    yield from trace.readings()
