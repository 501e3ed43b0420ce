"""Writes the index of the environment whose Python runs this."""

from __future__ import annotations
import __future__

import ast
import marshal
import os
import site
import sys
import sysconfig
import tempfile
import time
from typing import Any, BinaryIO

from . import layout
from .code import Code, code_of
from .order import likely_order
from .scan import Scanned, scan
from .store import ASK, PACKAGE, SOURCE, identity

FRESH_S = 2.0  # a folder that changed so lately may change once more within the same tick of the file system's clock
HIDDEN = "<frozen importlib._bootstrap_external>"  # Python leaves frames of this name out of tracebacks


class Counted:
    """What went into an index."""

    def __init__(self) -> None:
        self.modules = self.folders = self.files = self.with_code = self.code_bytes = self.left_to_python = 0

    def add(self, folder: Scanned) -> None:
        self.folders += 1
        self.files += len(folder.files)
        is_package = "__init__" in folder.modules
        left_to_python = sum(kind == ASK for kind, _ in folder.modules.values()) - is_package
        self.modules += len(folder.modules) - is_package - left_to_python
        self.left_to_python += left_to_python


def roots() -> list[str]:
    """Folders of sys.path that only an installer writes to: the standard library and site-packages. Not those of .pth
    files, PYTHONPATH and the user: there people edit."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    installed |= set(site.getsitepackages())
    installed |= {os.path.join(path, "lib-dynload") for path in list(installed)}
    return [path for path in dict.fromkeys(sys.path) if path in installed and os.path.isdir(path)]


class Builder:
    """Writes the parts of the file one after the other."""

    def __init__(self, file: BinaryIO, wanted: list[str] | None) -> None:
        self.file = file
        self.offset = layout.HEAD_BYTES
        self.counted = Counted()
        self.wanted = {path: number for number, path in enumerate(wanted)} if wanted is not None else None

    def put(self, data: bytes) -> tuple[int, int]:
        self.file.write(data)
        place = self.offset, len(data)
        self.offset += len(data)
        return place

    def put_code(self, sources: list[Source]) -> None:
        """In the order in which the statement imports, else as is likely; the modules learn their place."""
        if self.wanted is not None:
            order = self.wanted
            sources = sorted((code for code in sources if code.path in order), key=lambda code: order[code.path])
        else:
            sources = in_likely_order(sources)
        for source in sources:
            code = source.code or code_of(source.path)
            source.code = None
            if code is not None:
                place = (*self.put(code.data), code.mtime_ns, code.size_bytes)
                source.folder.modules[source.tail] = source.kind, place
                self.counted.with_code += 1
                self.counted.code_bytes += len(code.data)

    def put_root(self, folders: list[Scanned]) -> tuple[int, int]:
        """The packages of one root, then the root itself."""
        packages: dict[str, dict[str, Any]] = {}
        record: Any = None
        for folder in folders:
            if folder.relative:
                packages.setdefault(folder.relative.partition("/")[0], {})[folder.relative] = as_record(folder)
            else:
                record = as_record(folder)
        places = {top: self.put(marshal.dumps(content)) for top, content in packages.items()}
        return self.put(marshal.dumps((record, places)))


class Source:
    """A module that has a source, under the name by which it is imported."""

    def __init__(self, root: str, folder: Scanned, tail: str) -> None:
        self.folder, self.tail = folder, tail
        self.kind = folder.modules[tail][0]
        where = f"{folder.relative}/{tail}" if folder.relative else tail
        self.name = where.replace("/", ".")
        self.path = f"{root}/{where}/__init__.py" if self.kind == PACKAGE else f"{root}/{where}.py"
        self.package = self.name if self.kind == PACKAGE else self.name.rpartition(".")[0]
        self.code: Code | None = None


def sources_of(scanned: dict[str, list[Scanned]]) -> list[Source]:
    return [
        Source(root, folder, tail)
        for root, folders in scanned.items()
        for folder in folders
        for tail, (kind, _) in folder.modules.items()
        if kind in (SOURCE, PACKAGE)
    ]


def in_likely_order(sources: list[Source]) -> list[Source]:
    """Begun with the largest packages, which bring the others along."""
    by_name = {source.name: source for source in reversed(sources)}
    weight: dict[str, int] = {}
    for source in sources:
        top = source.name.partition(".")[0]
        weight[top] = weight.get(top, 0) + 1
    begun = sorted(by_name.values(), key=lambda code: (-weight[code.name.partition(".")[0]], code.name))

    def read(name: str) -> bytes | None:
        source = by_name[name]
        source.code = code_of(source.path)
        return source.code.data if source.code else None

    order = likely_order({source.name: source.package for source in begun}, read)
    hidden = [source for source in sources if by_name[source.name] is not source]
    return [by_name[name] for name in order] + hidden


def as_record(folder: Scanned) -> tuple[Any, ...]:
    return (*identity(folder.status), folder.modules, folder.files)


def settled(paths: list[str]) -> dict[str, list[Scanned]]:
    """All folders of the roots, once they have rested long enough that a later change will show in their times."""
    for _ in range(3):
        begun_s = time.time()
        scanned = {path: list(scan(path)) for path in paths}
        if all(is_settled(folder, begun_s) for folders in scanned.values() for folder in folders):
            break
        time.sleep(FRESH_S)
    return {
        path: [folder for folder in folders if is_settled(folder, begun_s)]
        for path, folders in scanned.items()
        if folders and not folders[0].relative
    }


def is_settled(folder: Scanned, begun_s: float) -> bool:
    return max(folder.status.st_mtime, folder.status.st_ctime) < begun_s - FRESH_S


def build(target: str, statement: str, wanted: list[str] | None) -> tuple[Counted, int]:
    """Write the index beside its place and rename it: who looks finds a whole one, the old or the new."""
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(prefix=".building-", dir=os.path.dirname(target))
    try:
        with os.fdopen(descriptor, "wb") as file:
            counted, total_bytes = write(file, statement, wanted)
            os.fchmod(file.fileno(), 0o644)
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, target)
    except BaseException:
        os.unlink(fresh)
        raise
    return counted, total_bytes


def write(file: BinaryIO, statement: str, wanted: list[str] | None) -> tuple[Counted, int]:
    builder = Builder(file, wanted)
    scanned = {path: folders for path, folders in settled(roots()).items() if folders and not folders[0].relative}
    if not scanned:
        raise layout.BadIndex("no sys.path entry could be read, or all are being modified")
    file.write(bytes(layout.HEAD_BYTES))
    builder.put_code(sources_of(scanned))
    places, folders_from = [], builder.offset
    for path, folders in scanned.items():
        for folder in folders:
            builder.counted.add(folder)
        places.append((path, identity(folders[0].status), builder.put_root(folders)))
    file.seek(0)
    file.write(layout.head(facts(places, folders_from, statement, builder.counted), reader(), builder.offset))
    return builder.counted, builder.offset


def reader() -> tuple[tuple[str, Any], ...]:
    """The code that a job runs to use the index."""
    here = os.path.dirname(os.path.abspath(__file__))
    codes = []
    for name in layout.IN_THE_JOB:
        with open(os.path.join(here, name + ".py"), "rb") as source:
            codes.append((name, compiled(source.read())))
    return tuple(codes)


def compiled(source: bytes) -> Any:
    """Code that does not import __future__, which the program may not have done either."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")]
    flags = __future__.annotations.compiler_flag
    return compile(tree, HIDDEN, "exec", flags=flags, dont_inherit=True, optimize=0)


def facts(places: list[Any], folders_from: int, statement: str, counted: Counted) -> dict[str, Any]:
    import importlib.util

    return {
        "python": (sys.hexversion, sys.implementation.cache_tag, importlib.util.MAGIC_NUMBER),
        "prefix": os.path.realpath(sys.prefix),
        "optimize": sys.flags.optimize,
        "roots": places,
        "folders_from": folders_from,
        "built_s": time.time(),
        "statement": statement,
        "counted": vars(counted),
    }
