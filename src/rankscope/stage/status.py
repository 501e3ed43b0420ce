"""What is on this node: copies, their size, who uses them, and what came from the original place."""

import os

from rankscope.stage.bundle import BadBundle
from rankscope.stage.node import JOB, KEEP, PART, TRASH, NotUsable, followed, gate, open_folder, remove, sweep, users
from rankscope.stage.options import StageOptions
from rankscope.stage.receive import sealed
from rankscope.stage.run import default_place, say

SHOWN_NAMES = 10


def show(options: StageOptions) -> int:
    """Print one line per copy; with --clean remove those that nobody uses."""
    try:
        folder = open_folder(options.value("to") or default_place(dict(os.environ)))
    except NotUsable as error:
        say(str(error))
        return 1
    if options.has("clean"):
        clean(folder)
    for name in copies(folder):
        print(described(f"{folder}/{name}"))
    return 0


def copies(folder: str) -> list[str]:
    names = [name for name in os.listdir(folder) if os.path.isdir(f"{folder}/{name}")]
    return sorted(name for name in names if not name.startswith((TRASH, PART, JOB)))


def clean(folder: str) -> None:
    """Kept copies too, if nobody uses them."""
    for name in copies(folder):
        with gate(folder):
            if not users(f"{folder}/{name}"):
                remove(f"{folder}/{name}/{KEEP}")
    for name in sweep(folder):
        print(f"removed {folder}/{name}")


def described(copy: str) -> str:
    try:
        manifest = sealed(copy)
    except (OSError, BadBundle) as error:
        return f"{copy}: damaged ({error})"
    links = followed(manifest, copy)
    text = f"{copy}: {len(manifest.files)} files, {manifest.file_bytes / 1024**2:.1f} MiB, {len(users(copy))} users"
    if links is None:
        return f"{text}; the file system does not count what came from the original place"
    names = "".join(f"\n  {path}" for path in links[:SHOWN_NAMES])
    more = f"\n  and {len(links) - SHOWN_NAMES} more" if len(links) > SHOWN_NAMES else ""
    return f"{text}, {len(links)} names taken from the original place{names}{more}"
