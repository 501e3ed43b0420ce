"""Which sources a statement loads, in order, and where the dynamic loader looks for libraries: run in the environment's
Python as its users run it."""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from typing import Any

loaded = [getattr(getattr(module, "__spec__", None), "origin", None) for module in list(sys.modules.values())]
get_code = SourceFileLoader.get_code


def noted(self: Any, fullname: str) -> Any:
    loaded.append(self.path)
    return get_code(self, fullname)


SourceFileLoader.get_code = noted  # type: ignore[method-assign]
statement, target = sys.argv[1:3]
sys.argv[:] = ["-c"]
exec(statement, {"__name__": "__main__"})
with open(target, "w", encoding="utf-8", errors="surrogateescape") as file:
    file.write("\n".join(path for path in loaded if isinstance(path, str)))


def search_folders() -> list[str]:
    """Where the loader looks for every library: LD_LIBRARY_PATH and what the program says; also folders that are
    missing, which it forgets before an auditor can see it."""
    import ctypes

    class Path(ctypes.Structure):
        _fields_ = (("name", ctypes.c_char_p), ("flags", ctypes.c_uint))

    class Paths(ctypes.Structure):
        _fields_ = (("size", ctypes.c_size_t), ("count", ctypes.c_uint), ("first", Path * 0))

    program = ctypes.CDLL(None)
    handle, paths = ctypes.c_void_p(program._handle), Paths()
    if program.dlinfo(handle, 5, ctypes.byref(paths)):  # RTLD_DI_SERINFOSIZE
        return [""]
    memory = ctypes.create_string_buffer(paths.size)
    program.dlinfo(handle, 5, memory)
    if program.dlinfo(handle, 4, memory):  # RTLD_DI_SERINFO
        return [""]
    entries = (Path * paths.count).from_buffer(memory, Paths.first.offset)
    return [folder for folder in (os.fsdecode(entry.name) for entry in entries) if not is_default(folder)]


def is_default(folder: str) -> bool:
    """Searched after everything else, and seen by the auditor if at all: they are there."""
    search_path = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return folder not in search_path and folder.startswith(("/lib", "/usr/lib")) and folder.count("/") < 4


if "RANKSCOPE_LIBRARIES_RECORD" in os.environ:
    folders = search_folders()
    with open(os.environ["RANKSCOPE_LIBRARIES_RECORD"], "a", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"S\t{folder}\n" for folder in folders)
