"""Calls between the workers of a job, by torch RPC and Ray: who each is, what it is asked to do, whom it waits for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from .recorder import FINALIZE, INIT_BEGIN, INIT_END
from .wrapping import hide_our_frame

_awaited: dict[int, tuple[bytes, bytes]] = {}  # function and worker of futures that nobody has waited for, by their id
MOST_AWAITED = 65_536


def named(function: Any) -> bytes:
    """What the program calls it; an object that answers with an error is called by its type."""
    try:
        name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or type(function).__name__
        return str(name).encode("utf-8", "replace")
    except Exception:
        return type(function).__name__.encode("utf-8", "replace")


def wrapped(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a function by `around(original, …)`; errors pass without our frames."""
    original = getattr(owner, name)

    @wraps(original)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        try:
            return around(original, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            hide_our_frame(error)
            raise

    setattr(owner, name, wrapper)


# ---------------------------------------------------------------- torch RPC
def install_rpc(recorder: Any, rpc: Any) -> None:
    """Names and ranks of workers, calls that wait for another, and calls that are executed for another."""
    if not rpc.is_available():
        return
    os.register_at_fork(after_in_child=_awaited.clear)
    _watch_init(recorder, rpc)
    _watch_calls(recorder, rpc)
    _watch_served(recorder, rpc)


def _watch_init(recorder: Any, rpc: Any) -> None:
    def init_rpc(original: Any, *arguments: Any, **named: Any) -> Any:
        name = arguments[0] if arguments else named.get("name")
        if isinstance(name, str):
            recorder.rankscope_worker(name.encode("utf-8", "replace"))
        recorder.rankscope_mark(INIT_BEGIN, b"init_rpc", 0)
        result = original(*arguments, **named)
        recorder.rankscope_mark(INIT_END, b"init_rpc", 0)
        try:
            agent = rpc.api._get_current_rpc_agent()
            recorder.rankscope_rank(agent.get_worker_info().id, len(agent.get_worker_infos()))
            _watch_futures(recorder)
        except Exception:  # a torch that is built otherwise: the program goes on
            pass
        return result

    def shutdown(original: Any, *arguments: Any, **named: Any) -> Any:
        recorder.rankscope_mark(FINALIZE, b"rpc.shutdown", 0)
        return original(*arguments, **named)

    wrapped(rpc, "init_rpc", init_rpc)
    wrapped(rpc.api, "shutdown", shutdown)
    rpc.shutdown = rpc.api.shutdown


def _watch_calls(recorder: Any, rpc: Any) -> None:
    ticks, ended = recorder.rankscope_ticks, recorder.rankscope_worker_call

    def rpc_sync(original: Any, to: Any, func: Any, *arguments: Any, **named_ones: Any) -> Any:
        begin = 0 if _is_torchs(func) else ticks()
        try:
            return original(to, func, *arguments, **named_ones)
        finally:
            if begin:
                ended(named(func), _worker(rpc, to), begin)

    def rpc_async(original: Any, to: Any, func: Any, *arguments: Any, **named_ones: Any) -> Any:
        future = original(to, func, *arguments, **named_ones)
        if len(_awaited) < MOST_AWAITED and not _is_torchs(func):
            _awaited[id(future)] = named(func), _worker(rpc, to)
        return future

    for name, around in (("rpc_sync", rpc_sync), ("rpc_async", rpc_async)):
        wrapped(rpc.api, name, around)
        setattr(rpc, name, getattr(rpc.api, name))


def _is_torchs(function: Any) -> bool:
    """Whether it is RPC's own: workers tell each other that they are there."""
    try:
        return str(getattr(function, "__module__", "")).startswith("torch.distributed.rpc")
    except Exception:
        return False


def _worker(rpc: Any, to: Any) -> bytes:
    try:
        return str(rpc.api._to_worker_info(to).name).encode("utf-8", "replace")
    except Exception:
        return b"?"


def _watch_served(recorder: Any, rpc: Any) -> None:
    """C++ asks for this function by its name once, when RPC is initialised."""
    ticks, ended = recorder.rankscope_ticks, recorder.rankscope_worker_call

    def run(original: Any, python_udf: Any) -> Any:
        function = getattr(python_udf, "func", python_udf)
        begin = 0 if _is_torchs(function) else ticks()
        try:
            return original(python_udf)
        finally:
            if begin:
                ended(named(function), None, begin)

    wrapped(rpc.internal, "_run_function", run)


def _watch_futures(recorder: Any) -> None:
    """Of the class that C++ makes; torch.futures.Future is one below it. A job that uses no RPC keeps its own."""
    from torch._C import Future

    if hasattr(Future.wait, "__wrapped__"):  # RPC was initialised before
        return
    ticks, ended = recorder.rankscope_ticks, recorder.rankscope_worker_call

    def wait(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
        call = _awaited.pop(id(self), None) if _awaited else None
        begin = ticks() if call else 0
        try:
            return original(self, *arguments, **named)
        finally:
            if call:
                ended(*call, begin)

    wrapped(Future, "wait", wait)


# ---------------------------------------------------------------- Ray
_asked_of: dict[bytes, tuple[bytes, bytes]] = {}  # method and actor by the object that the call will give
_TITLE = "ray::"


def install_ray(recorder: Any, worker: Any) -> None:
    """What a worker of Ray executes, by the title that Ray gives its process, and whose objects are waited for."""
    os.register_at_fork(after_in_child=_asked_of.clear)
    _watch_titles(recorder, worker)
    _watch_gets(recorder, worker)


def _watch_titles(recorder: Any, worker: Any) -> None:
    """Ray shows `ray::Actor.method` while it executes that."""
    from contextlib import contextmanager

    ticks, ended = recorder.rankscope_ticks, recorder.rankscope_worker_call
    original = worker._changeproctitle

    @contextmanager
    def _changeproctitle(title: str, next_title: str) -> Any:
        with original(title, next_title):
            begin = ticks()
            shown = str(title).removeprefix(_TITLE).removesuffix("()")
            if "." in shown:
                recorder.rankscope_worker(shown.partition(".")[0].encode("utf-8", "replace"))
            try:
                yield
            finally:
                ended(shown.encode("utf-8", "replace"), None, begin)

    worker._changeproctitle = _changeproctitle


def _watch_gets(recorder: Any, worker: Any) -> None:
    ticks, ended = recorder.rankscope_ticks, recorder.rankscope_worker_call

    def get(original: Any, *arguments: Any, **named_ones: Any) -> Any:
        """Programs may give the objects by their parameter's name, which is another in `get` and `wait`."""
        refs = arguments[0] if arguments else next(iter(named_ones.values()), None)
        begin = ticks()
        try:
            return original(*arguments, **named_ones)
        finally:
            ended(*_asked(refs), begin)

    for name in ("get", "wait"):
        wrapped(worker, name, get)


def install_ray_package(recorder: Any, ray: Any) -> None:
    """The names by which programs call them, and the calls of actors' methods."""
    worker = sys.modules["ray._private.worker"]
    ray.get, ray.wait = worker.get, worker.wait
    handle = ray.actor.ActorHandle

    def call(original: Any, self: Any, method_name: str, *arguments: Any, **named_ones: Any) -> Any:
        result = original(self, method_name, *arguments, **named_ones)
        _remember(result, method_name, self)
        return result

    wrapped(handle, "_actor_method_call", call)


def _remember(result: Any, method: str, handle: Any) -> None:
    try:
        actor = handle._ray_actor_creation_function_descriptor.class_name
        for ref in result if isinstance(result, list) else [result]:
            if len(_asked_of) < MOST_AWAITED:
                _asked_of[ref.binary()] = str(method).encode("utf-8", "replace"), actor.encode("utf-8", "replace")
    except Exception:  # a Ray that is built otherwise
        pass


def _asked(refs: Any) -> tuple[bytes, bytes]:
    """The method and the actor that gives these objects; of several the first, which is the same for most."""
    for ref in refs if isinstance(refs, (list, tuple)) else [refs]:
        try:
            call = _asked_of.pop(ref.binary(), None)
        except Exception:
            call = None
        if call is not None:
            return call
    return b"ray.get", b"objects of Ray"
