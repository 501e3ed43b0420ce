"""Writes a made-up Kineto trace of a distributed training: as many events as wanted, always the same for a seed.

    python benchmarks/kineto_trace.py [FILE] [--events N] [--rank R] [--world-size W] [--seed S]

The law. A step is 64 layers and one ProfilerStep. A layer is 4 operators on the main thread, one after another, each
with a child; each launches a kernel (a runtime call, and a flow event at its end and at the kernel's), which runs on
stream 7 when it is launched and the kernel before it is done. Lengths are drawn from log-normal laws (operators: median
20 µs, kernels: one median for each of 8 names, 5 to 80 µs). After every 4th layer a bucket of gradients is all-reduced:
record_param_comms with NCCL's metadata on a second thread, a launch, and a kernel on stream 20 of 40 to 400 µs that
starts when the layer's last kernel is done, so that it overlaps with the next layers' kernels. Every 8th layer copies
something in, every 16th sets memory. Times are whole microseconds, as Kineto wrote them until 2024, because what this
is compared with rounds fractions. The layout is Kineto's own, indented.
"""

import argparse
import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

LAYERS = 64
PID, MAIN, BACKWARD = 4000, 4000, 4100
START_US = 1_731_600_000_000_000
KERNELS = {
    "ampere_sgemm_128x64_tn": 80,
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn": 60,
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)": 6,
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(void)": 12,
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnn::bnFwTrParams)": 25,
    "void softmax_warp_forward<float, float, float, 10, false, false>(float*, float const*, int, int, int)": 9,
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdam>(float)": 40,
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(int)": 50,
}
OPERATORS = [
    f"aten::{name}" for name in ("linear", "matmul", "add_", "mul", "native_batch_norm", "softmax", "mean", "copy_")
]
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
DEVICE = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85899345920, "numSms": 108}

Event = dict[str, Any]


class Job:
    """One rank: its clocks, and the next number of everything."""

    def __init__(self, rank: int, world_size: int, seed: int) -> None:
        self.random = random.Random(seed * 1000 + rank)
        self.world_size = world_size
        self.host_us, self.compute_us, self.comm_us = START_US, START_US, START_US
        self.correlation, self.external, self.collective, self.step = 0, 0, 0, 0

    def length_us(self, median: float) -> int:
        return max(1, round(self.random.lognormvariate(0, 0.5) * median))

    def steps(self) -> Iterator[Event]:
        """All events, without end."""
        while True:
            begun_us = self.host_us
            for layer in range(LAYERS):
                for _ in range(4):
                    yield from self.operator()
                if layer % 4 == 3:
                    yield from self.all_reduce()
                if layer % 8 == 7:
                    yield from self.launch("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", "cudaMemcpyAsync", 15)
                if layer % 16 == 15:
                    yield from self.launch("gpu_memset", "Memset (Device)", "cudaMemsetAsync", 3)
            self.host_us += 50
            about = {"External id": self.step, "Ev Idx": self.step}
            yield span("user_annotation", f"ProfilerStep#{self.step}", MAIN, begun_us, self.host_us - begun_us, about)
            self.step += 1

    def operator(self) -> Iterator[Event]:
        """An operator with a child that launches a kernel."""
        name = self.random.choice(OPERATORS)
        begun_us = self.host_us
        self.host_us += self.length_us(8)
        yield from self.launch("kernel", self.random.choice(list(KERNELS)), "cudaLaunchKernel", None)
        self.host_us += self.length_us(6)
        for depth, word in enumerate((name, f"{name.rstrip('_')}_out")):
            self.external += 1
            about = {"External id": self.external, "Ev Idx": self.external, "Fwd thread id": 0}
            yield span("cpu_op", word, MAIN, begun_us + depth, self.host_us - begun_us - 2 * depth, about)

    def launch(self, category: str, name: str, call: str, median_us: float | None) -> Iterator[Event]:
        """A runtime call and what it starts on stream 7."""
        number, called_us = self.called()
        start_us = max(self.compute_us + 1, self.host_us + 3)
        length_us = self.length_us(KERNELS[name] if median_us is None else median_us)
        self.compute_us = start_us + length_us
        yield runtime(call, number, called_us, self.host_us - called_us)
        yield flow("s", number, PID, MAIN, called_us)
        about: Event = {"External id": self.external, "queued": 0, "device": 0, "context": 1, "stream": 7}
        about["correlation"] = number
        if category == "kernel":
            about |= {"registers per thread": 32, "shared memory": 0, "blocks per SM": 22.2, "warps per SM": 177.7}
            about |= {"grid": [2400, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 100}
        else:
            about |= {"bytes": 1 << 20, "memory bandwidth (GB/s)": 12.3}
        yield {**span(category, name, 7, start_us, length_us, about), "pid": 0}
        yield flow("f", number, 0, 7, start_us)

    def called(self) -> tuple[int, int]:
        self.correlation += 1
        called_us = self.host_us
        self.host_us += self.length_us(5)
        return self.correlation, called_us

    def all_reduce(self) -> Iterator[Event]:
        """NCCL on stream 20, after the kernels launched so far, beside those launched later."""
        elements = self.random.choice((1 << 16, 1 << 18, 6_553_600))
        told = {"Collective name": "allreduce", "dtype": "Float", "In msg nelems": elements}
        told |= {"Out msg nelems": elements, "Group size": self.world_size, "Process Group Name": "0"}
        told |= {"Process Group Description": "default_pg", "Seq": self.collective}
        self.collective += 1
        self.external += 1
        number, called_us = self.called()
        about = {"External id": self.external, "Ev Idx": self.external}
        yield span("cpu_op", "record_param_comms", BACKWARD, called_us - 4, self.host_us - called_us + 4, about | told)
        yield runtime("cudaLaunchKernelExC", number, called_us, self.host_us - called_us)
        start_us = max(self.compute_us + 2, self.comm_us + 1, self.host_us + 4)
        length_us = self.length_us(self.random.choice((40, 120, 400)))
        self.comm_us = start_us + length_us
        about = {"External id": self.external, "queued": 0, "device": 0, "context": 1, "stream": 20}
        about |= {"correlation": number, "grid": [24, 1, 1], "block": [544, 1, 1]}
        yield {**span("kernel", ALL_REDUCE, 20, start_us, length_us, about | told), "pid": 0}


def span(category: str, name: str, tid: int, start_us: int, length_us: int, about: Event) -> Event:
    event = {"ph": "X", "cat": category, "name": name, "pid": PID, "tid": tid, "ts": start_us, "dur": length_us}
    return {**event, "args": about}


def runtime(call: str, number: int, start_us: int, length_us: int) -> Event:
    about = {"External id": number, "cbid": 211, "correlation": number}
    return span("cuda_runtime", call, MAIN, start_us, length_us, about)


def flow(sign: str, number: int, pid: int, tid: int, at_us: int) -> Event:
    ends = {"bp": "e"} if sign == "f" else {}
    return {"ph": sign, "id": number, "pid": pid, "tid": tid, "ts": at_us, "cat": "ac2g", "name": "ac2g"} | ends


def indented(event: Event) -> str:
    """As Kineto lays it out: three lines and one for the arguments."""
    parts = {key: json.dumps(value) for key, value in event.items()}
    about = parts.pop("args", None)
    members = [f'"{key}": {value}' for key, value in parts.items()]
    lines = [", ".join(some) for some in (members[:5], members[5:]) if some]
    if about is not None:
        lines.append(f'"args": {{\n      {about[1:-1]}\n    }}')
    return "  {\n    " + ",\n    ".join(lines) + "\n  }"


def write_trace(path: Path, events: int, rank: int = 0, world_size: int = 8, seed: int = 1) -> None:
    """A trace file with that many events."""
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": world_size}
    info = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_count": 1}
    info |= {"pg_config": [{**group, "ranks": list(range(world_size))}], "nccl_version": "2.21.5"}
    with path.open("w") as file:
        file.write(f'\n{{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {json.dumps(DEVICE)}\n  ],\n')
        file.write(f'  "cuda_runtime_version": 12040,\n  "distributedInfo": {json.dumps(info)},\n  "traceEvents": [\n')
        last: Event = {"name": "process_labels", "ph": "M", "ts": START_US, "pid": PID, "tid": 0}
        for event in islice(Job(rank, world_size, seed).steps(), events - 1):
            file.write(indented(event) + ",\n")
        file.write(indented({**last, "args": {"labels": "CPU"}}))
        file.write('\n  ],\n  "traceName": "generated.json"\n}\n')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="default: in build/benchmark")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    path = options.file or Path(__file__).parents[1] / f"build/benchmark/kineto-{options.events}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if options.file or not path.exists():
        write_trace(path, options.events, options.rank, options.world_size, options.seed)
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
