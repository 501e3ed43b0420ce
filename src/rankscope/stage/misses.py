"""Which files a job took from the original place: links of the copy tell by their time of access.

A link to the original is made with its last access in 1970. The kernel notes the first time that it is followed (by
whatever program), on every file system that is not mounted with noatime, and it costs the job nothing.
"""

import os

from rankscope.stage.bundle import LINK_OUT, Manifest
from rankscope.stage.unpack import MADE_NS, NEVER_NS


def followed(manifest: Manifest, copy: str) -> list[str] | None:
    """The links to the original place that were followed; None where the file system does not tell."""
    if manifest.image or not tells(copy):  # links in an image have no times
        return None
    return [path for path, _, kind in manifest.links if kind == LINK_OUT and was_followed(f"{copy}/{path}")]


def was_followed(path: str) -> bool:
    try:
        return os.lstat(path).st_atime_ns != NEVER_NS
    except OSError:
        return False


def tells(folder: str) -> bool:
    """Whether links tell here, found out by following one."""
    path = f"{folder}/.trial-{os.getpid()}"
    try:
        os.symlink("/", path)
        os.utime(path, ns=(NEVER_NS, MADE_NS), follow_symlinks=False)
        os.stat(path)
        return was_followed(path)
    except OSError:
        return False
    finally:
        try:
            os.unlink(path)
        except OSError:
            pass
