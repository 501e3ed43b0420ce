"""Collectives of torch.distributed: on which group each is issued, and how long the program waits for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from . import observer, torch_messages
from .recorder import FINALIZE, group_identity
from .wrapping import hide_our_frame, timed_by_marks

# As torch's own ranges name them, for where the ranges are not seen.
ISSUING = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier": "monitored_barrier",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
}
BETWEEN_TWO = ("send", "recv")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
GROUP_MAKERS = ("_new_group_with_tag", "split_group", "shrink_group")

UNDESCRIBED = ("", "undefined")
NAMELESS = (*UNDESCRIBED, "default_pg", "mesh_default")  # descriptions that do not say what a group is for

_numbers: dict[str, int] = {}  # of the process groups, by torch's name


def install(recorder: Any, c10d: Any) -> None:
    """Watch initialisation, the methods that issue collectives, and waits."""
    os.register_at_fork(after_in_child=_numbers.clear)

    compiled = observer.compiled()

    def initialised() -> None:
        recorder.rankscope_rank(c10d.get_rank(), c10d.get_world_size())
        if compiled is not None:
            _number_all(recorder, c10d)

    timed_by_marks(recorder, c10d, "init_process_group", b"init_process_group", initialised)
    _renew_exports(c10d, "init_process_group")
    _watch_end(recorder, c10d)
    _watch_futures(recorder, c10d.Work)
    issuing = {method: operation for method, operation in ISSUING.items() if hasattr(c10d.ProcessGroup, method)}
    if compiled is not None:
        _watch_new_groups(recorder, c10d)
        for method in issuing:
            _tell_group(recorder, c10d, compiled, method)
        torch_messages.install(recorder, c10d, number_of)
        _watch_waits(recorder, c10d.Work, torch_messages.waited)
        return
    from . import fallback

    for method, operation in issuing.items():
        if operation not in BETWEEN_TWO:
            fallback.watch(recorder, c10d, method, operation, number_of, root_of)
    torch_messages.install(recorder, c10d, number_of)

    def waited(recorder: Any, work: Any, begin: int) -> None:
        fallback.waited(recorder, work)
        torch_messages.waited(recorder, work, begin)

    _watch_waits(recorder, c10d.Work, waited)


def install_data_parallel(recorder: Any, module: Any) -> None:
    """The collectives that DistributedDataParallel issues from C++ are on its process group."""
    wrapper = module.DistributedDataParallel
    original = wrapper.__init__

    @wraps(original)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            _own_group(recorder, named.get("process_group") or _argument(arguments, 5))
        except Exception:
            pass
        try:
            original(self, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        try:
            _follow_buckets(recorder, self)
        except Exception:
            pass

    wrapper.__init__ = init


def install_meshes(recorder: Any, module: Any) -> None:
    """A mesh of one dimension takes the world's group, which does not have the dimension's name."""
    mesh = module.DeviceMesh
    original = mesh.__init__

    @wraps(original)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            original(self, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        try:
            _name_dimensions(recorder, self)
        except Exception:  # a mesh without groups, or a torch that keeps them elsewhere
            pass

    mesh.__init__ = init


_dimensions: dict[int, list[str]] = {}  # that a group serves which was not made for one, by its number


def _name_dimensions(recorder: Any, mesh: Any) -> None:
    import torch.distributed.distributed_c10d as c10d

    for at, name in enumerate(mesh.mesh_dim_names or ()):
        group = mesh.get_group(at)
        number = number_of(recorder, c10d, group)
        served = _dimensions.setdefault(number, [])
        if number and getattr(group, "group_desc", "") in NAMELESS and name not in served:
            served.append(name)
            recorder.rankscope_group_named(number, f"mesh_{'_'.join(served)}".encode())


def _follow_buckets(recorder: Any, model: Any) -> None:
    if observer.compiled() is None:
        from . import fallback

        fallback.follow_buckets(recorder, model)


def _argument(arguments: tuple[Any, ...], at: int) -> Any:
    return arguments[at] if len(arguments) > at else None


_own: set[int] = set()


def _own_group(recorder: Any, group: Any) -> None:
    """With models on several groups nobody can tell whose a collective is: its group is then not known."""
    import torch.distributed.distributed_c10d as c10d

    _own.add(number_of(recorder, c10d, group if group is not None else c10d._get_default_group()))
    compiled = observer.compiled()
    if compiled is not None:
        compiled.rankscope_observer_own_group(next(iter(_own)) if len(_own) == 1 else 0)


def _watch_new_groups(recorder: Any, c10d: Any) -> None:
    """Number every group as soon as it is made: C++ may be the first to use it."""

    def watch(name: str) -> None:
        original = getattr(c10d, name)

        @wraps(original)
        def maker(*arguments: Any, **named: Any) -> Any:
            try:
                work = original(*arguments, **named)
            except BaseException as error:
                hide_our_frame(error)
                raise
            _number_all(recorder, c10d)
            return work

        setattr(c10d, name, maker)
        _renew_exports(c10d, name)

    for name in GROUP_MAKERS:
        if hasattr(c10d, name):
            watch(name)


def _number_all(recorder: Any, c10d: Any) -> None:
    try:
        for group in list(c10d._world.pg_names):
            number_of(recorder, c10d, group)
    except Exception:  # a torch that keeps its groups elsewhere
        pass


def number_of(recorder: Any, c10d: Any, group: Any) -> int:
    """The recorder's number of a process group; the observer knows it by the name that C++ has for the group."""
    name = c10d._world.pg_names.get(group)
    if name is None:
        return 0
    number = _numbers.get(name)
    if number is None:
        ranks = c10d.get_process_group_ranks(group)
        described = getattr(group, "group_desc", "")
        shown = described if described not in UNDESCRIBED else f"group {name}"
        identity = group_identity(f"{name}/{','.join(map(str, ranks))}")
        number = recorder.rankscope_group(shown.encode(), identity, len(ranks), group.rank(), 0)
        _numbers[name] = number
        compiled = observer.compiled()
        if compiled is not None:
            compiled.rankscope_observer_group(name.encode(), number)
    return number


def root_of(method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> int:
    """The root of a collective, as a place in its group; -1 where there is none."""
    if method not in ROOTED:
        return -1
    if "root" in named:
        return int(named["root"])
    options = named.get("opts", arguments[-1] if len(arguments) > 1 else 0)
    return int(getattr(options, "rootRank", options if isinstance(options, int) else 0))


def _tell_group(recorder: Any, c10d: Any, compiled: Any, method: str) -> None:
    original = getattr(c10d.ProcessGroup, method)
    enter, leave = compiled.rankscope_observer_enter, compiled.rankscope_observer_leave

    @wraps(original)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            entered = enter(number_of(recorder, c10d, self), root_of(method, arguments, named))
        except Exception:  # a torch that keeps its groups elsewhere: the program's call goes on
            entered = False
        try:
            return original(self, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        finally:
            if entered:
                leave()

    setattr(c10d.ProcessGroup, method, wrapper)


def _watch_waits(recorder: Any, work: Any, waited: Callable[[Any, Any, int], None]) -> None:
    original = work.wait
    ticks, blocked = recorder.rankscope_ticks, recorder.rankscope_blocked

    @wraps(original)
    def wait(self: Any, *arguments: Any, **named: Any) -> Any:
        begin = ticks()
        try:
            return original(self, *arguments, **named)
        except BaseException as error:
            hide_our_frame(error)
            raise
        finally:
            blocked(begin)
            try:
                waited(recorder, self, begin)
            except Exception:
                pass

    work.wait = wait


def _watch_futures(recorder: Any, work: Any) -> None:
    """Who waits for a future does not wait for its work."""
    original = work.get_future

    @wraps(original)
    def get_future(self: Any) -> Any:
        recorder.rankscope_futures()
        try:
            return original(self)
        except BaseException as error:
            hide_our_frame(error)
            raise

    work.get_future = get_future


def _watch_end(recorder: Any, c10d: Any) -> None:
    original = c10d.destroy_process_group

    @wraps(original)
    def destroy_process_group(group: Any = None) -> Any:
        if group is None:
            recorder.rankscope_mark(FINALIZE, b"destroy_process_group", 0)
        try:
            return original(group)
        except BaseException as error:
            hide_our_frame(error)
            raise

    c10d.destroy_process_group = destroy_process_group
    _renew_exports(c10d, "destroy_process_group")


def _renew_exports(c10d: Any, name: str) -> None:
    """Modules that are there already have imported the function by its name."""
    for importer in ("torch.distributed", "torch.distributed.device_mesh"):
        module = sys.modules.get(importer)
        if module is not None and hasattr(module, name):
            setattr(module, name, getattr(c10d, name))
