"""Known collectives on NCCL, timed: torchrun --nproc-per-node=2 reduces.py [--count 2000]; ranks may share one GPU.

Rank 0 prints the median and the least microseconds of the enqueuing call of a small all-reduce, and their number.
"""

import argparse
import os
import statistics
import time

os.environ.setdefault("NCCL_HOSTID", os.environ.get("RANK", "0"))  # so that ranks may share a GPU
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as distributed

parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=2000)
options = parser.parse_args()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
distributed.init_process_group("nccl")
rows = torch.ones(1024, device="cuda")
for _ in range(20):
    distributed.all_reduce(rows)
torch.cuda.synchronize()
taken_us = []
for number in range(options.count):
    begun = time.perf_counter_ns()
    distributed.all_reduce(rows)
    taken_us.append((time.perf_counter_ns() - begun) / 1e3)
    if number % 50 == 49:  # what is enqueued must not wait for what was
        torch.cuda.synchronize()
torch.cuda.synchronize()
distributed.barrier()
if distributed.get_rank() == 0:
    print(f"{statistics.median(taken_us):.2f} {min(taken_us):.2f} us, {options.count} all-reduces", flush=True)
distributed.destroy_process_group()
