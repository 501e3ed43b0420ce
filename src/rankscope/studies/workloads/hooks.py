"""What DDP does with a bucket of gradients: all-reduce it, or have parameter servers average it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import timings
import torch
import torch.distributed as distributed

HOOKS = ("allreduce", "hybrid", "rpc")


class State:
    """Which batch it is, and who averages."""

    def __init__(self, timing: timings.Timings, trainers: int, servers: int, device: str, backend: str) -> None:
        self.timing = timing
        self.trainers, self.servers = trainers, servers
        self.device, self.backend = device, backend
        self.passed, self.batch = "", 0

    def server(self, bucket: int) -> str:
        """All trainers agree on it; servers take turns."""
        return f"server{(self.batch + bucket) % self.servers}"


def allreduce(state: State, bucket: Any) -> Any:
    begin = state.timing.now()
    name = f"{timings.HOOK},{state.backend}_dense_allreduce"

    def done(future: Any) -> Any:
        mean = future.value()[0] / state.trainers
        state.timing.end(name, begin)
        return mean

    return distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(done)


def by_rpc(state: State, bucket: Any) -> Any:
    import parameter_server
    from torch.distributed import rpc

    begin = state.timing.now()
    buffer = bucket.buffer()
    name = f"{timings.HOOK},rpc_{'sparse' if buffer.is_sparse else 'dense'}_average"
    key = (state.passed, state.batch, bucket.index())
    reply = rpc.rpc_async(state.server(bucket.index()), parameter_server.average, (key, sent(buffer)))
    # on a GPU a future has to be told whose results it will hold
    answer = torch.futures.Future(devices=None if state.device == "cpu" else [state.device])

    def done(future: Any) -> None:
        try:
            mean = received(future.value(), state.device)
        except Exception as problem:
            answer.set_exception(problem)
        else:
            state.timing.end(name, begin)
            answer.set_result(mean)

    reply.add_done_callback(done)
    return answer


def hybrid(state: State, bucket: Any) -> Any:
    """What is sparse goes to the servers, what is dense is all-reduced."""
    return by_rpc(state, bucket) if bucket.buffer().is_sparse else allreduce(state, bucket)


def sent(buffer: Any) -> tuple[Any, ...]:
    if not buffer.is_sparse:
        return (buffer.cpu(),)
    dense = buffer.coalesce()
    return dense.indices().cpu(), dense.values().cpu(), tuple(dense.shape)


def received(parts: tuple[Any, ...], device: str) -> Any:
    if len(parts) == 1:
        return parts[0].to(device)
    return torch.sparse_coo_tensor(parts[0], parts[1], parts[2], is_coalesced=True).to(device)


def hook_of(name: str) -> Callable[[State, Any], Any]:
    """Without annotations, of which DDP takes those of its own types only."""
    chosen = {"allreduce": allreduce, "hybrid": hybrid, "rpc": by_rpc}[name]
    return lambda state, bucket: chosen(state, bucket)
