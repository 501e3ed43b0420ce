"""Collects rank files that stayed on a node because their process died before it could copy them."""

import contextlib
import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rankscope.record.place import process

# The beginning of struct rs_header in native/layout.h; tests/record/test_gather.py holds the two together.
MAGIC = b"RANKSCPE"
BYTE_ORDER = 0x01020304
FIELDS = {
    "byte_order": (12, "I"),
    "used_bytes": (32, "Q"),
    "state": (48, "I"),
    "pid": (72, "i"),
    "start_jiffies": (112, "Q"),
    "loaded_realtime_ns": (144, "Q"),
    "heard_realtime_ns": (176, "Q"),
}
HEAD_BYTES = 184
RUNNING = 1


class Unreadable(Exception):
    """Why a file is not a rank file that can be copied."""


@dataclass(frozen=True)
class Head:
    """What gathering needs to know of a rank file."""

    used_bytes: int
    state: int
    pid: int
    start_jiffies: int
    loaded_realtime_ns: int  # tells apart two programs that one process became in turn
    heard_realtime_ns: int

    @property
    def age(self) -> tuple[int, bool, int, int]:
        """Larger is newer: a later program, an ended one, one heard of later, one that holds more.

        Equal is not the same: counters move without leaving a time.
        """
        return self.loaded_realtime_ns, self.state != RUNNING, self.heard_realtime_ns, self.used_bytes

    @property
    def identity(self) -> tuple[int, int, int]:
        return self.pid, self.start_jiffies, self.loaded_realtime_ns

    def is_alive_here(self) -> bool:
        """Whether its process still runs on this machine."""
        found = process(self.pid)
        return self.state == RUNNING and found is not None and found.start_ticks == self.start_jiffies


@dataclass
class Outcome:
    """What became of one rank file."""

    source: Path
    action: str  # copied, kept (the run has it already), failed
    reason: str = ""
    removed: bool = False
    alive: bool = False


def read_head(path: Path) -> Head:
    """The head of a rank file, in the byte order of its host."""
    with open(path, "rb") as file:
        octets = file.read(HEAD_BYTES)
    if len(octets) < HEAD_BYTES or not octets.startswith(MAGIC):
        raise Unreadable("is no rank file")
    for order in "<>":
        values = {name: struct.unpack_from(order + code, octets, at)[0] for name, (at, code) in FIELDS.items()}
        if values.pop("byte_order") == BYTE_ORDER:
            break
    else:
        raise Unreadable("has a damaged header")
    head = Head(**values)
    if not HEAD_BYTES <= head.used_bytes <= path.stat().st_size:
        raise Unreadable(f"says it uses {head.used_bytes} bytes and has {path.stat().st_size}")
    return head


def local_folder_of(run: Path) -> Path | None:
    """The node-local folder that run.json names."""
    options = json.loads((run / "run.json").read_text()).get("options", {})
    return Path(options["local_dir"]) if options.get("local_dir") else None


def gather(run: Path, source: Path, remove: bool) -> list[Outcome]:
    """Bring every rank file under source/ranks into the run."""
    return [gather_one(run, path, remove) for path in sorted(source.glob("ranks/*/*.rank"))]


# path on the node, path below the run, bytes on disk, whether the run has an older one
Left = tuple[str, str, int, bool]


def left_here(run: Path, source: Path) -> list[Left]:
    """The rank files under source/ranks that the run does not have, or not as new.

    An equal copy of a process that did not say that it has ended may be older: counters move without leaving a time.
    """
    found: list[Left] = []
    for path in sorted(source.glob("ranks/*/*.rank")):
        folder = f"ranks/{path.parent.name}"
        with contextlib.suppress(OSError):  # in the run by now, most likely
            size = path.stat().st_blocks * 512
            try:
                head = read_head(path)
                target, known = target_of(run, path, head)
            except Unreadable:  # whoever reads it says what is wrong with it
                found.append((str(path), f"{folder}/{path.stem}-left.rank", size, False))
                continue
            if known is None or head.age > known.age or (head.age == known.age and head.state == RUNNING):
                found.append((str(path), f"{folder}/{target.name}", size, known is not None))
    return found


def gather_one(run: Path, path: Path, remove: bool) -> Outcome:
    """Bring one rank file into the run; what is wrong with it stays its own affair."""
    try:
        head = read_head(path)
        target, known = target_of(run, path, head)
        if known and (known.age > head.age or is_copy(path, target, head.used_bytes)):
            outcome = Outcome(path, "kept")
        else:
            copy(path, target, head.used_bytes)
            outcome = Outcome(path, "copied")
        outcome.alive = head.is_alive_here()
        if remove and not outcome.alive:
            outcome.removed = remove_if_equal(path, target)
    except Unreadable as error:
        return Outcome(path, "failed", str(error))
    except OSError as error:
        return Outcome(path, "failed", error.strerror or str(error))
    return outcome


def target_of(run: Path, path: Path, head: Head) -> tuple[Path, Head | None]:
    """Where the copy goes, and what is there already; two programs may have had the same process id on one host."""
    target = run / "ranks" / path.parent.name / path.name
    for candidate in (target, target.with_stem(f"{path.stem}-{head.loaded_realtime_ns}")):
        try:
            known = read_head(candidate)
        except (FileNotFoundError, Unreadable):  # nothing there, or half a copy
            return candidate, None
        if known.identity == head.identity:
            return candidate, known
    raise Unreadable(f"would overwrite {candidate}, which is of another process")


def copy(path: Path, target: Path, used_bytes: int) -> None:
    """Copy the used bytes under another name, then give it its name: a reader never sees half a file.

    Thousands of nodes may do this at once: nothing is asked of the shared file system but what is needed.
    """
    temporary = target.with_name(f".{target.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        with open(path, "rb") as source, _created(temporary) as sink:
            sink.write(source.read(used_bytes))
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _created(path: Path) -> BinaryIO:
    try:
        return open(path, "wb")
    except FileNotFoundError:  # the first file of its host
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "wb")


def remove_if_equal(path: Path, target: Path) -> bool:
    """Remove the local file once the run's copy has been read back and holds the same."""
    if not is_copy(path, target, read_head(path).used_bytes):
        return False
    path.unlink()
    return True


def is_copy(path: Path, target: Path, used_bytes: int) -> bool:
    with open(path, "rb") as ours, open(target, "rb") as theirs:
        return ours.read(used_bytes) == theirs.read(used_bytes)
