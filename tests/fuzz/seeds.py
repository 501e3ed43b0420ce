"""What the mutations begin with: small files made by hand here, and real ones where they are at hand."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
from functools import cache
from pathlib import Path

from fuzz.harness import Seed
from rankscope.formats.registry import recognised
from rankscope.formats.source import Source
from rankscope.model.records import BadFile

TESTS = Path(__file__).resolve().parents[1]
SHARED = TESTS.parents[1] / "shared"
MOST_BYTES = 24 << 10  # of a real file: more would only make it slower

TEXTS = (
    # a profile of a GPU program, as nvprof prints it
    """==42== NVPROF is profiling process 42, command: python a.py
==42== Profiling application: python a.py
==42== Profiling result:
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
 GPU activities:   75.00%  3.0000ms         3  1.0000ms  500.00us  1.5000ms  void gemm<float, int=4>(float*, int)
                   25.00%  1.0000ms         2  500.00us  400.00us  600.00us  [CUDA memcpy HtoD]
      API calls:  100.00%  2.0000ms         4  500.00us  100.00us  900.00us  cudaLaunchKernel
==42== NVTX result:
==42==   Thread "<unnamed>" (id = 7)
==42==     Domain "<unnamed>"
==42==       Range "step"
            Type  Time(%)      Time     Calls       Avg       Min       Max  Name
          Range:  100.00%  9.0000ms         1  9.0000ms  9.0000ms  9.0000ms  step
""",
    # the same after a scanner: tabs for columns, cells lost or misread, times apart from their rows
    """# Four GPUs, batch 32
#\\_42== NVPROF is profiling process 42, command: python train\\_a.py ==42== Profiling application: python train\\_a.py
Type\tTime(%)\tTime\tCalls\tAvg\tMin\tMax\tName
GPU activities:\t40.00%\t80.000ms\t16\t5.0000ms\t4.0000ms\t6.5000ms\tvoid gemm&lt;float, int=4&gt;(float*, int)
\t25.00%\t50.000ms\t\t3.1250ms\t\t\tncclAllReduceRingLLKernel
\t2 50%\t5 000mc\t32\t156.25u\t90.000us\t210.00us\t[CUDA memcpy HtoD]
\t1.25%\t2.E00me\t48\t\t\t\tvoid add <addop<float>, int=1 td=""></addop<float>
10.000ms
 5.00%
3.0000ms
32 312.50us 300.00us 330.00us relu
16 187.50us 90.000us 200.00us [CUDA memset]
16 187.50us 90.000us 200.00us [CUDA memset]
## Four GPUs, batch 64
#\\_43== NVPROF is profiling process 43, command: python train\\_a.py
GPU activities:\t100.00%\t1.5000s\t64\t23.438ms\t1.0000ms\t40.000ms\tgemm
""",
    """"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"
,%,ms,,ms,ms,ms,
"GPU activities",75.0,3.0,3,1.0,0.5,1.5,"gemm(float*)"
"API calls",100.0,2.0,4,0.5,0.1,0.9,"cudaLaunchKernel"
""",
    """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,3000,3,1000.0,1000.0,500,1500,400.0,"gemm(float *, int)"
25.0,1000,2,500.0,500.0,400,600,100.0,copy
""",
    """Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
100.0,2000,4,500.0,450.0,100,900,300.0,cudaLaunchKernel
""",
    """==42== Profiling result:
   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput  SrcMemType  DstMemType           Device   Context    Stream  Name
300.00ms  10.000us                    -               -         -         -         -  4.0000KB  390.63MB/s    Pageable      Device  Tesla V100 (0)         1         7  [CUDA memcpy HtoD]
310.00ms  2.0000us              (4 1 1)       (256 1 1)        16        0B        0B         -           -           -           -  Tesla V100 (0)         1         7  gemm(float*) [42]
""",  # noqa: E501
    # MPI profiles: libmpitrace, mpiP, IPM
    """Data for MPI rank 0 of 2:
Times and statistics from MPI_Init() to MPI_Finalize().
-----------------------------------------------------------------------
MPI Routine                        #calls     avg. bytes      time(sec)
-----------------------------------------------------------------------
MPI_Bcast                              10         4096.0          0.010
MPI_Allreduce                         100            8.0          1.500
-----------------------------------------------------------------
MPI task 0 of 2 had the maximum communication time.
total communication time = 1.510 seconds.
total elapsed time       = 4.000 seconds.
user cpu time            = 3.500 seconds.
system time              = 0.250 seconds.
max resident set size    = 120.000 MBytes.

-----------------------------------------------------------------
Message size distributions:

MPI_Allreduce             #calls    avg. bytes      time(sec)
                             100           8.0          1.500

Communication summary for all tasks:

  minimum communication time = 1.200 sec for task 1
  median  communication time = 1.200 sec for task 1
  maximum communication time = 1.510 sec for task 0

MPI timing summary for all ranks:
taskid           host    comm(s)  elapsed(s)     user(s)   system(s)   size(MB)    switches
     0          node0       1.51        4.00        3.50        0.25     120.00          12
     1          node0       1.20        4.00        3.60        0.20     118.00           9
""",
    """@ mpiP
@ Command : ./a.out
@ Version                  : 3.5.0
@ MPI Task Assignment      : 0 node0
@ MPI Task Assignment      : 1 node0

---------------------------------------------------------------------------
@--- MPI Time (seconds) ---------------------------------------------------
---------------------------------------------------------------------------
Task    AppTime    MPITime     MPI%
   0       4.00       1.50    37.50
   1       4.00       1.00    25.00
   *       8.00       2.50    31.25
---------------------------------------------------------------------------
@--- Callsites: 1 ---------------------------------------------------------
---------------------------------------------------------------------------
 ID Lev File/Address        Line Parent_Funct             MPI_Call
  1   0 a.c                   12 main                     Allreduce
---------------------------------------------------------------------------
@--- Aggregate Time (top twenty, descending, milliseconds) ----------------
---------------------------------------------------------------------------
Call                 Site       Time    App%    MPI%      Count    COV
Allreduce               1   2.50e+03   31.25  100.00        200   0.20
""",
    """##IPMv2.0.6########################################################
#
# command   : ./a.out
# start     : Thu Jan 01 10:00:00 2026   host      : node0
# stop      : Thu Jan 01 10:00:04 2026   wallclock : 4.00
# mpi_tasks : 2 on 1 nodes               %comm     : 31.25
# mem [GB]  : 0.24                       gflop/sec : 0.00
#
#           :       [total]        <avg>          min          max
# wallclock :          8.00         4.00         4.00         4.00
# MPI       :          2.50         1.25         1.00         1.50
#
#                             [time]        [count]        <%wall>
# MPI_Allreduce                 2.50            200          31.25
###################################################################
""",
    # device and host tallies, as iprof prints them
    """BACKEND_ZE | 1 Hostnames | 2 Processes | 2 Threads |

                                Name |     Time | Time(%) | Calls |  Average |     Min |     Max |
          zeEventHostSynchronize |    3.00s |  75.00% |   300 |  10.00ms |  1.00ms | 20.00ms |
               zeModuleCreate |    1.00s |  25.00% |     2 | 500.00ms | 400.00ms | 600.00ms |
                           Total |    4.00s | 100.00% |   302 |
""",
    # system calls and imports
    """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 75.00    0.003000           3      1000       200 openat
 25.00    0.001000           2       500           read
------ ----------- ----------- --------- --------- ----------------
100.00    0.004000           2      1500       200 total
""",
    """[pid 12] 10:00:00.000001 openat(AT_FDCWD</a>, "/lib/x.so", O_RDONLY|O_CLOEXEC) = 3</lib/x.so> <0.000012>
12 10:00:00.000100 read(3, "\\177ELF"..., 832) = 832 <0.000004>
12 10:00:00.000200 openat(AT_FDCWD, "/no", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000005>
12 10:00:00.000300 futex(0x7f, FUTEX_WAIT, 0, NULL <unfinished ...>
13 10:00:00.000310 close(3) = 0 <0.000002>
12 10:00:00.000400 <... futex resumed>) = 0 <0.000100>
12 10:00:00.000500 +++ exited with 0 +++
""",
    """import time: self [us] | cumulative | imported package
import time:       200 |        200 |   _io
import time:       150 |        350 | io
import time:      1000 |       1350 | numpy
""",
    # training logs and benchmarks
    """+------------------------+-------+-------+-------+----------+-------+
| name                   |   min |   max |  mean | variance | stdev |
+========================+=======+=======+=======+==========+=======+
| backward_metric,back   |  1.0  |  3.0  |  2.0  |   0.25   |  0.5  |
+------------------------+-------+-------+-------+----------+-------+
""",
    """name,min,max,mean,variance,stdev
"forward_metric,forward_pass",1.0,3.0,2.0,0.25,0.5
""",
    """Epoch: [0][ 0/16]\tTime  6.00 ( 6.00)\tData  2.00 ( 2.00)\tLoss 6.9e+00 (6.9e+00)\tAcc@1   0.00 (  0.00)
Epoch: [0][10/16]\tTime  0.50 ( 1.00)\tData  0.10 ( 0.27)\tLoss 6.8e+00 (6.9e+00)\tAcc@1   1.00 (  0.10)
""",
    """[2026-01-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) | fwd: 1.0
Comm. Op     Message Size   Count     Total Latency(ms)   Avg Latency(ms)   tput_avg (Gbps)   busbw_avg (Gbps)
all_reduce
             4.0 MB         3         30.0                10.0              6.7               5.0
""",
    """# nThread 1 nGpus 2 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    10.00    0.00    0.00      0    10.00    0.00    0.00      0
        1024           256     float     sum      -1    20.00    0.05    0.05      0    20.00    0.05    0.05      0
# Avg bus bandwidth    : 0.025
""",
    """# OSU MPI Allreduce Latency Test v7.4
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                       1.50              1.00              2.00        1000
8                       1.60              1.10              2.10        1000
""",
    """# darshan log version: 3.41
# exe: ./a.out
# nprocs: 2
# start_time: 1700000000
# run time: 4.0
#<module>\t<rank>\t<record id>\t<counter>\t<value>\t<file name>\t<mount pt>\t<fs type>
POSIX\t0\t123\tPOSIX_OPENS\t2\t/a/b\t/\text4
POSIX\t0\t123\tPOSIX_F_READ_TIME\t0.500000\t/a/b\t/\text4
""",
    # operations of training steps
    """dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mb_id
0,0,0,1,forward-compute,0.0,0.1,0,0
0,0,0,1,forward-send,0.1,0.01,0,-1
0,0,0,1,grads-all-reduce,0.4,0.1,0,-1
0,1,1,1,forward-recv,0.0,0.11,0,-1
0,1,1,1,forward-compute,0.11,0.3,0,0
0,1,1,1,grads-all-reduce,0.41,0.09,0,-1
""",
    # devices of other vendors: unitrace, THAPI, rocprof
    """=== API Timing Summary ===

             Total Execution Time (ns):                 9000
    Total API Time for L0 backend (ns):                 3000

== L0 Backend ==

            Function,        Calls,            Time (ns),      Time (%),         Average (ns),             Min (ns),             Max (ns)
      zeModuleCreate,            1,                 2000,     66.666667,                 2000,                 2000,                 2000
 zeEventHostSynchronize,         2,                 1000,     33.333333,                  500,                  100,                  900

=== Device Timing Summary ===

                Total Execution Time (ns):                 9000
    Total Device Time for L0 backend (ns):                  800

== L0 Backend ==

                                  Kernel,        Calls,            Time (ns),     Time (%),         Average (ns),             Min (ns),             Max (ns)
"gemm(float*, int)[SIMD32 {1; 4; 1} {4; 1; 1}]",     2,                  600,    75.000000,                  300,                  200,                  400
"zeCommandListAppendMemoryCopy(M2D)[4096]",          1,                  200,    25.000000,                  200,                  200,                  200


=== Kernel Properties ===

              Kernel, Compiled, SIMD, Number of Arguments, SLM Per Work Group, Private Memory Per Thread, Spill Memory Per Thread, Register File Size Per Thread
"gemm(float*, int)",       JIT,   32,                   4,                  0,                         0,                       0,                           128

Thread 7 Device 99 : "gemm(float*, int)[SIMD32 {1; 4; 1} {4; 1; 1}]" [ns] 100 (append) 110 (submit) 200 (start) 500 (end)
Thread 7 Device 99 : "zeCommandListAppendMemoryCopy(M2D)[4096]" [ns] 120 (append) 130 (submit) 600 (start) 800 (end)
""",  # noqa: E501
    """10:00:00.000000100 - node1 - vpid: 5, vtid: 6 - lttng_ust_cuda:cuLaunchKernel_entry: { f: 0x1000, gridDimX: 4 }
10:00:00.000000120 - node1 - vpid: 5, vtid: 6 - lttng_ust_cuda_profiling:event_profiling: { hStart: 0x10, hStop: 0x20 }
10:00:00.000000200 - node1 - vpid: 5, vtid: 6 - lttng_ust_cuda:cuLaunchKernel_exit: { cuResult: CUDA_SUCCESS }
10:00:00.000000300 - node1 - vpid: 5, vtid: 7 - lttng_ust_mpi:MPI_Barrier_entry: { comm: 0x44000000 }
10:00:00.000000900 - node1 - vpid: 5, vtid: 7 - lttng_ust_mpi:MPI_Barrier_exit: { mpiResult: MPI_SUCCESS }
10:00:00.000001000 - node1 - vpid: 5, vtid: 6 - lttng_ust_cuda_profiling:event_profiling_results: { hStart: 0x10, hStop: 0x20, startStatus: CUDA_SUCCESS, stopStatus: CUDA_SUCCESS, status: CUDA_SUCCESS, milliseconds: 0.0025 }
[10:00:00.000002000] (+0.000001000) node1 lttng_ust_ze:zeInit_entry: { cpu_id = 1 }, { vpid = 5, vtid = 6 }, { flags = 0 }
[10:00:00.000003000] (+0.000001000) node1 lttng_ust_ze:zeInit_exit: { cpu_id = 1 }, { vpid = 5, vtid = 6 }, { zeResult = ( "ZE_RESULT_SUCCESS" : container = 0 ) }
""",  # noqa: E501
    """lttng:host: { hostname = "node1", vpid = 5, vtid = 6, ts = 1700000000000000000, backend = 1 }, { name = "zeInit", dur = 10, err = false }
lttng:device: { hostname = "node1", vpid = 5, vtid = 6, ts = 1700000000000000020, backend = 1 }, { name = "gemm", dur = 30, did = 2, sdid = 0, err = false, metadata = "{ordinal: 0, index: 0}" }
lttng:traffic: { hostname = "node1", vpid = 5, vtid = 6, ts = 1700000000000000020, backend = 3 }, { name = "cuMemcpyHtoD_v2", size = 400, metadata = "" }
hostname: "node1", vpid: 5, vtid: 6, ts: 101, backend: 2 - lttng:host: { name: "clFinish", dur: 10, err: true }
aggreg:host: { hostname = "node1", vpid = 5, vtid = 6, name = "clFinish", min = 10, max = 100, total = 110, count = 3 }, { backend = 2, err_count = 1 }
""",  # noqa: E501
    """"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp"
"KERNEL_DISPATCH","Agent 1",1,69,1,16,"add(float*, int)",5,1000,1500
"KERNEL_DISPATCH","Agent 1",2,69,2,16,"add(float*, int)",6,1600,1700
""",
    """"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"
"HIP_RUNTIME_API","hipMalloc",238,238,2,100,200
"HSA_CORE_API","hsa_agent_get_info",238,238,3,110,120
"MARKER_CORE_API","step",238,238,4,90,400
""",
    """"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"hipMalloc",2,300,150.000000,75.00,100,200,70.710678
"hipFree",1,100,100.000000,25.00,100,100,0.0000000e+00
""",
    # tables by hand
    """# Times
| nodes | library | time (s) | calls |
| --- | --- | --- | --- |
| 1 | CCL | 1.85min | 350,753 |
| 2 | CCL | 304.39ms | 11400 |

```text
nodes,library,seconds
1,MPI,2.5
2,MPI,3.5
```
""",
)

EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100.5, "dur": 20.25,
     "args": {"device": 0, "stream": 7, "correlation": 3, "External id": 2}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 7, "ts": 90, "dur": 5,
     "args": {"correlation": 3}},
    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 9, "ts": 130, "dur": 40,
     "args": {"device": 0, "stream": 9, "Collective name": "allreduce", "In msg nelems": 8, "dtype": "Float",
              "Group size": 2, "Process Group Name": "0", "Seq": 1}},
    {"ph": "s", "id": 3, "pid": 7, "tid": 7, "ts": 90, "cat": "ac2g", "name": "ac2g"},
]  # fmt: skip
OBJECTS: tuple[object, ...] = (
    {"schemaVersion": 1, "baseTimeNanoseconds": 1, "displayTimeUnit": "ms",
     "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2, "pg_config": []},
     "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": EVENTS},
    [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "tensor.a"}},
     {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1}, {"ph": "E", "ts": 20, "pid": 1},
     {"ph": "B", "name": "ALLREDUCE", "ts": 20, "pid": 1, "args": {"dtype": "float32", "shape": "[4]"}},
     {"ph": "E", "ts": 50, "pid": 1}],
    {"version": "2.4", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, "rank": 0,
     "entries": [{"record_id": 0, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 1, "op_id": 1,
                  "profiling_name": "nccl:all_reduce", "time_created_ns": 100, "duration_ms": 0.5,
                  "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]], "state": "completed"}]},
    {"header": {"id": "0x1", "rank": 0, "n_ranks": 2, "nnodes": 1},
     "metadata": {"inspector_output_format_version": "v4.0", "hostname": "a", "pid": 3},
     "coll_perf": {"coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 64, "coll_exec_time_us": 9,
                   "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.0}},
    {"units": {"time": "ns"}, "host": {"BACKEND_ZE": {"zeInit": {"time": 5, "call": 1, "min": 5, "max": 5}}}},
)  # fmt: skip


@cache
def collected() -> list[Seed]:
    """All seeds, each with the format that recognises it undamaged."""
    contents = [text.encode() for text in TEXTS]
    contents += [json.dumps(one, indent=indent).encode() for one in OBJECTS for indent in (None, 1)]
    contents += [
        _sqlite(SQL),
        _sqlite(ROCPD),
        _sqlite(RPD),
        xplane(),
        b"\x03\x42OTF2\x03\x00" + bytes(64),  # an anchor file, whose trace is not there
        *_files(TESTS.rglob("fixtures/**/*")),
        *_files(TESTS.rglob("data/**/*")),
    ]
    if SHARED.is_dir():
        contents += _files((SHARED / "samples").rglob("*")) + _files((SHARED / "seeds").rglob("*"))
    return [_seed(data) for data in contents if data]


def _files(paths: object) -> list[bytes]:
    found = []
    for path in sorted(path for path in paths if path.is_file()):  # type: ignore[attr-defined]
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            found.append(file.read(MOST_BYTES))
    return found


def _seed(data: bytes) -> Seed:
    try:
        known = recognised(Source(Path("seed"), content=data))
    except BadFile:
        known = None
    return Seed(data, known.name if known else "")


def _sqlite(sql: str) -> bytes:
    """A database of a few rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.sqlite")
        database = sqlite3.connect(path)
        database.executescript(sql)
        database.commit()
        database.close()
        return path.read_bytes()


def xplane() -> bytes:
    """A profile of XLA: a device with a stream, a host with a thread, and when it began."""

    def number(value: int) -> bytes:
        made = bytearray()
        while value >= 0x80:
            made.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*made, value])

    def field(place: int, value: int | bytes | str) -> bytes:
        if isinstance(value, int):
            return number(place << 3) + number(value)
        data = value.encode() if isinstance(value, str) else value
        return number(place << 3 | 2) + number(len(data)) + data

    def named(place: int, key: int, name: str) -> bytes:
        return field(place, field(1, key) + field(2, field(1, key) + field(2, name)))

    def event(key: int, offset_ps: int, length_ps: int, *stats: bytes) -> bytes:
        return field(
            4, field(1, key) + field(2, offset_ps) + field(3, length_ps) + b"".join(field(4, one) for one in stats)
        )

    stream = field(1, 7) + field(2, "Stream #7(Compute)") + field(3, 1000)
    stream += event(1, 5_000, 40_000, field(1, 1) + field(3, 9)) + event(
        2, 60_000, 10_000, field(1, 2) + field(5, "kind:h2d size:64")
    )
    ops = field(1, 8) + field(2, "XLA Ops") + field(3, 1000) + event(1, 5_000, 40_000)
    device = field(1, 1) + field(2, "/device:GPU:0") + field(3, stream) + field(3, ops)
    device += (
        named(4, 1, "gemm_fusion")
        + named(4, 2, "MemcpyH2D")
        + named(5, 1, "correlation_id")
        + named(5, 2, "memcpy_details")
    )
    thread = field(1, 42) + field(2, "python") + field(3, 1000)
    thread += (
        event(1, 0, 90_000, field(1, 1) + field(4, 3))
        + event(2, 1_000, 3_000, field(1, 2) + field(3, 9))
        + event(3, 2_000, 1_000)
    )
    host = field(1, 2) + field(2, "/host:CPU") + field(3, thread)
    host += named(4, 1, "train") + named(4, 2, "cuLaunchKernel") + named(4, 3, "forward")
    host += named(5, 1, "step_num") + named(5, 2, "correlation_id")
    task = (
        field(2, "Task Environment")
        + named(5, 1, "profile_start_time")
        + field(6, field(1, 1) + field(3, 1_700_000_000 * 10**9))
    )
    return field(1, device) + field(1, host) + field(1, task) + field(4, "node1")


ROCPD = """
PRAGMA page_size = 1024;
CREATE TABLE rocpd_string_00ab12 (id INTEGER NOT NULL PRIMARY KEY, guid TEXT, string TEXT NOT NULL);
INSERT INTO rocpd_string_00ab12 VALUES (1, 'g', 'hipLaunchKernel'), (2, 'g', 'HIP_RUNTIME_API_EXT'),
    (3, 'g', 'MEMORY_COPY_HOST_TO_DEVICE'), (4, 'g', 'step'), (5, 'g', 'MARKER_CORE_API');
CREATE TABLE rocpd_info_node_00ab12 (id INTEGER, hostname TEXT);
INSERT INTO rocpd_info_node_00ab12 VALUES (1, 'node1');
CREATE TABLE rocpd_info_process_00ab12 (id INTEGER, nid INTEGER, pid INTEGER, command TEXT);
INSERT INTO rocpd_info_process_00ab12 VALUES (1, 1, 4711, './a.out');
CREATE TABLE rocpd_info_agent_00ab12 (id INTEGER, type TEXT, type_index INTEGER, name TEXT);
INSERT INTO rocpd_info_agent_00ab12 VALUES (1, 'CPU', 0, 'EPYC'), (4, 'GPU', 0, 'gfx942'), (5, 'GPU', 1, 'gfx942');
CREATE TABLE rocpd_info_kernel_symbol_00ab12 (id INTEGER, kernel_name TEXT, display_name TEXT);
INSERT INTO rocpd_info_kernel_symbol_00ab12 VALUES (9, '_Z3addPf.kd', 'add(float*)');
CREATE TABLE rocpd_event_00ab12 (id INTEGER, category_id INTEGER, stack_id INTEGER);
INSERT INTO rocpd_event_00ab12 VALUES (1, 2, 77), (2, NULL, 77), (3, 5, 78), (4, NULL, 79);
CREATE TABLE rocpd_region_00ab12 (id INTEGER, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT, "end" BIGINT,
    name_id INTEGER, event_id INTEGER);
INSERT INTO rocpd_region_00ab12 VALUES (1, 1, 1, 3, 90, 120, 1, 1), (2, 1, 1, 3, 50, 900, 4, 3);
CREATE TABLE rocpd_kernel_dispatch_00ab12 (id INTEGER, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER,
    kernel_id INTEGER, queue_id INTEGER, start BIGINT, "end" BIGINT, event_id INTEGER);
INSERT INTO rocpd_kernel_dispatch_00ab12 VALUES (1, 1, 1, 3, 5, 9, 2, 200, 500, 2);
CREATE TABLE rocpd_memory_copy_00ab12 (id INTEGER, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT, "end" BIGINT,
    name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, queue_id INTEGER, event_id INTEGER);
INSERT INTO rocpd_memory_copy_00ab12 VALUES (1, 1, 1, 3, 600, 650, 3, 5, 1, 4096, NULL, 4);
CREATE VIEW rocpd_region AS SELECT * FROM rocpd_region_00ab12;
"""
RPD = """
PRAGMA page_size = 512;
CREATE TABLE IF NOT EXISTS rocpd_string (id integer NOT NULL PRIMARY KEY, string varchar(4096) NOT NULL);
INSERT INTO rocpd_string VALUES (1, 'hipLaunchKernel'), (2, 'add(float*)'), (3, 'KernelExecution'),
    (4, 'CopyHostToDevice'), (5, '');
CREATE TABLE IF NOT EXISTS rocpd_api (id integer NOT NULL PRIMARY KEY, pid integer, tid integer, start integer,
    "end" integer, apiName_id integer, args_id integer);
INSERT INTO rocpd_api VALUES (1, 7, 8, 100, 150, 1, 5), (2, 7, 8, 160, 190, 1, 5);
CREATE TABLE IF NOT EXISTS rocpd_op (id integer NOT NULL PRIMARY KEY, gpuId integer, queueId integer,
    sequenceId integer, start integer, "end" integer, description_id integer, opType_id integer);
INSERT INTO rocpd_op VALUES (1, 3, 0, 0, 200, 300, 2, 3), (2, 3, 1, 0, 310, 330, 5, 4);
CREATE TABLE IF NOT EXISTS rocpd_api_ops (id integer NOT NULL PRIMARY KEY, api_id integer, op_id integer);
INSERT INTO rocpd_api_ops VALUES (1, 1, 1), (2, 2, 2);
"""
SQL = """
PRAGMA page_size = 512;
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel'), (3, 'step');
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.20.3');
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
INSERT INTO PROCESSES VALUES (281474976710656, 7, 'python');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL, gridX INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100, 200, 0, 1, 7, 5, 281474976710656, 1, 1, 4);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (300, 350, 0, 1, 7, 6, 281474976710656, 4096, 1);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (90, 95, 0, 281474976710663, 5, 2, 0);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, textId INTEGER,
    globalTid INTEGER, domainId INTEGER);
INSERT INTO NVTX_EVENTS VALUES (50, 400, 59, NULL, 3, 281474976710663, 0);
"""
