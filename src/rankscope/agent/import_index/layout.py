"""The index file: where it lies, and how it begins.

       0  magic b"RSINDEX\\n"
       8  format (u32), bytes of the head (u32)
      16  bytes of the file (u64)
      24  checksum of the head from byte 32 on (u64, SipHash as Python's own for sources)
      32  bytes of the facts (u32), bytes of the reader (u32)
      40  the facts, then the code of the reader, both marshalled; zeros up to HEAD_BYTES
   65536  for each root its folder and where its packages are, the packages' folders, the code of modules

`agent/start/sitecustomize.py` reads the head with the same numbers."""

from __future__ import annotations

import _imp
import marshal
import os
from typing import Any

MAGIC = b"RSINDEX\n"
FORMAT = 1
HEAD_BYTES = 65536
CHECKED_FROM = 32
FACTS_FROM = 40
CHECKSUM_KEY = 0x52414E4B53434F50
SUFFIX = ".rsindex"
LIBRARIES_SUFFIX = ".libraries"  # the map of the dynamic loader, beside the index
MOST_NAME_BYTES = 200
IN_THE_JOB = ("store", "folders", "finding", "paths", "starting")  # their code lies in the index, in this order


class BadIndex(Exception):
    """Why a file is not used as an index."""


def file_name(prefix: str) -> str:
    """The name of an environment's index in the folder of indexes."""
    name = prefix.strip("/").replace("/", "+") or "root"
    if len(os.fsencode(name)) > MOST_NAME_BYTES:
        checksum = _imp.source_hash(CHECKSUM_KEY, os.fsencode(prefix))
        name = checksum.hex() + "+" + name[-60:]
    return name + SUFFIX


def head(facts: dict[str, Any], reader: Any, total_bytes: int) -> bytes:
    """The first bytes of an index."""
    packed_facts, code = marshal.dumps(facts), marshal.dumps(reader)
    body = len(packed_facts).to_bytes(4, "little") + len(code).to_bytes(4, "little") + packed_facts + code
    body = body.ljust(HEAD_BYTES - CHECKED_FROM, b"\0")
    if len(body) != HEAD_BYTES - CHECKED_FROM:
        raise BadIndex("its header is too small for this many sys.path entries")
    numbers = FORMAT.to_bytes(4, "little") + HEAD_BYTES.to_bytes(4, "little") + total_bytes.to_bytes(8, "little")
    return MAGIC + numbers + _imp.source_hash(CHECKSUM_KEY, body) + body


def read_facts(path: str) -> dict[str, Any]:
    """What an index says of itself, after the checks that a job makes too."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        begin = file.read(HEAD_BYTES)
    check_owner(status)
    if begin[:8] != MAGIC or begin[8:12] != FORMAT.to_bytes(4, "little"):
        raise BadIndex("it was written by another version of rankscope")
    if int.from_bytes(begin[16:24], "little") != status.st_size:
        raise BadIndex("it is truncated")
    if _imp.source_hash(CHECKSUM_KEY, begin[CHECKED_FROM:]) != begin[24:CHECKED_FROM]:
        raise BadIndex("its checksum does not match")
    length = int.from_bytes(begin[CHECKED_FROM : CHECKED_FROM + 4], "little")
    facts: dict[str, Any] = marshal.loads(begin[FACTS_FROM : FACTS_FROM + length])
    return facts


def check_owner(status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise BadIndex(f"it belongs to another user (id {status.st_uid})")
    if status.st_mode & 0o022:
        raise BadIndex("it is writable by other users; chmod go-w makes it usable")
