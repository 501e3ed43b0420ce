"""The second best where nothing can be mounted: a preloaded library that delays and counts calls of libc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rankscope.slowfs.program import SHIM, Unavailable
from rankscope.slowfs.slowness import Slowness

BLIND_SPOTS = (
    "the shim sees calls through libc only: not the dynamic loader's own, not what libc asks by itself (realpath), "
    "no reads, no static programs; a path is one operation, however many folders it has"
)


def shim_environment(folder: Path, slowness: Slowness, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables under which a command is slowed below a folder."""
    if not SHIM.is_file():
        raise Unavailable(f"{SHIM.name} was not built: run hatch_build.py")
    if slowness.cache != "none" or slowness.read_latency_ns or slowness.bytes_per_second:
        raise Unavailable("the shim knows no caches and sees no reads: leave out --cache, --read-latency, --bandwidth")
    if slowness.server is None:
        raise Unavailable("the shim counts in a server file: name one")
    made = dict(os.environ if base is None else base)
    made["LD_PRELOAD"] = ":".join(filter(None, [str(SHIM), made.get("LD_PRELOAD", "")]))
    made["RANKSCOPE_SLOWFS_FOLDER"] = str(folder.resolve())
    made["RANKSCOPE_SLOWFS_SERVER"] = str(slowness.server.resolve())
    made["RANKSCOPE_SLOWFS_LATENCY_NS"] = str(slowness.latency_ns)
    made["RANKSCOPE_SLOWFS_OPS_PER_SECOND"] = str(slowness.operations_per_second)
    return made
