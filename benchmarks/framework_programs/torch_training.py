"""Trainings with torch alone: torch_training.py KIND [--steps N] [--accumulate N] [--problem P] [--truth FOLDER]."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from trial import BATCH, LATE_S, WIDTH, Trial, leave, loss_of


def ddp(trial: Trial) -> nn.Module:
    return DistributedDataParallel(trial.model())


def fsdp1(trial: Trial) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(trial.model(), device_id=torch.device("cpu"), use_orig_params=True)


def fsdp2(trial: Trial) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    model = trial.model()
    for layer in model.layers:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def sharded_layers(model: nn.Module, mesh: Any) -> nn.Module:
    """Every pair of linear layers is divided by columns and by rows."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    linear = [name for name, layer in model.layers.named_children() if isinstance(layer, nn.Linear)]
    styles = {name: (RowwiseParallel() if at % 2 else ColwiseParallel()) for at, name in enumerate(linear)}
    parallelize_module(model.layers, mesh, styles)
    return model


def tp(trial: Trial) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    return sharded_layers(trial.model(), mesh)


def mesh_2d(trial: Trial) -> nn.Module:
    """As torchtitan does it: tensor parallel within, FSDP2 across."""
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = sharded_layers(trial.model(), mesh["tp"])
    fully_shard(model, mesh=mesh["dp"])
    return model


def compiled(trial: Trial) -> nn.Module:
    return torch.compile(DistributedDataParallel(trial.model().layers), backend="aot_eager", dynamic=False)


MODELS = {
    "ddp": ddp, "scaler": ddp, "elastic": ddp, "fsdp1": fsdp1, "fsdp2": fsdp2, "tp": tp, "mesh_2d": mesh_2d,
    "compiled": compiled,
}  # fmt: skip


def train(trial: Trial) -> float:
    model = MODELS[trial.kind](trial)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", enabled=trial.kind == "scaler")
    micro, loss, skipped = 0, torch.zeros(()), 0
    for at, batch in enumerate(trial.loader()):
        if trial.problem == "shapes":
            batch = batch[: 8 + at // 8]
        micro += 1
        is_last = micro % trial.accumulate == 0
        with model.no_sync() if not is_last and hasattr(model, "no_sync") else nullcontext():
            loss = loss_of(model(batch)) / trial.accumulate
            if trial.kind == "scaler" and at % 10 == 9:
                loss = loss * float("inf")  # of which the scaler skips the optimizer's step
                skipped += 1
            scaler.scale(loss).backward()
        if is_last:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            trial.step_ended()
            fail_once(trial)
    return float(loss.detach()) if loss.isfinite() else 0.0


def fail_once(trial: Trial) -> None:
    """The first attempt of the elastic training ends in an error on one rank."""
    if trial.kind == "elastic" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and len(trial.ended_s) == 20:
        if trial.rank() == 1:
            os._exit(3)


def pipeline(trial: Trial) -> float:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("pp",))
    part = Stage(trial, slow=trial.problem == "slow_stage" and rank == 1)
    stage = PipelineStage(part, rank, size, torch.device("cpu"), group=mesh.get_group("pp"))
    schedule_of = Schedule1F1B if trial.kind == "pipeline_1f1b" else ScheduleGPipe
    schedule = schedule_of(stage, n_microbatches=4, loss_fn=lambda made, wanted: (made - wanted).square().mean())
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-4)
    losses: list[torch.Tensor] = []
    for batch in trial.loader():
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch)
        else:
            losses = []
            schedule.step(target=torch.full((BATCH, WIDTH), 0.5), losses=losses)
        optimizer.step()
        trial.step_ended()
    return float(torch.stack(losses).mean().detach()) if losses else 0.0


class Stage(nn.Module):
    def __init__(self, trial: Trial, slow: bool) -> None:
        super().__init__()
        self.layers, self.slow = trial.model().layers, slow

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.slow:
            time.sleep(LATE_S / 4)
        return self.layers(batch)


def main() -> None:
    trial = Trial()
    if trial.kind == "elastic":  # torchrun's store still has the addresses of the first attempt
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        store = f"file://{os.getcwd()}/store-{attempt}"
        dist.init_process_group("gloo", init_method=store, rank=int(os.environ["RANK"]), world_size=2)
    else:
        dist.init_process_group("gloo")
    loss = pipeline(trial) if trial.kind.startswith("pipeline") else train(trial)
    dist.barrier()
    micro_batches = 4 * len(trial.ended_s)  # each goes one way and its gradient the other; Gloo has no record of them
    told = {"messages": {"send": micro_batches, "receive": micro_batches}} if trial.kind.startswith("pipeline") else {}
    trial.done(loss, **told)
    dist.destroy_process_group()
    leave()


if __name__ == "__main__":
    main()
