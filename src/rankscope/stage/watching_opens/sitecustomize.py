"""In a rehearsal's Python: notes every file that is opened, imported or mapped. Read by any Python, however old."""

import sys


def watch():
    import os

    folder = os.environ.get("RANKSCOPE_STAGE_NOTES", "")
    if not folder or not hasattr(sys, "addaudithook"):
        return
    seen = set()

    def note(path):
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str) or path in seen:
            return
        seen.add(path)
        text = os.path.abspath(path) + "\n"
        name = os.path.join(folder, str(os.getpid()) + ".list")
        out = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(out, os.fsencode(text))
        os.close(out)

    busy = []

    def hook(event, arguments):
        if event == "open" and not busy and arguments and not isinstance(arguments[0], int):
            busy.append(1)
            try:
                note(arguments[0])
            except Exception:
                pass
            finally:
                busy.pop()

    def note_loaded():
        for module in list(sys.modules.values()):
            note(getattr(module, "__file__", None))
            note(getattr(module, "__cached__", None))
        with open("/proc/self/maps") as maps:
            lines = maps.read().splitlines()
        for line in lines:
            note(line[line.index("/") :] if "/" in line else None)
        note(sys.executable)

    import atexit

    atexit.register(note_loaded)
    sys.addaudithook(hook)


def give_way():
    """Another sitecustomize, which this one hides, still runs."""
    import os

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", "") != "sitecustomize":
            raise


try:
    watch()
finally:
    give_way()
