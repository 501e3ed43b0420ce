"""gpu_truth.py [SCHEDULES] [STEPS]: random training loops on a GPU whose every moment is known; prints the truth.

Kernels spin for a given time and write down themselves when they began and ended, by the GPU's own clock, which is
compared with the host's before and after. Copies lie between two such kernels, and how much of that is the way from
one engine of the GPU to another and back follows from copies of several sizes. Two threads launch, on two streams, as
autograd does; the host sleeps for known times in its data loader, while launching, in garbage collection and between
the parts. The lines are those of tests/native/cuda/cuda_loop.c; gpu_truth_verify.py compares them with what was
recorded.

    rankscope run --out RUN python scripts/gpu_truth.py 30 40 > truth.txt
"""

from __future__ import annotations

import ctypes
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from ctypes import c_size_t, c_uint64, c_void_p
from typing import Any

from gpu_driver import PINNED, Driver
from gpu_step_truth import COMMUNICATION, COMPUTE, COPY, OPTIMIZER, a_step

TIMED = """.visible .entry {name}(.param .u64 length, .param .u64 slot) {{
  .reg .u64 %rd<7>; .reg .pred %p1;
  ld.param.u64 %rd1, [length];
  ld.param.u64 %rd5, [slot];
  cvta.to.global.u64 %rd5, %rd5;
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra again;
  st.global.u64 [%rd5], %rd2;
  st.global.u64 [%rd5+8], %rd3;
  ret;
}}
"""
KERNELS = {COMPUTE: "truth_compute", COMMUNICATION: "ncclDevKernel_truth", COPY: "truth_stamp"}
SLOTS, SLOT_BYTES, COPY_BYTES = 1 << 18, 16, 24 << 20
STAMP_NS, TRIES = 1000, 300
SIZES = tuple(COPY_BYTES * part // 6 for part in range(1, 7))


class Recorder:
    """Ranges told to the recorder, where there is one, as torch's hooks would."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self.is_there = hasattr(library, "rankscope_range_begin")
        self.library: Any = library
        if self.is_there:
            library.rankscope_range_begin.restype = c_uint64
            library.rankscope_range_end.argtypes = (ctypes.c_char_p, c_uint64)
        self.begun: list[int] = []

    def begin(self, name: str) -> None:
        if self.is_there:
            self.begun.append(self.library.rankscope_range_begin(name.encode()))

    def end(self, name: str) -> None:
        if self.is_there:
            self.library.rankscope_range_end(name.encode(), self.begun.pop())

    def collect(self, begins: int) -> None:
        if self.is_there:
            self.library.rankscope_gc(begins)


class Loop:
    """Plays a script."""

    def __init__(self) -> None:
        self.driver = Driver()
        found = self.driver.kernels(
            "".join(TIMED.format(name=name) for name in KERNELS.values()), list(KERNELS.values())
        )
        self.kernels = dict(zip(KERNELS, found, strict=True))
        self.streams = [self.driver.made("cuStreamCreate", 1) for _ in range(2)]
        self.slots = self.driver.made("cuMemAlloc_v2", SLOTS * SLOT_BYTES)
        self.target = self.driver.made("cuMemAlloc_v2", COPY_BYTES)
        self.pinned = self.driver.made("cuMemHostAlloc", COPY_BYTES, PINNED)
        self.used = 0
        self.launched: list[tuple[str, int, int]] = []  # kind, when, slot (of a copy: the two around it)
        self.recorder = Recorder()
        self.lines: list[str] = []
        self.work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.done = threading.Semaphore(0)
        self.thread = threading.Thread(target=self.second)
        self.thread.start()

    def second(self) -> None:
        """The thread that launches what backward does."""
        self.driver.use()
        while (work := self.work.get()) is not None:
            work()
            self.done.release()

    def timed(self, kind: str, stream: int, ns: int) -> int:
        slot = self.used
        self.used += 1
        address = c_uint64((self.slots.value or 0) + slot * SLOT_BYTES)
        self.driver.launch(self.kernels[kind], self.streams[stream], c_uint64(ns), address)
        return slot

    def launch(self, stream: int, us: int, kind: str) -> None:
        now = time.time_ns()
        if kind != COPY:
            self.launched.append((kind, now, self.timed(kind, stream, us * 1000)))
            return
        before = self.timed(COPY, stream, STAMP_NS)
        self.launched.append((COMPUTE, now, before))
        at = time.time_ns()
        self.driver("cuMemcpyHtoDAsync_v2", self.target, self.pinned, COPY_BYTES, self.streams[stream])
        self.launched.append((COPY, at, before))
        at = time.time_ns()
        self.launched.append((COMPUTE, at, self.timed(COPY, stream, STAMP_NS)))

    def told(self, what: str, more: str, since_ns: int) -> None:
        self.lines.append(f"{what} {more} {since_ns} {time.time_ns()}")

    def play(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        now = time.time_ns()
        if word == "b":
            self.recorder.begin(rest)
            self.told("begin", rest, now)
        elif word == "e":
            self.recorder.end(rest)
            self.told("end", rest, now)
        elif word == "g":
            self.recorder.collect(int(rest))
            self.told("gc", rest, now)
        elif word == "s":
            time.sleep(int(rest) / 1e6)
        elif word == "y":
            self.driver("cuStreamSynchronize", self.streams[int(rest.split()[0])])
            self.lines.append(f"sync {now} {time.time_ns()}")
        elif word == "l":
            thread, stream, us, kind = rest.split()
            if thread == "0":
                self.launch(int(stream), int(us), kind)
            else:
                self.work.put(lambda: self.launch(int(stream), int(us), kind))
                self.done.acquire()

    def compared(self) -> tuple[int, int, int]:
        """A moment on both clocks, host's and GPU's, and within how many ns: the closest of many tries."""
        made = []
        for _ in range(TRIES):
            before = time.time_ns()
            slot = self.timed(COPY, 0, STAMP_NS)
            self.driver("cuStreamSynchronize", self.streams[0])
            after = time.time_ns()
            start, end = self.stamps(slot)
            made.append((after - before, (before + after) // 2, (start + end) // 2))
            self.used -= 1
        width, host, gpu = min(made)
        return host, gpu, width

    def between_stamps(self, size: int) -> int:
        """Of a copy, from the end of the kernel before it to the start of the one after: the median of many."""
        spans = []
        for _ in range(TRIES // 10):
            before = self.timed(COPY, 0, STAMP_NS)
            self.driver("cuMemcpyHtoDAsync_v2", self.target, self.pinned, size, self.streams[0])
            after = self.timed(COPY, 0, STAMP_NS)
            self.driver("cuStreamSynchronize", self.streams[0])
            spans.append(self.stamps(after)[0] - self.stamps(before)[1])
            self.used -= 2
        return sorted(spans)[len(spans) // 2]

    def stamps(self, slot: int) -> tuple[int, int]:
        pair = (c_uint64 * 2)()
        address = c_void_p((self.slots.value or 0) + slot * SLOT_BYTES)
        self.driver("cuMemcpyDtoH_v2", ctypes.addressof(pair), address, c_size_t(SLOT_BYTES))
        return pair[0], pair[1]

    def finish(self, first: tuple[int, int, int]) -> None:
        """Everything that was launched, on the host's clock."""
        self.driver.synchronize()
        self.work.put(None)
        self.thread.join()
        last = self.compared()
        rate = (last[0] - first[0]) / (last[1] - first[1])
        size = self.used * SLOT_BYTES
        all_slots = (c_uint64 * (2 * self.used))()
        self.driver("cuMemcpyDtoH_v2", ctypes.addressof(all_slots), self.slots, c_size_t(size))

        def host(gpu_ns: int) -> int:
            return first[0] + round((gpu_ns - first[1]) * rate)

        print(f"clocks {first[2]} {last[2]} {rate:.9f}")
        print("copies", *(f"{size}:{self.between_stamps(size)}" for size in SIZES))
        for kind, launched, slot in self.launched:
            start, end = all_slots[2 * slot], all_slots[2 * slot + 1]
            if kind == COPY:  # it lies between the end of the one before it and the start of the one after
                start, end = end, all_slots[2 * slot + 2]
            print(f"activity {kind} {launched} {host(start)} {host(end)}")
        print("\n".join(self.lines))


def main() -> None:
    schedules, steps = (int(word) for word in (sys.argv[1:] if len(sys.argv) == 3 else ("30", "40")))
    loop = Loop()
    warm = ["b backward", "l 1 0 500 compute", "e backward", f"b {OPTIMIZER}", "l 0 1 200 compute", f"e {OPTIMIZER}"]
    first = loop.compared()
    for line in warm * 3:
        loop.play(line)
    for seed in range(schedules):
        dice = random.Random(seed)
        for _ in range(steps):
            for line in a_step(dice):
                loop.play(line)
        time.sleep(0.2)
    loop.finish(first)


if __name__ == "__main__":
    main()
