"""A training with Lightning's Trainer, which starts the second rank itself."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy
from trial import Trial, leave, loss_of


class Module(lightning.LightningModule):
    def __init__(self, trial: Trial) -> None:
        super().__init__()
        self.trial, self.model, self.last = trial, trial.model(), torch.zeros(())

    def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
        self.last = loss_of(self.model(batch))
        return self.last

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


class Steps(lightning.Callback):
    """Where Lightning has counted one more optimizer step."""

    def __init__(self, trial: Trial) -> None:
        self.trial, self.seen = trial, 0

    def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
        if trainer.global_step > self.seen:
            self.seen = trainer.global_step
            self.trial.step_ended()


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    trial = Trial()
    module = Module(trial)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="gloo"), max_epochs=1,
        accumulate_grad_batches=trial.accumulate, callbacks=[Steps(trial)], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, trial.loader(2))
    trial.done(float(module.last.detach()))
    leave()


if __name__ == "__main__":
    main()
