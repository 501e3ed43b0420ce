"""Calls the stand-in as a training does: results, handles and errors are printed."""

from __future__ import annotations

import traceback
from types import SimpleNamespace

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import mpi_ops


def tensor(elements: int) -> SimpleNamespace:
    return SimpleNamespace(numel=lambda: elements, element_size=lambda: 4, device=SimpleNamespace(type="cpu"))


part = ProcessSet(2, [1, 2])
for elements in (10, 20):
    print(mpi_ops.synchronize(mpi_ops._allreduce_async(tensor(elements), None, "a", global_process_set)))
handle = mpi_ops._grouped_allreduce_async([tensor(5), tensor(6)], None, name="g", process_set=part)
print(mpi_ops.poll(handle), mpi_ops.poll(handle))
failing = mpi_ops._broadcast_async(tensor(30), None, 2, "b", part)
for call in (lambda: mpi_ops.synchronize(failing), lambda: mpi_ops._allreduce_async(tensor(13), None, "c", part)):
    try:
        call()
    except (RuntimeError, ValueError):
        print(traceback.format_exc().replace(__file__, "train.py"))
mpi_ops.barrier()
