"""Operations of Horovod, as its interface for torch issues them and waits for them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from .recorder import group_identity
from .wrapping import hide_our_frame

# function of horovod.torch.mpi_ops: the operation
ISSUING = {
    "_allreduce_async": "allreduce",
    "_grouped_allreduce_async": "allreduce",
    "_allgather_async": "allgather",
    "_grouped_allgather_async": "allgather",
    "_broadcast_async": "broadcast",
    "_alltoall_async": "alltoall",
    "_reducescatter_async": "reducescatter",
    "_grouped_reducescatter_async": "reducescatter",
}
BLOCKING = ("barrier", "join")
SYNCHRONIZE = b"horovod:synchronize"
GLOO, OTHERS = 1, 4  # those of MPI and NCCL are in the log anyway: operations are only counted then
COMPLETED, FAILED = 0, 1

_open: dict[int, int] = {}  # slots by Horovod's handle
_sets: dict[Any, int] = {}  # the recorder's numbers of process sets


def install(recorder: Any, module: Any) -> None:
    """Watch what issues operations, what waits for them, and Horovod's own thread."""
    os.register_at_fork(after_in_child=_forget)
    recorder.rankscope_horovod()
    for name, operation in ISSUING.items():
        if hasattr(module, name):
            setattr(module, name, _issuing(recorder, module, getattr(module, name), operation))
    for name in BLOCKING:
        if hasattr(module, name):
            setattr(module, name, _blocking(recorder, module, getattr(module, name), name))
    module.synchronize = _synchronize(recorder, module.synchronize)
    module.poll = _poll(recorder, module.poll)


def _forget() -> None:
    _open.clear()
    _sets.clear()


def _argument(original: Any, name: str) -> Callable[[tuple[Any, ...], dict[str, Any]], Any]:
    """Picks an argument out of those of a call, by the name that the function has for it."""
    names = original.__code__.co_varnames[: original.__code__.co_argcount]
    place = names.index(name) if name in names else -1

    def picked(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return arguments[place] if 0 <= place < len(arguments) else named.get(name)

    return picked


def _begin(recorder: Any, module: Any, operation: str, tensors: Any, chosen: Any, root: int | None) -> int:
    """The slot of an operation that is being issued."""
    members = chosen if chosen is not None else module.global_process_set
    given = tensors if isinstance(tensors, (list, tuple)) else [tensors] if tensors is not None else []
    on_host = all(tensor.device.type == "cpu" for tensor in given)
    backend = GLOO if on_host and not module.mpi_enabled() else OTHERS
    size = sum(tensor.numel() * tensor.element_size() for tensor in given)
    place = -1 if root is None else members.ranks.index(root) if members.ranks else root
    number = _number(recorder, module, members)
    name = f"horovod:{operation}".encode()
    return int(recorder.rankscope_collective_begin(name, number, size, place, 0, backend))


def _number(recorder: Any, module: Any, members: Any) -> int:
    """The recorder's number of a process set."""
    key = (members.process_set_id, tuple(members.ranks or ()))
    number = _sets.get(key)
    if number is None:
        ranks = key[1] or tuple(range(module.size()))
        shown = "Horovod" if not members.process_set_id else f"Horovod process set {members.process_set_id}"
        identity = group_identity(f"horovod/{members.process_set_id}/{','.join(map(str, ranks))}")
        rank = members.rank() if members.process_set_id else module.rank()
        number = _sets[key] = recorder.rankscope_process_set(shown.encode(), identity, len(ranks), rank)
    return number


def _issuing(recorder: Any, module: Any, original: Any, operation: str) -> Any:
    chosen, root = _argument(original, "process_set"), _argument(original, "root_rank")
    ticks, end, called = recorder.rankscope_ticks, recorder.rankscope_collective_end, recorder.rankscope_horovod_call
    name = f"horovod:{operation}".encode()

    @wraps(original)
    def wrapper(tensors: Any, *arguments: Any, **named: Any) -> Any:
        begin, slot, given = ticks(), 0, (tensors, *arguments)
        try:
            slot = _begin(recorder, module, operation, tensors, chosen(given, named), root(given, named))
        except Exception:  # a Horovod that names things otherwise: the program's call goes on
            pass
        try:
            handle = original(tensors, *arguments, **named)
        except BaseException as error:
            end(slot, FAILED)
            hide_our_frame(error)
            raise
        called(name, begin, COMPLETED)
        _open[handle] = slot
        return handle

    return wrapper


def _blocking(recorder: Any, module: Any, original: Any, operation: str) -> Any:
    chosen, end = _argument(original, "process_set"), recorder.rankscope_collective_end

    @wraps(original)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        slot = 0
        try:
            slot = _begin(recorder, module, operation, None, chosen(arguments, named), None)
        except Exception:
            pass
        try:
            result = original(*arguments, **named)
        except BaseException as error:
            end(slot, FAILED)
            hide_our_frame(error)
            raise
        end(slot, COMPLETED)
        return result

    return wrapper


def _synchronize(recorder: Any, original: Any) -> Any:
    ticks, end, called = recorder.rankscope_ticks, recorder.rankscope_collective_end, recorder.rankscope_horovod_call

    @wraps(original)
    def synchronize(handle: Any, *arguments: Any, **named: Any) -> Any:
        begin, how = ticks(), COMPLETED
        try:
            return original(handle, *arguments, **named)
        except BaseException as error:
            how = FAILED
            hide_our_frame(error)
            raise
        finally:
            called(SYNCHRONIZE, begin, how)
            end(_open.pop(handle, 0), how)

    return synchronize


def _poll(recorder: Any, original: Any) -> Any:
    @wraps(original)
    def poll(handle: Any, *arguments: Any, **named: Any) -> Any:
        try:
            done = original(handle, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        if done:
            recorder.rankscope_collective_end(_open.pop(handle, 0), COMPLETED)
        return done

    return poll
