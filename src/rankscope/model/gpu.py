"""What is known of the GPUs of a process: their steps, sums, pauses, energy and memory."""

from __future__ import annotations

from dataclasses import dataclass

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "other")


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
    idle_launch_ns: int  # idle because the host launches too slowly
    idle_data_ns: int  # the host waits for the data loader
    idle_sync_ns: int  # the host is in a call that waits for the device
    idle_gc_ns: int  # garbage collection of Python
    idle_compile_ns: int  # torch compiles
    idle_blocked_ns: int  # the host is blocked in a collective
    idle_checkpoint_ns: int
    idle_python_ns: int  # the host is outside all parts of the step
    idle_unknown_ns: int
    idle_device_ns: int  # gaps under 3 µs, in which the device starts the next kernel
    kernels: int  # that it launched
    kernel_ns: int  # of those, summed
    copies: int  # copies and memsets that it launched
    copy_bytes: int
    pageable_bytes: int  # of copy_bytes: from or to pageable memory of the host
    sync_calls: int  # calls of the step's thread that wait for the device
    sync_ns: int  # inside them
    cut: bool = False  # the device's time is not known back to the beginning of the step
    by_time: bool = False  # launching calls were not recorded: work belongs to the step in which it began


@dataclass(slots=True)
class DeviceTotals:
    """One GPU of a process, summed up while the program ran."""

    device: int  # its number in the process
    activities: int = 0  # kernels, copies and memsets
    span_ns: int | None = None  # from the start of the first activity to the end of the last; None: there was none
    busy_ns: int | None = None  # at least one activity under way; None as above, as for the next four
    compute_ns: int | None = None  # at least one kernel that computes
    communication_ns: int | None = None  # at least one kernel that communicates
    copy_ns: int | None = None  # at least one copy or set
    hidden_ns: int | None = None  # of communication_ns: while a kernel computes
    late_ns: int = 0  # of activities that were delivered too late to be placed: each time lacks at most this
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
    migrated_in_bytes: int | None = 0  # unified memory, to the device; None if CUPTI refused to count, as below
    migrated_out_bytes: int | None = 0  # to the host
    migrations: int | None = 0
    migration_ns: int | None = 0
    gpu_faults: int | None = 0  # groups of page faults


@dataclass(slots=True)
class DeviceGaps:
    """Idle gaps of a GPU, of one class of length."""

    device: int
    least_ns: int  # none is shorter
    below_ns: int | None  # all are shorter than this; None: no limit
    gaps: int
    idle_ns: int  # in all of them


@dataclass(slots=True)
class GpuRecording:
    """How much of the time a process's GPUs were recorded, and what that cost it."""

    windows: int  # recording windows that have ended; 0: everything was recorded
    recorded_ns: int
    watched_ns: int  # from the beginning of the first window to the end of the process
    seen_steps: int  # of the process since recording began, without the first
    recorded_steps: float  # of them, those in which the GPUs were recorded, fractions of steps included
    costs: int  # how often recorded steps were compared with unrecorded ones around them
    cost: float | None  # how much longer recorded steps are, as a share: median of these; None: not measured
    cost_error: float | None  # its standard error
    spent_ns: int | None  # what all recording has cost, assumed where there are no steps; None: not measured
    work_error: float | None  # standard error of kernel time per step, over windows, as a share; None: too few


@dataclass(slots=True)
class StepFlops:
    """What the operators of one sampled step compute on one device, in numbers of one precision."""

    number: int  # of the step, as in `steps`
    device: int  # its number in the process; -1: the CPU
    precision: str  # one of PRECISIONS; "" where nothing was counted
    flops: int  # a multiply-add counts as two
    recomputed_flops: int  # of them: forward recomputed inside backward
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
    uuid: str = ""  # the same in all processes that use it
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    samples: int = 0  # of its energy counter
    first_ns: int | None = None  # Unix time of the first sample, then of the last
    last_ns: int | None = None
    energy_mj: int | None = None  # between the two: of the whole device, whoever used it
    note: str = ""  # why its energy is not known


@dataclass(slots=True)
class GpuPower:
    """The energy counter of one GPU at one moment, and how it ran then."""

    device: int
    at_ns: int  # Unix time
    energy_mj: int  # since the driver was loaded
    sm_mhz: int | None = None
    temperature_c: int | None = None
    processes: int | None = None  # that compute on it, as far as the driver shows them


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
    ooms: int  # so far: it failed even then


@dataclass(slots=True)
class GpuClock:
    """The clock of a process's GPU records against its host's, as it was read first and last."""

    first_offset_ns: float  # how far it was ahead
    first_error_ns: float | None = None  # half of the time the reading took; None if not recorded
    last_offset_ns: float | None = None  # None: read only once
    last_error_ns: float | None = None
    span_ns: int | None = None  # between both
