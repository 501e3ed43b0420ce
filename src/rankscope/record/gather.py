"""Collects rank files that stayed on a node because their process died before it could copy them."""

import contextlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from rankscope.record.place import may_run, process

# ---------------------------------------------------------------------------------------------------------------------
# The beginning of a rank file: whose it is, and which of two is newer.
# Members of struct rs_header in native/core/layout.h; tests/record/test_gather.py holds the two together.
MAGIC = b"RANKSCPE"
BYTE_ORDER = 0x01020304
FIELDS = {
    "byte_order": (12, "I"),
    "header_bytes": (16, "I"),
    "page_bytes": (20, "I"),
    "used_bytes": (32, "Q"),
    "state": (48, "I"),
    "pid": (72, "i"),
    "start_jiffies": (112, "Q"),
    "loaded_realtime_ns": (144, "Q"),
    "heard_realtime_ns": (176, "Q"),
    "boot_id": (2464, "Q"),
    "pid_namespace": (2472, "Q"),
}
HEAD_BYTES = 2480  # shorter headers of earlier recorders are followed by zeros
FIRST_HEAD_BYTES = 184
RUNNING = 1


class Unreadable(Exception):
    """Why a file is not a rank file that can be copied."""


@dataclass(frozen=True)
class RankFileHead:
    """What gathering needs to know of a rank file."""

    order: str  # of bytes, as struct calls it
    header_bytes: int
    page_bytes: int
    used_bytes: int
    state: int
    pid: int
    start_jiffies: int
    loaded_realtime_ns: int  # tells apart two programs that one process became in turn
    heard_realtime_ns: int
    boot_id: int
    pid_namespace: int

    @property
    def age(self) -> tuple[int, bool, int, int]:
        """Larger is newer: a later program, an ended one, one heard of later, one that holds more.

        Equal is not the same: counters move without leaving a time.
        """
        return self.loaded_realtime_ns, self.state != RUNNING, self.heard_realtime_ns, self.used_bytes

    @property
    def identity(self) -> tuple[int, ...]:
        return self.boot_id, self.pid_namespace, self.pid, self.start_jiffies, self.loaded_realtime_ns

    def is_alive_here(self) -> bool:
        """Whether its process still runs on this machine; where that cannot be seen from here: whether it may."""
        return self.state == RUNNING and may_run(self.pid, self.start_jiffies, self.pid_namespace, self.boot_id)


def read_head(path: Path) -> RankFileHead:
    """The head of a rank file, in the byte order of its host."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return head_of(file)
    finally:
        os.close(file)


def head_of(file: int) -> RankFileHead:
    """That of an open file, as it is now."""
    octets, size_bytes = os.pread(file, HEAD_BYTES, 0), os.fstat(file).st_size
    octets = octets if len(octets) < FIRST_HEAD_BYTES else octets.ljust(HEAD_BYTES, b"\0")
    if len(octets) < HEAD_BYTES or not octets.startswith(MAGIC):
        raise Unreadable("is no rank file")
    for order in "<>":
        values = {name: struct.unpack_from(order + code, octets, at)[0] for name, (at, code) in FIELDS.items()}
        if values.pop("byte_order") == BYTE_ORDER:
            break
    else:
        raise Unreadable("has a damaged header")
    head = RankFileHead(order, **values)
    if not FIRST_HEAD_BYTES <= head.used_bytes <= size_bytes:
        raise Unreadable(f"says it uses {head.used_bytes} bytes and has {size_bytes}")
    return head


# ---------------------------------------------------------------------------------------------------------------------
# Copies a rank file, also one that is being written: what comes out can be read, and is there whole or not at all.
BLOCK_BYTES = 1 << 20
TRIES = 4  # where the file grows meanwhile
STRINGS, GROUPS = 1, 4  # kinds of chunks; every recorded row may name one that was published before it


def copy(path: Path, target: Path) -> None:
    """Copy the used bytes under another name, then give it its name: a reader never sees half a file.

    Thousands of nodes may do this at once: nothing is asked of the shared file system but what is needed.
    """
    source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    temporary = target.with_name(f".{target.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        head = head_of(source)
        while True:
            head = _write(source, temporary, head)
            os.replace(temporary, target)
            now = head_of(source)
            if now.state == head.state:
                return
            # It ended meanwhile, and may have put its own copy there before us: ours has to be as whole as that one.
            head = now
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    finally:
        os.close(source)


def _write(source: int, temporary: Path, head: RankFileHead) -> RankFileHead:
    """Write the file; gives the head that it was written by."""
    sink = _created(temporary)
    try:
        for _ in range(TRIES):
            _copy_bytes(source, sink, 0, head.used_bytes)
            if head.state != RUNNING:
                break
            _settle(source, sink, head)
            now = head_of(source)
            if now.used_bytes == head.used_bytes:
                break
            head = now
        os.fsync(sink)
    finally:
        os.close(sink)
    return head


def _settle(source: int, sink: int, head: RankFileHead) -> None:
    """Names last, because rows that were just copied may need them, and no more in use than was copied."""
    chunks = list(_chunks(source, head))
    for wanted in (GROUPS, STRINGS):
        for place, kind, size_bytes in chunks:
            if kind == wanted:
                _copy_bytes(source, sink, place, place + size_bytes)
    at, code = FIELDS["used_bytes"]
    os.pwrite(sink, struct.pack(head.order + code, head.used_bytes), at)


def _chunks(source: int, head: RankFileHead) -> Iterator[tuple[int, int, int]]:
    """Place, kind and size of each chunk, as far as they make sense."""
    page = max(head.page_bytes, 1)
    place = -(-head.header_bytes // page) * page
    while place + 12 <= head.used_bytes:
        kind, _, size_bytes = struct.unpack(head.order + "3I", os.pread(source, 12, place))
        if size_bytes < page or place + size_bytes > head.used_bytes:
            return
        yield place, kind, size_bytes
        place += size_bytes


def _copy_bytes(source: int, sink: int, begin: int, end: int) -> None:
    while begin < end:
        octets = os.pread(source, min(BLOCK_BYTES, end - begin), begin)
        if not octets:
            raise OSError(f"ended at byte {begin} of {end}")
        begin += os.pwrite(sink, octets, begin)


def _created(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o666)
    except FileNotFoundError:  # the first file of its host
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o666)


def is_copy(path: Path, target: Path, used_bytes: int) -> bool:
    """Whether both begin with the same bytes."""
    with open(path, "rb") as ours, open(target, "rb") as theirs:
        for begin in range(0, used_bytes, BLOCK_BYTES):
            wanted = min(BLOCK_BYTES, used_bytes - begin)
            if ours.read(wanted) != theirs.read(wanted):
                return False
    return True


# ---------------------------------------------------------------- gather
@dataclass
class GatheredFile:
    """What became of one rank file."""

    source: Path
    action: str  # copied, kept (the run has it already), failed
    reason: str = ""
    removed: bool = False
    alive: bool = False


def local_folder_of(run: Path) -> Path | None:
    """The node-local folder that run.json names."""
    options = json.loads((run / "run.json").read_text()).get("options", {})
    return Path(options["local_dir"]) if options.get("local_dir") else None


def gather(run: Path, source: Path, remove: bool) -> list[GatheredFile]:
    """Bring every rank file under source/ranks into the run."""
    outcomes = []
    for host, files in files_by_host(source):
        names = names_of(run, host)
        sweep(run / "ranks" / host, names)
        outcomes += [gather_one(run, path, names, remove) for path in files]
    return outcomes


def files_by_host(source: Path) -> Iterator[tuple[str, list[Path]]]:
    """The rank files of each host of which a node has some: mostly its own."""
    for folder in sorted(source.glob("ranks/*")):
        if files := sorted(folder.glob("*.rank")):
            yield folder.name, files


def names_of(run: Path, host: str) -> set[str]:
    """What the run has of a host: listed once, which costs less than to ask for each file in vain."""
    try:
        return set(os.listdir(run / "ranks" / host))
    except FileNotFoundError:
        return set()


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove what gathering on this node, or a process of it, had begun to write when it was killed."""
    here = os.uname().nodename
    for name in names:
        words = name.split(".")
        by_gather = name.startswith(".") and f".rank.{here}." in name and words[-1].isdecimal()
        by_process = folder.name == here and name.startswith(".") and name.endswith(".part")
        over = process(int(words[-1])) is None if by_gather else by_process and writer_is_gone(words[1:-1])
        if over:
            with contextlib.suppress(OSError):
                os.unlink(folder / name)


def writer_is_gone(words: list[str]) -> bool:
    """Of a process, which native/core/collect.c names by its number, start, namespace and boot."""
    try:
        pid, start_ticks, namespace, boot_id = int(words[0]), int(words[1]), int(words[2]), int(words[3], 16)
    except (IndexError, ValueError):
        return False
    return not may_run(pid, start_ticks, namespace, boot_id)


# path on the node, path below the run, bytes on disk, whether the run has an older one
Left = tuple[str, str, int, bool]


def left_here(run: Path, source: Path) -> list[Left]:
    """The rank files under source/ranks that the run does not have, or not as new.

    An equal copy of a process that did not say that it has ended may be older: counters move without leaving a time.
    """
    files_left = []
    for host, files in files_by_host(source):
        names = names_of(run, host)
        files_left += [left_file for path in files if (left_file := left_one(run, path, names))]
    return files_left


def left_one(run: Path, path: Path, names: Set[str]) -> Left | None:
    """One file, if the run does not have it, or not as new."""
    with contextlib.suppress(OSError):  # in the run by now, most likely
        size_bytes, folder = path.stat().st_blocks * 512, f"ranks/{path.parent.name}"
        try:
            head = read_head(path)
            target, known = target_of(run, path, head, names)
        except Unreadable:  # whoever reads it says what is wrong with it
            return str(path), f"{folder}/{path.stem}-left.rank", size_bytes, False
        if known is None or head.age > known.age or (head.age == known.age and head.state == RUNNING):
            return str(path), f"{folder}/{target.name}", size_bytes, known is not None
    return None


def gather_one(run: Path, path: Path, names: Set[str], remove: bool) -> GatheredFile:
    """Bring one rank file into the run; what is wrong with it stays its own affair."""
    try:
        head = read_head(path)
        target, known = target_of(run, path, head, names)
        if known and (known.age > head.age or is_copy(path, target, head.used_bytes)):
            outcome = GatheredFile(path, "kept")
        else:
            copy(path, target)
            outcome = GatheredFile(path, "copied")
        outcome.alive = head.is_alive_here()
        if remove and not outcome.alive:
            outcome.removed = remove_if_equal(path, target)
    except Unreadable as error:
        return GatheredFile(path, "failed", str(error))
    except FileNotFoundError as error:
        if not path.exists():  # its process has ended meanwhile, and brought it into the run itself
            return GatheredFile(path, "kept", removed=remove)
        return GatheredFile(path, "failed", error.strerror or str(error))
    except OSError as error:
        return GatheredFile(path, "failed", error.strerror or str(error))
    return outcome


def target_of(run: Path, path: Path, head: RankFileHead, names: Set[str]) -> tuple[Path, RankFileHead | None]:
    """Where the copy goes, and what is there already; two programs may have had the same process id on one host."""
    target = run / "ranks" / path.parent.name / path.name
    for candidate in (target, target.with_stem(f"{path.stem}-{head.loaded_realtime_ns}")):
        if candidate.name not in names:
            return candidate, None
        try:
            known = read_head(candidate)
        except (FileNotFoundError, Unreadable):  # half a copy
            return candidate, None
        if known.identity == head.identity:
            return candidate, known
    raise Unreadable(f"would overwrite {candidate}, which is of another process")


def remove_if_equal(path: Path, target: Path) -> bool:
    """Remove the local file once the run's copy has been read back and holds the same."""
    if not is_copy(path, target, read_head(path).used_bytes):
        return False
    path.unlink()
    return True
