"""A training with Accelerate: its own loop, gradient accumulation by `accumulate`."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from trial import Trial, leave, loss_of


def main() -> None:
    trial = Trial()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=trial.accumulate)
    model = trial.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, trial.loader(accelerator.num_processes))
    loss = torch.zeros(())
    for batch in loader:
        with accelerator.accumulate(model):
            loss = loss_of(model(batch))
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            trial.step_ended()
    accelerator.wait_for_everyone()
    trial.done(float(loss.detach()))
    accelerator.end_training()
    leave()


if __name__ == "__main__":
    main()
