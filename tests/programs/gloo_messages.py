"""A pipeline of three stages on Gloo and messages of any kind: gloo_messages.py MS; rank 1 is slow by that."""

import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size, late = dist.get_rank(), dist.get_world_size(), float(sys.argv[1]) / 1000
dist.barrier()
for _ in range(5):  # every rank takes a tensor from the one before and hands one on
    tensor = torch.zeros(1000)
    if rank:
        dist.recv(tensor, rank - 1, tag=1)
    if rank == 1:
        time.sleep(late)
    if rank < size - 1:
        dist.send(tensor, rank + 1, tag=1)
dist.barrier()
right, left = (rank + 1) % size, (rank - 1) % size
for number in range(4):
    got, sent = torch.zeros(10 + number), torch.full((10 + number,), float(rank))
    if number % 2:
        operations = [dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, got, left)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    else:
        later = [dist.irecv(got, left, tag=number), dist.isend(sent, right, tag=number)]
        for work in reversed(later):
            work.wait()
    assert (got == left).all()
dist.barrier()
if rank == 0:
    for _ in range(size - 1):
        dist.recv(got)  # from anybody
else:
    dist.send(got, 0)
dist.barrier()
dist.destroy_process_group()
