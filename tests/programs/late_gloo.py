"""Ranks that meet in all-reduces of Gloo, one of them late: late_gloo.py STEPS LATE_RANK LATE_MS ELEMENTS."""

from __future__ import annotations

import random
import sys
import time

import torch
import torch.distributed as dist

steps, late_rank, late_ms, elements = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
dist.init_process_group("gloo")
random.seed(dist.get_rank())
gradient = torch.ones(elements)
for _ in range(steps):
    time.sleep(0.002 + 0.002 * random.random() + (late_ms / 1e3 if dist.get_rank() == late_rank else 0.0))
    dist.all_reduce(gradient)
dist.destroy_process_group()
