"""pack_runs.py FOLDER TARGET.tar.gz: packs recorded runs and what lies beside them, of rank files only what is used."""

from __future__ import annotations

import io
import struct
import sys
import tarfile
from pathlib import Path

MOST_BYTES = 16 << 20
USED_BYTES_AT = 32  # see docs/inside/rank-file.md: rs_header
MAGIC = b"RANKSCPE"


def used(content: bytes) -> bytes:
    """A rank file without the room that it has not used yet; any other file as it is."""
    if not content.startswith(MAGIC):
        return content
    (used_bytes,) = struct.unpack_from("=Q", content, USED_BYTES_AT)
    return content[:used_bytes]


def pack(folder: Path, target: Path) -> int:
    with tarfile.open(target, "w:gz") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = used(path.read_bytes())
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.size, entry.mtime = len(content), int(path.stat().st_mtime)
            archive.addfile(entry, io.BytesIO(content))
    return target.stat().st_size


def main() -> int:
    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    size = pack(folder, target)
    print(f"{target}: {size} bytes")
    if size > MOST_BYTES:
        print(f"{target} is larger than {MOST_BYTES} bytes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
