"""A copy as one squashfs image that is mounted instead of unpacked, where the tools for it are there."""

import os
import shutil
import subprocess
import tarfile
from typing import IO

from rankscope.stage.bundle import LINK_IN, BadBundle
from rankscope.stage.contents import Packed, Tree
from rankscope.stage.node import NotUsable

IMAGE, MOUNT_POINT = "image.squashfs", "image"
MOUNT_S = 30.0


def into_image(tree: Tree, folder: str) -> Tree:
    """The tree as an image with everything, and beside it what must lie outside: programs, texts that name the copy."""
    image = f"{folder}/{IMAGE}"
    write_image(tree, image)
    outside = Tree()
    outside.watched = tree.watched
    outside.folders = [(path, mode) for path, mode in tree.folders if is_outside(path)]
    outside.files = [file for file in tree.files if is_outside(file.path)]
    outside.links = [link for link in tree.links if is_outside(link[0])]
    for path, _ in tree.folders:
        if path.count("/") == 1 and not is_outside(path):
            outside.links.append((path, f"../{MOUNT_POINT}/{path}", LINK_IN))
    outside.folders.append((MOUNT_POINT, 0o700))
    outside.files.append(Packed(image, IMAGE, os.stat(image), False))
    return outside


def is_outside(path: str) -> bool:
    """A root, what lies directly in it and is no folder (see above), and everything in its bin."""
    parts = path.split("/")
    return len(parts) == 1 or parts[1] == "bin" or (len(parts) == 2 and "." in parts[1])


def write_image(tree: Tree, path: str) -> None:
    program = shutil.which("mksquashfs")
    if not program:
        raise BadBundle(
            "--image needs mksquashfs on the PATH (package squashfs-tools); without --image a tree is packed"
        )
    options = ["-tar", "-noappend", "-no-progress", "-quiet", "-all-root", "-mkfs-time", "0", "-root-time", "0"]
    making = subprocess.Popen(
        [program, "-", path, *options], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert making.stdin and making.stderr
    try:
        write_tar(tree, making.stdin)
        making.stdin.close()
    except BrokenPipeError:
        pass  # its own words say why
    words = making.stderr.read().decode(errors="replace").strip()
    if making.wait():
        raise BadBundle(f"mksquashfs failed: {words.splitlines()[-1] if words else making.returncode}")


def write_tar(tree: Tree, out: IO[bytes]) -> None:
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.GNU_FORMAT) as tar:
        for path, mode in tree.folders:
            member = tarfile.TarInfo(path)
            member.type, member.mode = tarfile.DIRTYPE, mode
            tar.addfile(member)
        for file in tree.files:
            member = tarfile.TarInfo(file.path)
            member.size, member.mode = file.status.st_size, file.status.st_mode & 0o7777
            member.mtime = int(file.status.st_mtime)
            with open(file.source, "rb") as source:
                tar.addfile(member, source)
        for path, target, _ in tree.links:
            member = tarfile.TarInfo(path)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)


def mount(folder: str) -> None:
    """Mount the image of the copy in this folder, or say why that is not possible."""
    program = shutil.which("squashfuse_ll") or shutil.which("squashfuse")
    if not program:
        raise NotUsable("the bundle is an image and squashfuse is not on the PATH of this node; pack without --image")
    if not os.path.exists("/dev/fuse"):
        raise NotUsable("the bundle is an image and this node has no /dev/fuse; pack without --image")
    try:
        done = subprocess.run(
            [program, f"{folder}/{IMAGE}", f"{folder}/{MOUNT_POINT}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=MOUNT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotUsable(f"the bundle is an image and cannot be mounted ({error}); pack without --image") from None
    if done.returncode or not os.path.ismount(f"{folder}/{MOUNT_POINT}"):
        words = " ".join(done.stderr.decode(errors="replace").split())[:200]
        raise NotUsable(f"the bundle is an image and cannot be mounted ({words}); pack without --image")


def is_mounted(folder: str) -> bool:
    """Whether the image is mounted and answers."""
    try:
        return os.path.ismount(f"{folder}/{MOUNT_POINT}") and bool(os.listdir(f"{folder}/{MOUNT_POINT}"))
    except OSError:
        return False


def unmount(folder: str) -> None:
    """Before a copy is removed; a process that still uses it keeps it until it ends."""
    if not os.path.lexists(f"{folder}/{IMAGE}"):
        return
    for command in (["fusermount3", "-uz"], ["fusermount", "-uz"], ["umount", "-l"]):
        if shutil.which(command[0]):
            done = subprocess.run(
                [*command, f"{folder}/{MOUNT_POINT}"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
            if done.returncode == 0:
                return
