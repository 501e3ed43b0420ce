"""Bringing a copy to a node: it comes from a peer or the shared file, is verified, unpacked and put in place."""

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from rankscope.stage.bundle import (
    HEADER_BYTES,
    BadBundle,
    File,
    Header,
    Manifest,
    check_lengths,
    open_bundle,
    read_exactly,
    read_header,
    read_manifest,
)
from rankscope.stage.image import is_mounted, mount
from rankscope.stage.node import (
    KEEP,
    PART,
    ROOTS,
    USERS,
    Lock,
    NotUsable,
    complete,
    gate,
    identity,
    is_complete,
    note,
    remove_copy,
)
from rankscope.stage.peers import Broken, Contact, call, contact_from, hear, receive, say
from rankscope.stage.task import Report, StageOutcome, StageTask
from rankscope.stage.unpack import ChunksGone, Intake, unpack

# ---------------------------------------------------------------------------------------------------------------------
# Where a node takes the bundle from: the shared file, or a node that has it.
CHUNK_FOLLOWS, REFUSED = b"C", b"R"


class SharedFile:
    """The bundle on the shared file system."""

    def __init__(self, path: str, expected: str = "") -> None:
        self.file, self.header = open_bundle(path)
        if not self.header.identity.startswith(expected):
            os.close(self.file)
            raise BadBundle(f"it is {self.header.key}…, not {expected[:16]}…")

    def head(self) -> bytes:
        return read_exactly(self.file, HEADER_BYTES, 0)

    def region(self) -> bytes:
        """The manifest with what is around it."""
        return read_exactly(self.file, self.header.manifest_bytes, self.header.manifest_at)

    def chunk(self, number: int, at: int, size: int) -> bytes:
        return read_exactly(self.file, size, at)

    def close(self) -> None:
        os.close(self.file)


class NodePeer:
    """A node that has the bundle or is just getting it."""

    def __init__(self, contact: Contact, token: str, expected: str) -> None:
        try:
            self.connection = call(contact, token)
            say(self.connection, {"ask": "bytes"})
            self.start(expected)
        except (OSError, Broken) as error:
            raise ChunksGone(f"a peer does not answer ({error})") from None

    def start(self, expected: str) -> None:
        self.expect_more()
        self.header_bytes = receive(self.connection, HEADER_BYTES)
        try:
            self.header: Header = read_header(self.header_bytes)
            check_lengths(self.header)
        except BadBundle as error:
            raise Broken(f"what it sends is no bundle: {error}") from None
        if self.header.identity != expected:
            raise Broken("it has another bundle")
        self.region_bytes = receive(self.connection, self.header.manifest_bytes)

    def head(self) -> bytes:
        return self.header_bytes

    def region(self) -> bytes:
        return self.region_bytes

    def expect_more(self) -> None:
        """A byte comes before each chunk, so that a bundle that was found bad is not asked for again by every node."""
        if receive(self.connection, 1) == REFUSED:
            raise BadBundle(str(hear(self.connection).get("reason", "")))

    def chunk(self, number: int, at: int, size: int) -> bytes:
        try:
            self.expect_more()
            return receive(self.connection, size)
        except Broken as error:
            raise ChunksGone(f"a peer went away ({error})") from None

    def close(self) -> None:
        self.connection.close()


def keep_alive(connection: socket.socket) -> None:
    """A connection on which nothing is said still notices that the other node is gone."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


# ---------------------------------------------------------------- whether the original is still what was packed
CACHE = "__pycache__"  # made whenever a module is compiled, which changes nothing


def changed(manifest: Manifest, check: str) -> str:
    """The first folder (quick) or file (full) that has changed, "" if none.

    Installing, upgrading or removing a package, and editors that write beside and rename, change the time of a folder.
    Only then is looked at what is in it.
    """
    if check == "none":
        return ""
    suspects = [folder for folder, mtime_ns in manifest.watched if time_of(folder) != mtime_ns]
    if suspects:
        held = Held(manifest)
        for folder in suspects:
            if not held.is_same(folder):
                return folder
    return changed_file(manifest) if check == "full" else ""


class Held:
    """What the manifest says is in a folder of the original."""

    def __init__(self, manifest: Manifest) -> None:
        self.roots = {root.name: root.real for root in manifest.roots}
        self.names: dict[str, set[str]] = {}
        self.files: dict[str, list[File]] = {}
        paths = [path for path, _ in manifest.folders] + [path for path, _, _ in manifest.links]
        for path in [*paths, *(file.path for file in manifest.files)]:
            folder, _, name = self.original(path).rpartition("/")
            self.names.setdefault(folder, set()).add(name)
        for file in manifest.files:
            self.files.setdefault(os.path.dirname(self.original(file.path)), []).append(file)

    def original(self, path: str) -> str:
        name, slash, within = path.partition("/")
        return f"{self.roots.get(name, '')}{slash}{within}"

    def is_same(self, folder: str) -> bool:
        """The same names, and packed files with the same size and time; others are links and lead to what is there."""
        try:
            names = set(os.listdir(folder))
        except OSError:
            return False
        if names - {CACHE} != self.names.get(folder, set()) - {CACHE}:
            return False
        return all(is_same_file(self.original(file.path), file) for file in self.files.get(folder, []))


def is_same_file(path: str, file: File) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (status.st_mtime_ns, status.st_size) == (file.mtime_ns, file.size)


def changed_file(manifest: Manifest) -> str:
    held = Held(manifest)
    for file in manifest.files:
        path = held.original(file.path)
        if path.startswith("/") and not is_same_file(path, file):
            return path
    return ""


def time_of(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


# ---------------------------------------------------------------- receive
SEAL = ".seal"  # header and manifest, kept with the copy
MARGIN_BYTES = 16 * 1024**2


class Bringing:
    """The state of one node's work, shared with the threads that serve other nodes."""

    def __init__(self, task: StageTask) -> None:
        self.task = task
        self.key = ""
        self.checked = False  # whether the original is still what was packed
        self.user = identity(task.job)
        self.began_ns = time.monotonic_ns()
        self.intake: Intake | None = None
        self.make_intake: Callable[[], Intake] | None = None  # where none was needed for the copy
        self.arrived = threading.Event()  # of the intake, or of certainty that none comes by itself
        self.gave_up: list[str] = []  # why a peer was not asked for the bundle after all
        self.report: Report = {"source": "", "reused": False}

    def since_ns(self) -> int:
        return time.monotonic_ns() - self.began_ns

    def wait_for_intake(self) -> Intake:
        """What is to be given on; a node that has a copy already reads the bundle only if somebody asks."""
        self.arrived.wait(self.task.patience_s)
        if self.intake:
            return self.intake
        if self.make_intake and self.report["reused"]:
            return self.make_intake()
        raise ChunksGone("there is nothing to give on")


def bring(work: Bringing, header: Header, parent: Callable[[], str], token: str) -> StageOutcome:
    """The copy of this bundle, found or made; `parent` is asked for only if it must be made."""
    work.key = header.key
    copy = f"{work.task.folder}/{header.key}"
    with Lock(f"{work.task.folder}/build-{header.key}", work.task.patience_s):
        if find_copy(work, copy, header.identity):
            work.report.update(reused=True, ready_ns=work.since_ns())
            work.arrived.set()
            return StageOutcome(copy, "", work.report, f"staged: a copy was there, {copy}")
        source, name = first_source(work, header, parent(), token)
        try:
            summary = make_copy(work, copy, source, name)
        finally:
            source.close()
    return StageOutcome(copy, "", work.report, f"staged to {copy}: {summary}")


def find_copy(work: Bringing, copy: str, bundle: str) -> bool:
    """Whether there is a whole, unchanged copy; we become its user. One that is not is thrown away."""
    if not os.path.lexists(copy):
        return False
    trash = f"{work.task.folder}/trash-{os.path.basename(copy)}-{os.getpid()}"
    with gate(work.task.folder):
        if is_complete(copy, bundle) and is_unchanged(copy):
            note(f"{copy}/{USERS}/{work.user}")
            return True
        os.rename(copy, trash)
    remove_copy(trash)
    return False


def sealed(copy: str) -> Manifest:
    """The manifest that a copy was made of."""
    with open(f"{copy}/{SEAL}", "rb") as file:
        content = file.read()
    return read_manifest(read_header(content[:HEADER_BYTES]), content[HEADER_BYTES:])


def is_unchanged(copy: str) -> bool:
    """Whether every packed file is there with its size and time; texts that name the copy have sizes of their own."""
    try:
        manifest = sealed(copy)
        if manifest.image and not is_mounted(copy):
            return False
        for file in manifest.files:
            status = os.lstat(f"{copy}/{file.path}")
            if status.st_mtime_ns != file.mtime_ns or (status.st_size != file.size and not file.relocated):
                return False
    except (OSError, BadBundle):
        return False
    return True


def first_source(work: Bringing, header: Header, parent: str, token: str) -> tuple[SharedFile | NodePeer, str]:
    """The peer that we were told to ask, or the shared file."""
    if parent:
        try:
            return NodePeer(contact_from(parent), token, header.identity), parent
        except ChunksGone as reason:
            work.gave_up.append(str(reason))
    return SharedFile(work.task.bundle, header.identity), "shared"


def make_copy(work: Bringing, copy: str, source: SharedFile | NodePeer, name: str) -> str:
    """Receive and unpack at the same time, then put the tree in its place in one step; how long that took."""
    task = work.task
    head, region = source.head(), source.region()
    manifest = read_manifest(source.header, region)
    if name == "shared" and not work.checked:  # the first node, which would have asked, is gone
        check_original(work, manifest)
    check_space(task.folder, source.header.length + manifest.file_bytes)
    stem = f"{task.folder}/{PART}{source.header.key}-{work.user}"
    waited_ns = work.since_ns()
    intake = work.intake = Intake(stem.replace(PART, f"{PART}bundle-", 1), head, source.header, region, manifest)
    work.arrived.set()
    instead = None if name == "shared" else ("shared", lambda: SharedFile(task.bundle, source.header.identity))
    receiving = threading.Thread(target=receive_all, args=(intake, source, name, instead), daemon=True)
    receiving.start()
    try:
        build(work, intake, stem, copy)
    except BaseException:
        remove_copy(stem)
        raise
    receiving.join()
    ready_ns = work.since_ns()
    work.report.update(describe(intake, name), gave_up=work.gave_up + intake.changes)
    unpack_ns = ready_ns - waited_ns - intake.transfer_ns
    work.report.update(waited_ns=waited_ns, unpack_ns=unpack_ns, ready_ns=ready_ns)
    size = f"{intake.header.length / 1024**2:.1f} MiB from {'the shared file' if name == 'shared' else 'a peer'}"
    return (
        f"{size}; transfer {intake.transfer_ns / 1e9:.2f} s, unpack {unpack_ns / 1e9:.2f} s, all {ready_ns / 1e9:.2f} s"
    )


def receive_all(intake: Intake, source: SharedFile | NodePeer, name: str, instead: Any) -> None:
    """In a thread: what goes wrong is found in the intake by those who wait for it."""
    try:
        intake.take_all(source, name, instead)
    except (ChunksGone, BadBundle, OSError):
        pass


def build(work: Bringing, intake: Intake, part: str, copy: str) -> None:
    os.mkdir(part, 0o700)
    os.mkdir(f"{part}/{USERS}", 0o700)
    note(f"{part}/{USERS}/{work.user}")
    unpack(intake.manifest, intake.raw_chunks(), part, copy)
    with open(f"{part}/{SEAL}", "wb") as file:
        file.write(intake.head + intake.region)
    write_roots(intake.manifest, part)
    if intake.manifest.image:
        mount(part)
    if work.task.keep:
        note(f"{part}/{KEEP}")
    if intake.manifest.chunks:
        intake.wait_for(len(intake.manifest.chunks) - 1)
    complete(part, intake.header.identity)
    with gate(work.task.folder):
        os.rename(part, copy)


def write_roots(manifest: Manifest, folder: str) -> None:
    """What every rank needs of the manifest, which would take it long to read."""
    lines = [f"{root.name}\0{root.original}\0{root.real}\0{int(root.is_venv)}\n" for root in manifest.roots]
    with open(f"{folder}/{ROOTS}", "wb") as file:
        file.write(os.fsencode("".join(lines)))


def check_original(work: Bringing, manifest: Manifest) -> None:
    """One node asks whether the environment is still the one that was packed."""
    work.checked = True
    where = changed(manifest, work.task.check)
    if where:
        raise BadBundle(f"the environment has changed since ({where}): pack it again")


def check_space(folder: str, needed_bytes: int) -> None:
    """While it is unpacked, bundle and copy are there both."""
    status = os.statvfs(folder)
    free_bytes = status.f_bavail * status.f_frsize
    if free_bytes < needed_bytes + MARGIN_BYTES:
        raise NotUsable(
            f"{folder} has {free_bytes // 1024**2} MiB free and {needed_bytes // 1024**2 + 16} are needed;"
            " give another place with --to"
        )


def describe(intake: Intake, name: str) -> Report:
    """What is reported of the transfer."""
    return {
        "source": name,
        "transfer_ns": intake.transfer_ns,
        "shared_bytes": intake.received_bytes.get("shared", 0),
        "peer_bytes": sum(size for source, size in intake.received_bytes.items() if source != "shared"),
        "files": len(intake.manifest.files),
        "file_bytes": intake.manifest.file_bytes,
        "links": len(intake.manifest.links),
        "bundle_bytes": intake.header.length,
    }
