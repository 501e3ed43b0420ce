"""JAX: its processes, the programs it compiles and why, what it copies, and which program is the step. Programs and
collectives themselves are seen where XLA runs them: native/jax/xla.c."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections import Counter
from functools import wraps
from typing import Any

from .recorder import FINALIZE, XLA, watch_garbage
from .wrapping import hide_our_frame, timed_by_marks

PROGRAMS, GLOO, MPI = 1, 2, 4  # bits of what the recorder says
SEEN = {PROGRAMS: "programs", GLOO: "collectives of Gloo", MPI: "collectives of MPI"}
COMPILING = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
SYMBOLS_BYTES = 65536
MOST_REASONS = 100  # different ones that are told by their arguments
MOST_ARGUMENTS = 2  # of them that a reason names
TO_HOST, TO_DEVICE = b"copy to the host", b"copy to devices"
WAITED = b"block_until_ready"
TRIED = ("0.10.", "0.0.twin")  # versions of jaxlib: in others objects may lie otherwise in memory


def install(recorder: Any, jax: Any) -> None:
    """Everything that is known once jax itself is imported."""
    version = str(getattr(sys.modules.get("jaxlib"), "__version__", None) or getattr(jax, "__version__", "?"))
    seen = _watch_xla(recorder) if version.startswith(TRIED) else 0
    recorder.rankscope_mark(XLA, _described(version, seen).encode(), 0)
    watch_garbage(recorder)
    for part in (_watch_processes, _watch_compilation, _watch_programs, _watch_copies):
        try:
            part(recorder)
        except Exception:  # a JAX that is built otherwise: the rest still works
            pass


def _watch_xla(recorder: Any) -> int:
    """Where XLA's functions lie: read out of the library (its table of symbols is a hundred megabytes) by the first
    process that uses this build of it, and kept for all others."""
    from . import build

    known, path = None, ""
    named = recorder.rankscope_xla_build().decode()
    try:
        path = os.path.join(build.cache_folder(), f"xla-{named}-{os.uname().machine}.symbols") if named else ""
        known = build.check(path) if path else None
    except (build.NotBuilt, OSError):
        pass
    seen = int(recorder.rankscope_xla_install(known))
    if seen and path and known is None and not os.path.lexists(path):
        try:
            text = ctypes.create_string_buffer(SYMBOLS_BYTES)
            length = recorder.rankscope_xla_symbols(text, SYMBOLS_BYTES)
            build.keep(path, text.raw[:length])
        except OSError:  # the next process reads the library, too
            pass
    return seen


def _described(version: str, seen: int) -> str:
    """As `coverage` tells it: what is seen, and what is not."""
    lacking = [what for bit, what in SEEN.items() if not seen & bit]
    known = [what for bit, what in SEEN.items() if seen & bit]
    sentence = f"jaxlib {version}: {', '.join(known) or 'nothing'} seen"
    return f"{sentence}; not seen: {', '.join(lacking)}" if lacking else sentence


def _watch_processes(recorder: Any) -> None:
    """Who this process is among the others, whether it was told or found out by JAX."""
    distributed = sys.modules["jax._src.distributed"]
    state = distributed.global_state

    def initialised() -> None:
        if state.process_id is not None and state.num_processes:
            recorder.rankscope_jax_rank(int(state.process_id), int(state.num_processes))

    timed_by_marks(recorder, type(state), "initialize", b"jax.distributed.initialize", initialised)
    original = type(state).shutdown

    @wraps(original)
    def shutdown(self: Any, *arguments: Any, **named: Any) -> Any:
        if getattr(self, "client", None) is not None:
            recorder.rankscope_mark(FINALIZE, b"jax.distributed.shutdown", 0)
        try:
            return original(self, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise

    type(state).shutdown = shutdown


# ---------------------------------------------------------------- compilation: of which function, how long, why again
_reason: list[str] = []  # of the program that is being compiled; its last word


def _watch_compilation(recorder: Any) -> None:
    """JAX tells its listeners how long it took."""

    def took(event: str, seconds: float, **named: Any) -> None:
        what = COMPILING.get(event)
        if what is None:
            return
        try:
            shown = f"{what} {_function(str(named.get('fun_name', '?')))}"
            if what == "compile" and _reason:
                shown += f": {_reason.pop()}"
            recorder.rankscope_jax_took(shown.encode()[:400], float(seconds), 0)
        except Exception:
            pass

    sys.modules["jax._src.monitoring"].register_event_duration_secs_listener(took)


def _function(name: str) -> str:
    """jit(train_step), jit_train_step and train_step are the same function."""
    if name.endswith(")") and "(" in name:
        return name[name.index("(") + 1 : -1]
    return name.removeprefix("jit_").removeprefix("pmap_")


_signatures: dict[tuple[str, str], tuple[dict[str, str], int]] = {}  # by function: its arguments when compiled last


def _why(name: str, where: str, arguments: dict[str, str]) -> str:
    """Why a function is compiled that was compiled before; "" for the first time."""
    key = (name, where)
    before = _signatures.get(key)
    _signatures[key] = (arguments, before[1] + 1 if before else 0)
    if before is None:
        return ""
    known, times = before
    changed = [
        f"{argument} {known.get(argument, 'none')} -> {arguments.get(argument, 'none')}"
        for argument in dict.fromkeys([*arguments, *known])
        if known.get(argument) != arguments.get(argument)
    ]
    if not changed:
        return "again with arguments of the same types: another function object, static argument, sharding or setting"
    if times >= MOST_REASONS:
        return "other arguments"
    more = f" and {len(changed) - MOST_ARGUMENTS} more" if len(changed) > MOST_ARGUMENTS else ""
    return f"{', '.join(changed[:MOST_ARGUMENTS])}{more}"


# ---------------------------------------------------------------- programs
def _watch_programs(recorder: Any) -> None:
    """Tell the recorder of each program, once it is compiled, how much of a state it gives back."""
    pxla = sys.modules["jax._src.interpreters.pxla"]
    home = os.path.dirname(os.path.abspath(sys.modules["jax"].__file__ or "")) + os.sep
    owner = pxla.UnloadedMeshExecutable
    original = owner.from_hlo

    @wraps(original)
    def from_hlo(*arguments: Any, **named: Any) -> Any:
        _reason.clear()
        try:
            _explain(arguments, named)
        except Exception:
            pass
        try:
            executable = original(*arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        try:
            name = _module_name(arguments)
            is_own = _source_of(named).startswith(home)
            carried = 0 if is_own else _carried_bytes(executable.in_avals, executable.out_avals)
            recorder.rankscope_program_compiled(name.encode()[:120], carried)
        except Exception:
            pass
        return executable

    owner.from_hlo = staticmethod(from_hlo)


def _module_name(arguments: tuple[Any, ...]) -> str:
    """As XLA calls the program: letters that are none of a name are replaced there."""
    return str(arguments[1].operation.attributes["sym_name"].value)


def _explain(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    info = named["all_args_info"]
    names = info.debug_info.arg_names or ()
    avals = info.in_avals
    details = {
        str(name or f"argument {at}"): aval.str_short() if hasattr(aval, "str_short") else str(aval)
        for at, (name, aval) in enumerate(zip(names, avals, strict=False))
    }
    reason = _why(_function(str(arguments[0])), _source_of(named), details)
    if reason:
        _reason.append(reason)


def _source_of(named: dict[str, Any]) -> str:
    """The file of the function that was compiled; "" where JAX does not say."""
    info = getattr(named.get("all_args_info"), "debug_info", None)
    location = getattr(info, "func_src_info", None) or ""
    return str(location).partition(" at ")[2]


def _carried_bytes(taken: Any, given: Any) -> int:
    """Of the results those of the same shape and type as an argument: what the program may be called with again."""
    there = Counter((array.shape, array.dtype) for array in taken)
    back = Counter((array.shape, array.dtype) for array in given)
    return sum(
        count * dtype.itemsize * _product(shape)
        for (shape, dtype), count in (there & back).items()
        if hasattr(dtype, "itemsize")
    )


def _product(shape: Any) -> int:
    size = 1
    for length in shape:
        size *= int(length)
    return size


# ---------------------------------------------------------------- copies, and waits for results
def _watch_copies(recorder: Any) -> None:
    array = sys.modules["jax._src.array"].ArrayImpl
    begins, waited = recorder.rankscope_jax_wait, recorder.rankscope_jax_waited
    value = array._value.fget

    def _value(self: Any) -> Any:
        if getattr(self, "_npy_value", b"") is not None:  # copied already, or kept elsewhere by this JAX
            return value(self)
        begin, size = begins(), 0
        try:
            copied = value(self)
            size = getattr(copied, "nbytes", 0)  # an array's own takes longer to work out than all else here
            return copied
        except BaseException as error:
            hide_our_frame(error)
            raise
        finally:
            waited(TO_HOST, begin, size)

    array._value = property(wraps(value)(_value))
    wait = array.block_until_ready

    @wraps(wait)
    def block_until_ready(self: Any) -> Any:
        begin = begins()
        try:
            return wait(self)
        except BaseException as error:
            hide_our_frame(error)
            raise
        finally:
            waited(WAITED, begin, 0)

    array.block_until_ready = block_until_ready
    _watch_puts(recorder)


def _watch_puts(recorder: Any) -> None:
    pxla: Any = sys.modules["jax._src.interpreters.pxla"]
    put, took, clock = pxla.batched_device_put, recorder.rankscope_jax_took, time.perf_counter

    @wraps(put)
    def batched_device_put(aval: Any, sharding: Any, xs: Any, *arguments: Any, **named: Any) -> Any:
        begin = clock()
        try:
            return put(aval, sharding, xs, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        finally:
            took(TO_DEVICE, clock() - begin, _host_bytes(xs))

    pxla.batched_device_put = batched_device_put


def _host_bytes(values: Any) -> int:
    try:
        return sum(int(getattr(value, "nbytes", 0)) for value in values)
    except Exception:
        return 0
