"""Sends and receives of torch.distributed between two ranks: to whom, with what tag, and how long the program waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any

from .wrapping import hide_our_frame

# method of ProcessGroup: whether it receives, the names of its arguments behind the tensors
METHODS = {"send": (False, ("dstRank", "tag")), "recv": (True, ("srcRank", "tag")), "recv_anysource": (True, ("tag",))}
ANY = -1

_open: dict[int, int] = {}  # messages under way, by the id of their work


def install(recorder: Any, c10d: Any, number_of: Callable[..., int]) -> None:
    """Watch the methods that send and receive; their ends come by `waited`."""
    os.register_at_fork(after_in_child=_open.clear)
    for method in METHODS:
        if hasattr(c10d.ProcessGroup, method):
            _watch(recorder, c10d, method, number_of)


def waited(recorder: Any, work: Any, begin: int) -> None:
    """The program has waited for this work since then; only that of a receive from any rank knows who sent it."""
    message = _open.pop(id(work), None) if _open else None
    if message:
        recorder.rankscope_message_end(abs(message), begin, work._source_rank() if message < 0 else ANY)


def _watch(recorder: Any, c10d: Any, method: str, number_of: Callable[..., int]) -> None:
    original = getattr(c10d.ProcessGroup, method)
    receives, names = METHODS[method]
    shown = f"gloo:{'recv' if receives else 'send'}".encode()
    ticks, post = recorder.rankscope_ticks, recorder.rankscope_message

    def record(group: Any, begin: int, work: Any, tensors: Any, *rest: Any, **named: Any) -> None:
        if work is None or any(tensor.device.type != "cpu" for tensor in tensors):
            return  # on GPUs the call only enqueues: what NCCL does is seen by its plugin
        given = {**dict(zip(names, rest, strict=False)), **named}
        peer, size = int(given.get("dstRank", given.get("srcRank", ANY))), sum(tensor.nbytes for tensor in tensors)
        message = post(shown, int(receives), number_of(recorder, c10d, group), peer, int(given["tag"]), size, begin)
        _open[id(work)] = -message if peer < 0 else message

    @wraps(original)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        begin = ticks()
        try:
            work = original(self, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        try:
            record(self, begin, work, *arguments, **named)
        except Exception:  # a torch that names its arguments otherwise: the program's call goes on
            pass
        return work

    setattr(c10d.ProcessGroup, method, wrapper)
