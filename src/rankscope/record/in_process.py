"""Records a part of a process that was started without `rankscope run`: a cell of a notebook, a block of a script.

The recorder is loaded into the running process, so that only what the agent sees of torch is recorded: steps, ranges,
collectives. MPI, CUDA and imports need `rankscope run`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from rankscope.record.options import RunOptions
from rankscope.record.place import Place
from rankscope.record.preload import LIBRARY
from rankscope.record.run_folder import describe, find_folder, point_latest
from rankscope.record.start import AGENT, description

WANTED = ("torch", "ray", "ray._private.worker")  # what the agent acts on, now or when it is imported


class InProcess:
    """The one recording of this process, which goes on and off; its folder is made at the first begin."""

    def __init__(self) -> None:
        self.folder = ""
        self._library: Any = None

    def begin(self, out: str = "", name: str = "") -> str:
        """Record from now on; the folder of the run."""
        if not self.folder:
            self.folder = os.environ.get("RANKSCOPE_DIR", "") if _is_recorded() else self._load(out, name)
        if self._library is not None:
            self._library.rankscope_pause(0)
        return self.folder

    def pause(self) -> None:
        """Record no more until the next begin; a process under `rankscope run` is recorded all the time."""
        if self._library is not None:
            self._library.rankscope_pause(1)

    def _load(self, out: str, name: str) -> str:
        options = RunOptions()
        options.out, options.name = out, name or ("" if sys.argv[0].endswith(".py") else "notebook")
        options.command = sys.argv or ["python"]
        folder = find_folder(options, Place())
        describe(folder, description(options, folder, "", 1))
        if not out:
            point_latest(folder)
        variables = {"RANKSCOPE_DIR": folder.path, "RANKSCOPE_PID": str(os.getpid())}
        os.environ.update(variables)
        try:
            self._library = ctypes.PyDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL)
        finally:
            for variable in variables:  # programs that this one starts are not recorded
                del os.environ[variable]
        _Finder().install()
        return folder.path


def _is_recorded() -> bool:
    """Whether this process is under `rankscope run`."""
    try:
        return bool(ctypes.PyDLL(None).rankscope_ticks())
    except AttributeError:
        return False


class _Finder:
    """Lets the agent act on modules: on those that are there, and on the others when they are imported."""

    def __init__(self) -> None:
        self.folder = AGENT
        self.started_ns = time.monotonic_ns()
        self.wanted = {name for name in WANTED if name not in sys.modules}
        spec = spec_from_file_location("_rankscope_waiting", f"{AGENT}/_rankscope_waiting.py")
        assert spec is not None and spec.loader is not None
        self._waiting = module_from_spec(spec)
        spec.loader.exec_module(self._waiting)

    def install(self) -> None:
        sys.meta_path.insert(0, self)
        for name in WANTED:
            if name in sys.modules:
                self._waiting.imported(self, name, sys.modules[name], time.monotonic_ns())

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return self._waiting.found(self, name, path, target) if name in self.wanted else None

    def own(self, begins: str) -> None:
        """Imports are not timed here."""


IN_PROCESS = InProcess()
