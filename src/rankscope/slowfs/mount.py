"""A slow folder that is mounted for as long as a Python block lasts, or until it is told to go."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rankscope.slowfs import counters
from rankscope.slowfs.program import Unavailable, last_line, program
from rankscope.slowfs.slowness import Slowness


@dataclass(frozen=True)
class Mount:
    """A mounted slow folder."""

    path: Path
    process: subprocess.Popen[str]

    def counters(self) -> dict[str, int]:
        return counters.of_mount(self.path)


def checked(source: Path, mount_point: Path) -> tuple[Path, Path]:
    """Both as the mount table will name them."""
    for folder in (source, mount_point):
        if not folder.is_dir():
            raise Unavailable(f"{folder}: is no folder: make it, or name another")
    return source.resolve(), mount_point.resolve()


@contextmanager
def mounted(source: Path, mount_point: Path, slowness: Slowness) -> Iterator[Mount]:
    """Mounts for the block; the native program also ends and unmounts when this process dies."""
    source, mount_point = checked(source, mount_point)
    words = [program(), "mount", "--foreground", *slowness.flags(), str(source), str(mount_point)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        if process.stdout.readline() != "ready\n":
            process.wait()
            raise Unavailable(last_line(process.stderr.read()))
        yield Mount(mount_point, process)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def mount(source: Path, mount_point: Path, slowness: Slowness) -> None:
    """Mounts in the background, until unmount()."""
    source, mount_point = checked(source, mount_point)
    words = [program(), "mount", *slowness.flags(), str(source), str(mount_point)]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(last_line(done.stderr))


def unmount(mount_point: Path) -> bool:
    """Takes the mount away, also where its server has died; False if there is none of ours."""
    # Not resolve(): that asks the mount itself, which may be dead.
    place = mount_point.parent.resolve() / mount_point.name
    return subprocess.run([program(), "unmount", place], check=False).returncode == 0
