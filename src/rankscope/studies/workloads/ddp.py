"""DDP with a choice of hooks: an embedding bag and ten dense layers, a pass to warm up and one that is measured.

The first ranks are trainers, the last ones parameter servers.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from typing import Any

import devices
import hooks
import place
import result
import styles
import talking
import timings
import torch
import torch.distributed as distributed
from torch import nn

EMBEDDINGS, LAYERS, WORDS = 2000, 10, 100
MIB = 1024 * 1024
THREADS = 16
RPC_TIMEOUT_S = 60
PASSES = ("warmup", "measured")


def model_of(width: int, sparse: bool) -> Any:
    torch.manual_seed(0)
    dense = [layer for _ in range(LAYERS) for layer in (nn.Linear(width, width), nn.ReLU(True))]
    return nn.Sequential(nn.EmbeddingBag(EMBEDDINGS, width, sparse=sparse), *dense)


class Trainer:
    def __init__(self, options: argparse.Namespace, number: int, trainers: int, device: str, backend: str) -> None:
        self.device, self.kind = device, options.device
        self.timing = timings.Timings(device)
        self.state = hooks.State(self.timing, trainers, options.servers, device, backend)
        self.slow_s = options.slow_ms / 1e3 if options.slow_rank == number else 0.0
        model = model_of(options.width, options.hook != "allreduce").to(device)
        # three buckets: half of the dense layers, the other half, the embedding
        dense = sum(parameter.nbytes for layer in model[1:] for parameter in layer.parameters())
        self.model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.49 * dense / MIB)
        self.model.register_comm_hook(self.state, hooks.hook_of(options.hook))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2, foreach=False)
        random = torch.Generator().manual_seed(number)
        shape = (options.batches, options.batch, WORDS)
        self.words = torch.randint(EMBEDDINGS, shape, generator=random)
        self.labels = torch.randint(options.width, shape[:2], generator=random)
        self.loss = 0.0

    def one_pass(self, name: str) -> dict[str, list[float]]:
        distributed.barrier()
        self.state.passed = name
        with devices.named(name, self.kind):
            for number in range(len(self.words)):
                self.state.batch = number
                self.one_batch(self.words[number], self.labels[number])
        return self.timing.milliseconds()

    def one_batch(self, words: Any, labels: Any) -> None:
        begin = self.timing.now()
        words, labels = words.to(self.device), labels.to(self.device)
        forward = self.timing.now()
        with devices.named("forward", self.kind):
            time.sleep(self.slow_s)
            loss = nn.functional.cross_entropy(self.model(words), labels)
        self.timing.end(timings.FORWARD, forward)
        self.optimizer.zero_grad()
        backward = self.timing.now()
        with devices.named("backward", self.kind):
            loss.backward()
        self.timing.end(timings.BACKWARD, backward)
        with devices.named("optimizer", self.kind):
            self.optimizer.step()
        self.timing.end(timings.BATCH, begin)
        self.loss = float(loss.item())


def train(options: argparse.Namespace, number: int, trainers: int) -> dict[str, Any]:
    device = "cpu" if options.device == "cpu" else f"cuda:{place.local_rank() % torch.cuda.device_count()}"
    backend = devices.backend_of(options.device)
    if options.device == "cuda":
        torch.cuda.set_device(device)
        torch.autograd.set_multithreading_enabled(False)  # so that ranges hold the kernels of the backward pass
    meeting = f"file://{os.path.abspath(options.into)}/trainers"
    distributed.init_process_group(backend, init_method=meeting, rank=number, world_size=trainers)
    trainer = Trainer(options, number, trainers, device, backend)
    times = {name: trainer.one_pass(name) for name in PASSES}
    wrong = styles.differing(trainer.model.parameters(), trainers)
    if not math.isfinite(trainer.loss):
        wrong = f"the loss is {trainer.loss}"
    talking.settle()
    outcome = {"role": "trainer", "times_ms": times, "loss": trainer.loss, "batch": options.batch, "wrong": wrong}
    return {**outcome, "parameters": sum(parameter.numel() for parameter in trainer.model.parameters())}


def joined(name: str, options: argparse.Namespace) -> None:
    from torch.distributed import rpc

    settings = rpc.TensorPipeRpcBackendOptions(
        init_method=f"file://{os.path.abspath(options.into)}/rpc",
        num_worker_threads=THREADS,
        rpc_timeout=RPC_TIMEOUT_S,
    )
    rpc.init_rpc(name, rank=place.rank(), world_size=place.world(), rpc_backend_options=settings)


def main() -> None:
    options = parse()
    rank, trainers = place.rank(), place.world() - options.servers
    outcome: dict[str, Any]
    if not options.servers:
        outcome = train(options, rank, trainers)
    else:
        from torch.distributed import rpc

        if rank < trainers:
            joined(f"trainer{rank}", options)
            outcome = train(options, rank, trainers)
            rpc.shutdown()
        else:
            import parameter_server

            server = parameter_server.serve(trainers)
            joined(f"server{rank - trainers}", options)
            rpc.shutdown()  # returns when all are done
            outcome = {"role": "server", "times_ms": server.times, "waiting_ms": server.waiting_ms(), "wrong": ""}
    result.leave(options.into, rank, **outcome)
    if outcome["role"] == "trainer":
        distributed.destroy_process_group()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", required=True)
    parser.add_argument("--hook", choices=hooks.HOOKS, required=True)
    parser.add_argument("--servers", type=int, required=True)
    parser.add_argument("--device", choices=devices.DEVICES, default="cpu")
    parser.add_argument("--batch", type=int, default=32, help="samples of each trainer")
    parser.add_argument("--batches", type=int, default=16, help="in a pass")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--slow-rank", type=int, default=-1, help="this trainer sleeps in every forward pass")
    parser.add_argument("--slow-ms", type=float, default=20.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
