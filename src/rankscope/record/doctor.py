"""What can be recorded on this machine, with this Python, in this folder."""

import ctypes
import mmap
import os
import platform
import re
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rankscope.agent import build
from rankscope.record.preload import LIBRARY, NotRecordable, check_library, check_program
from rankscope.record.program import NoProgram, find_program
from rankscope.record.start import nsight

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
CONTAINER_WORDS = ("docker", "kubepods", "containerd", "libpod", "lxc", "garden")
SMALL_SHM_BYTES = 64 * 1024 * 1024  # what docker gives
OLDEST_CUPTI, OLDEST_NCCL = 18, 22300  # CUDA 12.0; the first NCCL with the plugin's interface
LONGEST_PLUGIN_PATH = 254  # NCCL cuts longer ones
PR_SET_SYSCALL_USER_DISPATCH = 59
SYS_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
# Runs in the Python that will be profiled, under the preload but with the recorder idle.
PROBE = """
import ctypes, glob, os, sys
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
from importlib.util import find_spec
torch = find_spec("torch")
if torch and torch.submodule_search_locations:
    print("torch", torch.submodule_search_locations[0])
def ask(word, names, function, kind):
    for name in names:
        try:
            library, number = ctypes.CDLL(name), kind(0)
            if getattr(library, function)(ctypes.byref(number)) == 0:
                print(word, number.value, name)
                return
        except (OSError, AttributeError):
            pass
def wheels(pattern):
    return [path for folder in sys.path for path in sorted(glob.glob(folder + "/nvidia/" + pattern), reverse=True)]
homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
asked = os.environ.get("RANKSCOPE_CUPTI")
cupti = wheels("cu*/lib/libcupti.so.*") + wheels("cuda_cupti/lib/libcupti.so.*")
cupti += [home + below for home in homes if home for below in ("/extras/CUPTI/lib64/libcupti.so", "/lib64/libcupti.so")]
ask("driver", ["libcuda.so.1"], "cuDriverGetVersion", ctypes.c_int)
ask("cupti", [asked] if asked else [*cupti, "libcupti.so.13", "libcupti.so.12"], "cuptiGetVersion", ctypes.c_uint32)
loaders = [path for folder in sys.path for path in glob.glob(folder + "/pyopencl/.libs/libOpenCL*.so*")]
try:
    ctypes.CDLL("libOpenCL.so.1")
    system = [line.split()[-1] for line in open("/proc/self/maps") if "/libOpenCL" in line]
except OSError:
    system = []
if loaders + system:
    print("opencl", (loaders + system)[0])
ask("nccl", [*wheels("nccl/lib/libnccl.so.2"), "libnccl.so.2"], "ncclGetVersion", ctypes.c_int)
"""


@dataclass(frozen=True)
class Check:
    """One thing looked at: fine, worth knowing, or prevents recording."""

    subject: str
    verdict: str  # ok, note, bad
    text: str


def diagnose(python: str, folder: Path) -> list[Check]:
    """All findings, in the order in which a user would act on them."""
    machinery = [library(), machine(), ticks(), libc(), container(), *kernel()]
    place = [writable(folder), file_system(folder)]
    place += [mapping(folder)] if place[0].verdict == "ok" else []
    return [*machinery, *interpreter(python), *place, shared_memory()]


def library() -> Check:
    try:
        elf = check_library()
    except NotRecordable as error:
        return Check("recorder", "bad", str(error))
    return Check("recorder", "ok", f"{LIBRARY} loads ({elf.architecture})")


def machine() -> Check:
    known = platform.machine() in ("x86_64", "aarch64")
    text = f"{platform.machine()}, Linux {platform.release()}"
    return Check("machine", "ok" if known else "note", text if known else f"{text}: not tested on this architecture")


def ticks() -> Check:
    """The clock of the recorder: cheap where the processor's counter runs at one rate on all cores."""
    if platform.machine() == "aarch64":
        return Check("clock", "ok", "the processor's virtual counter")
    words = set(Path("/proc/cpuinfo").read_text().partition("\n\n")[0].split())
    if {"constant_tsc", "nonstop_tsc"} <= words:
        return Check("clock", "ok", "invariant time stamp counter")
    return Check("clock", "note", "no invariant time stamp counter: clock_gettime is used, which costs more per call")


def libc() -> Check:
    """Our own C library beside the one that the recorder was made for; a program may have another."""
    try:
        needed = max(
            map(version_of, re.findall(rb"\0GLIBC_(\d+\.\d+)(?=\0)", Path(LIBRARY).read_bytes())), default=(0, 0)
        )
        ours = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        ours = ""
    if not ours.startswith("glibc "):
        return Check(
            "libc", "note", "not glibc: programs of this C library run unrecorded; use a Python made for glibc"
        )
    if version_of(ours.split()[1].encode()) < needed:
        return Check("libc", "bad", f"{ours}, the recorder needs {dotted(needed)}; build rankscope on this machine")
    return Check("libc", "ok", f"{ours}, the recorder needs {dotted(needed)}; programs of an older one run unrecorded")


def version_of(text: bytes) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(b"."))


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def container() -> Check:
    """In another file system the library's path must exist, and process ids are others."""
    marks = [path for path in ("/.dockerenv", "/run/.containerenv") if os.path.exists(path)]
    marks += [
        name for name in ("SINGULARITY_NAME", "APPTAINER_NAME", "KUBERNETES_SERVICE_HOST") if os.environ.get(name)
    ]
    try:
        marks += [word for word in CONTAINER_WORDS if word in Path("/proc/1/cgroup").read_text()]
    except OSError:
        pass
    if not marks:
        return Check("container", "ok", "none detected; one with its own file system needs rankscope installed too")
    where = f"running in one ({', '.join(marks)})"
    return Check(
        "container", "note", f"{where}: put rankscope run inside, where {LIBRARY} is; give --out a mounted folder"
    )


def kernel() -> list[Check]:
    """What the kernel, or a filter of system calls (a container's), lets the recorder do."""
    c = ctypes.CDLL(None, use_errno=True)
    filtered = status_field("Seccomp") == "2"
    here = " (system calls are filtered here)" if filtered else ""
    findings = []
    if platform.machine() == "x86_64" and c.prctl(PR_SET_SYSCALL_USER_DISPATCH, 0, 0, 0, 0) == 0:
        findings.append(Check("system calls", "ok", "can be trapped: --imports calls and paths count all of them"))
    else:
        text = f"cannot be trapped{here}: --imports calls and paths count only those of wrapped libc functions"
        findings.append(Check("system calls", "note", text))
    number = SYS_MEMBARRIER.get(platform.machine())
    if number and c.syscall(number, 0, 0, 0) < 0:
        text = f"no membarrier{here}: a process of one thread locks its counters too, some nanoseconds a call"
        findings.append(Check("membarrier", "note", text))
    return [*findings, yama()]


def status_field(name: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name + ":")), "")


def yama() -> Check:
    """Whether another process of the user may be looked into."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        scope = 0
    if scope >= 3 or (scope and os.geteuid()):
        return Check(
            "ptrace", "note", f"ptrace_scope is {scope}: rankscope hang shows Python lines (py-spy) only to root"
        )
    return Check(
        "ptrace",
        "ok",
        "processes of the same user can be inspected: rankscope hang shows Python lines where py-spy is",
    )


def interpreter(python: str) -> list[Check]:
    """Whether the preload reaches this Python, and which MPI, torch, CUDA and NCCL it would load."""
    try:
        program = find_program(python, dict(os.environ))
        check_program(program, check_library())
    except (NoProgram, NotRecordable) as error:
        return [Check("python", "bad", str(error))]
    answers = probe(program)
    if answers.get("preloaded") != "True":
        return [Check("python", "bad", f"LD_PRELOAD does not reach {program}; name the interpreter itself")]
    theirs = preloads()
    return [
        Check("python", "ok", f"{program} can be recorded"),
        *theirs,
        mpi(answers),
        torch(answers),
        *gpu(answers),
        opencl(answers),
        *rocm(),
    ]


def preloads() -> list[Check]:
    theirs = os.environ.get("LD_PRELOAD", "")
    gone = [path for path in theirs.replace(":", " ").split() if "/" in path and not os.path.exists(path)]
    if gone:
        return [Check("LD_PRELOAD", "note", f"{gone[0]} does not exist: the loader complains in every process")]
    return [Check("LD_PRELOAD", "ok", f"{theirs} is loaded too, behind the recorder")] if theirs else []


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


def mpi(answers: dict[str, str]) -> Check:
    if "no" in answers:
        return Check("MPI", "note", f"this Python loads none through mpi4py ({answers['no']})")
    if not answers.get("library"):
        return Check(
            "MPI",
            "bad",
            "mpi4py holds its MPI inside itself, where it cannot be intercepted; "
            "install an mpi4py that loads libmpi.so",
        )
    return Check("MPI", "ok", f"{answers.get('version', 'unknown version')} from {answers['library']}")


def torch(answers: dict[str, str]) -> Check:
    """By what torch will be observed."""
    folder = answers.get("torch", "")
    if not folder:
        return Check("torch", "ok", "not installed in this Python")
    way = os.environ.get("RANKSCOPE_TORCH")
    if way in ("0", "python"):
        what = "is not observed" if way == "0" else "is observed by hooks in Python"
        return Check("torch", "note", f"{folder} {what}, because of RANKSCOPE_TORCH={way}")
    try:
        return Check("torch", "ok", f"{folder} has its compiled observer: {build.find(folder)}")
    except build.NotBuilt as reason:
        if build.compilers():
            return Check("torch", "note", f"{folder} is observed by Python hooks: {reason}")
        return Check("torch", "note", f"{folder} is observed by Python hooks: no C++ compiler; install g++ or set CXX")


def prepare(python: str) -> Check:
    """Compile the observer of this Python's torch now; waits for another process that does so."""
    try:
        program = find_program(python, dict(os.environ))
    except NoProgram as error:
        return Check("torch", "bad", str(error))
    compile_agent(program)
    folder = probe(program).get("torch", "")
    if not folder:
        return Check("torch", "bad", f"{python} has no torch; name the job's Python with --python")
    until = time.monotonic() + build.LONGEST_BUILD_S
    while True:
        try:
            return Check("torch", "ok", f"{folder} has its compiled observer: {build.find(folder)}")
        except build.NotBuilt:
            pass
        try:
            build.build(folder)
        except build.NotBuilt as reason:
            try:
                running = build.is_being_compiled(build.library_path(os.path.realpath(folder)))
            except build.NotBuilt:
                running = False
            if not running or time.monotonic() > until:
                return Check("torch", "bad", f"{folder}: {reason}")
            time.sleep(0.2)


def compile_agent(program: str) -> None:
    """Let each rank of this Python read our part in it as bytecode, where we may write beside it."""
    command = [program, "-m", "compileall", "-q", os.path.dirname(build.__file__)]
    environment = build.plain_environment()
    try:
        subprocess.run(command, env=environment, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        pass


def gpu(answers: dict[str, str]) -> list[Check]:
    """Of CUDA and NCCL: the driver, the library that tells of kernels, and the variables that bring us in."""
    findings = [injected(name) for name in ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH") if os.environ.get(name)]
    if "driver" not in answers and not os.path.exists("/dev/nvidiactl"):
        return [Check("CUDA", "ok", "no NVIDIA driver here: nothing of a GPU is recorded"), *findings]
    if "driver" not in answers:
        text = "a GPU, but no libcuda.so.1 that can be loaded; give the container the driver (--gpus all, --nv)"
        return [Check("CUDA", "note", text), *findings]
    version = int(answers["driver"].split()[0])
    findings.insert(0, Check("CUDA", "ok", f"driver for CUDA {version // 1000}.{version % 1000 // 10}"))
    return [*findings, cupti(answers), nccl(answers)]


def injected(name: str) -> Check:
    theirs, tool = os.environ[name], nsight(dict(os.environ))
    if theirs == LIBRARY:
        return Check(name, "ok", "is the recorder")
    if tool:
        return Check(name, "note", f"{tool} has the GPU, so it is not recorded; start without {tool} to record it")
    return Check(name, "ok", f"{theirs} is loaded behind the recorder; if it uses CUPTI, the GPU is not recorded")


def cupti(answers: dict[str, str]) -> Check:
    if "cupti" not in answers:
        text = "no libcupti: nothing of the GPU is recorded; pip install nvidia-cuda-cupti, or set RANKSCOPE_CUPTI"
        return Check("CUPTI", "note", text)
    version, _, path = answers["cupti"].partition(" ")
    if int(version) < OLDEST_CUPTI:
        return Check(
            "CUPTI", "note", f"{path} is version {version}, older than CUDA 12: nothing of the GPU is recorded"
        )
    return Check("CUPTI", "ok", f"version {version}, {path}")


def nccl(answers: dict[str, str]) -> Check:
    theirs = os.environ.get("NCCL_PROFILER_PLUGIN")
    if theirs and theirs.lower() == "none":
        text = "NCCL_PROFILER_PLUGIN=none stays, so NCCL's operations are not recorded; unset it to record them"
        return Check("NCCL", "note", text)
    if len(LIBRARY) >= LONGEST_PLUGIN_PATH:
        return Check("NCCL", "note", f"{LIBRARY} is too long a path for NCCL: its operations are not recorded")
    if "nccl" not in answers:
        return Check("NCCL", "ok", "no libnccl.so.2 found beside this Python; one of the program's own is recorded")
    number, _, path = answers["nccl"].partition(" ")
    shown = f"{int(number) // 10000}.{int(number) // 100 % 100}.{int(number) % 100}"
    if int(number) < OLDEST_NCCL:
        return Check("NCCL", "note", f"{shown} has no plugins for profilers: its operations are not recorded; use 2.23")
    behind = f"; {theirs} is loaded behind it" if theirs and theirs != LIBRARY else ""
    return Check("NCCL", "ok", f"{shown}, {path}: recorded by its plugin{behind}")


def opencl(answers: dict[str, str]) -> Check:
    """Whether OpenCL's loader lets others see the calls: by layers, which ocl-icd has from 2.3 on."""
    path = answers.get("opencl", "")
    if not path:
        return Check("OpenCL", "ok", "no loader (libOpenCL.so.1) found; one of the program's own is recorded")
    try:
        has_layers = b"OPENCL_LAYERS" in Path(path).read_bytes()
    except OSError:
        has_layers = False
    if not has_layers:
        text = f"{path} takes no layers: OpenCL is not recorded; use ocl-icd 2.3 or Khronos's loader of 2021 or later"
        return Check("OpenCL", "note", text)
    drivers = len(list(Path(os.environ.get("OCL_ICD_VENDORS") or "/etc/OpenCL/vendors").glob("*.icd")))
    return Check("OpenCL", "ok", f"{path} takes layers; {drivers} drivers named in its folder")


def rocm() -> list[Check]:
    """Of HIP: the library that tells of calls and kernels, where there is an AMD GPU or ROCm."""
    homes = [os.environ.get("ROCM_PATH") or "/opt/rocm", *map(str, Path("/opt").glob("rocm-*"))]
    given_path = os.environ.get("RANKSCOPE_ROCPROFILER")
    libraries = (
        [given_path]
        if given_path
        else [str(path) for home in homes for path in Path(home).glob("lib/librocprofiler-sdk.so*")]
    )
    if libraries and os.path.exists(libraries[0]):
        return [Check("ROCm", "ok", f"{libraries[0]}: HIP is recorded")]
    if not given_path and not os.path.exists("/dev/kfd"):
        return [Check("ROCm", "ok", "no AMD GPU here")]
    text = (
        "no librocprofiler-sdk found: nothing of HIP is recorded; install rocprofiler-sdk, or set RANKSCOPE_ROCPROFILER"
    )
    return [Check("ROCm", "note", text)]


def writable(folder: Path) -> Check:
    """Whether runs can be kept there: a folder is made in the nearest one that exists, and removed."""
    place = nearest(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".rankscope-doctor-", dir=place):
            free_bytes = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
    except OSError as error:
        return Check("folder", "bad", f"{folder} cannot be written ({error.strerror}); give another with --out")
    if free_bytes < RANK_FILE_BYTES:
        return Check("folder", "bad", f"{folder} has {free_bytes} bytes left; give another with --out")
    return Check(
        "folder",
        "ok",
        f"{folder} can be written, {free_bytes // 2**20} MiB free "
        f"(a rank needs at most {RANK_FILE_BYTES // 2**20} MiB)",
    )


def file_system(folder: Path) -> Check:
    """On a network file system the kernel writes every rank's pages back over the network."""
    kind = kind_of(nearest(folder))
    if kind in NETWORK_FILE_SYSTEMS:
        return Check("file system", "note", f"{kind}: with more than {MANY_RANKS} ranks use --local /tmp")
    return Check("file system", "ok", kind)


def mapping(folder: Path) -> Check:
    """Whether a file there can be memory that others see: some network and container file systems cannot."""
    try:
        with tempfile.TemporaryFile(dir=nearest(folder)) as file:
            file.truncate(mmap.PAGESIZE)
            with mmap.mmap(file.fileno(), mmap.PAGESIZE) as memory:
                memory[:4] = b"seen"
            file.seek(0)
            seen = file.read(4) == b"seen"
    except (OSError, ValueError) as error:
        return Check("mapped files", "bad", f"{folder}: {error}; give another folder with --out, or --local /tmp")
    if not seen:
        return Check("mapped files", "bad", f"{folder} loses what is written through mappings; use --local /tmp")
    return Check("mapped files", "ok", "shared file mappings work there")


def shared_memory() -> Check:
    """Not ours to use; but a job of several ranks or DataLoader workers dies without."""
    try:
        status = os.statvfs("/dev/shm")
    except OSError:
        return Check("/dev/shm", "note", "is missing: NCCL, Gloo and DataLoader workers may fail, recorded or not")
    size = status.f_blocks * status.f_frsize
    if size <= SMALL_SHM_BYTES:
        text = (
            f"{size // 2**20} MiB is too little for NCCL and DataLoader workers, recorded or not; docker: --shm-size 8g"
        )
        return Check("/dev/shm", "note", text)
    return Check("/dev/shm", "ok", f"{size // 2**20} MiB")


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
