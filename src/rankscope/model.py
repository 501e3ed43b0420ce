"""The waist of rankscope: what readers give, what analyses ask, what reports show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Literal, Protocol


# ---------------------------------------------------------------------------------------------------------------------
# What is known of imports: the records behind the tables modules, system_calls, paths, calls_method and mounts.
@dataclass(slots=True)
class Module:
    """One import of a Python module."""

    module: int  # from 1 in the order of their beginnings; 0 stands for the interpreter itself
    parent: int  # the module that imports it
    name: str
    thread: int
    begin_ns: int  # since the process started
    wall_ns: int  # imports inside included; to the last sign of life where it did not end
    self_wall_ns: int  # imports inside left out
    cpu_ns: int  # of the importing thread
    self_cpu_ns: int
    failed: bool  # it raised
    shared_objects: int  # loaded meanwhile, imports inside left out
    ended: bool = True


@dataclass(slots=True)
class SystemCalls:
    """Calls of one kind by one module for one cause to one file system."""

    module: int
    cause: str  # search, code, module, loader or interpreter
    call: str  # as strace prints it
    mount: str  # the mount point, "" where the call names no file
    calls: int
    failed: int
    missing: int  # of the failed ones: ENOENT
    total_ns: int
    bytes: int  # returned by reads


@dataclass(slots=True)
class PathUse:
    """One path that a module asked for."""

    module: int
    cause: str
    operation: str
    path: str
    result: str  # ok, or the name of the error
    times: int
    bytes: int  # size of the file where it was opened


@dataclass(slots=True)
class CallsMethod:
    """How the system calls of a process were seen."""

    method: str
    note: str  # why not better
    seen_share: float | None  # of all calls, where that is known
    lost_calls: int = 0
    lost_paths: int = 0
    lost_modules: int = 0
    loader_calls: int = 0  # counted in a second start of the dynamic loader


@dataclass(slots=True)
class Mount:
    """A file system that a process used."""

    mount: str
    fs_type: str


# ---------------------------------------------------------------------------------------------------------------------
# What is kept of the events of one process so that questions over all ranks need not look at them again.
@dataclass(frozen=True, slots=True)
class ActivitySum:
    """The GPU activities of one name."""

    name: str
    calls: int
    total_ns: int
    min_ns: int
    max_ns: int
    deviations_ns2: float  # sum of squared differences from the mean


@dataclass(frozen=True, slots=True)
class DeviceSum:
    """How long one GPU was busy, with what: lengths of unions of intervals."""

    device: str
    span_ns: int
    busy_ns: int
    compute_ns: int
    comm_ns: int
    copy_ns: int  # copies and memsets
    compute_or_comm_ns: int


@dataclass(frozen=True, slots=True)
class GapSum:
    """The pauses of one stream that have one cause."""

    place: int  # streams in the order in which they are first seen
    stream: str
    cause: str
    gaps: int
    idle_ns: int
    median_ns: float
    max_ns: int


@dataclass(frozen=True, slots=True)
class RangeSum:
    """The ranges of one name on all threads (or streams) of a process."""

    layer: str
    domain: str
    name: str
    calls: int
    total_ns: int
    own_ns: int  # while it is the one begun last of those that go on
    min_ns: int
    max_ns: int
    activities: int | None  # launched inside; None where launches are not known
    own_activities: int | None
    gpu_ns: int | None
    own_gpu_ns: int | None


TRACE_TABLES: dict[str, type] = {
    "activity_sums": ActivitySum,
    "device_sums": DeviceSum,
    "gap_sums": GapSum,
    "range_sums": RangeSum,
}


# ---------------------------------------------------------------- model
Cell = str | int | float | bool | None

PHASES = ("start", "imports", "init", "first_collective", "first_step", "steady", "finalize")

INSIDE = "\x1f"  # between a range and the one inside it, where RangeTally.within names both

MARKS = (
    "process_start",
    "interpreter",
    "import_begin",
    "import_end",
    "cuda_begin",
    "gpu_begin",
    "init_begin",
    "init_end",
    "first_collective_begin",
    "first_collective_end",
    "first_step_begin",
    "first_step_end",
    "finalize",
    "observer",
    "end",
)


class Word(str, Enum):
    """A word that stands as it is in SQL, JSON, CSV and Parquet (StrEnum, which Python 3.10 has not)."""

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, form: str) -> str:
        return format(str(self.value), form)


class Layer(Word):
    """Where a counted thing or an event comes from; readers may bring words of their tool that are not among these."""

    MPI = "mpi"
    NCCL = "nccl"
    NCCL_ALGO = "nccl_algo"  # NCCL's operations once more, by algorithm and protocol
    GLOO = "gloo"
    TORCH = "torch"
    NVTX = "nvtx"
    CUDA_API = "cuda_api"
    HIP_API = "hip_api"
    XPU_API = "xpu_api"
    GPU = "gpu"  # kernels, copies and memsets
    GPU_RANGE = "gpu_range"
    GPU_SYNC = "gpu_sync"
    MEMORY = "memory"  # traffic of all backends, by iprof
    ZE = "ze"
    OPENCL = "opencl"
    OMP = "omp"
    CXI = "cxi"
    HOST = "host"
    HOROVOD = "horovod"
    PYTHON = "python"
    IMPORT = "import"
    STEP = "step"  # single ones, of a profiler's schedule
    STEPS = "steps"  # sums that a program has printed
    IO = "io"
    OS = "os"
    CALLS = "calls"  # system calls
    SIGNALS = "signals"


COLLECTIVE_LAYERS = (Layer.MPI, Layer.NCCL, Layer.GLOO)  # whose collectives are logged one by one
API_LAYERS = (Layer.CUDA_API, Layer.HIP_API, Layer.XPU_API)  # calls that launch work on a GPU


class Role(Word):
    """What a process is in its run; those of further jobs in one file are called `job N`."""

    RANK = "rank"
    HELPER = "helper"  # a child of a rank
    LAUNCHER = "launcher"
    SUMMARY = "summary"  # what another rank's file tells of a rank that has one of its own
    OTHER = "other"  # a rank of another job
    DOCUMENT = "document"


PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "other")


def sql_list(words: Iterable[str]) -> str:
    """The words as SQL wants them behind IN."""
    return "(" + ", ".join(f"'{word}'" for word in words) + ")"


Ending = Literal["exited", "signalled", "aborted", "replaced", "running", "vanished", "unknown"]


@dataclass(slots=True)
class RankFacts:
    """One process of a job: who it was, how it ran, how it ended, and what was not seen of it."""

    host: str = ""
    pid: int | None = None
    parent_pid: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    rank_source: str = ""
    role: str = Role.RANK  # rank, helper (of a rank), launcher, summary, other (a rank of another job), document
    command: str = ""
    executable: str = ""
    tool: str = ""  # the format of the file this came from; empty: recorded by rankscope
    started_ns: int | None = None  # Unix time
    ended_ns: int | None = None  # Unix time; of a running process: when it was last heard of
    elapsed_ns: int | None = None  # from process start to end (or last sign of life)
    ending: Ending = "unknown"
    exit_code: int | None = None
    end_signal: int | None = None
    finalized: bool | None = None  # MPI_Finalize was reached; None where there was no MPI
    mpi_elapsed_ns: int | None = None  # from the return of MPI_Init to the entry of MPI_Finalize (or the end)
    phase: str = ""
    cpus_allowed: int | None = None
    threads: int | None = None
    user_ns: int | None = None
    system_ns: int | None = None
    runnable_ns: int | None = None  # its first thread could have run and had no CPU; None where no kernel counts it
    max_rss_bytes: int | None = None
    pinned_peak_bytes: int | None = None  # the most of the host's memory that CUDA held pinned
    unified_faults: int | None = None  # of the host, on unified memory; None where CUPTI refused to tell
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    switches: int | None = None  # where only the sum of both is known
    minor_faults: int | None = None
    major_faults: int | None = None
    cpu: int | None = None  # where it was seen to run
    devices: str = ""
    versions: str = ""  # "name version; name version"
    source: str = ""  # the file this came from
    second_hand: bool = False  # told by another rank's file: this rank's own file, where there is one, goes before it
    job: str = ""  # which one, in a file that holds the profiles of several; "" for the first
    setup_ns: int | None = None  # what loading the recorder cost this process
    call_cost_ns: float | None = None  # calibrated cost of one tallied call
    collective_cost_ns: float | None = None  # calibrated cost of one logged collective
    steps_cost_ns: int | None = None  # measured: asking the system at the ends of steps, all of them
    lost_calls: int = 0  # calls for which the file had no room left
    lost_ns: int = 0
    overwritten_events: int = 0  # log records overwritten by newer ones
    overwritten_messages: int = 0  # records of point-to-point messages likewise
    torn_rows: int = 0  # rows caught in the middle of an update by a kill: off by at most one call
    untracked_requests: int = 0
    folded_groups: int = 0
    lost_strings: int = 0
    paused_calls: int = 0
    lost_trace_events: int = 0  # events that a full trace has not, or no longer
    short_processes: int = 0  # descendants that had nothing to tell and left no file
    short_failed: int = 0  # of them: ended by a signal or with a status other than 0
    short_cpu_ns: int = 0  # CPU time of those that no signal ended
    ancestor_pid: int | None = None  # the nearest ancestor that had a file when this one was made
    steps_from: str = ""  # what tells the steps of a loaded trace: questions/steps/traced.py; "": recorded, or none


@dataclass(slots=True)
class Tally:
    """One counted thing, told once: what is inside ranges is told again in range_tallies, and nowhere here."""

    layer: str  # mpi, nccl, gloo, torch, nvtx, cuda_api, gpu, …; of another tool maybe its own word
    name: str
    calls: int | None  # None where a damaged source does not tell it
    total_ns: float | None  # likewise
    group: str = ""  # communicator, device, domain
    size_class: int | None = None  # see docs/reference/metrics.md; None where sizes do not apply
    phase: str = ""
    kind: str = "call"  # "call": time inside the call; "progress": from start to completion
    thread: int = 0
    min_ns: float | None = None
    max_ns: float | None = None
    sum_squares_ns2: float | None = None
    bytes: int | None = None
    errors: int = 0
    large_count: bool = False  # called by MPI's function for large counts (MPI_Allreduce_c), the same routine


@dataclass(slots=True)
class RangeTally(Tally):
    """What was counted inside a range: a part of what stands in tallies, there or as the range around it."""

    within: str = ""  # the ranges around it, outermost first; "" of what is itself the outermost


@dataclass(slots=True)
class Event:
    """One thing at one time."""

    layer: str
    name: str
    start_ns: int  # Unix time
    end_ns: int | None  # None while it goes on
    group: str = ""
    sequence: int | None = None
    bytes: int | None = None
    correlation: int | None = None
    phase: str = ""
    thread: int = 0
    root: int | None = None
    call_ns: int | None = None  # nonblocking operations: time inside the starting call and the one that waited
    dtype: str = ""  # of a collective's elements
    kind: str = "call"  # as of a tally: a "progress" event lasts from the start of an operation to its completion
    failed: bool = False


@dataclass(slots=True)
class MessageEnd:
    """One end of a point-to-point message: a send or a receive."""

    layer: str
    name: str
    kind: str  # "send" or "receive"
    group: str
    peer: int | None  # rank in the group of who is at the other end; None: any, and not told yet
    tag: int | None
    number: int | None  # from 1, in its envelope (group, sender, receiver, tag), by order of posting; None: in doubt
    doubt: str  # why its number is not known
    begin_ns: int  # Unix time: the call that posted it
    end_ns: int | None  # its completion; None while it is under way
    waited_ns: int | None = None  # nonblocking: time inside the call that completed it, None: from begin to end
    bytes: int = 0
    phase: str = ""
    thread: int = 0
    posted: int = 0  # its place in the order in which its thread has posted sends and receives


@dataclass(slots=True)
class Step:
    """One step of a training loop on one process. Its parts add up to end_ns - begin_ns: docs/reference/steps.md."""

    number: int  # from 1
    begin_ns: int  # Unix time
    end_ns: int
    data_ns: int  # parts, by the thread that runs the loop
    zero_grad_ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    communication_ns: int  # blocked in collectives outside the other parts
    checkpoint_ns: int
    other_ns: int
    blocked_data_ns: int  # of each part: blocked in collectives
    blocked_zero_grad_ns: int
    blocked_forward_ns: int
    blocked_backward_ns: int
    blocked_optimizer_ns: int
    blocked_communication_ns: int
    blocked_checkpoint_ns: int
    blocked_other_ns: int
    exposed_ns: int  # sum of the blocked ones
    hidden_ns: int  # a collective was in progress and the loop was not blocked by it
    covered_ns: int  # at least one collective in progress
    progress_ns: int  # collectives in progress, summed
    gc_ns: int  # garbage collection of Python, within the parts
    cpu_ns: int  # CPU time of the thread
    process_cpu_ns: int
    runnable_ns: int  # the thread could have run and had no CPU
    collectives: int
    collective_bytes: int
    gc_runs: int
    minor_faults: int  # of the thread
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    process_involuntary_switches: int
    backwards: int  # micro-batches
    optimizer_steps: int
    warmup: bool  # one of the first two
    accumulated: bool  # more backward runs than optimizer steps
    skipped: bool  # a gradient scaler left out an optimizer step
    told: bool  # its end was told by rankscope.step()


@dataclass(slots=True)
class Operation:
    """One operation of a training step on one rank, where a source tells them one by one."""

    step: int  # its number, as in `steps`
    kind: str  # what the source calls it: forward-compute, forward-send, grads-reduce-scatter, …
    role: str  # compute, send, receive or collective
    start_ns: int  # as of an event
    end_ns: int
    group: str = ""  # of a collective: equal on every member; "": nobody else takes part
    peer: int = -1  # of a message: the other rank; -1: none known
    stage: int = -1  # of the pipeline; -1 where the source does not tell it, as of all below
    data_rank: int = -1  # data-parallel
    tensor_rank: int = -1  # tensor-parallel
    chunk: int = -1  # of the model, where a stage has several
    micro_batch: int = -1
    sequence: int = -1  # of its kind in the step


@dataclass(slots=True)
class Mark:
    """The first moment of its kind in a process: where one phase ends and the next begins."""

    name: str  # one of MARKS
    at_ns: int  # Unix time
    what: str = ""  # the function that began or ended, or how torch is observed


@dataclass(slots=True)
class Group:
    """One communicator, window, file, device or domain of a process."""

    name: str
    identity: str = ""  # equal on every member
    kind: str = "communicator"
    size: int | None = None
    my_rank: int | None = None  # of a thread: its number in the kernel
    collectives: int = 0
    guessed: bool = False
    freed: bool = False


@dataclass(slots=True)
class Peer:
    """Point-to-point traffic from this rank to another."""

    world_rank: int
    calls: int
    bytes: int


@dataclass(slots=True)
class DeviceStep:
    """One step as one GPU saw it: compute, exposed, copy and the idle times add up to end_ns - begin_ns."""

    number: int  # of the step, as in `steps`
    device: int  # its number in the process
    begin_ns: int  # Unix time; where the last kernel that the step before had launched ended
    end_ns: int  # where its own last kernel ended
    compute_ns: int  # at least one kernel that computes
    overlapped_ns: int  # of compute_ns: a kernel that communicates, too
    exposed_ns: int  # a kernel communicates and none computes
    copy_ns: int  # copies and memsets alone
    idle_launch_ns: int  # nothing to do, because the host computes and launches too slowly
    idle_data_ns: int  # the host waits for the data loader
    idle_sync_ns: int  # the host is in a call that waits for the device
    idle_gc_ns: int  # garbage collection of Python
    idle_compile_ns: int  # torch compiles
    idle_blocked_ns: int  # the host is blocked in a collective
    idle_checkpoint_ns: int
    idle_python_ns: int  # the host is outside all parts of the step
    idle_unknown_ns: int
    idle_device_ns: int  # pauses under 3 µs: the device takes them to start the next kernel
    kernels: int  # that it launched
    kernel_ns: int  # of those, summed
    copies: int  # copies and memsets that it launched
    copy_bytes: int
    pageable_bytes: int  # of copy_bytes: from or to pageable memory of the host
    sync_calls: int  # calls of the step's thread that wait for the device
    sync_ns: int  # inside them
    cut: bool = False  # the device's time was not known back to the beginning
    by_time: bool = False  # launching calls were not recorded: work belongs to the step in which it began


@dataclass(slots=True)
class DeviceTotals:
    """One GPU of a process, summed up while the program ran."""

    device: int  # its number in the process
    activities: int = 0  # kernels, copies and memsets
    span_ns: int | None = None  # from the start of the first activity to the end of the last; None: there was none
    busy_ns: int | None = None  # at least one activity under way; None as before, also of the next four
    compute_ns: int | None = None  # at least one kernel that computes
    communication_ns: int | None = None  # at least one kernel that communicates
    copy_ns: int | None = None  # at least one copy or set
    hidden_ns: int | None = None  # of communication_ns: while a kernel computes
    late_ns: int = 0  # of activities that came too late to be placed: at most this is missing in each time
    allocations: int = 0
    allocated_bytes: int = 0
    releases: int = 0
    released_bytes: int = 0
    current_bytes: int = 0  # allocated and not released
    peak_bytes: int = 0
    pool_bytes: int = 0  # held by memory pools
    pool_peak_bytes: int = 0
    pool_allocations: int = 0  # out of pools
    pool_releases: int = 0
    pool_used_bytes: int = 0
    pool_used_peak_bytes: int = 0
    migrated_in_bytes: int | None = 0  # unified memory, to the device; None where CUPTI refused to tell, also below
    migrated_out_bytes: int | None = 0  # to the host
    migrations: int | None = 0
    migration_ns: int | None = 0
    gpu_faults: int | None = 0  # groups of page faults


@dataclass(slots=True)
class DeviceGaps:
    """The pauses of one length in which a GPU had nothing to do."""

    device: int
    least_ns: int  # none of them is shorter,
    below_ns: int | None  # and all are shorter than this; None: however long
    gaps: int
    idle_ns: int  # in all of them


@dataclass(slots=True)
class GpuRecording:
    """How much of the time a process's GPUs were recorded, and what that cost it."""

    windows: int  # times of recording that have ended; 0: all was recorded
    recorded_ns: int
    seen_steps: int  # of the process since recording began, the first one left out
    recorded_steps: float  # of them, those of which the GPUs were recorded, with parts of steps
    costs: int  # how often recorded steps were compared with those around them that were not
    cost: float | None  # by which share recorded steps are longer, the median of these; None: not measured
    cost_error: float | None  # its standard error
    spent_ns: int | None  # what all recording has cost; None: not measured
    work_error: float | None  # standard error of kernel time a step, over windows, as a share; None: too few


@dataclass(slots=True)
class StepFlops:
    """What the operators of one sampled step compute on one device, in numbers of one precision."""

    number: int  # of the step, as in `steps`
    device: int  # its number in the process; -1: the CPU
    precision: str  # one of PRECISIONS; "" where nothing was counted
    flops: int  # two for each product that is added up
    recomputed_flops: int  # of them: forward once more, inside backward
    operators: int  # counted on this device, of any precision
    unseen: int  # operators of the step, on any device, that cannot be counted
    unseen_name: str = ""  # the first of them
    compiled: bool = False  # torch.compile was used: kernels that it generates are no operators
    graphs: bool = False  # CUDA graphs were replayed: their operators ran when they were captured


@dataclass(slots=True)
class Gpu:
    """One GPU that a process uses, and its energy between the first and the last sample."""

    device: int  # its number in the process
    name: str = ""  # as the driver gives it
    uuid: str = ""  # equal for all processes that use it
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    samples: int = 0  # of its energy counter
    first_ns: int | None = None  # Unix time of the first of them, and of the last
    last_ns: int | None = None
    energy_mj: int | None = None  # between them: of the whole device, whoever used it
    note: str = ""  # why its energy is not known


@dataclass(slots=True)
class GpuPower:
    """The energy counter of one GPU at one moment, and how it ran then."""

    device: int
    at_ns: int  # Unix time
    energy_mj: int  # since the driver was loaded
    sm_mhz: int | None = None
    temperature_c: int | None = None
    processes: int | None = None  # that compute on it, as far as the driver lets us see


@dataclass(slots=True)
class AllocatorSample:
    """The caching allocator of torch for one GPU, at the end of a step."""

    number: int  # of the step
    device: int
    at_ns: int  # Unix time
    allocated_bytes: int  # in tensors
    allocated_peak_bytes: int
    reserved_bytes: int  # taken from CUDA
    reserved_peak_bytes: int
    split_bytes: int  # of reserved: free, but in segments that are in use
    retries: int  # so far: cudaMalloc failed and the cache was emptied
    ooms: int  # so far: failed then, too


@dataclass(slots=True)
class GpuClock:
    """The clock of a process's GPU records against its host's, as it was read first and last."""

    first_offset_ns: float  # how far it was ahead
    first_error_ns: float | None = None  # half of what the reading took; None where that was not recorded
    last_offset_ns: float | None = None  # None: read once
    last_error_ns: float | None = None
    span_ns: int | None = None  # between both


@dataclass(slots=True)
class Figure:
    """One number that somebody had summed up already: of one series, at one scale."""

    series: str  # library, place, method
    name: str  # what was measured
    value: float
    unit: str  # "ns", "bytes", "count", "bytes/s", "share", …
    scale: float | None = None
    scale_name: str = ""  # "nodes", "ranks", "bytes", "batch"
    statistic: str = ""  # "min", "mean", "max", "stdev", "variance", "p50", "total"


class Severity(Enum):
    NOTE = "note"
    WARNING = "warning"


@dataclass(slots=True)
class Note:
    """Something a reader found worth saying about its input, with the place."""

    text: str
    severity: Severity = Severity.NOTE
    where: str = ""  # file, or file:line
    tool: str = ""  # the format whose reader says it; empty: about the recording


@dataclass(frozen=True, slots=True)
class PathOperation:
    """What a program asked of the file system about one path."""

    operation: str  # stat, open, access, readlink, list, exec
    path: str
    result: str = "ok"  # or the errno's name; "" where it is not known
    times: int = 1
    bytes: int = 0  # size of the file where an open succeeded


class BadFile(Exception):
    """A file that cannot be read, in one line that names the file and the place."""


class Wrong(ValueError):
    """What was asked for cannot be done, in one line."""


@dataclass(slots=True)
class Words:
    """A column of few different words: the value of row i is values[codes[i]]."""

    codes: Any  # array of int
    values: Sequence[str]


@dataclass(slots=True)
class Reading:
    """What a reader makes of one process in one file.

    Tallies, events and steps come as records or, from readers of many rows, as columns (field name to array or Words).
    Columns of events may have hints beside the fields of an event, which are not kept: docs/formats/index.md.
    A reader that streams gives a process in several readings: all but the first continue the one before.
    """

    facts: RankFacts
    continues: bool = False
    tallies: list[Tally] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tally_columns: Mapping[str, Any] = field(default_factory=dict)
    range_tallies: list[RangeTally] = field(default_factory=list)
    range_tally_columns: Mapping[str, Any] = field(default_factory=dict)
    event_columns: Mapping[str, Any] = field(default_factory=dict)
    message_columns: Mapping[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    step_columns: Mapping[str, Any] = field(default_factory=dict)
    operation_columns: Mapping[str, Any] = field(default_factory=dict)
    device_step_columns: Mapping[str, Any] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)
    devices: list[DeviceTotals] = field(default_factory=list)
    device_gaps: list[DeviceGaps] = field(default_factory=list)
    gpu_recordings: list[GpuRecording] = field(default_factory=list)
    gpu_clocks: list[GpuClock] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    import_columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by table: model.py
    utilisation_columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # likewise


UNSIZED = -1


@dataclass(slots=True)
class Entered:
    """One collective that a rank has entered, as its log has it."""

    group: str  # identity, equal on every member
    sequence: int
    name: str
    start_ns: int  # Unix time by the rank's own clock
    end_ns: int | None  # None while it is under way
    bytes: int = 0  # UNSIZED: not known before it is over
    root: int = -1
    nonblocking: bool = False
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Calling:
    """A call in which a thread may wait for another rank, and which it has not left."""

    name: str
    since_ns: int  # Unix time by the rank's own clock
    group: str = ""  # identity, "" where it is not known
    peer: int | None = None  # rank in that group; None: none named, -1: any
    thread: int = 0
    tag: int | None = None  # of the message that it waits for; None: any, or none named
    sends: bool | None = None  # whether it waits for its own message to be taken; None: the call's name says it


@dataclass(slots=True)
class Moment:
    """One rank at one moment: what its file and, on its own host, the kernel say of it."""

    facts: RankFacts
    read_ns: int  # Unix time of the reader
    groups: list[Group] = field(default_factory=list)
    entered: list[Entered] = field(default_factory=list)  # the newest, oldest first
    calling: list[Calling] = field(default_factory=list)  # one for each thread that is in such a call
    calls: int = 0  # tallied so far, all layers
    communication_ns: float = 0.0  # inside blocking calls of MPI and collective libraries, the one under way included
    steps: int | None = None  # completed, where steps are recorded
    step_ns: float | None = None  # mean of the newest ones
    step_shares: dict[str, float] = field(default_factory=dict)  # of those: each part, and "blocked" in collectives
    device_shares: dict[str, float] = field(default_factory=dict)  # of the newest steps on its GPUs: each part
    cpu_ns: int | None = None  # user and system time so far
    state: str = ""  # the kernel's letter (R, S, D, T), "" where it cannot be asked


class Unit(Enum):
    """What a column holds: decides how a report prints it, never what it means."""

    NAME = "name"
    COUNT = "count"
    NS = "ns"
    BYTES = "bytes"
    SHARE = "share"  # 0..1
    NUMBER = "number"
    RATE = "bytes/s"


@dataclass(frozen=True, slots=True)
class Column:
    name: str  # with the unit, as in total_ns
    unit: Unit
    title: str = ""  # what a reader of the report sees
    formula: str = ""  # what it is and how it is worked out, in one sentence of Markdown; "" of plain names only


@dataclass(slots=True)
class Table:
    """What an analysis returns and all that a report sees."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: list[tuple[Cell, ...]]
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    vertical: bool = False  # few rows, each better read as a list of its columns
    verbatim: bool = False  # one column of lines that are shown as they are: another tool's layout


Summarise = Callable[[Iterable[Mapping[str, Any]]], Mapping[str, Mapping[str, Any]]]


class Tables(Protocol):
    """What an analysis is given: the tables ranks, tallies, events, steps, marks, … of store/columns.py, behind SQL."""

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> Mapping[str, Any]:
        """The same for many rows: arrays, and Words where they are text."""
        ...

    def derive(self, summarise: Summarise) -> None:
        """Make the tables of model_traces by giving the events of each process to a function; once for each run."""
        ...


def names_of(record: type) -> tuple[str, ...]:
    """The column names a record type has in the tables."""
    return tuple(f.name for f in fields(record))
