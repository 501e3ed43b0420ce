"""What is done when a module that was waited for has been imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .recorder import IMPORT_BEGIN, IMPORT_END, INTERPRETER
from .recorder import recorder as recorder_here
from .wrapping import timed_by_marks

Action = Callable[[Any, Any], None]  # the recorder, the module
# What is done for a module, and where that stands: only what is needed is loaded, in every rank.
ACTIONS = {
    "torch": ("torch_loop", "install"),
    "torch.distributed.distributed_c10d": ("torch_collectives", "install"),
    "torch.nn.parallel.distributed": ("torch_collectives", "install_data_parallel"),
    "torch.distributed.checkpoint.state_dict_saver": ("torch_loop", "install_checkpoint"),
    "torch.distributed.device_mesh": ("torch_collectives", "install_meshes"),
    "torch._dynamo.callback": ("torch_loop", "install_compile"),
    "torch._dynamo.utils": ("torch_loop", "install_graphs"),
    "torch.distributed.rpc": ("worker_calls", "install_rpc"),
    "deepspeed.runtime.engine": ("torch_loop", "install_deepspeed"),
    "horovod.common.basics": ("arrivals", "install_horovod"),
    "horovod.torch.mpi_ops": ("horovod_operations", "install"),
    "ray._private.worker": ("worker_calls", "install_ray"),
    "ray": ("worker_calls", "install_ray_package"),
    "jax": ("jax_programs", "install"),
}
FRAMEWORKS = ("torch", "jax")  # whose imports are phases
# Not imported by torch:
APART = (*FRAMEWORKS, "horovod.common.basics", "horovod.torch.mpi_ops", "ray._private.worker", "ray")


def arrived(waiting: Any, name: str, module: Any, begin_ns: int, end_ns: int) -> None:
    """Install what belongs to the module; what belongs to others of its package follows when they are imported."""
    recorder = recorder_here()
    if recorder is None:
        return
    if name in FRAMEWORKS:
        recorder.rankscope_mark(INTERPRETER, b"", waiting.started_ns)
        recorder.rankscope_mark(IMPORT_BEGIN, name.encode(), begin_ns)
        recorder.rankscope_mark(IMPORT_END, name.encode(), end_ns)
    _act(name, recorder, module)
    if name == "torch":
        _follow_with_rest(waiting, recorder)


def _follow_with_rest(waiting: Any, recorder: Any) -> None:
    """Modules that torch has imported already are done after torch itself, which starts the observer; the others are
    waited for."""
    for name in ACTIONS:
        if name in APART:
            continue
        module = sys.modules.get(name)
        if module is None:
            waiting.wanted.add(name)
        else:
            _act(name, recorder, module)


def _act(name: str, recorder: Any, module: Any) -> None:
    try:
        where, function = ACTIONS[name]
        action: Action = getattr(__import__(f"{__package__}.{where}", fromlist=[where]), function)
        action(recorder, module)
    except Exception:  # one that fails must not keep the others out
        pass


def install_horovod(recorder: Any, module: Any) -> None:
    """When Horovod is initialised."""
    timed_by_marks(recorder, module.HorovodBasics, "init", b"hvd.init")
