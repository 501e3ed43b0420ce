"""The training loop of torch: backward, optimizers, gradient scalers, checkpoints, garbage collection."""

from __future__ import annotations

import sys
from functools import wraps
from typing import Any

from . import observer
from .recorder import OBSERVER, watch_garbage
from .wrapping import hide_our_frame, ranged

OPTIMIZER = "torch.optim.optimizer"  # torch.optim removes the name


def install(recorder: Any, torch: Any) -> None:
    """Everything that is known once torch itself is imported."""
    how = observer.start(recorder, torch)
    recorder.rankscope_mark(OBSERVER, how.encode(), 0)
    watch_garbage(recorder)
    for part in (_watch_backward, _watch_optimizers, _watch_scalers, _watch_save):
        try:
            part(recorder, torch)
        except Exception:  # a torch that is built otherwise: the rest still works
            pass


def install_checkpoint(recorder: Any, saver: Any) -> None:
    for name in ("save", "async_save", "save_state_dict"):
        ranged(recorder, saver, name, b"torch.distributed.checkpoint." + name.encode())


def install_compile(recorder: Any, callbacks: Any) -> None:
    """torch tells when it begins to compile, and when it has: the first of several at once, and the last."""
    name = b"torch.compile"
    begun: list[int] = []

    def before(*_: Any) -> None:
        recorder.rankscope_compiling(1)
        begun.append(recorder.rankscope_range_begin(name))

    def after(*_: Any) -> None:
        if begun:
            recorder.rankscope_range_end(name, begun.pop())
        recorder.rankscope_compiling(0)

    callbacks.callback_handler.register_start_callback(before)
    callbacks.callback_handler.register_end_callback(after)


def _watch_backward(recorder: Any, torch: Any) -> None:
    """The one function that runs the engine, under the names it is called by; before torch 2.3 its callers."""
    shown = b"torch.autograd.backward"
    if ranged(recorder, torch.autograd, "_engine_run_backward", shown):
        graph = torch.autograd.graph
        if hasattr(graph, "_engine_run_backward"):
            graph._engine_run_backward = torch.autograd._engine_run_backward
        return
    for name in ("backward", "grad"):
        ranged(recorder, torch.autograd, name, shown)


def _watch_optimizers(recorder: Any, torch: Any) -> None:
    """Which one steps: the range of its step names only its class."""
    tell = recorder.rankscope_optimizer

    def before(optimizer: Any, arguments: Any, named: Any) -> None:
        tell(id(optimizer))

    sys.modules[OPTIMIZER].register_optimizer_step_pre_hook(before)


def _watch_scalers(recorder: Any, torch: Any) -> None:
    """A scaler that finds infinite gradients leaves out the optimizer's step: the step ends all the same."""
    scaler = torch.amp.grad_scaler.GradScaler if hasattr(torch.amp, "grad_scaler") else torch.cuda.amp.GradScaler
    original = scaler._maybe_opt_step

    @wraps(original)
    def wrapper(self: Any, optimizer: Any, optimizer_state: Any, *arguments: Any, **named: Any) -> Any:
        steps_before = _step_count(optimizer)
        try:
            result = original(self, optimizer, optimizer_state, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        if steps_before is not None and _step_count(optimizer) == steps_before:
            recorder.rankscope_optimizer_skipped(id(optimizer))
        return result

    scaler._maybe_opt_step = wrapper
    _count_steps(torch)


_steps: dict[int, int] = {}


def _count_steps(torch: Any) -> None:
    def after(optimizer: Any, arguments: Any, named: Any) -> None:
        _steps[id(optimizer)] = _steps.get(id(optimizer), 0) + 1

    sys.modules[OPTIMIZER].register_optimizer_step_post_hook(after)


def _step_count(optimizer: Any) -> int | None:
    return _steps.get(id(optimizer), 0) if hasattr(optimizer, "step") else None


def _watch_save(recorder: Any, torch: Any) -> None:
    ranged(recorder, torch, "save", b"torch.save")
