/* The rank file: what lies where. docs/inside/rank-file.md draws it; src/rankscope/rank_file.py is its Python twin;
 * tests/native/core/test_layout.py holds the three together. All integers are in the byte order of the writing host. */
#ifndef RANKSCOPE_LAYOUT_H
#define RANKSCOPE_LAYOUT_H

#include <stdint.h>

#define RS_MAGIC "RANKSCPE"
#define RS_VERSION 1u
#define RS_BYTE_ORDER 0x01020304u
#define RS_PAGE 4096u
#define RS_TRACE_LAYERS 16   /* layers whose events go to the trace are numbered below it */

enum rs_state { RS_RUNNING = 1, RS_EXITED = 2, RS_REPLACED = 3, RS_SIGNALLED = 4 };

enum rs_flag {
    RS_MPI_STARTED = 1,     /* MPI_Init, MPI_Init_thread or MPI_Session_init returned */
    RS_MPI_FINALIZED = 2,   /* MPI_Finalize (or the session's) was entered */
    RS_MPI_ABORTED = 4,     /* MPI_Abort was called; abort_code holds its argument */
    RS_FORKED = 8,          /* made by fork without exec */
    RS_FAST_EXIT = 16,      /* left through _exit: no atexit handler ran */
    RS_PAUSED = 32,         /* MPI_Pcontrol(0) is in force */
    RS_SINGLETON = 64,      /* the launcher promised more ranks than MPI_COMM_WORLD has */
    RS_COMMAND_CUT = 128,   /* the command line did not fit its field */
    RS_MATRIX = 256,        /* bytes per destination were asked for */
    RS_MPI_MULTIPLE = 512,  /* MPI_THREAD_MULTIPLE was provided */
    RS_MPI_UNKNOWN_KIND = 65536, /* an MPI that is none of those we know: its calls were passed on only */
    RS_WENT_ON_UNRECORDED = 1048576     /* became a program that cannot take the recorder, from where no note could be left */
};

enum rs_tick_source { RS_TICKS_TSC = 1, RS_TICKS_CNTVCT = 2, RS_TICKS_MONOTONIC = 3 };

enum rs_rank_source {
    RS_RANK_NONE = 0, RS_RANK_OPENMPI = 1, RS_RANK_PMI = 2, RS_RANK_PMIX = 3, RS_RANK_PALS = 4,
    RS_RANK_SLURM = 5, RS_RANK_TORCHRUN = 6, RS_RANK_MPI = 7, RS_RANK_HOROVOD = 8, RS_RANK_FLUX = 9,
    RS_RANK_TORCH = 10,         /* init_process_group */
    RS_RANK_ONECCL = 11,        /* its first communicator */
    RS_RANK_JAX = 12            /* jax.distributed.initialize */
};

enum rs_phase {
    RS_PHASE_START = 0, RS_PHASE_IMPORTS = 1, RS_PHASE_INIT = 2, RS_PHASE_FIRST_COLLECTIVE = 3,
    RS_PHASE_FIRST_STEP = 4, RS_PHASE_STEADY = 5, RS_PHASE_FINALIZE = 6
};

/* Times of the CUDA API, GPU and NVTX layers are nanoseconds of the GPU clock (CUPTI's, where CUDA is used), also where
 * a field says ticks. */
enum rs_layer {
    RS_LAYER_MPI = 1, RS_LAYER_CUDA_API = 2, RS_LAYER_GPU = 3, RS_LAYER_NVTX = 4, RS_LAYER_NCCL = 5,
    RS_LAYER_NCCL_ALGO = 6,     /* the operations of NCCL once more, by algorithm and protocol */
    RS_LAYER_TORCH = 7, RS_LAYER_GLOO = 8,
    /* once more what was launched inside NVTX ranges: the group is the innermost one */
    RS_LAYER_IN_RANGE_GPU = 9, RS_LAYER_IN_RANGE_API = 10, RS_LAYER_IN_RANGE_NVTX = 11,
    RS_LAYER_ZE = 12, RS_LAYER_OPENCL = 13, RS_LAYER_HIP_API = 14,
    RS_LAYER_ONECCL = 15,
    RS_LAYER_HOROVOD = 16,      /* events of this and the next go to no trace */
    RS_LAYER_JAX = 17           /* compiled programs, compilation, copies from and to the host */
};

enum rs_kind {
    RS_KIND_CALL = 0,       /* time inside the call */
    RS_KIND_PROGRESS = 1    /* time from the start of a nonblocking operation to its completion */
};

/* One moment on three clocks: converts ticks to time. */
struct rs_anchor { uint64_t ticks, monotonic_ns, realtime_ns; };

/* Seqlock-protected (seq odd while written): the process as getrusage and the clock saw it last. */
struct rs_facts {
    uint32_t seq, threads;
    struct rs_anchor anchor;
    uint64_t user_ns, system_ns, max_rss_bytes;
    uint64_t voluntary_switches, involuntary_switches, minor_faults, major_faults;
};

struct rs_header {
    char magic[8];
    uint32_t version, byte_order;
    uint32_t header_bytes, page_bytes;
    uint64_t bound_bytes;       /* the file never grows past this */
    uint64_t used_bytes;        /* header and chunks in use; read no further */
    uint64_t reserved_bytes;    /* disk blocks reserved so far */

    uint32_t state, flags;
    int32_t exit_code, abort_code;
    uint32_t end_signal, phase;

    int32_t pid, parent_pid;
    int32_t rank, local_rank, world_size;
    uint32_t rank_source;
    uint32_t launcher_world_size;   /* what the launcher's variables said, 0 if nothing */
    uint32_t cpus_allowed;
    uint64_t started_realtime_ns;   /* process start, from /proc */
    uint64_t start_jiffies;         /* the same in the kernel's unit: tells one process from a later one of equal pid */

    uint32_t tick_source, mpi_threads_level;
    struct rs_anchor loaded;        /* when the recorder was loaded */
    struct rs_facts facts;

    uint64_t setup_ticks;           /* what loading the recorder cost */
    uint64_t call_cost_milliticks;   /* calibrated cost of one tallied call, in 1/1000 tick */
    uint64_t collective_cost_milliticks;
    uint64_t mpi_started_ticks, mpi_finalized_ticks;   /* return of init, entry of finalize; 0 if not seen */
    uint64_t ended_ticks;

    /* what did not fit: counted, never silent */
    uint64_t lost_calls, lost_ticks;        /* tallies for which the file had no row left */
    uint64_t lost_strings, folded_groups, untracked_requests, lost_peers;
    uint64_t log_capacity, log_written;     /* records the ring holds; records ever claimed */
    uint64_t threads_seen, forks_seen, paused_calls;

    char host[64];
    char rankscope_version[32];
    char executable[256];
    char mpi_library[256];
    char mpi_version[256];
    char command[1024];             /* arguments, each ended by \0 */

    uint64_t trace_capacity;        /* records the trace holds; 0: it has no room, or nothing came yet */
    uint64_t trace_written;         /* events offered to it */
    uint64_t trace_events[RS_TRACE_LAYERS];     /* the same by layer */
    uint64_t trace_cost_milliticks;
    uint32_t trace_keep;            /* which are kept where they are too many; 0: no trace was asked for */
    uint32_t steps_cost_kiloticks;  /* measured: asking the system at the ends of steps, in 1000 ticks */

    uint32_t imports_mode;          /* what was asked for: enum rs_imports_mode */
    uint32_t calls_method;          /* how system calls are seen: enum rs_calls_method */
    uint32_t calls_note;            /* string id: why not better, or why no longer */
    uint32_t loader_calls;          /* of the dynamic loader before the recorder was loaded, as far as counted */
    uint64_t lost_modules, lost_system_calls, lost_paths;   /* what had no row left */

    /* with pid and start_jiffies: whose file this is, among those of containers and of earlier boots, too */
    uint64_t boot_id;               /* the first 64 bits of the kernel's */
    uint64_t pid_namespace;         /* its inode */
    int32_t ancestor_pid;           /* of the nearest ancestor that had a file when this one was made; 0: none known */
    uint32_t attempt;               /* which restart by an elastic launcher this is, from 1; 0: not told */
    /* descendants that had nothing to tell and left no file */
    uint64_t short_processes, short_failed;     /* all; those that a signal or a status other than 0 ended */
    uint64_t short_cpu_ns;          /* CPU time of those that ended themselves */
    uint64_t runnable_ns;           /* its first thread could have run and had no CPU, when the facts were taken */
    uint64_t lost_messages;         /* point-to-point messages of threads for which there was no ring */
    uint64_t lost_envelopes;        /* overwritten ones that could not be counted by their envelope */
    uint64_t reaped_ticks;          /* when its parent learned that it had ended; 0: unknown */
};

enum rs_chunk_kind {
    RS_CHUNK_STRINGS = 1, RS_CHUNK_TALLIES = 2, RS_CHUNK_LOG = 3, RS_CHUNK_GROUPS = 4,
    RS_CHUNK_PEERS = 5, RS_CHUNK_THREADS = 6,
    RS_CHUNK_UNWRAPPED = 7,     /* u32 string ids: entry points of the loaded MPI that are not intercepted */
    RS_CHUNK_CUDA = 10, RS_CHUNK_DEVICES = 11, RS_CHUNK_TRACE = 12,
    RS_CHUNK_STEPS = 13, RS_CHUNK_MARKS = 14,
    RS_CHUNK_MODULES = 15, RS_CHUNK_SYSTEM_CALLS = 16,
    RS_CHUNK_PATHS = 17,        /* records of different sizes, like strings */
    RS_CHUNK_DEVICE_STEPS = 18, RS_CHUNK_WINDOWS = 19,
    RS_CHUNK_STEP_FLOPS = 20, RS_CHUNK_GPUS = 21, RS_CHUNK_POWER = 22, RS_CHUNK_ALLOCATOR = 23,
    RS_CHUNK_MESSAGES = 24, RS_CHUNK_OVERWRITTEN = 25,
    RS_CHUNK_RUNTIMES = 26, RS_CHUNK_NOTES = 27, RS_CHUNK_STEP_BLOCKS = 28
};

/* Chunks follow the header, each a whole number of pages, until used_bytes. */
struct rs_chunk {
    uint32_t kind;
    uint32_t thread;            /* slot that owns it (tallies, peers) */
    uint32_t chunk_bytes;       /* this header included */
    uint32_t row_bytes;         /* 0 for strings and paths */
    uint32_t rows;              /* published rows; for strings and paths: published bytes */
    uint32_t first_id;          /* id of its first string, group or module */
    uint32_t reserved[10];
};

/* A string: its length, its bytes, a \0, padding to a multiple of 4. Ids count through all string chunks; id 0 is "". */
struct rs_string { uint32_t length; char bytes[]; };

/* What a report says about this process. */
struct rs_note_row { uint16_t text; uint16_t is_warning; };     /* string id */

/* One counted thing. Written by one thread only; seq is odd while it is being written. */
struct rs_tally {
    uint16_t name;              /* string id */
    uint16_t group;             /* group id, 0 for none */
    uint8_t layer, phase, size_class, kind;
    uint32_t seq, errors;
    uint64_t calls, bytes;
    uint64_t total_ticks, min_ticks, max_ticks;
    double sum_squares_ticks2;
};

/* One collective in the ring. number is the claim (from 1, low 32 bits), 0 while the record is being set up. */
struct rs_collective {
    uint64_t enter_ticks;
    uint64_t end_ticks;         /* blocking: return; nonblocking: completion; 0: not yet */
    uint64_t bytes;
    uint32_t sequence;          /* of this collective on its group, from 1 */
    uint32_t number;
    uint32_t call_ticks;        /* nonblocking: time inside the starting call, saturated; with RS_COLL_WAITED see there */
    int32_t root;               /* -1 where there is none */
    uint16_t name, group, thread;
    uint8_t phase, flags;
};
enum rs_collective_flag {
    RS_COLL_NONBLOCKING = 1, RS_COLL_FAILED = 2,
    RS_COLL_ENQUEUED = 4,       /* end_ticks is the end of the starting call: its completion is told by nobody */
    RS_COLL_DEVICE = 8,         /* enter_ticks is its start on the device; call_ticks the time from call to start */
    RS_COLL_UNSIZED = 16,       /* under way, and its bytes are known only when it is over */
    RS_COLL_WAITED = 32         /* call_ticks is the time in the starting call and in the one that waited, >> RS_WAITED_SHIFT */
};
#define RS_WAITED_SHIFT 8

/* One send or receive of a point-to-point message, or both of a combined call, in the ring of the thread that posted it:
 * in the order of posting, which is the order in which messages of one envelope are matched. A cache line. Record n lies
 * at (n - 1) modulo the chunk's rows. */
struct rs_message {
    uint64_t number;            /* from 1 in this ring; 0: being written, or given up */
    uint64_t begin_ticks;       /* entry of the call that posted it; of a matched probe: of that */
    uint64_t end_ticks;         /* completion; 0: under way */
    uint64_t bytes;
    int32_t peer, tag;          /* rank in the group; as the program gave them until the status tells, negative: any */
    uint16_t name, group;
    uint8_t layer, phase, size_class, flags;
    uint64_t waited_ticks;      /* nonblocking: time in the call that completed it; of a combined call: bytes received */
    int32_t source, source_tag; /* of a combined call: of what was received */
};
enum rs_message_flag {
    RS_MESSAGE_RECEIVE = 1,     /* else a send */
    RS_MESSAGE_NONBLOCKING = 2,
    RS_MESSAGE_FAILED = 4,      /* whether a message was sent or taken is not known */
    RS_MESSAGE_CANCELLED = 8,   /* none was: cancelled, or from MPI_PROC_NULL */
    RS_MESSAGE_COMBINED = 16    /* MPI_Sendrecv and kin: a send, and a receive from `source`; negative: none */
};

/* How many messages of one envelope this thread's ring has given up for newer ones: a table of open addressing, key 0 is an
 * empty row. Both of combined calls are counted. */
struct rs_overwritten {
    int32_t peer, tag;          /* both INT32_MIN: of an envelope that is not known */
    uint64_t key;               /* group << 16 | (flags & RS_MESSAGE_RECEIVE) << 56 | 1 */
    int64_t messages;
};

/* One communicator, window, file, GPU stream, NVTX domain or range, process group of torch or process set of Horovod. */
struct rs_group {
    uint64_t handle;
    uint64_t identity;          /* equal on every rank of the group */
    uint32_t size, my_rank, remote_size;
    uint16_t parent, name;
    uint32_t kind;
    uint32_t flags;
    uint64_t collectives;       /* entered so far */
    uint64_t created_ticks;
    uint64_t freed_ticks;
};
enum rs_group_kind {
    RS_GROUP_COMM = 1, RS_GROUP_WINDOW = 2, RS_GROUP_FILE = 3, RS_GROUP_NCCL = 4, RS_GROUP_STREAM = 5,
    RS_GROUP_DOMAIN = 6,
    RS_GROUP_RANGE = 7,         /* a range of NVTX inside `parent`, a range or its domain; remote_size: its domain */
    RS_GROUP_PROCESS_GROUP = 8, /* of torch.distributed */
    RS_GROUP_ONECCL = 9, RS_GROUP_HOROVOD = 10,     /* a communicator; a process set */
    RS_GROUP_WORKER = 11,        /* another worker of torch RPC or Ray, which is waited for */
    RS_GROUP_SERVED = 12        /* this worker itself: what it executes for others */
};
enum rs_group_flag {
    RS_GROUP_INTER = 1,
    RS_GROUP_GUESSED = 2        /* first seen in use, its creation was not: identity is a guess */
};

/* Point-to-point traffic to one world rank (with the matrix on). Seqlocked like a tally. */
struct rs_peer {
    uint32_t world_rank, seq;
    uint64_t calls, bytes;
};

enum rs_cuda_state {
    RS_CUDA_RECORDING = 1,
    RS_CUDA_NO_LIBRARY = 2,     /* no libcupti was found */
    RS_CUDA_TOO_OLD = 3,        /* the one found is older than what is understood */
    RS_CUDA_REFUSED = 4,        /* CUPTI refused to start */
    RS_CUDA_ASIDE = 5           /* another client of CUPTI came: recorded until then */
};
enum rs_cuda_api { RS_CUDA_API_NONE = 0, RS_CUDA_API_SYNC = 1, RS_CUDA_API_ALL = 2 };

/* How CUPTI was listened to in this process: one row. */
struct rs_cuda {
    uint32_t cupti_version;     /* as CUPTI gives it, 0 where there is none */
    uint32_t state, api;
    uint16_t library, note;     /* string ids: path of libcupti; what to say about the state */
    uint64_t records, buffers;  /* delivered so far */
    uint64_t dropped;           /* records that CUPTI had no room for, as it says */
    uint64_t instants;          /* activities whose start and end are equal: counted, with no time */
    uint64_t unfinished;        /* activities without a start or an end, or ending before they start: left out */
    uint64_t other_kinds;       /* records of kinds that were not asked for */
    uint64_t open_ranges;       /* NVTX ranges begun and not ended yet, or the other way round */
    uint64_t lost_ranges;       /* NVTX ranges for which there was no room to wait for the other end */
    uint64_t folded_ranges;     /* NVTX ranges whose names were too many */
    uint64_t folded_streams;    /* activities on streams that were too many: under their device */
    uint64_t started_ticks, started_ns;     /* one moment on our clock and on CUPTI's, when recording began */
    uint64_t flushed_ticks, flushed_ns;     /* the same at the last flush */
    uint64_t pinned_bytes, pinned_peak_bytes;
    uint64_t unattributed;      /* activities in the time of ranges whose launching call is not known */
    uint64_t unplaced_calls;    /* calls for which there was no room to wait for their ranges */
    uint64_t late_markers;      /* starts and ends of ranges that came after the calls of their time were placed */
    uint64_t folded_nodes;      /* ranges that are under '(ranges of other names)' or under what is around them */
    uint64_t folded_work;       /* attributed calls and activities that are under '(other work)' */
    uint64_t unified;           /* 1: unified memory is recorded, 2: CUPTI refused that, 0: there was none */
    uint64_t cpu_faults;        /* page faults of the host on unified memory */
    uint64_t started_width_ticks, flushed_width_ticks;  /* CUPTI's moment lies at most so long before the ticks */
    uint64_t windows;           /* recording windows that have ended; 0: everything is recorded */
    uint64_t window_begin_ns;   /* of the one that goes on, on CUPTI's clock; 0: nothing is recorded now */
    uint64_t window_ns;         /* sum of those that have ended */
    uint64_t seen_steps;        /* ended since recording began, the first one left out */
    uint64_t window_millisteps; /* thousandths of steps of which the GPU was recorded, the first one left out */
    uint64_t costs;             /* how often recorded steps were compared with those not recorded around them */
    int64_t cost_ppm, cost_error_ppm;   /* how much longer the recorded ones are: median of the latest, its error */
    uint64_t spent_ns;          /* what all recording has cost this process, as far as it was measured or assumed */
    uint64_t switching_ns;      /* of it: attaching CUPTI and taking it off */
    uint64_t calls_begin_ns;    /* of earlier versions: from when on CUDA's calls were asked for, on CUPTI's clock; 0 */
};

enum rs_backend { RS_BACKEND_CUDA = 1, RS_BACKEND_ZE = 2, RS_BACKEND_OPENCL = 3, RS_BACKEND_HIP = 4 };
enum rs_runtime_state {
    RS_RUNTIME_RECORDING = 1,
    RS_RUNTIME_REFUSED = 2      /* it cannot be listened to: the note says why */
};

/* How the runtime of one vendor's devices was listened to in this process; of CUDA rs_cuda says it. Work that is neither
 * timed nor untimed was under way at the end. */
struct rs_runtime {
    uint32_t backend, state;
    uint16_t library, version, note, reserved;  /* string ids */
    uint64_t launched;          /* kernels, copies and sets that the program handed to devices */
    uint64_t timed;             /* of them: the device told when it began and ended */
    uint64_t untimed;           /* of them: it did not, or no longer when it was asked: they are in no table */
    uint64_t host_bytes, host_peak_bytes;       /* allocated on the host for devices */
    uint64_t shared_bytes, shared_peak_bytes;   /* that moves between host and devices */
};

#define RS_GAP_CLASSES 8        /* class k: shorter than 10^(3+k) ns, the last one: any */

/* One GPU as this process used it. Seqlocked like a tally. Times in ns of CUPTI's clock. */
struct rs_device {
    uint32_t device, seq;
    uint64_t activities;        /* kernels, copies and sets in the sums that follow */
    uint64_t first_ns, last_ns; /* the first start, the last end */
    uint64_t busy_ns;           /* at least one activity */
    uint64_t compute_ns, communication_ns, copy_ns;     /* at least one of this kind; copy: copies and sets */
    uint64_t hidden_ns;         /* communication while something is computed too */
    uint64_t late, late_ns;     /* came after their time was forgotten; at most this is missing in each sum */
    uint64_t allocations, releases, allocated_bytes, released_bytes, current_bytes, peak_bytes;
    uint64_t gaps[RS_GAP_CLASSES], gap_ns[RS_GAP_CLASSES];
    uint64_t pool_bytes, pool_peak_bytes;           /* held by memory pools, whether in use or not */
    uint64_t pool_allocations, pool_releases, pool_used_bytes, pool_used_peak_bytes;    /* those out of pools */
    uint64_t migrated_in_bytes, migrated_out_bytes, migrations, migration_ns;   /* unified memory, from and to hosts */
    uint64_t gpu_faults;        /* groups of its page faults */
    uint64_t watched_ns;        /* from the first start to the last end of each time of recording, summed */
};

enum rs_trace_keep { RS_KEEP_OLDEST = 1, RS_KEEP_NEWEST = 2 };

enum rs_event_flag {
    RS_EVENT_PROGRESS = 64,     /* from the start of a nonblocking operation to its completion */
    RS_EVENT_FAILED = 128
};

/* One event of the trace. Times are in the unit of its layer. */
struct rs_event {
    uint64_t start_ticks, bytes;
    uint32_t duration_low;
    uint32_t mark;              /* lap << 16 | bits 32 to 47 of the duration; laps count from 1; 1: being written */
    uint16_t name, group, thread;
    uint8_t layer, flags;       /* flags: the phase in the low 4 bits */
};

/* What a moment of a step on its own thread belongs to: these share the step out among them. */
enum rs_part {
    RS_PART_DATA = 0,           /* waiting for the data loader */
    RS_PART_ZERO_GRAD = 1, RS_PART_FORWARD = 2, RS_PART_BACKWARD = 3, RS_PART_OPTIMIZER = 4,
    RS_PART_COMMUNICATION = 5,  /* blocked in a collective outside the others */
    RS_PART_CHECKPOINT = 6, RS_PART_OTHER = 7,
    RS_PART_COMPUTE = 8         /* starting a compiled program that is a whole step, waiting for results of such */
};
#define RS_PARTS 9
#define RS_PARTS_TOGETHER 8     /* lie side by side in a record; those added since have members of their own */

enum rs_step_flag {
    RS_STEP_WARMUP = 1,         /* one of the first two */
    RS_STEP_ACCUMULATED = 2,    /* more backward runs than optimizer steps */
    RS_STEP_SKIPPED = 4,        /* a gradient scaler left out an optimizer step */
    RS_STEP_TOLD = 8,           /* its end was told by the program: rankscope.step() */
    RS_STEP_BY_BACKWARD = 16    /* it ends with a backward run: no optimizer was made until then */
};

/* One step in its ring: record n lies at (n - 1) modulo the chunk's rows. Sums are floats: nothing overflows, and they
 * are good to 1 part in 10^7. */
struct rs_step {
    uint32_t number;            /* from 1 (low 32 bits); 0 while the record is being written */
    uint32_t flags;
    uint64_t begin_ticks, end_ticks;
    float part_ticks[RS_PARTS_TOGETHER];
    float blocked_ticks[RS_PARTS_TOGETHER];      /* of the part: blocked in collectives */
    float progress_ticks;       /* collectives in progress, summed */
    float covered_ticks;        /* at least one collective in progress */
    float gc_ticks;             /* garbage collection of Python */
    float cpu_ns, process_cpu_ns;       /* CPU time of the step's thread, of the process */
    float runnable_ns;          /* the thread could have run and had no CPU */
    uint64_t collective_bytes;
    uint32_t collectives, gc_runs;
    uint32_t minor_faults, major_faults, voluntary_switches, involuntary_switches;      /* of the thread */
    uint32_t process_involuntary_switches;
    uint16_t backwards, optimizer_steps;
    float compute_ticks, blocked_compute_ticks;         /* as part_ticks and blocked_ticks */
};

#define RS_WARMUP_STEPS 2       /* the first ones: a block of their own */
#define RS_BLOCK_STEPS 32u      /* of a new block: 4 KB in 1,000 steps */

/* Neighbouring steps, summed. Blocks are all that is kept of steps which newer ones have overwritten in the ring; those
 * that resemble each other most become one where there is no row left, so that a job of any length fits. Seqlocked like
 * a tally. Rows are in no order, and one that was joined with another may still be there: docs/inside/rank-file.md. */
struct rs_step_block {
    uint32_t seq;
    uint32_t first;             /* number of its first step */
    uint32_t steps;             /* 0: the row is free */
    uint32_t saved;             /* number of its last step that wrote a checkpoint; 0: none did */
    uint64_t begin_ticks, end_ticks;
    float least_ticks, quarter_ticks, median_ticks, three_quarters_ticks, most_ticks;   /* of the lengths of steps */
    uint32_t long_steps;        /* longer than 5/4 of the median, checkpoints left out */
    float long_ticks;           /* what these take beyond the median, summed; the following are sums, too */
    float own_ticks[RS_PARTS];  /* each part, without what it was blocked in collectives */
    float exposed_ticks;        /* blocked in collectives, in all parts: with own_ticks the length of the steps */
    float covered_ticks, checkpoint_ticks, gc_ticks;
    float cpu_ns, process_cpu_ns, runnable_ns;
    uint32_t flags;             /* of any of its steps */
};

/* What the loop's thread did while the device had nothing to do. */
enum rs_idle {
    RS_IDLE_LAUNCH = 0,         /* computing or launching: too slow for the device */
    RS_IDLE_DATA = 1,           /* waiting for the data loader */
    RS_IDLE_SYNC = 2,           /* inside a CUDA call that waits for the device */
    RS_IDLE_GC = 3, RS_IDLE_COMPILE = 4,
    RS_IDLE_BLOCKED = 5,        /* in a collective of the host */
    RS_IDLE_CHECKPOINT = 6,
    RS_IDLE_PYTHON = 7,         /* outside every part of the step */
    RS_IDLE_UNKNOWN = 8,        /* what it did is not known (any more) */
    RS_IDLE_DEVICE = 9          /* so short that the next kernel was launched already: the device takes that to start it */
};
#define RS_IDLES 10

enum rs_device_step_flag {
    RS_DEVICE_STEP_CUT = 1,     /* the device's time is not known back to its beginning: parts are too small */
    RS_DEVICE_STEP_BY_TIME = 2, /* no launching call was known: activities belong to the step of their start */
    RS_DEVICE_STEP_NO_WAITS = 4 /* waits for the device were not recorded: they are among launching and Python */
};

/* One step as one device saw it: from the end of the last kernel that the step before launched to the end of its own.
 * Its parts without `hidden` add up to that. Records lie in a ring, in the order of their writing. ns of CUPTI's clock. */
struct rs_device_step {
    uint32_t number;            /* of the step; 0 while the record is being written */
    uint16_t device, flags;
    uint64_t begin_ns, end_ns;
    uint64_t copy_bytes, pageable_bytes;    /* of all copies; of those from or to pageable memory of the host */
    float compute_ns;
    float hidden_ns;            /* communication while something is computed, within compute_ns */
    float exposed_ns;           /* communication while nothing is computed */
    float copy_ns;              /* copies and sets alone */
    float idle_ns[RS_IDLES];
    float kernel_ns;            /* of the kernels it launched, summed */
    float sync_ns;              /* its thread inside calls that wait for the device */
    uint32_t kernels, copies, sync_calls;
    uint32_t reserved;
};

/* One time of recording that has ended. In a ring, in the order of their writing. ns of CUPTI's clock. */
struct rs_window {
    uint64_t number;            /* from 1 on; 0 while the record is being written */
    uint64_t begin_ns, end_ns;
    uint64_t millisteps;        /* thousandths of steps in it, the first one of the process left out */
    uint64_t kernels, kernel_ns;            /* what the GPU's records of it sum up to */
    uint64_t steps, step_ns;                /* whole steps in it, and their time */
    uint64_t bare_steps, bare_step_ns;      /* the same of the time after it without recording; 0: not over yet */
};

/* What is multiplied, as a device's peak tells them apart. */
enum rs_precision {
    RS_PRECISION_FP64 = 0, RS_PRECISION_FP32 = 1,
    RS_PRECISION_TF32 = 2,      /* float32 that the program allows the GPU to multiply in TF32 */
    RS_PRECISION_FP16 = 3, RS_PRECISION_BF16 = 4, RS_PRECISION_FP8 = 5, RS_PRECISION_INT8 = 6,
    RS_PRECISION_OTHER = 7
};
#define RS_PRECISIONS 8

enum rs_flops_flag {
    RS_FLOPS_COMPILED = 1,      /* torch.compile was used: kernels that it generates are no operators */
    RS_FLOPS_GRAPHS = 2         /* CUDA graphs were replayed: their operators ran when they were captured */
};

/* What the operators of one sampled step compute on one device: matrix products, convolutions, attention and recurrent
 * layers, by their shapes. In a ring, in the order of their writing. */
struct rs_step_flops {
    uint32_t number;            /* of the step; 0 while the record is being written */
    int16_t device;             /* -1: the CPU */
    uint16_t flags;
    uint32_t operators;         /* counted on this device */
    uint32_t unseen;            /* of the step: operators that may compute as much and cannot be counted */
    uint16_t unseen_name;       /* string id of the first of them */
    uint16_t reserved[3];
    uint64_t flops[RS_PRECISIONS];
    uint64_t recomputed_flops[RS_PRECISIONS];   /* of them: forward once more, inside backward */
};

/* One GPU that this process uses, as the driver describes it. Seqlocked like a tally. */
struct rs_gpu {
    uint32_t device, seq;
    uint16_t name, note;        /* string ids; note: why its energy is not known */
    uint32_t multiprocessors;
    uint64_t memory_bytes;
    uint8_t uuid[16];
    uint64_t samples;           /* of its energy, so far */
    uint64_t first_ticks, first_energy_mj, last_ticks, last_energy_mj;
};

/* The energy counter of one GPU at one moment: all that the device used, whoever used it. In a ring, in the order of
 * their writing. */
struct rs_power {
    uint64_t number;            /* from 1 on; 0 while the record is being written */
    uint64_t ticks;
    uint64_t energy_mj;         /* since the driver was loaded */
    uint32_t device;
    uint32_t sm_mhz, temperature_c;     /* 0: not told */
    uint32_t processes;         /* that compute on it, as far as the driver lets us see; 0: not told */
};

/* The caching allocator of torch for one GPU, at the end of a step. In a ring, in the order of their writing. */
struct rs_allocator {
    uint32_t number;            /* of the step; 0 while the record is being written */
    uint32_t device;
    uint64_t ticks;
    uint64_t allocated_bytes, allocated_peak_bytes;     /* in tensors */
    uint64_t reserved_bytes, reserved_peak_bytes;       /* taken from CUDA */
    uint64_t split_bytes;       /* of reserved: free, but in segments that are in use */
    uint64_t retries, ooms;     /* so far: cudaMalloc failed and the cache was emptied; failed then, too */
};

enum rs_mark_kind {
    RS_MARK_INTERPRETER = 1,    /* Python is up and looks for modules */
    RS_MARK_IMPORT_BEGIN = 2, RS_MARK_IMPORT_END = 3,   /* of torch, jax */
    RS_MARK_INIT_BEGIN = 4, RS_MARK_INIT_END = 5,       /* MPI_Init, init_process_group, hvd.init, jax.distributed.initialize */
    RS_MARK_FIRST_COLLECTIVE_BEGIN = 6, RS_MARK_FIRST_COLLECTIVE_END = 7,
    RS_MARK_FIRST_STEP_BEGIN = 8, RS_MARK_FIRST_STEP_END = 9,
    RS_MARK_FINALIZE = 10,
    RS_MARK_OBSERVER = 11,      /* torch is observed from now on; the name says by what */
    RS_MARK_CUDA_CONTEXT = 12,  /* a device's primary context is there: seen at most 10 ms late, or 1/64 of the wait */
    RS_MARK_NCCL_BEGIN = 13,    /* NCCL sets up its first communicator and asks its plugin */
    RS_MARK_XLA = 14            /* JAX is observed from now on; the name says what of it */
};

/* The first moment of its kind in this process. */
struct rs_mark {
    uint64_t ticks;
    uint16_t kind, name;        /* name: string id of what it was */
    uint32_t reserved;
};

enum rs_imports_mode { RS_IMPORTS_OFF = 0, RS_IMPORTS_TIME = 1, RS_IMPORTS_CALLS = 2, RS_IMPORTS_PATHS = 3 };

enum rs_calls_method {
    RS_CALLS_NONE = 0,
    RS_CALLS_DISPATCH = 1,      /* every call of every thread, by system call user dispatch */
    RS_CALLS_PRELOAD = 2        /* only calls through the functions of libc that are wrapped */
};

enum rs_module_flag { RS_MODULE_ENDED = 1, RS_MODULE_FAILED = 2 };

/* One import of a Python module. Its id is its place in all chunks of modules, from 1. */
struct rs_module {
    uint32_t parent;            /* id of the module that imports it, 0 for none */
    uint16_t name, thread;      /* string id; slot */
    uint32_t flags;             /* written last: the figures below hold from then on */
    uint32_t shared_objects;    /* loaded meanwhile, those of imports inside left out */
    uint64_t begin_ticks, wall_ticks, self_wall_ticks;
    uint64_t cpu_ns, self_cpu_ns;       /* of the importing thread */
};

enum rs_cause {
    RS_CAUSE_INTERPRETER = 0,   /* outside any import */
    RS_CAUSE_SEARCH = 1,        /* Python looks for the module */
    RS_CAUSE_CODE = 2,          /* its loader reads it */
    RS_CAUSE_MODULE = 3,        /* its own code runs */
    RS_CAUSE_LOADER = 4         /* the dynamic loader */
};

/* One kind of system call, in a table of open addressing: all rows of the chunk are there, key 0 is an empty one. The
 * counters of a row are added to one by one, without a lock. Calls are numbered as on x86-64. */
struct rs_system_call {
    uint64_t key;               /* module | cause << 20 | call << 24 | mount's string id << 36 | 1 << 63 */
    uint64_t calls, failed, missing;    /* missing: failed with ENOENT */
    uint64_t ticks, bytes;      /* bytes: returned by reads */
};

enum rs_operation {
    RS_OPERATION_STAT = 1, RS_OPERATION_OPEN = 2, RS_OPERATION_ACCESS = 3, RS_OPERATION_READLINK = 4,
    RS_OPERATION_LIST = 5,      /* open, of a folder */
    RS_OPERATION_EXEC = 6
};

/* One path that was asked for, followed by its bytes, a \0 and padding to a multiple of 8. */
struct rs_path {
    uint32_t record_bytes;      /* all of it */
    uint32_t path_bytes;        /* without the \0 */
    uint32_t module;
    uint8_t cause, operation;
    uint16_t result;            /* 0 or errno */
    uint64_t times, size_bytes; /* size_bytes: of the file, where it was opened */
};

/* One thread; a cache line, because each writes to its own. */
struct rs_thread_row {
    uint32_t slot, tid;
    uint64_t first_ticks;
    char name[16];
    uint64_t call;              /* the call it waits in: name | group << 16 | peer << 32; 0: none */
    uint64_t call_ticks;        /* when it entered that */
    int32_t call_tag;           /* of a message that it waits for; RS_NO_PEER: none */
    uint32_t reserved;
    uint64_t reserved_too;
};
#define RS_NO_PEER INT32_MIN    /* of a call that names none; other negative ones: any */

#endif
