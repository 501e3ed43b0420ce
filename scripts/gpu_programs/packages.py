"""One small training each of what others wrote: transformers' Trainer, Lightning, JAX, CuPy, Triton, accelerate."""

import os
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def transformers():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=128, n_positions=64))
    rows = [{"input_ids": torch.arange(32) % 128, "labels": torch.arange(32) % 128} for _ in range(64)]
    arguments = TrainingArguments(
        tempfile.mkdtemp(), max_steps=10, per_device_train_batch_size=8, report_to=[], disable_tqdm=True,
        logging_strategy="no", save_strategy="no", dataloader_num_workers=2, seed=0,
    )  # fmt: skip
    result = Trainer(model=model, args=arguments, train_dataset=rows).train()
    print("transformers", result.global_step, f"{result.training_loss:.2f}")


def lightning():
    import logging

    import pytorch_lightning as pl
    import torch

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Model(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(32, 2)

        def training_step(self, batch, _):
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    pl.seed_everything(0, verbose=False)
    model = Model()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 32)), batch_size=8, num_workers=2)
    trainer = pl.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="gpu", devices=1,
    )  # fmt: skip
    trainer.fit(model, data)
    print("lightning", trainer.global_step, f"{model.layer.weight.norm().item():.3f}")


def jax():
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(weights, rows):
        gradient = jax.grad(lambda w: jnp.mean((rows @ w) ** 2))(weights)
        return weights - 0.1 * gradient

    weights, rows = jnp.ones((64, 8)), jax.random.normal(jax.random.key(0), (128, 64))
    for _ in range(20):
        weights = step(weights, rows)
    print("jax", jax.devices()[0].platform, f"{float(jnp.abs(weights).sum()):.2f}")


def cupy():
    import cupy as cp

    kernel = cp.RawKernel('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }', "twice")
    values = cp.arange(32, dtype=cp.float32)
    kernel((1,), (32,), (values,))
    print("cupy", float(values.sum()), float(cp.linalg.norm(cp.ones((64, 64)))))


def triton():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < count) + tl.load(y + at, mask=at < count), mask=at < count)

    x, out = torch.arange(1000, device="cuda", dtype=torch.float32), torch.empty(1000, device="cuda")
    add[(triton.cdiv(1000, 256),)](x, x, out, 1000, BLOCK=256)
    print("triton", out.sum().item())


def accelerate():
    import torch
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(mixed_precision="bf16")
    model = torch.nn.Linear(32, 4)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(5):
        loss = model(torch.ones(8, 32, device=accelerator.device)).float().pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print("accelerate", accelerator.device.type, loss.item() < 1)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
