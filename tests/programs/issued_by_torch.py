"""Collectives that torch issues from C++, by every route that Python does not see; each rank prints what it gets."""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, got = dist.get_rank(), []

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(values: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(values * 2, "sum", dist.group.WORLD) + 1

    got.append(compiled(torch.ones(4) * (rank + 1)).tolist())
    with torch.inference_mode():
        got.append(functional.all_reduce(torch.ones(2) * (rank + 1), "sum", dist.group.WORLD).tolist())
    source = torch.ones(3, requires_grad=True)
    functional.all_gather_single_autograd(source * (rank + 1), 0, dist.group.WORLD).sum().backward()
    got.append(source.grad.tolist() if source.grad is not None else [])
    mesh = init_device_mesh("cpu", (2,))
    with CommDebugMode() as counted:
        whole = DTensor.from_local(torch.ones(2, 2) * (rank + 1), mesh, [Shard(0)]).redistribute(mesh, [Replicate()])
    got.append([whole.to_local().sum().item(), counted.get_total_counts()])
    buffer = torch.arange(4.0) + rank
    dist._broadcast_coalesced(dist.group.WORLD, [buffer], 1 << 20, 1)
    got.append(buffer.tolist())
    print(f"rank {rank}: {got}\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
