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
    "torch._dynamo.callback": ("torch_loop", "install_compile"),
    "horovod.common.basics": ("arrivals", "install_horovod"),
}


def arrived(waiting: Any, name: str, module: Any, begin_ns: int, end_ns: int) -> None:
    """Install what belongs to the module; what belongs to others of its package follows when they are imported."""
    recorder = recorder_here()
    if recorder is None:
        return
    if name == "torch":
        recorder.rankscope_mark(INTERPRETER, b"", waiting.started_ns)
        recorder.rankscope_mark(IMPORT_BEGIN, b"torch", begin_ns)
        recorder.rankscope_mark(IMPORT_END, b"torch", end_ns)
    _act(name, recorder, module)
    if name == "torch":
        _follow_with_rest(waiting, recorder)


def _follow_with_rest(waiting: Any, recorder: Any) -> None:
    """Modules that torch has imported already are done after torch itself, which starts the observer; the others are
    waited for."""
    for name in ACTIONS:
        if name == "torch":
            continue
        module = sys.modules.get(name)
        if module is None:
            waiting.wanted.add(name)
        elif name != "horovod.common.basics":
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
