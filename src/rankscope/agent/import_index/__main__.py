"""What `rankscope index` asks the environment's Python to do; the answer is JSON on standard output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

from . import build, check, layout, libraries

HERE = os.path.dirname(os.path.abspath(__file__))
RUN_FILE = "import sys; exec(compile(open(sys.argv.pop(1)).read(), '<rankscope>', 'exec'))"


class Failed(Exception):
    """Why there is no answer."""


def main(arguments: list[str]) -> dict[str, Any]:
    action, folder, target, statement, auditor = arguments
    path = target or os.path.join(folder, layout.file_name(os.path.realpath(sys.prefix)))
    if action == "build":
        return {"path": path, **built(path, statement, auditor)}
    if action == "check":
        return {"path": path, "problems": check.problems(path)}
    if action == "remove":
        removed(path[: -len(layout.SUFFIX)] + layout.LIBRARIES_SUFFIX)
        return {"path": path, "removed": removed(path)}
    raise Failed(f"unknown action {action}")


def built(path: str, statement: str, auditor: str) -> dict[str, Any]:
    begun_s = time.monotonic()
    warnings.simplefilter("ignore")  # of sources that are compiled: they are not ours
    map_path = path[: -len(layout.SUFFIX)] + layout.LIBRARIES_SUFFIX
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        removed(map_path)  # of an older index
        wanted, known = loaded_by(statement, auditor, map_path) if statement else (None, None)
        counted, total_bytes = build.build(path, statement, wanted)
    except OSError as error:
        raise Failed(f"{error.filename or path}: {error.strerror}; choose a writable place with --out") from None
    except layout.BadIndex as error:
        raise Failed(str(error)) from None
    return {**vars(counted), "libraries": known, "total_bytes": total_bytes, "seconds": time.monotonic() - begun_s}


def loaded_by(statement: str, auditor: str, map_path: str) -> tuple[list[str], int | None]:
    """The sources that a statement loads, found by running it once, and how many libraries went into the map."""
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "loaded")
        command = [sys.executable, "-c", RUN_FILE, os.path.join(HERE, "trace.py"), statement, target]
        log = os.path.join(folder, "libraries")
        audited = {"LD_AUDIT": auditor, "RANKSCOPE_LIBRARIES_RECORD": log} if auditor else {}
        done = subprocess.run(
            command,
            env={**os.environ, **audited},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if done.returncode or not os.path.exists(target):
            last = done.stderr.decode("utf-8", "replace").strip().split("\n")[-1]
            raise Failed(f"the statement failed: {last or done.returncode}")
        with open(target, encoding="utf-8", errors="surrogateescape") as file:
            wanted = file.read().split("\n")
        if auditor and not os.path.exists(log):
            raise Failed("libraries cannot be mapped here: that needs glibc 2.35; leave --libraries out")
        known = libraries.write_map(log, map_path, os.path.realpath(sys.executable)) if auditor else None
    return wanted, known


def removed(path: str) -> bool:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from None
    return True


if __name__ == "__main__":
    try:
        print(json.dumps(main(sys.argv[1:])))
    except Failed as reason:
        print(json.dumps({"failed": str(reason)}))
