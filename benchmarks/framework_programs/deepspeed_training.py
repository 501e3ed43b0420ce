"""A training with DeepSpeed's engine on CPUs: deepspeed_training.py zero0 | zero1 | zero2 | zero3."""

from __future__ import annotations

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
from trial import BATCH, Trial, leave, loss_of


def main() -> None:
    trial = Trial()
    stage = int(trial.kind[-1])
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "gradient_accumulation_steps": trial.accumulate,
        "zero_optimization": {
            "stage": stage,
            "stage3_param_persistence_threshold": 0,
            "reduce_bucket_size": 300_000,
            "sub_group_size": 200_000,  # as of a model with thousands of millions of parameters: several for each step
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": trial.given.kind.startswith("bf16")},
    }
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it is for inference, and would be compiled first
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    with deepspeed.zero.Init(enabled=stage == 3, config_dict_or_path=config):
        model = trial.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    loss, seen = torch.zeros(()), 0
    for batch in trial.loader():
        loss = loss_of(engine(batch))
        engine.backward(loss)
        engine.step()
        if engine.global_steps > seen:
            seen = engine.global_steps
            trial.step_ended()
    torch.distributed.barrier()
    trial.done(float(loss.detach()))
    leave()


if __name__ == "__main__":
    main()
