"""torch.profiler inside the job, with a schedule, twice, and its trace written: its counts are the program's own."""

import json
import os
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile, schedule

torch.manual_seed(0)
model = torch.nn.Linear(256, 256).cuda()
rows = torch.randn(32, 256, device="cuda")


def step():
    model(rows).sum().backward()


def count(path):
    events = json.load(open(path))["traceEvents"]
    return {
        kind: sum(event.get("cat") == kind for event in events) for kind in ("kernel", "gpu_memset", "cuda_runtime")
    }


folder = tempfile.mkdtemp()
step()
for turn in range(2):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as whole:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
    path = os.path.join(folder, f"{turn}.json")
    whole.export_chrome_trace(path)
    print("profile", turn, count(path), flush=True)
steps = []
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=2, warmup=1, active=3, repeat=2),
    on_trace_ready=lambda prof: steps.append(sum(e.count for e in prof.key_averages() if e.key == "aten::mm")),
) as planned:
    for _ in range(12):
        step()
        planned.step()
print("mm in active steps", steps)
