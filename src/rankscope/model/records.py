"""What readers give of a process: who it was, what was counted, logged and timed in it, and what it does now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from rankscope.model.gpu import DeviceGaps, DeviceTotals, GpuClock, GpuRecording

PHASES = ("start", "imports", "init", "first_collective", "first_step", "steady", "finalize")

INSIDE = "\x1f"  # between a range and the one inside it, where RangeTally.within names both

MARKS = (
    "process_start",
    "interpreter",
    "import_begin",
    "import_end",
    "cuda_begin",
    "cuda_context",
    "gpu_begin",
    "nccl_begin",
    "init_begin",
    "init_end",
    "first_collective_begin",
    "first_collective_end",
    "first_step_begin",
    "first_step_end",
    "finalize",
    "observer",
    "xla",
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
    ONECCL = "oneccl"
    TORCH = "torch"
    JAX = "jax"  # compiled programs, compilation, copies from and to the host
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


COLLECTIVE_LAYERS = (Layer.MPI, Layer.NCCL, Layer.GLOO, Layer.ONECCL)  # whose collectives are logged one by one
# calls that launch work on a GPU
API_LAYERS = (Layer.CUDA_API, Layer.HIP_API, Layer.XPU_API, Layer.ZE, Layer.OPENCL)


class Role(Word):
    """What a process is in its run; those of further jobs in one file are called `job N`."""

    RANK = "rank"
    HELPER = "helper"  # a child of a rank
    LAUNCHER = "launcher"
    ATTEMPT = "attempt"  # a rank of an attempt that was started anew
    SUMMARY = "summary"  # what another rank's file tells of a rank that has one of its own
    OTHER = "other"  # a rank of another job
    DOCUMENT = "document"


# stopped: by its launcher, which had done its work
Ending = Literal["exited", "signalled", "aborted", "replaced", "running", "vanished", "stopped", "unknown"]


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
    role: str = Role.RANK  # one of Role: rank, helper (of a rank), launcher, attempt (a rank of an earlier one), …
    command: str = ""
    executable: str = ""
    tool: str = ""  # the format of the file this came from; empty: recorded by rankscope
    started_ns: int | None = None  # Unix time
    ended_ns: int | None = None  # Unix time; of a running process: when it was last heard of
    elapsed_ns: int | None = None  # from process start to end (or last sign of life)
    ending: Ending = "unknown"
    reaped_ns: int | None = None  # Unix time at which its parent learned that it had ended
    exit_code: int | None = None
    end_signal: int | None = None
    finalized: bool | None = None  # MPI_Finalize was reached; None where there was no MPI
    mpi_elapsed_ns: int | None = None  # from the return of MPI_Init to the entry of MPI_Finalize (or the end)
    phase: str = ""
    cpus_allowed: int | None = None
    threads: int | None = None
    user_ns: int | None = None
    system_ns: int | None = None
    runnable_ns: int | None = None  # its first thread was runnable but had no CPU; None if the kernel does not count it
    max_rss_bytes: int | None = None
    pinned_peak_bytes: int | None = None  # peak of the host memory that CUDA held pinned
    unified_faults: int | None = None  # of the host, on unified memory; None if CUPTI refused to count
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    switches: int | None = None  # where only the sum of both is known
    minor_faults: int | None = None
    major_faults: int | None = None
    cpu: int | None = None  # where it was seen to run
    devices: str = ""
    versions: str = ""  # "name version; name version"
    source: str = ""  # the file this came from
    second_hand: bool = False  # from another rank's file; this rank's own file, if there is one, takes precedence
    job: str = ""  # which job, in a file with the profiles of several; "" for the first
    setup_ns: int | None = None  # what loading the recorder cost this process
    call_cost_ns: float | None = None  # calibrated cost of one tallied call
    collective_cost_ns: float | None = None  # calibrated cost of one logged collective
    steps_cost_ns: int | None = None  # measured: querying the system at the ends of all steps
    lost_calls: int = 0  # calls that did not fit in the file
    lost_ns: int = 0
    overwritten_events: int = 0  # log records overwritten by newer ones
    overwritten_messages: int = 0  # records of point-to-point messages likewise
    torn_rows: int = 0  # rows caught in the middle of an update by a kill: off by at most one call
    untracked_requests: int = 0
    folded_groups: int = 0
    lost_strings: int = 0
    paused_calls: int = 0
    lost_trace_events: int = 0  # events that did not fit in the trace, or were overwritten in it
    short_processes: int = 0  # descendants that had nothing to record and left no file
    short_failed: int = 0  # of them: killed by a signal, or ended with a nonzero status
    short_cpu_ns: int = 0  # CPU time of those that no signal killed
    ancestor_pid: int | None = None  # the nearest ancestor that had a file when this one was made
    attempt: int | None = None  # which start of its rank, from 1; None if only one is known
    ended_steps: int = 0  # of its training loop
    logged_collectives: int = 0  # entered so far
    worker: str = ""  # what torch RPC or Ray calls it
    steps_from: str = (
        ""  # where the steps of a loaded trace come from: questions/steps/traced.py; "": recorded, or none
    )


@dataclass(slots=True)
class Tally:
    """One counter. What lies inside ranges is counted again in range_tallies, but nowhere here."""

    layer: str  # mpi, nccl, gloo, torch, nvtx, cuda_api, gpu, …; another tool may have its own word
    name: str
    calls: int | None  # None where a damaged source lacks it
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
    """What was counted inside a range: part of what tallies has, under its own name or as the range around it."""

    within: str = ""  # the ranges around it, outermost first; "" for the outermost itself


@dataclass(slots=True)
class Event:
    """One call, kernel, range or other event, with its start and end."""

    layer: str
    name: str
    start_ns: int  # Unix time
    end_ns: int | None  # None while it is under way
    group: str = ""
    sequence: int | None = None
    bytes: int | None = None
    correlation: int | None = None
    phase: str = ""
    thread: int = 0
    root: int | None = None
    call_ns: int | None = None  # nonblocking operations: time inside the call that started it and the one that waited
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
    peer: int | None  # rank of the other end in the group; None: any, and not known yet
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
    compute_ns: int  # starting compiled programs that are whole steps, waiting for results of programs
    blocked_data_ns: int  # of each part: time blocked in collectives
    blocked_zero_grad_ns: int
    blocked_forward_ns: int
    blocked_backward_ns: int
    blocked_optimizer_ns: int
    blocked_communication_ns: int
    blocked_checkpoint_ns: int
    blocked_other_ns: int
    blocked_compute_ns: int
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
    skipped: bool  # a gradient scaler skipped an optimizer step
    told: bool  # its end was marked by rankscope.step()
    by_backward: bool = False  # it ends with a backward run: there was no optimizer yet


@dataclass(slots=True)
class StepBlock:
    """Neighbouring steps of one process, summed; every step is in a block, also those that `steps` no longer has."""

    first: int  # number of its first step
    steps: int
    saved: int  # number of its last step that wrote a checkpoint; 0: none did
    begin_ns: int  # Unix time
    end_ns: int
    least_ns: int  # shortest step
    quarter_ns: int  # a quarter of the steps are shorter; where blocks were joined: mean of theirs, by steps
    median_ns: int  # likewise
    three_quarters_ns: int  # likewise
    most_ns: int
    long_steps: int  # longer than 5/4 of the median, checkpoints left out
    long_ns: int  # what these take beyond the median, summed
    own_data_ns: int  # each part without the time blocked in collectives, summed
    own_zero_grad_ns: int
    own_forward_ns: int
    own_backward_ns: int
    own_optimizer_ns: int
    own_communication_ns: int
    own_checkpoint_ns: int
    own_other_ns: int
    own_compute_ns: int
    exposed_ns: int  # blocked in collectives; together with the parts, the length of the steps
    covered_ns: int  # at least one collective in progress
    checkpoint_ns: int  # writing checkpoints, blocked or not
    gc_ns: int
    cpu_ns: int
    process_cpu_ns: int
    runnable_ns: int
    warmup: bool  # the first two steps, a block of their own


@dataclass(slots=True)
class Operation:
    """One operation of a training step on one rank, from sources that list them one by one."""

    step: int  # its number, as in `steps`
    kind: str  # what the source calls it: forward-compute, forward-send, grads-reduce-scatter, …
    role: str  # compute, send, receive or collective
    start_ns: int  # as of an event
    end_ns: int
    group: str = ""  # of a collective: equal on every member; "": no other rank takes part
    peer: int = -1  # of a message: the other rank; -1: none known
    stage: int = -1  # of the pipeline; -1 if the source does not say, as for all below
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
    my_rank: int | None = None  # of a thread: its kernel thread id
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
class Figure:
    """One number that came summed up: of one series, at one scale."""

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


class BadFile(Exception):
    """A file that cannot be read, in one line that names the file and the place."""


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
    step_block_columns: Mapping[str, Any] = field(default_factory=dict)
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
    import_columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by table: model/imports.py
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
