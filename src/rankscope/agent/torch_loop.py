"""The training loop of torch: backward, optimizers, gradient scalers, checkpoints, garbage collection, memory."""

from __future__ import annotations

import os
import sys
import time
from functools import wraps
from typing import Any

from . import observer
from .recorder import OBSERVER, lend_interpreter, watch_garbage
from .wrapping import hide_our_frame, ranged

OPTIMIZER = "torch.optim.optimizer"  # torch.optim removes the name


def install(recorder: Any, torch: Any) -> None:
    """Everything that is known once torch itself is imported."""
    how = observer.start(recorder, torch)
    recorder.rankscope_mark(OBSERVER, how.encode(), 0)
    watch_garbage(recorder)
    parts = (_watch_backward, _watch_optimizers, _watch_new_optimizers, _watch_scalers, _watch_save, _watch_gpus)
    for part in (*parts, _watch_graphs, lend_interpreter):
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


def install_deepspeed(recorder: Any, module: Any) -> None:
    """Its engine reduces in its backward, and steps its optimizer once for each group of parameters: all one step."""
    engine = module.DeepSpeedEngine
    ranged(recorder, engine, "backward", b"DeepSpeedEngine.backward")
    original = engine._take_model_step  # called where gradients have been accumulated, by the pipeline's engine, too

    @wraps(original)
    def take_model_step(self: Any, *arguments: Any, **named: Any) -> Any:
        skipped = getattr(self, "skipped_steps", 0)
        try:
            result = original(self, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        if getattr(self, "skipped_steps", 0) != skipped:
            recorder.rankscope_optimizer_skipped(0)  # its groups of parameters are known by torch's optimizer
        return result

    engine._take_model_step = take_model_step
    ranged(recorder, engine, "_take_model_step", b"DeepSpeedEngine.step")


MOST_REASONS = 200  # different ones that are told
GRAPH = "torch.compile "  # as a tally begins; then the function, and why it was compiled again


def install_graphs(recorder: Any, utils: Any) -> None:
    """torch hands what it measured of each graph to its log of events: which function, how long, which guard failed."""
    name = "add_compilation_metrics_to_chromium"  # called for every graph, whether events are logged or not
    original = getattr(utils, name)
    home = os.path.dirname(os.path.dirname(os.path.abspath(utils.__file__))) + os.sep
    functions: dict[str, str] = {}  # by the number of the compilation: a backward graph is not told its function
    reasons: set[str] = set()

    def tell(metrics: Any) -> None:
        if getattr(metrics, "is_runtime", None):
            return
        number = str(metrics.compile_id)
        seconds = (metrics.duration_us or 0) / 1e6
        if metrics.co_name:
            function = functions[number] = _function(metrics, home)
        else:
            function = f"backward of {functions.get(number, '?')}"
        reason = _failed_guard(getattr(metrics, "recompile_reason", None) or "")
        if len(reasons) >= MOST_REASONS and reason not in reasons:
            reason = "other reasons"
        reasons.add(reason)
        shown = f"{GRAPH}{function}: {reason}" if reason else GRAPH + function
        recorder.rankscope_graph_compiled(shown.encode("utf-8", "replace")[:400], seconds)

    @wraps(original)
    def wrapper(metrics: Any, *arguments: Any, **named: Any) -> Any:
        try:
            tell(metrics)
        except Exception:  # a torch that measures otherwise
            pass
        try:
            return original(metrics, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise

    setattr(utils, name, wrapper)


def _function(metrics: Any, home: str) -> str:
    """With its file and line; of a function of torch's own (a wrapper's, say) those where the program calls it."""
    path, line = str(metrics.co_filename or "?"), metrics.co_firstlineno
    frame = sys._getframe(1) if path.startswith(home) else None
    while frame is not None and frame.f_code.co_filename.startswith((home, os.path.dirname(__file__), "<")):
        frame = frame.f_back
    if frame is None:
        return f"{metrics.co_name} ({os.path.basename(path)}:{line})"
    return f"{metrics.co_name}, called at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _failed_guard(reason: str) -> str:
    """Of `0/0: tensor 'x' size mismatch …` the first line, without the number of the graph that was not taken."""
    first = reason.strip().partition("\n")[0]
    number, colon, rest = first.partition(": ")
    return rest if colon and number.replace("/", "").isdigit() else first


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


def _watch_new_optimizers(recorder: Any, torch: Any) -> None:
    """Only a program that makes no optimizer has its steps told by its backward runs."""
    optimizer = torch.optim.Optimizer
    original = optimizer.__init__

    @wraps(original)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        recorder.rankscope_optimizers(1)
        try:
            original(self, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise

    optimizer.__init__ = init
    recorder.rankscope_optimizers(0)


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


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0
ALL_DEVICES_EVERY = 16  # samples: others than the current one may come into use


def _watch_gpus(recorder: Any, torch: Any) -> None:
    """At ends of steps, soon after the start and later about once a second: a look takes 0.1 ms a GPU."""
    due, pause, looks = 0.0, FIRST_PAUSE_S, 0
    used: set[int] = set()

    def after(optimizer: Any, arguments: Any, named: Any) -> None:
        nonlocal due, pause, looks
        now = time.monotonic()
        if now < due or not torch.cuda.is_initialized():
            return
        due, pause = now + pause, min(LONGEST_PAUSE_S, 2 * pause)
        try:
            recorder.rankscope_tf32(_allows_tf32(torch, "matmul"), _allows_tf32(torch, "conv"))
            is_whole = looks % ALL_DEVICES_EVERY == 0
            looks += 1
            for device in range(torch.cuda.device_count()) if is_whole else tuple(used):
                if _tell_allocator(recorder, device, torch._C._cuda_memoryStats(device)):
                    used.add(device)
        except Exception:  # a torch that is built otherwise
            due = float("inf")

    after._torchdynamo_disable = True  # type: ignore[attr-defined]  # of a compiled optimizer
    sys.modules[OPTIMIZER].register_optimizer_step_post_hook(after)


def _tell_allocator(recorder: Any, device: int, stats: Any) -> bool:
    """Whether this process holds memory of the GPU."""
    kinds = ("allocated_bytes", "reserved_bytes", "inactive_split_bytes")
    allocated, reserved, split = (stats[kind]["all"] for kind in kinds)
    if not reserved["peak"]:
        return False
    recorder.rankscope_allocator(
        device,
        *(allocated["current"], allocated["peak"], reserved["current"], reserved["peak"], split["current"]),
        *(stats["num_alloc_retries"], stats["num_ooms"]),
    )
    return True


def _allows_tf32(torch: Any, operation: str) -> bool:
    """Asked where torch keeps it: its properties may warn."""
    precision = getattr(torch._C, "_get_fp32_precision_getter", None)  # since torch 2.9
    if precision is not None:
        return bool(precision("cuda", operation) == "tf32")
    return bool(torch._C._get_cublas_allow_tf32() if operation == "matmul" else torch._C._get_cudnn_allow_tf32())


def _watch_graphs(recorder: Any, torch: Any) -> None:
    """What a CUDA graph computes is not seen when it is replayed."""
    graph, note_replay = torch.cuda.graphs.CUDAGraph, recorder.rankscope_graph_replayed
    original = graph.replay

    @wraps(original)
    def replay(self: Any) -> None:
        note_replay()
        try:
            original(self)
        except BaseException as error:
            hide_our_frame(error)
            raise

    graph.replay = replay
