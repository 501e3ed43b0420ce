"""Python imports this at its start, because `rankscope run` says so in PYTHONPATH. It has imports timed, puts an index
to use, waits for the program to import torch or jax and makes place for the program's own sitecustomize. Short: every
Python of the job reads it."""

import os
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


def use_index(setting):
    """Let the reader that lies in the index do its part; the layout is told in import_index/layout.py."""
    path = setting if setting.endswith(".rsindex") else setting + "/" + index_name(sys.prefix)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # it has the real name of an environment
        path = setting + "/" + index_name(os.path.realpath(sys.prefix))
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        head = os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
    if head[:12] != b"RSINDEX\n\1\0\0\0" or status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        return
    import _imp
    import marshal

    if int.from_bytes(head[16:24], "little") != status.st_size:
        return
    if _imp.source_hash(0x52414E4B53434F50, head[32:]) != head[24:32]:
        return
    facts = int.from_bytes(head[32:36], "little")
    package = module("_rankscope_index")
    package.__path__ = []
    for name, code in marshal.loads(head[40 + facts :]):
        part = module("_rankscope_index." + name)
        setattr(package, name, part)
        exec(code, vars(part))
    package.starting.start(path, status, marshal.loads(head[40:]))


def module(name):
    """A new module; once all of them run, nobody needs to find it by its name."""
    new_module = sys.modules[name] = type(sys)(name)
    new_module.__package__ = "_rankscope_index"
    return new_module


def index_name(prefix):
    name = prefix.strip("/").replace("/", "+") or "root"
    if len(os.fsencode(name)) > 200:
        import _imp

        name = _imp.source_hash(0x52414E4B53434F50, os.fsencode(prefix)).hex() + "+" + name[-60:]
    return name + ".rsindex"


def start(here):
    sys.path[:] = [folder for folder in sys.path if folder != here]
    sys.modules.pop("sitecustomize", None)
    sys.path_importer_cache.pop(here, None)
    setting = os.environ.get("RANKSCOPE_INDEX")
    if setting and setting != "off":
        try:
            use_index(setting)
        except Exception:  # the program imports as without us
            pass
        for name in [name for name in sys.modules if name.startswith("_rankscope_index")]:
            del sys.modules[name]
    if "RANKSCOPE_WITHOUT" in os.environ:
        sys.path.append(here)
        try:
            import _rankscope_without
        finally:
            sys.path.remove(here)
        _rankscope_without.switch_off(os.environ["RANKSCOPE_WITHOUT"])
    if os.environ.get("RANKSCOPE_DIR") and os.environ.get("RANKSCOPE_TORCH") != "0" and hasattr(time, "monotonic_ns"):
        waiting = Waiting()
        waiting.folder = here
        waiting.started_ns = time.monotonic_ns()
        waiting.wanted = {"torch", "jax", "horovod.common.basics", "horovod.torch.mpi_ops"}
        waiting.wanted |= {"ray", "ray._private.worker", "rankscope"}
        sys.meta_path.insert(0, waiting)
        if sys.version_info >= (3, 10) and sys.implementation.name == "cpython" and not getattr(sys, "abiflags", ""):
            watch_imports(waiting, here)


start(__file__.rpartition("/")[0])
import sitecustomize  # noqa: E402, F401  # the program's own; where there is none this fails as it would without us
