"""A module that was waited for is being imported: its loader tells us when it has been executed."""

import sys
import time


def found(waiting, name, path, target):
    """Its spec, as the other finders give it; of `rankscope`, where it is not installed, that of what records here."""
    if name != "rankscope":
        waiting.wanted.discard(name)
    for finder in list(sys.meta_path):
        find = getattr(finder, "find_spec", None)
        spec = find(name, path, target) if find and finder is not waiting else None
        if spec is not None:
            if name != "rankscope":
                watch(waiting, name, spec.loader)
            return spec
    return ourselves(waiting) if name == "rankscope" else None


def ourselves(waiting):
    """For `rankscope.step()` and `rankscope.range()`, which need the standard library alone."""
    from importlib.util import spec_from_file_location

    folder = waiting.folder.rpartition("/agent/")[0]
    return spec_from_file_location("rankscope", folder + "/__init__.py", submodule_search_locations=[folder])


def watch(waiting, name, loader):
    """Go through us once; then the loader is as it was."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module):
        vars(loader).pop("exec_module", None)
        begin_ns = time.monotonic_ns()
        try:
            execute(module)
        except BaseException as error:  # the program's traceback is the one it has without us
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        waiting.own("1")
        try:
            imported(waiting, name, module, begin_ns)
        except Exception:  # the program goes on as without us
            pass
        finally:
            waiting.own("0")

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass


def imported(waiting, name, module, begin_ns):
    """Let the agent do its part. It is loaded by its path: the program's Python need not have rankscope installed."""
    end_ns = time.monotonic_ns()
    if "_rankscope" not in sys.modules:
        from importlib.util import module_from_spec, spec_from_file_location

        folder = waiting.folder.rpartition("/")[0]
        spec = spec_from_file_location("_rankscope", folder + "/__init__.py", submodule_search_locations=[folder])
        sys.modules["_rankscope"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["_rankscope"])
    from _rankscope.arrivals import arrived

    arrived(waiting, name, module, begin_ns, end_ns)
