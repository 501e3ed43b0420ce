"""The folder on the node: copies, who uses them, and what is left of jobs that were killed."""

import errno
import fcntl
import os
import time

from rankscope.record.place import process, stat_of
from rankscope.record.program import content
from rankscope.stage.bundle import LINK_OUT, Manifest
from rankscope.stage.unpack import MADE_NS, NEVER_NS

# ---------------------------------------------------------------------------------------------------------------------
# Locks between the processes of a node; the kernel frees them when their holder dies, however it dies.
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.002, 0.05


class Waited(OSError):
    """The lock was not free in time."""


class Lock:
    """One file, held by one process at a time; it may be removed while others wait for it."""

    def __init__(self, path: str, patience_s: float) -> None:
        self.path = path
        self.patience_s = patience_s
        self.file = -1

    def __enter__(self) -> "Lock":
        deadline, wait_s = time.monotonic() + self.patience_s, SHORTEST_WAIT_S
        while not self.try_once():
            if time.monotonic() > deadline:
                raise Waited(errno.ETIMEDOUT, f"waited {self.patience_s:.0f} s", self.path)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        return self

    def try_once(self) -> bool:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = os.fstat(file).st_ino == os.stat(self.path).st_ino  # else its last holder has removed it
        except (BlockingIOError, FileNotFoundError):
            held = False
        except BaseException:
            os.close(file)
            raise
        if held:
            self.file = file
        else:
            os.close(file)
        return held

    def __exit__(self, *_: object) -> None:
        os.close(self.file)
        self.file = -1


# ---------------------------------------------------------------------------------------------------------------------
# Which files a job took from the original place: links of the copy tell by their time of access.
# A link to the original is made with its last access in 1970. The kernel notes the first time that it is followed (by
# whatever program), on every file system that is not mounted with noatime, and it costs the job nothing.
def followed(manifest: Manifest, copy: str) -> list[str] | None:
    """The links to the original place that were followed; None where the file system does not tell."""
    if manifest.image or not records_link_access(copy):  # links in an image have no times
        return None
    return [path for path, _, kind in manifest.links if kind == LINK_OUT and was_followed(f"{copy}/{path}")]


def was_followed(path: str) -> bool:
    try:
        return os.lstat(path).st_atime_ns != NEVER_NS
    except OSError:
        return False


def records_link_access(folder: str) -> bool:
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


# ---------------------------------------------------------------- node
GATE_PATIENCE_S = 60.0
OLD_S = 24 * 3600.0
COMPLETE, USERS, KEEP, ROOTS = ".complete", ".users", ".keep", ".roots"
DEAD = ("Z", "X")  # a process that ended and that nobody has asked about yet
TRASH, PART, JOB = "trash-", "part-", "job-"


class NotUsable(Exception):
    """No copy can be kept there; the text says why."""


def open_folder(parent: str) -> str:
    """Our folder in there, which nobody else can look into or write to."""
    folder = f"{os.path.abspath(parent)}/rankscope-stage-{os.geteuid()}"
    try:
        os.makedirs(parent, exist_ok=True)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass
        status = os.lstat(folder)
    except OSError as error:
        raise NotUsable(f"{folder}: {error.strerror}; give another place with --to") from None
    if status.st_mode & 0o170077 != 0o040000 or status.st_uid != os.geteuid():
        raise NotUsable(f"{folder} is not private to you; give another place with --to")
    return folder


def gate(folder: str) -> Lock:
    """Held for moments: while a copy gets a user, is put in place or taken away."""
    return Lock(f"{folder}/gate", GATE_PATIENCE_S)


def identity(job: str) -> str:
    """This very process as a user of a copy: job-pid.start.namespace."""
    process_identity = process(os.getpid())
    return f"{job}-{process_identity.identity if process_identity else os.getpid()}.{namespace()}"


def namespace() -> str:
    try:
        return "".join(letter for letter in os.readlink("/proc/self/ns/pid") if letter.isdigit())
    except OSError:
        return "0"


def may_be_alive(name: str) -> bool:
    """Whether the process with this identity may still run: one of another container cannot be asked."""
    pid, start, where = [*name.rpartition("-")[2].split("."), "", ""][:3]
    if where != namespace():
        return True
    try:
        fields = stat_of(int(pid))
        return fields[0] not in DEAD and fields[19] == start
    except (OSError, ValueError, IndexError):
        return False


def boot() -> str:
    try:
        return content("/proc/sys/kernel/random/boot_id").decode().strip()
    except OSError:
        return ""


def complete(copy: str, bundle: str) -> None:
    """Mark a tree that has been written as whole; after a crash of the node it is not trusted."""
    handle = os.open(f"{copy}/{COMPLETE}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, f"{bundle}\n{boot()}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def is_complete(copy: str, bundle: str = "") -> bool:
    """Whether this is a whole copy (of this bundle), written since the node was started."""
    try:
        words = content(f"{copy}/{COMPLETE}").decode().split("\n")
    except OSError:
        return False
    return len(words) == 3 and words[0].startswith(bundle) and words[1] == boot()


def register(folder: str, copy: str, user: str) -> bool:
    """Become a user of the copy; False if it is not there (any more)."""
    with gate(folder):
        if not is_complete(copy):
            return False
        note(f"{copy}/{USERS}/{user}")
    return True


def note(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def noted(copy: str, job: str = "") -> list[str]:
    """Those who have used the copy (for this job), alive or not."""
    try:
        return [name for name in os.listdir(f"{copy}/{USERS}") if name.startswith(job)]
    except OSError:
        return []


def users(copy: str, job: str = "") -> list[str]:
    """Those of them who may be alive."""
    return [name for name in noted(copy, job) if may_be_alive(name)]


def leave(folder: str, copy: str, job: str, user: str) -> bool:
    """The end of a job on this node; the last one removes the copy, unless it is to be kept. Whether it was removed."""
    with gate(folder):
        for name in noted(copy, job):
            if name == user or not may_be_alive(name):
                remove(f"{copy}/{USERS}/{name}")
        trash = taken_away(folder, copy)
    if trash:
        remove_copy(trash)
    return bool(trash)


def taken_away(folder: str, copy: str) -> str:
    """The copy under a name of what is to be removed, "" where it stays; the caller holds the gate."""
    if os.path.exists(f"{copy}/{KEEP}") and is_complete(copy):
        return ""
    if users(copy):
        return ""
    trash = f"{folder}/{TRASH}{os.path.basename(copy)}-{os.getpid()}"
    try:
        os.rename(copy, trash)
    except OSError:
        return ""
    return trash


def remove_copy(path: str) -> None:
    """Remove a copy, whole or not; an image in it is unmounted first."""
    from rankscope.stage.image import unmount  # which imports us

    unmount(path)
    remove(path)


def remove(path: str) -> None:
    """Remove a tree or a file; links are removed and never followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil  # only who cleans up pays for it

        shutil.rmtree(path, ignore_errors=True)
    else:
        try:
            os.unlink(path)
        except OSError:
            pass


def sweep(folder: str) -> list[str]:
    """Remove what nobody uses: copies of jobs that were killed, half-written ones, old notes. What was removed."""
    removed = []
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if name.startswith(TRASH) or is_abandoned(name, path):
            remove_copy(path)
            removed.append(name)
        elif os.path.isdir(path) and not name.startswith(PART):
            with gate(folder):
                trash = taken_away(folder, path)
            if trash:
                remove_copy(trash)
                removed.append(name)
    return removed


def is_abandoned(name: str, path: str) -> bool:
    """Whether this was the work of a process that is gone."""
    if name.startswith(PART):  # part-KEY-JOB-PID.START.NAMESPACE
        return not may_be_alive(name)
    if name.startswith(JOB):
        try:
            return time.time() - os.lstat(path).st_mtime > OLD_S
        except OSError:
            return False
    return False
