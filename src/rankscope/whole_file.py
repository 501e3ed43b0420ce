"""Files that are there as a whole or not at all. Standard library only: it also runs where scripts of cells run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, pieces: Iterable[bytes], is_synced: bool = False) -> None:
    """Beside its place, then there, with the rights of any new file; synced: on the disk before it counts.

    The name beside is this process's own, so that two who write the same file do not mix."""
    beside = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.writelines(pieces)
            if is_synced:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
