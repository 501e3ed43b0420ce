"""Waits for the program to import torch. Python imports this at its start, because `rankscope run` says so in
PYTHONPATH; it then makes place for the program's own sitecustomize."""

import sys
import time


class Waiting(object):
    """Stands in front of the finders until the modules it waits for have been imported."""

    def __init__(self, folder):
        self.folder = folder
        self.started_ns = time.monotonic_ns()
        self.wanted = {"torch": None, "horovod.common.basics": None}

    def find_spec(self, name, path=None, target=None):
        if name not in self.wanted:
            return None
        del self.wanted[name]
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                self.watch(name, spec)
                return spec
        return None

    def watch(self, name, spec):
        """Be told when the module has been executed: its loader goes through us once."""
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module):
            try:
                del loader.exec_module
            except AttributeError:
                pass
            begin_ns = time.monotonic_ns()
            execute(module)
            self.imported(name, module, begin_ns)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            pass

    def imported(self, name, module, begin_ns):
        try:
            from importlib.util import module_from_spec, spec_from_file_location

            package = sys.modules.get("_rankscope")
            if package is None:
                spec = spec_from_file_location(
                    "_rankscope", self.folder + "/__init__.py", submodule_search_locations=[self.folder]
                )
                package = sys.modules["_rankscope"] = module_from_spec(spec)
                spec.loader.exec_module(package)
            from _rankscope.arrivals import arrived

            arrived(self, name, module, begin_ns, time.monotonic_ns())
        except Exception:  # the program goes on as without us
            pass


def start():
    here = __file__.rpartition("/")[0]
    sys.path[:] = [folder for folder in sys.path if folder != here]
    sys.modules.pop("sitecustomize", None)
    if sys.version_info >= (3, 8):
        sys.meta_path.insert(0, Waiting(here.rpartition("/")[0]))


start()
import sitecustomize  # noqa: E402,F401,I001  # the program's own; where there is none this fails as it would without us
