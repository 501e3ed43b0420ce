"""What is done when a module that was waited for has been imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from . import native

Action = Callable[[Any, Any], None]  # the recorder, the module
# What is done for a module, and where that stands: only what is needed is loaded, in every rank.
ACTIONS = {
    "torch": ("loop", "install"),
    "torch.distributed.distributed_c10d": ("collectives", "install"),
    "torch.nn.parallel.distributed": ("collectives", "install_data_parallel"),
    "torch.distributed.checkpoint.state_dict_saver": ("loop", "install_checkpoint"),
    "horovod.common.basics": ("horovod", "install"),
}


def arrived(waiting: Any, name: str, module: Any, begin_ns: int, end_ns: int) -> None:
    """Install what belongs to the module; what belongs to others of its package follows when they are imported."""
    recorder = native.recorder()
    if recorder is None:
        return
    if name == "torch":
        recorder.rankscope_mark(native.INTERPRETER, b"", waiting.started_ns)
        recorder.rankscope_mark(native.IMPORT_BEGIN, b"torch", begin_ns)
        recorder.rankscope_mark(native.IMPORT_END, b"torch", end_ns)
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
