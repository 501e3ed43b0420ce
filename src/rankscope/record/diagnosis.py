"""What can be recorded on this machine, with this Python, in this folder."""

import os
import platform
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rankscope.record.preload import LIBRARY, NotRecordable, check_library, check_program
from rankscope.record.program import NoProgram, find_program

NETWORK_FILE_SYSTEMS = frozenset(
    {
        "nfs",
        "nfs4",
        "lustre",
        "gpfs",
        "beegfs",
        "cifs",
        "smb3",
        "ceph",
        "afs",
        "panfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "pvfs2",
        "daos",
    }
)
MANY_RANKS = 64
RANK_FILE_BYTES = 4 * 1024 * 1024
PROBE_SECONDS = 60
# Runs in the Python that will be profiled, under the preload but with the recorder idle.
PROBE = """
maps = open("/proc/self/maps").read()
print("preloaded", "librankscope.so" in maps)
try:
    import mpi4py
    mpi4py.rc.initialize = False
    from mpi4py import MPI
    print("version", " ".join(MPI.Get_library_version().split("\\n")[0].rstrip("\\0").split()))
    paths = {line.split()[-1] for line in open("/proc/self/maps") if "/libmpi" in line}
    print("library", " ".join(sorted(paths)))
except Exception as error:
    print("no", type(error).__name__ + ": " + str(error).split("\\n")[0])
"""


@dataclass(frozen=True)
class Finding:
    """One thing looked at: fine, worth knowing, or in the way of recording."""

    subject: str
    verdict: str  # ok, note, bad
    text: str


def diagnose(python: str, folder: Path) -> list[Finding]:
    """All findings, in the order in which a user would act on them."""
    return [library(), machine(), ticks(), *interpreter(python), writable(folder), file_system(folder)]


def library() -> Finding:
    try:
        elf = check_library()
    except NotRecordable as error:
        return Finding("recorder", "bad", str(error))
    return Finding("recorder", "ok", f"{LIBRARY} loads ({elf.architecture})")


def machine() -> Finding:
    known = platform.machine() in ("x86_64", "aarch64")
    text = f"{platform.machine()}, Linux {platform.release()}"
    return Finding("machine", "ok" if known else "note", text if known else f"{text}: not tested on this architecture")


def ticks() -> Finding:
    """The clock of the recorder: cheap where the processor's counter runs at one rate on all cores."""
    if platform.machine() == "aarch64":
        return Finding("clock", "ok", "the processor's virtual counter")
    words = set(Path("/proc/cpuinfo").read_text().partition("\n\n")[0].split())
    if {"constant_tsc", "nonstop_tsc"} <= words:
        return Finding("clock", "ok", "invariant time stamp counter")
    return Finding("clock", "note", "no invariant time stamp counter: clock_gettime is used, which costs more per call")


def interpreter(python: str) -> list[Finding]:
    """Whether the preload reaches this Python, and which MPI it would load."""
    try:
        program = find_program(python, dict(os.environ))
        check_program(program, check_library())
    except (NoProgram, NotRecordable) as error:
        return [Finding("python", "bad", str(error))]
    answers = probe(program)
    if answers.get("preloaded") != "True":
        return [Finding("python", "bad", f"LD_PRELOAD does not reach {program}; name the interpreter itself")]
    return [Finding("python", "ok", f"{program} can be recorded"), mpi(answers)]


def probe(program: str) -> dict[str, str]:
    """What the probe printed, word by word; nothing if it did not run."""
    theirs = os.environ.get("LD_PRELOAD", "")
    environment = {**os.environ, "LD_PRELOAD": f"{LIBRARY}:{theirs}" if theirs else LIBRARY, "RANKSCOPE_DIR": ""}
    try:
        done = subprocess.run(
            [program, "-c", PROBE], env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = (line.partition(" ") for line in done.stdout.splitlines())
    return {word: rest for word, _, rest in lines}


def mpi(answers: dict[str, str]) -> Finding:
    if "no" in answers:
        return Finding("MPI", "note", f"this Python loads none through mpi4py ({answers['no']})")
    if not answers.get("library"):
        return Finding(
            "MPI",
            "bad",
            "mpi4py holds its MPI inside itself, where it cannot be intercepted; "
            "install an mpi4py that loads libmpi.so",
        )
    return Finding("MPI", "ok", f"{answers.get('version', 'unknown version')} from {answers['library']}")


def writable(folder: Path) -> Finding:
    """Whether runs can be kept there: a folder is made in the nearest one that exists, and removed."""
    place = nearest(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".rankscope-doctor-", dir=place):
            free_bytes = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    except OSError as error:
        return Finding("folder", "bad", f"{folder} cannot be written ({error.strerror}); give another with --out")
    if free_bytes < RANK_FILE_BYTES:
        return Finding("folder", "bad", f"{folder} has {free_bytes} bytes left; give another with --out")
    return Finding(
        "folder",
        "ok",
        f"{folder} can be written, {free_bytes // 2**20} MiB free "
        f"(a rank needs at most {RANK_FILE_BYTES // 2**20} MiB)",
    )


def file_system(folder: Path) -> Finding:
    """On a network file system the kernel writes every rank's pages back over the network."""
    kind = kind_of(nearest(folder))
    if kind in NETWORK_FILE_SYSTEMS:
        return Finding("file system", "note", f"{kind}: with more than {MANY_RANKS} ranks use --local /tmp")
    return Finding("file system", "ok", kind)


def nearest(folder: Path) -> Path:
    """The folder itself or the nearest above it that exists."""
    here = folder.resolve()
    return next(path for path in (here, *here.parents) if path.is_dir())


def kind_of(folder: Path) -> str:
    """The type of the file system that is mounted nearest above the folder."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, mounted_kind, *_ = line.split()
        inside = mount == "/" or folder == Path(mount) or Path(mount) in folder.parents
        if inside and len(mount) >= len(best):
            best, kind = mount, mounted_kind
    return kind
