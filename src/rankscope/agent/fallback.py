"""Ranges and collectives of torch seen from Python, where there is no compiled observer.

Collectives that Python issues have the end that it waits for; those of DistributedDataParallel are told by their
buckets, without a time of their own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

from .wrapping import hide_our_frame

GLOO, NCCL, OTHER = 1, 2, 3
WAITS_TOLD = 16  # with one of them: Work.wait tells of every wait, and the end is known by it
COMPLETED, FAILED, UNTOLD = 0, 1, 2

_open: dict[int, int] = {}  # slots by the id of their work
_models: list[weakref.ref[Any]] = []


def watch(
    recorder: Any, c10d: Any, method: str, operation: str, number_of: Callable[..., int], root_of: Callable[..., int]
) -> None:
    """Record every call of a method that issues a collective."""
    original = getattr(c10d.ProcessGroup, method)
    begin, end = recorder.rankscope_collective_begin, recorder.rankscope_collective_end

    def _begun(group: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[int, int]:
        backend = backend_of(group)
        try:
            shown = operation if backend == GLOO else f"{group.name()}:{operation}"
            number, size = number_of(recorder, c10d, group), size_of(method, arguments)
            root = root_of(method, arguments, named)
            return begin(shown.encode(), number, size, root, 0, backend | WAITS_TOLD), backend
        except Exception:  # a torch that keeps its groups elsewhere: the program's call goes on
            return 0, backend

    @wraps(original)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        slot, backend = _begun(self, arguments, named)
        try:
            work = original(self, *arguments, **named)
        except BaseException as error:
            end(slot, FAILED)
            hide_our_frame(error)
            raise
        if work is None:
            end(slot, COMPLETED)
        else:
            _keep(recorder, work, slot if backend == GLOO else end(slot, UNTOLD))
        return work

    setattr(c10d.ProcessGroup, method, wrapper)


def backend_of(group: Any) -> int:
    try:
        return {"gloo": GLOO, "nccl": NCCL}.get(group.name().lower().removeprefix("processgroup"), OTHER)
    except Exception:
        return OTHER


def size_of(method: str, arguments: tuple[Any, ...]) -> int:
    """Bytes of this rank's input: the second argument where there is an output too, else the first."""
    second = not method.startswith(("allreduce", "broadcast", "reduce", "barrier")) or method.startswith(
        "reduce_scatter"
    )
    return _bytes(arguments[1] if second and len(arguments) > 1 else arguments[0] if arguments else None)


def _bytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return int(value.nbytes) if hasattr(value, "nbytes") else 0


def _keep(recorder: Any, work: Any, slot: int | None) -> None:
    """A work of which nobody waited for the end may have had the same id."""
    if not slot:
        return
    forgotten = _open.pop(id(work), None)
    if forgotten:
        recorder.rankscope_collective_end(forgotten, UNTOLD)
    _open[id(work)] = slot


def waited(recorder: Any, work: Any) -> None:
    """The program has waited for this work."""
    slot = _open.pop(id(work), None) if _open else None
    if slot:
        recorder.rankscope_collective_end(slot, COMPLETED)


def follow_buckets(recorder: Any, model: Any) -> None:
    """After each backward run, count the all-reduces of the model's buckets."""
    _models.append(weakref.ref(model))
    if len(_models) > 1:
        return
    import torch

    original = torch.autograd._engine_run_backward

    @wraps(original)
    def run(*arguments: Any, **named: Any) -> Any:
        try:
            result = original(*arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        for known in _models:
            model = known()
            if model is not None:
                _count_buckets(recorder, model)
        return result

    torch.autograd._engine_run_backward = run


def _count_buckets(recorder: Any, model: Any) -> None:
    from . import torch_collectives

    try:
        if not model.require_backward_grad_sync or not model.require_forward_param_sync:
            return
        import torch.distributed.distributed_c10d as c10d

        data = model._get_ddp_logging_data()
        sizes = data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or ""
        number = torch_collectives.number_of(recorder, c10d, model.process_group)
        for size in sizes.split(","):
            slot = recorder.rankscope_collective_begin(b"all_reduce", number, int(size), -1, 0, GLOO)
            recorder.rankscope_collective_end(slot, UNTOLD)
    except Exception:
        pass


# ---------------------------------------------------------------- ranges
def watch_ranges(recorder: Any, torch: Any) -> None:
    """Torch's ranges, by the class with which torch and its users make them: slower than the compiled observer, with
    the same names."""
    record_function = torch.autograd.profiler.record_function
    enter, leave = record_function.__enter__, record_function.__exit__
    begin, end = recorder.rankscope_range_begin, recorder.rankscope_range_end

    @wraps(enter)
    def entered(self: Any) -> Any:
        shown = self.name.encode("utf-8", "replace")
        self._rankscope = (shown, begin(shown))
        return enter(self)

    @wraps(leave)
    def left(self: Any, *raised: Any) -> Any:
        try:
            return leave(self, *raised)
        finally:
            shown, since = self.__dict__.pop("_rankscope", (b"", 0))
            end(shown, since)

    record_function.__enter__, record_function.__exit__ = entered, left
