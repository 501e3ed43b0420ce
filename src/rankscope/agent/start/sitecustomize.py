"""Python imports this at its start, because `rankscope run` says so in PYTHONPATH. It has imports timed, waits for the
program to import torch and makes place for the program's own sitecustomize. Short: every Python of the job reads it."""

import sys
import time


class Waiting:
    """Stands in front of the finders: `wanted` are the modules it waits for."""

    def find_spec(self, name, path=None, target=None):
        if name not in self.wanted:
            return None
        sys.path.append(self.folder)
        self.own("1")
        try:
            import _rankscope_waiting as waiting
        except Exception:  # gone in the meantime: the program imports as without us
            self.wanted = ()
            return None
        finally:
            self.own("0")
            sys.path.remove(self.folder)
        return waiting.found(self, name, path, target)

    def own(self, begins):
        """Between "1" and "0" what is done is not the program's doing."""


def watch_imports(waiting, here):
    """Make a module of the recorder, which is in this process already: only then is it found."""
    import _imp

    flags = sys.getdlopenflags()
    library = here.rpartition("/agent/")[0] + "/native/librankscope.so"
    sys.setdlopenflags(6)  # RTLD_NOW | RTLD_NOLOAD
    try:
        native = _imp.create_dynamic(type(sys.__spec__)("_rankscope_imports", None, origin=library))
        native.install(sys.modules["_frozen_importlib"])
        waiting.own = native.own
    except Exception:  # not recorded
        pass
    finally:
        sys.setdlopenflags(flags)


def start(here):
    sys.path[:] = [folder for folder in sys.path if folder != here]
    sys.modules.pop("sitecustomize", None)
    if hasattr(time, "monotonic_ns"):  # a Python that torch may be there for
        waiting = Waiting()
        waiting.folder = here
        waiting.started_ns = time.monotonic_ns()
        waiting.wanted = {"torch", "horovod.common.basics"}
        sys.meta_path.insert(0, waiting)
        if sys.version_info >= (3, 10) and sys.implementation.name == "cpython" and not getattr(sys, "abiflags", ""):
            watch_imports(waiting, here)


start(__file__.rpartition("/")[0])
import sitecustomize  # noqa: E402, F401  # the program's own; where there is none this fails as it would without us
