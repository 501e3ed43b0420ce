"""What the trainings of benchmarks/frameworks.py share: a model, data, one problem, and the truth that each rank keeps.

The truth does not come from rankscope: steps are noted by the program where it ends one, collectives are counted by
torch's flight recorder (TORCH_FR_BUFFER_SIZE), in C++, where they are issued.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import pickle
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH, DEPTH, BATCH = 384, 4, 64
LATE_RANK, LATE_S, LOADER_S = 1, 0.04, 0.04
PROBLEMS = ("none", "late_rank", "slow_loader", "slow_stage", "shapes")


class Rows(Dataset):  # type: ignore[type-arg]
    """`batches` batches for each rank."""

    def __init__(self, batches: int, delay_s: float) -> None:
        self.rows, self.delay_s = batches * BATCH, delay_s

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.delay_s and index % BATCH == 0:
            time.sleep(self.delay_s)
        return torch.full((WIDTH,), float(index % 7) / 7)


class Trial:
    """One rank of a training: what it is asked to do, and what it did."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("kind", help="which of the file's trainings")
        parser.add_argument("--steps", type=int, default=60, help="optimizer steps")
        parser.add_argument("--accumulate", type=int, default=1, help="backward passes in a step")
        parser.add_argument("--problem", choices=PROBLEMS, default="none")
        parser.add_argument("--truth", type=Path, help="folder for RANK.json")
        parser.add_argument("--marks", type=Path, help="library that is told when steps are counted")
        parser.add_argument("--marked", type=int, default=0, help="the last step that is not")
        parser.add_argument("--python", help="for workers that the program starts")
        self.given, _ = parser.parse_known_args()
        self.kind, self.steps, self.accumulate = self.given.kind, self.given.steps, self.given.accumulate
        self.problem = self.given.problem
        self.ended_s: list[float] = []
        self.cpu_s: list[float] = []
        self.faults: list[int] = []
        self.marks = ctypes.PyDLL(str(self.given.marks)) if self.given.marks else None
        torch.manual_seed(1)
        torch.set_num_threads(1)

    def rank(self) -> int:
        return torch.distributed.get_rank() if torch.distributed.is_initialized() else int(os.environ.get("RANK", 0))

    def model(self) -> nn.Module:
        return Layers(self)

    def loader(self, shares: int = 1) -> Any:
        """Batches for all steps; `shares`: of so many ranks, where the framework divides them."""
        delay_s = LOADER_S if self.problem == "slow_loader" else 0.0
        return DataLoader(Rows(self.steps * self.accumulate * shares, delay_s), batch_size=BATCH)

    def late(self) -> None:
        """The injected problem of most trainings, in the forward pass."""
        if self.problem == "late_rank" and self.rank() == LATE_RANK:
            time.sleep(LATE_S / self.accumulate)

    def step_ended(self) -> None:
        self.ended_s.append(time.perf_counter())
        self.cpu_s.append(time.process_time())
        self.faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        if self.marks and len(self.ended_s) == self.given.marked:
            self.marks.begin()
        if self.marks and len(self.ended_s) == self.steps:
            self.marks.end()

    def done(self, loss: float, rank: int | None = None, **more: Any) -> None:
        """Say what came out, and leave the truth behind."""
        rank = self.rank() if rank is None else rank
        sys.stdout.write(f"rank {rank}: {len(self.ended_s)} steps, loss {loss:.5f}\n")
        sys.stdout.flush()
        if self.given.truth:
            truth = {"rank": rank, "steps": len(self.ended_s), "ended_s": self.ended_s}
            truth |= {"cpu_s": self.cpu_s, "faults": self.faults}
            kept = self.given.truth / f"{rank}.json"
            kept.write_text(json.dumps({**truth, **issued(), **more}))


class Layers(nn.Module):
    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self.trial = trial
        made = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
        self.layers = nn.Sequential(*made)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.trial.late()
        return self.layers(batch)


def loss_of(made: torch.Tensor) -> torch.Tensor:
    return (made - 0.5).square().mean()


def issued() -> dict[str, Any]:
    """What torch's flight recorder has seen: collectives and messages by name, and the groups by theirs."""
    if not torch.distributed.is_initialized():
        return {"collectives": {}, "messages": {}, "groups": {}}
    dumped = pickle.loads(torch._C._distributed_c10d._dump_fr_trace(True))
    entries = dumped.get("entries", [])
    names = [(entry["is_p2p"], entry["profiling_name"].removeprefix("gloo:")) for entry in entries]
    groups = {entry["process_group"][1] for entry in entries}
    return {
        "collectives": Counter(name for between_two, name in names if not between_two),
        "messages": Counter(name for between_two, name in names if between_two),
        "groups": sorted(groups),
    }


def leave() -> None:
    """Past this torch 2.13 now and then aborts ("terminate called without an active exception"), recorded or not."""
    sys.stdout.flush()
    os._exit(0)
