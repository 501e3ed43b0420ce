"""What do mangled C++ names mean? Also run as a program, which answers line by line.

libstdc++ is there wherever numpy, Arrow and DuckDB are. It refuses names of more than 1,024 letters, as CUTLASS has
them; those go to itanium_demangler. A few hundred letters can mean gigabytes of text, and a demangler may crash on what
no compiler wrote: so another process does it, within bounds, and what it does not get done stays as it is.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

SECONDS, SECONDS_A_NAME = 1.5, 0.01
MEMORY_BYTES = 1 << 28
LONGEST = 1 << 16  # letters of a name
ATTEMPTS = 8  # names that may break the demangler before the rest is left as it is
TYPE_NAME = "typeinfo name for "  # SYCL calls a kernel by the type that it is (torch's XPU build, oneDNN)
NUMBER = re.compile(r"\((?:unsigned )?(?:int|long|long long|short|char)\)(?=-?\d)")


def demangled(names: Iterable[str]) -> dict[str, str]:
    """The meaning of each name that has one."""
    mangled = sorted({name for name in names if name.startswith("_Z") and name.isascii() and name.isprintable()})
    meanings: dict[str, str] = {}
    for _ in range(ATTEMPTS):
        if not mangled:
            break
        answers = _asked(mangled)
        readable = (answer.removeprefix(TYPE_NAME) for answer in answers)
        meanings.update((name, answer) for name, answer in zip(mangled, readable, strict=False) if answer)
        mangled = mangled[len(answers) + 1 :]  # the one that was not answered broke it
    return meanings


def _asked(names: list[str]) -> list[str]:
    spec = importlib.util.find_spec("itanium_demangler")
    beside = str(Path(spec.origin).parents[1]) if spec and spec.origin else ""
    command = [sys.executable, "-I", "-S", __file__, beside]
    mangled = "".join(f"{name}\n" for name in names).encode()
    seconds = SECONDS + SECONDS_A_NAME * len(names)
    try:
        stdout = subprocess.run(command, input=mangled, capture_output=True, timeout=seconds, check=False).stdout
    except subprocess.TimeoutExpired as late:
        stdout = late.stdout or b""
    except OSError:
        return []
    return stdout.decode("utf-8", "replace").split("\n")[:-1]


def main() -> None:
    """Read names, write what they mean: an empty line where they mean nothing."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    ways = [way for way in (_libstdcxx(), _itanium(sys.argv[1])) if way]
    for line in sys.stdin:
        name = line.rstrip("\n")
        meaning = next((readable for way in ways if (readable := way(name)) and len(readable) <= LONGEST), "")
        print(meaning.replace("\n", " "), flush=True)


def _libstdcxx() -> Callable[[str], str] | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle, free = library.__cxa_demangle, ctypes.CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangle.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

    def way(name: str) -> str:
        buffer = demangle(name.encode(), None, None, ctypes.byref(ctypes.c_int()))
        if not buffer:
            return ""
        text = ctypes.string_at(buffer).decode("utf-8", "replace")
        free(buffer)
        return text

    return way


def _itanium(folder: str) -> Callable[[str], str] | None:
    sys.path.insert(0, folder)
    try:
        parse = importlib.import_module("itanium_demangler").parse
    except ImportError:
        return None

    def way(name: str) -> str:
        try:
            return NUMBER.sub("", str(parse(name) or ""))
        except Exception:  # it has none of its own, and a name as it was recorded is no loss
            return ""

    return way


if __name__ == "__main__":
    main()
