"""A training on one GPU by a made-up schedule: what happened when, and what torch.profiler and nsys write of it.

Times are multiples of 10 µs, so that no pause is one of the device itself (3 µs), and every sum is exact.
"""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankscope.api.load import LoadOptions, load
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from scripts.gpu_step_truth import COMMUNICATION, COMPUTE, COPY, LOADER, OPTIMIZER, Span, Truth

TICK_NS = 10_000
BASE_NS = 1_760_000_000_000_000_000
MAIN, ENGINE = 77, 78  # threads
STREAMS = {COMPUTE: 7, COMMUNICATION: 20, COPY: 8}
NAMES = {
    COMPUTE: ("gemm", "void elementwise<float>(int)"),
    COMMUNICATION: ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)",),
    COPY: ("Memcpy HtoD (Pageable -> Device)",),
}
COPY_BYTES = 4096


@dataclass
class Launch:
    """A call and the activity that it launches."""

    correlation: int
    thread: int
    start_ns: int
    activity: Span
    name: str


@dataclass
class Job:
    """What the host and the device did."""

    dice: random.Random
    now_ns: int = BASE_NS
    free_ns: dict[str, int] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    ranges: list[tuple[str, int, int, int]] = field(default_factory=list)  # name, thread, start, end
    states: list[tuple[int, str]] = field(default_factory=list)
    syncs: list[Span] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)

    def ticks(self, least: int, most: int) -> int:
        return self.dice.randrange(least, most) * TICK_NS

    def launch(self, kind: str, thread: int, length_ns: int) -> None:
        start_ns = max(self.now_ns + TICK_NS, self.free_ns.get(kind, 0))
        self.free_ns[kind] = start_ns + length_ns
        span = Span(start_ns, start_ns + length_ns, kind, self.now_ns)
        self.launches.append(Launch(len(self.launches) + 1, thread, self.now_ns, span, self.dice.choice(NAMES[kind])))
        self.now_ns += TICK_NS

    def state(self, doing: str) -> None:
        self.states.append((self.now_ns, doing))

    def step(self) -> None:
        if self.dice.random() < 0.8:
            self.data()
        if self.states[-1][1] == "gap":
            self.states[-1] = (self.states[-1][0], "launch")
        for _ in range(self.dice.randrange(2, 9)):
            self.launch(COMPUTE, MAIN, self.ticks(1, 60))
            self.now_ns += self.ticks(0, 30)
        self.backward()
        if self.dice.random() < 0.3:
            self.state("gap")
            self.now_ns += self.ticks(1, 90)
        self.optimizer()
        if self.dice.random() < 0.5:
            done_ns = max(self.now_ns, *self.free_ns.values()) + TICK_NS
            self.syncs.append(Span(self.now_ns, done_ns, "sync"))
            self.now_ns = done_ns
        if self.dice.random() < 0.4:
            self.now_ns += self.ticks(1, 300)

    def data(self) -> None:
        begin_ns = self.now_ns
        self.state("data")
        self.now_ns += self.dice.choice((TICK_NS, self.ticks(20, 400)))
        self.launch(COPY, MAIN, self.ticks(1, 40))
        self.ranges.append((LOADER, MAIN, begin_ns, self.now_ns))
        self.state("gap")

    def backward(self) -> None:
        self.state("launch")
        for _ in range(self.dice.randrange(2, 7)):
            begin_ns = self.now_ns
            self.launch(COMPUTE, ENGINE, self.ticks(1, 60))
            if self.dice.random() < 0.5:
                self.launch(COMMUNICATION, ENGINE, self.ticks(10, 150))
            self.now_ns += self.ticks(0, 40)
            self.ranges.append(("autograd::engine::evaluate_function: X", ENGINE, begin_ns, self.now_ns))

    def optimizer(self) -> None:
        begin_ns = self.now_ns
        self.state("launch")
        self.launch(COMPUTE, MAIN, self.ticks(1, 30))
        self.ranges.append((OPTIMIZER, MAIN, begin_ns, self.now_ns))
        self.ends_ns.append(self.now_ns)
        self.state("gap")

    @property
    def truth(self) -> Truth:
        return Truth([one.activity for one in self.launches], self.states, self.syncs, self.ends_ns, [])


def simulated(seed: int, steps: int = 30) -> Job:
    """A job of so many steps; its first begins with the data loader."""
    job = Job(random.Random(seed))
    job.data()
    for _ in range(steps):
        job.step()
    return job


# ---------------------------------------------------------------- its traces
def to_kineto(job: Job, path: Path, rank: int = 0) -> Path:
    """As torch.profiler writes it."""

    def span(cat: str, name: str, start_ns: int, end_ns: int, tid: int, pid: int = 1, **args: Any) -> dict[str, Any]:
        times = {"ts": (start_ns - BASE_NS) / 1000, "dur": (end_ns - start_ns) / 1000}
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}

    events = []
    for name, thread, start_ns, end_ns in job.ranges:
        events.append(span("cpu_op" if thread == ENGINE else "user_annotation", name, start_ns, end_ns, thread))
    for one in job.launches:
        number, kind = one.correlation, one.activity.kind
        call = "cudaMemcpyAsync" if kind == COPY else "cudaLaunchKernel"
        events.append(span("cuda_runtime", call, one.start_ns, one.start_ns + TICK_NS, one.thread, correlation=number))
        about = {"device": 0, "stream": STREAMS[kind], "correlation": number}
        about |= {"bytes": COPY_BYTES} if kind == COPY else {}
        category = "gpu_memcpy" if kind == COPY else "kernel"
        events.append(span(category, one.name, one.activity.start_ns, one.activity.end_ns, STREAMS[kind], 0, **about))
    for wait in job.syncs:
        events.append(span("cuda_runtime", "cudaDeviceSynchronize", wait.start_ns, wait.end_ns, MAIN, correlation=0))
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": 2, "ranks": [0, 1]}]
    info = {"rank": rank, "world_size": 2, "pg_config": groups}
    head = {"schemaVersion": 1, "distributedInfo": info, "baseTimeNanoseconds": BASE_NS}
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return path


NSYS = """
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
        (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
    CREATE TABLE NVTX_EVENTS
        (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, domainId INTEGER);"""
CALLS = {1: "cudaLaunchKernel_v7000", 2: "cudaMemcpyAsync_v3020", 3: "cudaDeviceSynchronize_v3020"}
PID = 1 << 24


def to_nsys(job: Job, path: Path) -> Path:
    """As nsys exports it, with torch's ranges as NVTX."""
    kernels = {name: 10 + at for at, name in enumerate(NAMES[COMPUTE] + NAMES[COMMUNICATION])}
    with closing(sqlite3.connect(path)) as file:
        file.executescript(NSYS)
        file.executemany("INSERT INTO StringIds VALUES (?, ?)", [*CALLS.items(), *((b, a) for a, b in kernels.items())])
        file.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?)", (BASE_NS,))
        for name, thread, start_ns, end_ns in job.ranges:
            text = f"{name}, seq = 4" if thread == ENGINE else name
            row = start_ns - BASE_NS, end_ns - BASE_NS, 59, text, PID + thread, 0
            file.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", row)
        for one in job.launches:
            kind, number = one.activity.kind, one.correlation
            called = one.start_ns - BASE_NS, one.start_ns + TICK_NS - BASE_NS, PID + one.thread, number
            call = 2 if kind == COPY else 1
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", (*called, call))
            times = one.activity.start_ns - BASE_NS, one.activity.end_ns - BASE_NS, 0, STREAMS[kind], number, PID
            if kind == COPY:
                marks = ", ".join("?" * 10)
                file.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({marks})", (*times, COPY_BYTES, 1, 1, 3))
            else:
                marks = ", ".join("?" * 7)
                file.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({marks})", (*times, kernels[one.name]))
        for wait in job.syncs:
            row = wait.start_ns - BASE_NS, wait.end_ns - BASE_NS, PID + MAIN, 0, 3
            file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", row)
        file.commit()
    return path


def loaded(run: Path, *files: Path) -> RunTables:
    """The run that `rankscope load` makes of these files."""
    said: list[str] = []
    made = load(
        [str(file) for file in files], LoadOptions(out=run), said.append, lambda _: nullcontext(lambda *_: None)
    )
    assert (made.problems, said) == ([], [])
    return open_run(run, read_rank_file)
