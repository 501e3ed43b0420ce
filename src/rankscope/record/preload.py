"""Whether the recorder can be loaded into a program, and why not."""

import _imp
import os

from rankscope.record.program import content

LIBRARY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "native", "librankscope.so")
HEAD_BYTES = 4096
MACHINES = {3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
ELF64 = 2
PT_INTERP = 3
SET_UID, SET_GID = 0o4000, 0o2000  # from the module stat
MOST_INTERPRETERS = 4


class NotRecordable(Exception):
    """Why a program cannot be recorded, and what to do."""


class Elf:
    """What an ELF header says."""

    def __init__(self, head: bytes) -> None:
        order = "big" if head[5] == 2 else "little"
        self.is_64 = head[4] == ELF64
        self.machine = integer(head[18:20], order)
        self.dynamic = PT_INTERP in program_header_types(head, order) if self.is_64 else True

    @property
    def architecture(self) -> str:
        name = MACHINES.get(self.machine, f"ELF machine {self.machine}")
        return name if self.is_64 else f"{name}, 32 bit"


def integer(octets: bytes, order: str) -> int:
    return int.from_bytes(octets, "big" if order == "big" else "little")


def program_header_types(head: bytes, order: str) -> list[int]:
    """The type of every program header of a 64-bit ELF file (as far as its first page holds them)."""
    offset, entry_bytes, entries = (integer(head[a:b], order) for a, b in ((32, 40), (54, 56), (56, 58)))
    places = [offset + entry_bytes * n for n in range(entries)]
    return [integer(head[at : at + 4], order) for at in places if at + 4 <= len(head)]


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


def check_privileges(path: str) -> None:
    """The loader drops LD_PRELOAD from programs that gain rights by being started."""
    status = os.stat(path)
    gains_user = status.st_mode & SET_UID and status.st_uid != os.getuid()
    gains_group = status.st_mode & SET_GID and status.st_gid != os.getgid()
    if gains_user or gains_group or (os.getuid() and has_capabilities(path)):
        raise NotRecordable(
            f"{path} runs with other rights (setuid, setgid or capabilities), which rules out "
            "LD_PRELOAD; put rankscope run before a program that it starts"
        )


def has_capabilities(path: str) -> bool:
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False
