"""The rank file in Python: the twin of native/core/layout.h. Its writer is rank_file_writer.py."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = b"RANKSCPE"
VERSION = 1
BYTE_ORDER = 0x01020304
PAGE = 4096
FIRST_HEADER_BYTES = 2264  # of the first recorders of this version

Rows = npt.NDArray[np.void]


class State(IntEnum):
    RUNNING = 1
    EXITED = 2
    REPLACED = 3
    SIGNALLED = 4


class Flag(IntFlag):
    MPI_STARTED = 1
    MPI_FINALIZED = 2
    MPI_ABORTED = 4
    FORKED = 8
    FAST_EXIT = 16
    PAUSED = 32
    SINGLETON = 64
    COMMAND_CUT = 128
    MATRIX = 256
    MPI_MULTIPLE = 512
    MPI_UNKNOWN_KIND = 65536
    WENT_ON_UNRECORDED = 1048576


class TickSource(IntEnum):
    TSC = 1
    CNTVCT = 2
    MONOTONIC = 3


class RankSource(IntEnum):
    NONE = 0
    OPENMPI = 1
    PMI = 2
    PMIX = 3
    PALS = 4
    SLURM = 5
    TORCHRUN = 6
    MPI = 7
    HOROVOD = 8
    FLUX = 9
    TORCH = 10
    ONECCL = 11
    JAX = 12


class LayerNumber(IntEnum):
    MPI = 1
    CUDA_API = 2
    GPU = 3
    NVTX = 4
    NCCL = 5
    NCCL_ALGO = 6
    TORCH = 7
    GLOO = 8
    IN_RANGE_GPU = 9
    IN_RANGE_API = 10
    IN_RANGE_NVTX = 11
    ZE = 12
    OPENCL = 13
    HIP_API = 14
    ONECCL = 15
    HOROVOD = 16
    JAX = 17


IN_RANGES = (
    LayerNumber.IN_RANGE_GPU,
    LayerNumber.IN_RANGE_API,
    LayerNumber.IN_RANGE_NVTX,
)  # counted once more, by NVTX range
IN_NS = (
    LayerNumber.CUDA_API,
    LayerNumber.GPU,
    LayerNumber.NVTX,
    *IN_RANGES,
)  # layers whose times are nanoseconds of the GPU clock, not ticks


class Kind(IntEnum):
    CALL = 0
    PROGRESS = 1


class ChunkKind(IntEnum):
    STRINGS = 1
    TALLIES = 2
    LOG = 3
    GROUPS = 4
    PEERS = 5
    THREADS = 6
    UNWRAPPED = 7
    CUDA = 10
    DEVICES = 11
    TRACE = 12
    STEPS = 13
    MARKS = 14
    MODULES = 15
    SYSTEM_CALLS = 16
    PATHS = 17
    DEVICE_STEPS = 18
    WINDOWS = 19
    STEP_FLOPS = 20
    GPUS = 21
    POWER = 22
    ALLOCATOR = 23
    MESSAGES = 24
    OVERWRITTEN = 25
    RUNTIMES = 26
    NOTES = 27
    STEP_BLOCKS = 28


WAITED_SHIFT = 8  # of call_ticks, with the flag WAITED


class CollectiveFlag(IntFlag):
    NONBLOCKING = 1
    FAILED = 2
    ENQUEUED = 4
    DEVICE = 8
    UNSIZED = 16
    WAITED = 32


class MessageFlag(IntFlag):
    RECEIVE = 1
    NONBLOCKING = 2
    FAILED = 4
    CANCELLED = 8
    COMBINED = 16


class GroupKind(IntEnum):
    COMM = 1
    WINDOW = 2
    FILE = 3
    NCCL = 4
    STREAM = 5
    DOMAIN = 6
    RANGE = 7
    PROCESS_GROUP = 8
    ONECCL = 9
    HOROVOD = 10
    WORKER = 11
    SERVED = 12


class CudaState(IntEnum):
    RECORDING = 1
    NO_LIBRARY = 2
    TOO_OLD = 3
    REFUSED = 4
    ASIDE = 5


class Backend(IntEnum):
    CUDA = 1
    ZE = 2
    OPENCL = 3
    HIP = 4


class RuntimeState(IntEnum):
    RECORDING = 1
    REFUSED = 2


class CudaApi(IntEnum):
    NONE = 0
    SYNC = 1
    ALL = 2


class TraceKeep(IntEnum):
    OLDEST = 1
    NEWEST = 2


class EventFlag(IntFlag):
    PROGRESS = 64
    FAILED = 128


EVENT_PHASE = 15  # the bits of an event's flags that are its phase


class Part(IntEnum):
    DATA = 0
    ZERO_GRAD = 1
    FORWARD = 2
    BACKWARD = 3
    OPTIMIZER = 4
    COMMUNICATION = 5
    CHECKPOINT = 6
    OTHER = 7
    COMPUTE = 8  # has members of its own in a record


class StepFlag(IntFlag):
    WARMUP = 1
    ACCUMULATED = 2
    SKIPPED = 4
    TOLD = 8
    BY_BACKWARD = 16


class Idle(IntEnum):
    LAUNCH = 0
    DATA = 1
    SYNC = 2
    GC = 3
    COMPILE = 4
    BLOCKED = 5
    CHECKPOINT = 6
    PYTHON = 7
    UNKNOWN = 8
    DEVICE = 9


class DeviceStepFlag(IntFlag):
    CUT = 1
    BY_TIME = 2
    NO_WAITS = 4


class Precision(IntEnum):
    FP64 = 0
    FP32 = 1
    TF32 = 2
    FP16 = 3
    BF16 = 4
    FP8 = 5
    INT8 = 6
    OTHER = 7


class FlopsFlag(IntFlag):
    COMPILED = 1
    GRAPHS = 2


class MarkKind(IntEnum):
    INTERPRETER = 1
    IMPORT_BEGIN = 2
    IMPORT_END = 3
    INIT_BEGIN = 4
    INIT_END = 5
    FIRST_COLLECTIVE_BEGIN = 6
    FIRST_COLLECTIVE_END = 7
    FIRST_STEP_BEGIN = 8
    FIRST_STEP_END = 9
    FINALIZE = 10
    OBSERVER = 11
    CUDA_CONTEXT = 12
    NCCL_BEGIN = 13
    XLA = 14


class ImportsMode(IntEnum):
    OFF = 0
    TIME = 1
    CALLS = 2
    PATHS = 3


class CallsMethod(IntEnum):
    NONE = 0
    DISPATCH = 1
    PRELOAD = 2


class ModuleFlag(IntFlag):
    ENDED = 1
    FAILED = 2


class Cause(IntEnum):
    INTERPRETER = 0
    SEARCH = 1
    CODE = 2
    MODULE = 3
    LOADER = 4


class Operation(IntEnum):
    STAT = 1
    OPEN = 2
    ACCESS = 3
    READLINK = 4
    LIST = 5
    EXEC = 6


class GroupFlag(IntFlag):
    INTER = 1
    GUESSED = 2


def _structure(*fields: str) -> np.dtype[Any]:
    """A dtype with C's own alignment, from "type name name ..." lines (type as numpy writes it)."""
    members: list[tuple[str, Any]] = []
    for line in fields:
        code, *names = line.split()
        members += [(name, _NESTED.get(code, code)) for name in names]
    return np.dtype(members, align=True)


_NESTED: dict[str, Any] = {}
ANCHOR = _NESTED["anchor"] = _structure("u8 ticks monotonic_ns realtime_ns")
FACTS = _NESTED["facts"] = _structure(
    "u4 seq threads",
    "anchor anchor",
    "u8 user_ns system_ns max_rss_bytes",
    "u8 voluntary_switches involuntary_switches minor_faults major_faults",
)
HEADER = _structure(
    "S8 magic",
    "u4 version byte_order header_bytes page_bytes",
    "u8 bound_bytes used_bytes reserved_bytes",
    "u4 state flags",
    "i4 exit_code abort_code",
    "u4 end_signal phase",
    "i4 pid parent_pid rank local_rank world_size",
    "u4 rank_source launcher_world_size cpus_allowed",
    "u8 started_realtime_ns start_jiffies",
    "u4 tick_source mpi_threads_level",
    "anchor loaded",
    "facts facts",
    "u8 setup_ticks call_cost_milliticks collective_cost_milliticks",
    "u8 mpi_started_ticks mpi_finalized_ticks ended_ticks",
    "u8 lost_calls lost_ticks lost_strings folded_groups untracked_requests lost_peers",
    "u8 log_capacity log_written threads_seen forks_seen paused_calls",
    "S64 host",
    "S32 rankscope_version",
    "S256 executable mpi_library mpi_version",
    "V1024 command",
    "u8 trace_capacity trace_written",
    "(16,)u8 trace_events",
    "u8 trace_cost_milliticks",
    "u4 trace_keep steps_cost_kiloticks",
    "u4 imports_mode calls_method calls_note loader_calls",
    "u8 lost_modules lost_system_calls lost_paths",
    "u8 boot_id pid_namespace",
    "i4 ancestor_pid",
    "u4 attempt",
    "u8 short_processes short_failed short_cpu_ns runnable_ns",
    "u8 lost_messages lost_envelopes",
    "u8 reaped_ticks",
)
CHUNK = _structure("u4 kind thread chunk_bytes row_bytes rows first_id", "V40 reserved")
TALLY = _structure(
    "u2 name group",
    "u1 layer phase size_class kind",
    "u4 seq errors",
    "u8 calls bytes total_ticks min_ticks max_ticks",
    "f8 sum_squares_ticks2",
)
COLLECTIVE = _structure(
    "u8 enter_ticks end_ticks bytes",
    "u4 sequence number call_ticks",
    "i4 root",
    "u2 name group thread",
    "u1 phase flags",
)
MESSAGE = _structure(
    "u8 number begin_ticks end_ticks bytes",
    "i4 peer tag",
    "u2 name group",
    "u1 layer phase size_class flags",
    "u8 waited_ticks",
    "i4 source source_tag",
)
OVERWRITTEN = _structure("i4 peer tag", "u8 key", "i8 messages")
NOTE = _structure("u2 text is_warning")
GROUP = _structure(
    "u8 handle identity",
    "u4 size my_rank remote_size",
    "u2 parent name",
    "u4 kind flags",
    "u8 collectives created_ticks freed_ticks",
)
PEER = _structure("u4 world_rank seq", "u8 calls bytes")
THREAD = _structure(
    "u4 slot tid", "u8 first_ticks", "S16 name", "u8 call call_ticks", "i4 call_tag", "u4 reserved", "u8 reserved_too"
)
CUDA = _structure(
    "u4 cupti_version state api",
    "u2 library note",
    "u8 records buffers dropped instants unfinished other_kinds",
    "u8 open_ranges lost_ranges folded_ranges folded_streams",
    "u8 started_ticks started_ns flushed_ticks flushed_ns pinned_bytes pinned_peak_bytes",
    "u8 unattributed unplaced_calls late_markers folded_nodes folded_work",
    "u8 unified cpu_faults started_width_ticks flushed_width_ticks",
    "u8 windows window_begin_ns window_ns seen_steps window_millisteps costs",
    "i8 cost_ppm cost_error_ppm",
    "u8 spent_ns switching_ns calls_begin_ns",
)
RUNTIME = _structure(
    "u4 backend state",
    "u2 library version note reserved",
    "u8 launched timed untimed host_bytes host_peak_bytes shared_bytes shared_peak_bytes",
)
DEVICE = _structure(
    "u4 device seq",
    "u8 activities first_ns last_ns busy_ns compute_ns communication_ns copy_ns hidden_ns late late_ns",
    "u8 allocations releases allocated_bytes released_bytes current_bytes peak_bytes",
    "(8,)u8 gaps gap_ns",
    "u8 pool_bytes pool_peak_bytes pool_allocations pool_releases pool_used_bytes pool_used_peak_bytes",
    "u8 migrated_in_bytes migrated_out_bytes migrations migration_ns gpu_faults watched_ns",
)
EVENT = _structure(
    "u8 start_ticks bytes",
    "u4 duration_low mark",
    "u2 name group thread",
    "u1 layer flags",
)
LAP = 1 << 16  # of a mark: what one lap adds to it; laps count from 1, and anything less is no finished record
LAPS = 0xFFFF
MOST_DURATION = (1 << 48) - 1
STEP = _structure(
    "u4 number flags",
    "u8 begin_ticks end_ticks",
    "(8,)f4 part_ticks blocked_ticks",
    "f4 progress_ticks covered_ticks gc_ticks cpu_ns process_cpu_ns runnable_ns",
    "u8 collective_bytes",
    "u4 collectives gc_runs minor_faults major_faults voluntary_switches involuntary_switches",
    "u4 process_involuntary_switches",
    "u2 backwards optimizer_steps",
    "f4 compute_ticks blocked_compute_ticks",
)
STEP_BLOCK = _structure(
    "u4 seq first steps saved",
    "u8 begin_ticks end_ticks",
    "f4 least_ticks quarter_ticks median_ticks three_quarters_ticks most_ticks",
    "u4 long_steps",
    "f4 long_ticks",
    "(9,)f4 own_ticks",
    "f4 exposed_ticks covered_ticks checkpoint_ticks gc_ticks cpu_ns process_cpu_ns runnable_ns",
    "u4 flags",
)
DEVICE_STEP = _structure(
    "u4 number",
    "u2 device flags",
    "u8 begin_ns end_ns copy_bytes pageable_bytes",
    "f4 compute_ns hidden_ns exposed_ns copy_ns",
    "(10,)f4 idle_ns",
    "f4 kernel_ns sync_ns",
    "u4 kernels copies sync_calls reserved",
)
WINDOW = _structure(
    "u8 number begin_ns end_ns millisteps kernels kernel_ns steps step_ns bare_steps bare_step_ns",
)
STEP_FLOPS = _structure(
    "u4 number",
    "i2 device",
    "u2 flags",
    "u4 operators unseen",
    "u2 unseen_name",
    "(3,)u2 reserved",
    "(8,)u8 flops recomputed_flops",
)
GPU = _structure(
    "u4 device seq",
    "u2 name note",
    "u4 multiprocessors",
    "u8 memory_bytes",
    "V16 uuid",
    "u8 samples first_ticks first_energy_mj last_ticks last_energy_mj",
)
POWER = _structure("u8 number ticks energy_mj", "u4 device sm_mhz temperature_c processes")
ALLOCATOR = _structure(
    "u4 number device",
    "u8 ticks allocated_bytes allocated_peak_bytes reserved_bytes reserved_peak_bytes split_bytes retries ooms",
)
MARK = _structure("u8 ticks", "u2 kind name", "u4 reserved")
MODULE = _structure(
    "u4 parent",
    "u2 name thread",
    "u4 flags shared_objects",
    "u8 begin_ticks wall_ticks self_wall_ticks cpu_ns self_cpu_ns",
)
SYSTEM_CALL = _structure("u8 key calls failed missing ticks bytes")
PATH = _structure("u4 record_bytes path_bytes module", "u1 cause operation", "u2 result", "u8 times size_bytes")

STRUCTURES: dict[str, np.dtype[Any]] = {
    "rs_anchor": ANCHOR,
    "rs_facts": FACTS,
    "rs_header": HEADER,
    "rs_chunk": CHUNK,
    "rs_tally": TALLY,
    "rs_collective": COLLECTIVE,
    "rs_message": MESSAGE,
    "rs_overwritten": OVERWRITTEN,
    "rs_note_row": NOTE,
    "rs_group": GROUP,
    "rs_peer": PEER,
    "rs_thread_row": THREAD,
    "rs_cuda": CUDA,
    "rs_runtime": RUNTIME,
    "rs_device": DEVICE,
    "rs_event": EVENT,
    "rs_step": STEP,
    "rs_step_block": STEP_BLOCK,
    "rs_device_step": DEVICE_STEP,
    "rs_window": WINDOW,
    "rs_step_flops": STEP_FLOPS,
    "rs_gpu": GPU,
    "rs_power": POWER,
    "rs_allocator": ALLOCATOR,
    "rs_mark": MARK,
    "rs_module": MODULE,
    "rs_system_call": SYSTEM_CALL,
    "rs_path": PATH,
}


def whole_pages(size_bytes: int, page_bytes: int = PAGE) -> int:
    """The size rounded up to whole pages."""
    return -(-size_bytes // page_bytes) * page_bytes


def string_bytes(length: int) -> int:
    """What a string takes in its chunk: its length, its bytes, a \\0, padding to a multiple of 4."""
    return 4 + length // 4 * 4 + 4


def size_class(size_bytes: int) -> int:
    """The class of a message size: 0 for 0 bytes, 1 for 1, k >= 2 for (2^(k-2), 2^(k-1)]."""
    return size_bytes if size_bytes < 2 else (size_bytes - 1).bit_length() + 1
