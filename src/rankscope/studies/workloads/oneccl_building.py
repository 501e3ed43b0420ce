"""Where oneCCL is installed, and the small library that speaks to it: compiled once for each oneCCL and kept."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import sys

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oneccl_shim.cpp")
LIBRARY = "libccl.so.1"
HEADER = os.path.join("oneapi", "ccl.hpp")


def built() -> str:
    """The path of the library."""
    include, libraries = installed()
    made_of = f"{include} {libraries}".encode()
    for part in (SOURCE, __file__):  # this file has the compiler's flags
        with open(part, "rb") as file:
            made_of += file.read()
    path = os.path.join(cache(), f"oneccl-{hashlib.sha256(made_of).hexdigest()[:16]}.so")
    if not os.path.exists(path):
        os.makedirs(cache(), exist_ok=True)
        with open(f"{path}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the ranks of a job come here together
            if not os.path.exists(path):
                build(path, include, libraries)
    return path


def build(path: str, include: str, libraries: str) -> None:
    beside = f"{path}.{os.getpid()}"
    command = [compiler(), "-std=c++17", "-O2", "-shared", "-fPIC", SOURCE, "-o", beside, f"-I{include}"]
    command += [f"-L{libraries}", f"-l:{LIBRARY}", "-Wl,--allow-shlib-undefined"]
    command += [f"-Wl,-rpath,{libraries}", "-Wl,--disable-new-dtags"]  # its own libraries are found by it too
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode:
        sys.exit(f"oneCCL error: its library for Python cannot be compiled: {compiled.stderr.strip()[-500:]}")
    os.replace(beside, path)


def compiler() -> str:
    compiler_name = next(
        (name for name in (os.environ.get("CXX", ""), "g++", "c++", "clang++") if shutil.which(name)), ""
    )
    return compiler_name or sys.exit("oneCCL error: no C++ compiler: install one, or name it with CXX")


def installed() -> tuple[str, str]:
    """The folders of its headers and of its libraries: in this environment, or where CCL_ROOT says."""
    for prefix in filter(None, (os.environ.get("CCL_ROOT"), sys.prefix)):
        headers = [path for path in (os.path.join(prefix, "include"),) if os.path.exists(os.path.join(path, HEADER))]
        libraries = sorted(glob.glob(os.path.join(prefix, "lib", "**", LIBRARY), recursive=True), key=len)
        if headers and libraries:
            return headers[0], os.path.dirname(libraries[0])
    sys.exit(f"oneCCL error: no {HEADER} and {LIBRARY} in {sys.prefix}: pip install oneccl oneccl-devel")


def cache() -> str:
    """The folder in which rankscope keeps what it compiles."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("RANKSCOPE_CACHE") or os.path.join(home, "rankscope")
