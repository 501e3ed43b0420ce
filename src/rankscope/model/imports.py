"""What is known of imports: the records behind the tables modules, system_calls, paths, calls_method and mounts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Module:
    """One import of a Python module."""

    module: int  # from 1 in the order of their beginnings; 0 stands for the interpreter itself
    parent: int  # the module that imports it
    name: str
    thread: int
    begin_ns: int  # since the process started
    wall_ns: int  # nested imports included; up to the last sign of life if it did not end
    self_wall_ns: int  # imports inside left out
    cpu_ns: int  # of the importing thread
    self_cpu_ns: int
    failed: bool  # it raised
    shared_objects: int  # loaded meanwhile, without nested imports
    ended: bool = True


@dataclass(slots=True)
class SystemCalls:
    """Calls of one kind by one module for one cause to one file system."""

    module: int
    cause: str  # search, code, module, loader or interpreter
    call: str  # as strace prints it
    mount: str  # the mount point, "" where the call names no file
    calls: int
    failed: int
    missing: int  # of the failed ones: ENOENT
    total_ns: int
    bytes: int  # returned by reads


@dataclass(slots=True)
class PathUse:
    """One path that a module looked up."""

    module: int
    cause: str
    operation: str
    path: str
    result: str  # ok, or the name of the error
    times: int
    bytes: int  # size of the file where it was opened


@dataclass(slots=True)
class CallsMethod:
    """How the system calls of a process were seen."""

    method: str
    note: str  # why not a better method
    seen_share: float | None  # share of all calls that was seen, if known
    lost_calls: int = 0
    lost_paths: int = 0
    lost_modules: int = 0
    loader_calls: int = 0  # counted in a second start of the dynamic loader


@dataclass(slots=True)
class Mount:
    """A file system that a process used."""

    mount: str
    fs_type: str


@dataclass(frozen=True, slots=True)
class PathOperation:
    """What a program asked of the file system about one path."""

    operation: str  # stat, open, access, readlink, list, exec
    path: str
    result: str = "ok"  # or the errno's name; "" where it is not known
    times: int = 1
    bytes: int = 0  # size of the file where an open succeeded
