"""The map by which the dynamic loader finds libraries again; native/loader_audit/libraries/map.h tells its lines."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

CACHE = "/etc/ld.so.cache"
FROM_CACHE = 0x08  # LA_SER_CONFIG
BEGIN, END = "rankscope libraries 1\n", "end\n"


class Found:
    """One library that was searched, and where in vain."""

    def __init__(self, chain: str, name: str, path: str, tried: list[tuple[int, str]]) -> None:
        self.chain, self.name, self.path = chain, name, path
        self.missed = [os.path.dirname(path) for _, path in tried[:-1]]
        self.from_cache = bool(tried) and tried[-1][0] == FROM_CACHE

    @property
    def is_certain(self) -> bool:
        """Not where the answer depends on the processor or on the current folder."""
        folders = [*self.missed, self.path]
        return all(folder.startswith("/") and "\t" not in folder for folder in folders) and not any(
            map(has_variants, folders)
        )


def has_variants(path: str) -> bool:
    """Whether libraries for some processors lie here."""
    for part in ("/glibc-hwcaps", "/tls"):
        before, separator, _ = path.partition(part)
        if separator and os.path.isdir(before + part):
            return True
    return False


def read_log(path: str) -> Iterator[Found]:
    """What the auditor wrote down."""
    tried: list[tuple[int, str]] = []
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            kind, *fields = line.rstrip("\n").split("\t")
            if kind == "T" and len(fields) == 2:
                tried.append((int(fields[0]), fields[1]))
            elif kind == "F" and len(fields) == 3:
                yield Found(fields[0], fields[1], fields[2], since_last_search(tried, fields[1]))
                tried = []


def read_search_folders(path: str) -> list[str]:
    """Where every search goes through."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return [line[2:].rstrip("\n") for line in file if line.startswith("S\t")]


def since_last_search(tried: list[tuple[int, str]], name: str) -> list[tuple[int, str]]:
    """Searches that found nothing leave lines too: only those for this name count."""
    return [attempt for attempt in tried if os.path.basename(attempt[1]) == name]


def write_map(log: str, target: str, program: str) -> int:
    """Write it beside and rename it; returns how many libraries it knows."""
    always = read_search_folders(log)
    if not all(folder.startswith("/") for folder in always):
        return 0  # they depend on the current folder
    libraries = [library for library in read_log(log) if library.is_certain]
    lines = [f"E\t{program}"]
    lines += [f"{key}\t{os.environ.get(name, '')}" for key, name in (("V", "LD_LIBRARY_PATH"), ("G", "GLIBC_TUNABLES"))]
    missed = [*always, *(folder for library in libraries for folder in library.missed)]
    lines += [condition(folder) for folder in dict.fromkeys(missed)]
    if any(library.from_cache for library in libraries):
        status = os.stat(CACHE)
        lines.append(f"C\t{status.st_size}\t{status.st_mtime_ns}\t{CACHE}")
    for library in libraries:
        status = os.stat(library.path)
        lines.append(f"F\t{library.chain}\t{library.name}\t{status.st_size}\t{status.st_mtime_ns}\t{library.path}")
    descriptor, fresh = tempfile.mkstemp(prefix=".building-", dir=os.path.dirname(target))
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(BEGIN + "".join(line + "\n" for line in dict.fromkeys(lines)) + END)
        os.fchmod(file.fileno(), 0o644)
    os.rename(fresh, target)
    return len(libraries)


def condition(folder: str) -> str:
    """What must hold for a folder that was searched in vain: unchanged, or still missing from its first missing part
    on. What is missing in an unchanged folder is missing still."""
    path = os.path.normpath(folder) if "/../" not in folder else folder
    above = os.path.dirname(path)
    while not os.path.exists(path) and not os.path.exists(above) and above != "/":
        path, above = above, os.path.dirname(above)
    if os.path.exists(path):
        return status_line(path)
    return status_line(above) if is_variant(path) else f"M\t{path}"


def is_variant(path: str) -> bool:
    return os.path.basename(path) in ("glibc-hwcaps", "tls", "x86_64", "haswell", "avx512_1")


def status_line(path: str) -> str:
    status = os.stat(path)
    return f"D\t{status.st_ino}\t{status.st_mtime_ns}\t{status.st_ctime_ns}\t{path}"
