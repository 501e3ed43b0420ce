"""Whether the recorder can be loaded into a program, and why not."""

import _imp
import os

from rankscope.record.program import content

LIBRARY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "native", "librankscope.so")
HEAD_BYTES = 4096
MACHINES = {3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
ELF64 = 2
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB = 0, 1, 5
GLIBC_LOADERS = ("ld-linux", "ld64.so", "ld-2.", "ld.so")
OLDEST_GLIBC = 17  # as native/core/oldest_libc.h has it
FIRST_RUNTIMES = ("libasan.", "libhwasan.", "libtsan.", "libclang_rt.asan", "libclang_rt.hwasan", "libclang_rt.tsan")
SET_UID, SET_GID = 0o4000, 0o2000  # from the module stat
MOST_INTERPRETERS = 4


class NotRecordable(Exception):
    """Why a program cannot be recorded, and what to do."""


class Elf:
    """What an ELF file says of itself; native/core/exec.c asks the same of every program that a recorded one starts."""

    def __init__(self, head: bytes) -> None:
        self.is_big_endian = head[5] == 2
        self.is_64 = head[4] == ELF64
        self.machine = self.integer(head[18:20])
        self.parts = self.program_headers(head) if self.is_64 else []

    def integer(self, octets: bytes) -> int:
        return int.from_bytes(octets, "big" if self.is_big_endian else "little")

    def program_headers(self, head: bytes) -> list[tuple[int, int, int, int]]:
        """Type, offset, address and bytes in the file of each (as far as the head holds them)."""
        first, entry_bytes, entries = (self.integer(head[a:b]) for a, b in ((32, 40), (54, 56), (56, 58)))
        places = [first + entry_bytes * n for n in range(entries) if first + entry_bytes * n + 56 <= len(head)]
        cut = [[head[at : at + 4], *(head[at + n : at + n + 8] for n in (8, 16, 32))] for at in places]
        numbers = [[self.integer(octets) for octets in each] for each in cut]
        return [(kind, offset, address, size) for kind, offset, address, size in numbers]

    def part(self, kind: int) -> tuple[int, int]:
        """Where in the file the first part of this type lies, and its bytes; (0, 0) without one."""
        return next(((offset, size) for each, offset, _, size in self.parts if each == kind), (0, 0))

    @property
    def dynamic(self) -> bool:
        return self.part(PT_INTERP)[1] > 0 if self.is_64 else True

    def loader(self, path: str) -> str:
        """The dynamic loader that it asks for."""
        return os.fsdecode(octets_of(path, *self.part(PT_INTERP)).rstrip(b"\0"))

    def needed(self, path: str) -> list[str]:
        """The libraries that it asks for itself."""
        table = octets_of(path, *self.part(PT_DYNAMIC))
        words = [self.integer(table[n : n + 8]) for n in range(0, len(table) // 16 * 16, 8)]
        entries = list(zip(words[::2], words[1::2], strict=True))
        strings = next((value for tag, value in entries if tag == DT_STRTAB), 0)
        loads = [part for part in self.parts if part[0] == PT_LOAD and part[2] <= strings < part[2] + part[3]]
        begin = strings - loads[0][2] + loads[0][1] if loads else 0
        names = [octets_of(path, begin + value, 64) for tag, value in entries if tag == DT_NEEDED and begin]
        return [os.fsdecode(name.partition(b"\0")[0]) for name in names]

    @property
    def architecture(self) -> str:
        name = MACHINES.get(self.machine, f"ELF machine {self.machine}")
        return name if self.is_64 else f"{name}, 32 bit"


def octets_of(path: str, offset: int, size: int) -> bytes:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(file, size, offset)
    finally:
        os.close(file)


def check_library(path: str = LIBRARY) -> Elf:
    """The recorder's header, after really loading it once."""
    if any(letter in path for letter in ": $"):
        raise NotRecordable(f"LD_PRELOAD cannot name {path}; install rankscope under a path without ':', ' ' and '$'")
    try:
        head = content(path, HEAD_BYTES)
    except OSError as error:
        raise NotRecordable(f"no recorder library ({error.strerror}: {path}); reinstall rankscope") from None
    problem = load_problem(path)
    if problem:
        raise NotRecordable(f"the recorder cannot be loaded ({problem}); reinstall rankscope on this machine")
    return Elf(head)


def load_problem(path: str) -> str:
    """What the dynamic loader says against this library, or "".

    Python's own loader of extension modules opens the library as ld.so will, without importing ctypes; that the
    library is no Python module is what it must complain of.
    """
    spec = type(__spec__)("librankscope", None, origin=path)
    try:
        _imp.create_dynamic(spec)
    except ImportError as error:
        text = str(error)
        return "" if "PyInit_" in text else text.replace("\n", " ")
    return ""


def check_program(path: str, library: Elf) -> None:
    """Raise if LD_PRELOAD does not reach this program; scripts are judged by their interpreter."""
    for _ in range(MOST_INTERPRETERS):
        try:
            head = content(path, HEAD_BYTES)
        except OSError:  # may be executable and not readable: let the loader try
            return
        if not head.startswith(b"#!"):
            break
        words = head[2:].split(b"\n")[0].split()
        path = os.fsdecode(words[0]) if words else "/bin/sh"
    if head.startswith(b"\x7fELF") and len(head) >= 64:
        check_elf(path, Elf(head), library)
        check_privileges(path)


def check_elf(path: str, program: Elf, library: Elf) -> None:
    if (program.machine, program.is_64) != (library.machine, library.is_64):
        raise NotRecordable(
            f"{path} is made for {program.architecture}, the recorder for {library.architecture}; "
            "install rankscope for that architecture"
        )
    if not program.dynamic:
        raise NotRecordable(f"{path} is statically linked; put rankscope run before a dynamic program that it starts")
    loader = program.loader(path)
    if not os.path.basename(loader).startswith(GLIBC_LOADERS):
        raise NotRecordable(f"{path} is made for another C library than glibc ({loader}); use a build for glibc")
    if loader_version(loader) < OLDEST_GLIBC:
        raise NotRecordable(f"{path} uses a glibc older than 2.{OLDEST_GLIBC} ({loader}); use a newer one")
    runtime = next((name for name in program.needed(path) if name.startswith(FIRST_RUNTIMES)), "")
    if runtime:
        raise NotRecordable(f"{path} needs {runtime}, which must be loaded first; build it without sanitizer")


def loader_version(loader: str) -> int:
    """The minor number of the glibc of a loader: before 2.34 it is in the name that the well-known one leads to."""
    try:
        name = os.path.basename(os.readlink(loader))
    except OSError:
        name = os.path.basename(loader)
    digits = name.removeprefix("ld-2.").partition(".")[0]
    return int(digits) if name.startswith("ld-2.") and digits.isdigit() else 34


def check_privileges(path: str) -> None:
    """The loader drops LD_PRELOAD from programs that gain rights by being started."""
    status = os.stat(path)
    gains_user = status.st_mode & SET_UID and status.st_uid != os.getuid()
    gains_group = status.st_mode & SET_GID and status.st_gid != os.getgid()
    if gains_user or gains_group or (os.getuid() and has_capabilities(path)):
        raise NotRecordable(
            f"{path} runs with elevated privileges (setuid, setgid or capabilities), which rules out "
            "LD_PRELOAD; put rankscope run before a program that it starts"
        )


def has_capabilities(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False
