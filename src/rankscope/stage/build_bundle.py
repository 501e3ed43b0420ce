"""Making a bundle: rehearse, choose, pack, and say what came of it."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

from rankscope.record.program import NoProgram, find_program, first_environment
from rankscope.record.start import WRAPPERS
from rankscope.stage.bundle import BLOCK_BYTES, CHUNK_BYTES, FORMAT, HEADER_BYTES, BadBundle, written_header
from rankscope.stage.command import in_place, ourselves
from rankscope.stage.contents import (
    OPENED,
    BundleContents,
    Packed,
    Touched,
    Tree,
    add,
    choose,
    from_strace,
    lay_out,
    read_list,
)
from rankscope.stage.image import IMAGE, into_image
from rankscope.stage.options import StageOptions
from rankscope.stage.roots import NoEnvironment, default_bundle, find_environment, find_roots
from rankscope.stage.run import say

# ---------------------------------------------------------------------------------------------------------------------
# A rehearsal: the command runs once, in place, and what it touches is noted.
WATCHING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watching_opens")
LONGEST_PATH = "4096"
ReadRun = Callable[[str], Touched]


class NoRehearsal(Exception):
    """The rehearsal cannot be used; the text says why."""


def best_method() -> str:
    """The one that sees most: strace may be missing or forbidden, and our recorder may not have been built."""
    strace = shutil.which("strace")
    if strace and subprocess.run([strace, "-o", os.devnull, "true"], stderr=subprocess.DEVNULL).returncode == 0:
        return "strace"
    return "paths" if os.path.exists(WRAPPERS) else "audit"


def rehearse(command: list[str], environment: dict[str, str], method: str, read_run: ReadRun) -> Touched:
    """What the command touches; it has to end well, or else it has not touched everything."""
    with tempfile.TemporaryDirectory(prefix="rankscope-rehearsal-") as folder:
        command, environment = watched(command, environment, method, folder)
        try:
            exit_code = subprocess.run(command, env=environment, check=False).returncode
        except OSError as error:
            raise NoRehearsal(f"{command[0]}: {error.strerror}") from None
        if exit_code:
            raise NoRehearsal(f"the rehearsal ended with exit code {exit_code}; nothing was packed")
        return read_run(f"{folder}/run") if method == "paths" else collected(folder, method)


def watched(
    command: list[str], environment: dict[str, str], method: str, folder: str
) -> tuple[list[str], dict[str, str]]:
    """The command and its variables, so that what it touches is noted in the folder."""
    if method == "strace":
        options = ["-qq", "-ff", "-y", "-s", LONGEST_PATH, "-e", "trace=%file", "-o", f"{folder}/log"]
        return ["strace", *options, *command], environment
    if method == "paths":
        return [
            *ourselves(),
            "run",
            "--quiet",
            "--imports",
            "paths",
            "--out",
            f"{folder}/run",
            "--",
            *command,
        ], environment
    theirs = environment.get("PYTHONPATH", "")
    path = f"{WATCHING}:{theirs}" if theirs else WATCHING
    return command, {**environment, "PYTHONPATH": path, "RANKSCOPE_STAGE_NOTES": folder}


def collected(folder: str, method: str) -> Touched:
    """The notes of all processes."""
    touched: Touched = {}
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if method == "strace":
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                files = from_strace(file, os.getcwd())
        else:
            files = dict.fromkeys(read_list(path), OPENED)
        for touched_path, how in files.items():
            add(touched, touched_path, how)
    if not touched:
        raise NoRehearsal("the rehearsal touched nothing that could be seen; name files with --files or --include")
    return touched


# ---------------------------------------------------------------- writes a bundle: the same files give the same bytes
READ_BYTES = 1024**2
FASTEST = 1  # of zlib's levels: level 6 packs at a quarter of the speed and saves a tenth


class Payload:
    """The bytes of all files, cut into chunks that are sealed (and maybe compressed) one by one."""

    def __init__(self, file: BinaryIO, compressed: bool) -> None:
        self.file = file
        self.compressed = compressed
        self.chunks: list[list[int | str]] = []
        self.raw_bytes = 0
        self.waiting = bytearray()

    def write(self, block: bytes) -> None:
        self.raw_bytes += len(block)
        self.waiting += block
        while len(self.waiting) >= CHUNK_BYTES:
            self.seal(bytes(self.waiting[:CHUNK_BYTES]))
            del self.waiting[:CHUNK_BYTES]

    def seal(self, raw: bytes) -> None:
        stored = zlib.compress(raw, FASTEST) if self.compressed else raw
        self.chunks.append([len(stored), hashlib.sha256(stored).hexdigest()])
        self.file.write(stored)

    def finish(self) -> None:
        if self.waiting:
            self.seal(bytes(self.waiting))
            self.waiting.clear()


def pack(choice: BundleContents, path: str, compressed: bool, facts: dict[str, Any]) -> str:
    """Write the bundle, whole or not at all, and return its identity."""
    return pack_tree(choice, lay_out(choice), path, compressed, facts)


def pack_image(choice: BundleContents, path: str, facts: dict[str, Any]) -> str:
    """The same with everything in one image; it is compressed in itself."""
    with tempfile.TemporaryDirectory(prefix=".rankscope-image-", dir=os.path.dirname(os.path.abspath(path))) as folder:
        tree = into_image(lay_out(choice), folder)
        return pack_tree(choice, tree, path, False, {**facts, "image": IMAGE})


def pack_tree(choice: BundleContents, tree: Tree, path: str, compressed: bool, facts: dict[str, Any]) -> str:
    temporary = f"{path}.part-{os.getpid()}"
    try:
        with open(temporary, "wb") as file:
            identity = write_bundle(file, choice, tree, compressed, facts)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    return identity


def write_bundle(file: BinaryIO, choice: BundleContents, tree: Tree, compressed: bool, facts: dict[str, Any]) -> str:
    """Chunks first, then the manifest that seals them, then the header that seals the manifest."""
    file.write(bytes(HEADER_BYTES))
    payload = Payload(file, compressed)
    rows = [add_file(payload, packed) for packed in tree.files]
    payload.finish()
    content = json.dumps(manifest(choice, tree, payload, rows, facts), separators=(",", ":"), sort_keys=True).encode()
    region = tar_header("manifest.json", len(content)) + padded(content) + bytes(2 * BLOCK_BYTES)
    file.write(region)
    header = written_header(tar_header("rankscope-bundle", BLOCK_BYTES), region, len(content), file.tell())
    file.seek(0)
    file.write(header)
    return header.rstrip(b"\0").split()[-1].decode()


def manifest(
    choice: BundleContents, tree: Tree, payload: Payload, rows: list[list[Any]], facts: dict[str, Any]
) -> dict[str, Any]:
    """What the bundle says of itself; no date and no host, so that equal content has equal bytes."""
    return {
        **facts,
        "format": FORMAT,
        "compression": "zlib" if payload.compressed else "none",
        "chunk_bytes": CHUNK_BYTES,
        "raw_bytes": payload.raw_bytes,
        "chunks": payload.chunks,
        "roots": [{"name": r.name, "original": r.original, "real": r.real, "venv": r.is_venv} for r in choice.roots],
        "folders": tree.folders,
        "files": rows,
        "links": tree.links,
        "watched": tree.watched,
    }


def add_file(payload: Payload, packed: Packed) -> list[Any]:
    """The file's bytes into the payload, and its line of the manifest."""
    size = packed.status.st_size
    payload.write(tar_header(packed.path, size, packed.status))
    at, digest, left = payload.raw_bytes, hashlib.sha256(), size
    with open(packed.source, "rb", buffering=0) as source:
        while block := source.read(READ_BYTES):
            digest.update(block)
            payload.write(block)
            left -= len(block)
    if left:
        raise BadBundle(f"{packed.source} changed while it was packed: pack again")
    payload.write(bytes(-size % BLOCK_BYTES))
    mode = stat.S_IMODE(packed.status.st_mode)
    return [packed.path, size, mode, packed.status.st_mtime_ns, at, digest.hexdigest(), packed.relocated]


def tar_header(name: str, size: int, status: os.stat_result | None = None) -> bytes:
    """The header of a member, without owner, group and fractions of seconds."""
    member = tarfile.TarInfo(name)
    member.size = size
    if status:
        member.mode = stat.S_IMODE(status.st_mode)
        member.mtime = int(status.st_mtime)
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK_BYTES)


# ---------------------------------------------------------------- build bundle
NOT_PACKED = 1


def make_bundle(options: StageOptions, read_run: ReadRun) -> int:
    """Exit code 0 if the bundle is there."""
    try:
        bundle = make(options, read_run)
    except (NoEnvironment, NoRehearsal, NoProgram, BadBundle) as error:
        say(str(error))
        return NOT_PACKED
    except OSError as error:
        say(f"{error.filename or ''}: {error.strerror or error}; nothing was packed")
        return NOT_PACKED
    say(bundle)
    return 0


def make(options: StageOptions, read_run: ReadRun) -> str:
    """Pack, and describe in one line what was packed."""
    environment = first_environment()
    folder = find_environment(options.environment, environment)
    path = options.value("bundle") or default_bundle(folder)
    with_base = True if options.has("base") else False if options.has("no-base") else None
    roots = find_roots(folder, options.lists["also"], with_base)
    touched, facts = touched_files(options, in_place(environment, folder), read_run)
    began_s = time.monotonic()
    choice = choose(roots, touched, options.lists["include"], options.has("all"))
    facts["environment_files"] = choice.seen_files
    if options.has("image"):
        identity = pack_image(choice, path, facts)
    else:
        identity = pack(choice, path, options.value("compress") == "zlib", facts)
    return described(choice, path, identity, time.monotonic() - began_s)


def touched_files(
    options: StageOptions, environment: dict[str, str], read_run: ReadRun
) -> tuple[Touched, dict[str, Any]]:
    """What was touched, by a rehearsal or by lists, and where we know it from."""
    touched: Touched = {}
    lists = [read_list(name) for name in options.lists["files"]] + [read_run(name) for name in options.lists["run"]]
    for file_list in lists:
        for path, how in file_list.items():
            add(touched, path, how)
    facts: dict[str, Any] = {"command": options.command, "method": "list"}
    if options.command:
        find_program(options.command[0], environment)
        facts["method"] = options.value("method") or best_method()
        for path, how in rehearse(options.command, environment, facts["method"], read_run).items():
            add(touched, path, how)
    return touched, facts


def described(choice: BundleContents, path: str, identity: str, took_s: float) -> str:
    root = choice.roots[0].real
    own_files = sum(1 for file in choice.files if file.startswith(root + "/"))
    seen = choice.seen_files
    share = f" ({100 * own_files / seen:.1f} % of the environment's {seen})" if seen else ""
    others = len(choice.files) - own_files
    files = f"{own_files} files{share}" + (f" and {others} of the interpreter and other folders" if others else "")
    return f"{path}: {files}, {os.path.getsize(path) / 1024**2:.1f} MiB, {took_s:.1f} s; identity {identity}"
