"""Whatever a file holds, it is one line, the others are read, and memory stays bounded."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from rankscope.formats.source import LINE_BYTES, Source
from rankscope.model.records import BadFile

TESTS = Path(__file__).parents[2]
SCRIPT = """
import sys, types
from cli.load import toy
from rankscope.formats import registry
module = types.ModuleType("rankscope.formats.toy")
module.sniff, module.read = toy.sniff, toy.read
sys.modules[module.__name__] = module
registry.FORMATS["toy"] = "a format of the tests"
from rankscope.cli.load import run
code = run(sys.argv[1:])
with open("/proc/self/status") as status:  # getrusage would tell the peak of the process that started this one
    print(next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM")))
sys.exit(code)
"""
GOOD = "toy profile\nprocess rank=0\ntally gpu gemm 3 600\n"
START = b"toy profile\nprocess rank=1\n"
MOST_MIB = 350  # pyarrow and its like take 130 of them
LINES = (b"x" * 8191 + b"\n") * (1 << 11)


def sparse(path: Path) -> None:
    """2 GiB of one line, which take no room on the disk."""
    path.write_bytes(START)
    os.truncate(path, 2 << 30)


def swelling(path: Path) -> None:
    """10 GiB of zeros in 10 MB: gzip members may follow each other."""
    member = gzip.compress(bytes(64 << 20), 9)
    with path.open("wb") as file:
        file.write(gzip.compress(START))
        for _ in range(160):
            file.write(member)


def swelling_lines(path: Path) -> None:
    path.write_bytes(gzip.compress(START) + gzip.compress(LINES, 9) * 64)


def swelling_zstd(path: Path) -> None:
    path.write_bytes(zstandard.compress(START) + zstandard.compress(LINES) * 64)


def cut(path: Path) -> None:
    whole = gzip.compress(START + os.urandom(1 << 20).hex().encode())
    path.write_bytes(whole[: len(whole) // 2])


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "2 GiB line": (sparse, "bad:3: line 3 is longer than 1 MiB"),
    "bomb": (swelling, "bad:3: line 3 is longer than 1 MiB"),
    "bomb of lines": (swelling_lines, "bad: unpacks to more than 300 times its size: not read beyond byte"),
    "zstd bomb": (swelling_zstd, "bad: unpacks to more than 300 times its size"),
    "cut gzip": (cut, "bad: is damaged at byte"),
    "utf-16": (lambda path: path.write_text(GOOD, "utf-16"), "bad: is UTF-16 text (its mark is at byte 0)"),
    "utf-16, no mark": (lambda path: path.write_text(GOOD, "utf-16-le"), "known format (binary: a zero at byte 1)"),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 999), "bad: has no known format"),
    "deep": (lambda path: path.write_bytes(b"[" * (64 << 20)), "bad: has no known format"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_one_line_the_rest_is_read_memory_is_bounded(kind: str, tmp_path: Path) -> None:
    make, message = BAD[kind]
    make(tmp_path / "bad")
    (tmp_path / "good").write_text(GOOD)
    path = os.pathsep.join([str(TESTS), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "bad", "good"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert "1 file read (1 toy)" in done.stdout
    assert int(done.stdout.split()[-1]) < MOST_MIB
    assert len(list(tmp_path.glob("rankscope-runs/latest/loaded/*/tallies.parquet"))) == 1


def source(content: bytes) -> Source:
    return Source(Path("x"), content=content)


def test_letters_of_another_encoding_are_marked() -> None:
    latin = source("eins\nzw\xf6lf\ndrei\xdf".encode("latin-1"))
    assert [text for _, text in latin.lines()] == ["eins", "zw\ufffdlf", "drei\ufffd"]
    assert latin.odd_line == 2
    whole = source("eins\nzw\xf6lf".encode("latin-1"))
    assert whole.text() == "eins\nzw\ufffdlf" and whole.odd_line == 2


def test_a_mark_before_utf8_is_no_text() -> None:
    assert list(source("\ufeffone\r\ntwo".encode()).lines()) == [(1, "one"), (2, "two")]
    assert source(gzip.compress("\ufeffone".encode())).head() == b"one"


def test_the_longest_line_that_is_read() -> None:
    assert [len(text) for _, text in source(b"a" * (LINE_BYTES - 1) + b"\nb").lines()] == [LINE_BYTES - 1, 1]
    with pytest.raises(BadFile, match=r"^x:2: line 2 is longer"):
        list(source(b"b\n" + b"a" * (LINE_BYTES + 1)).lines())


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_streams_end_where_they_should(pack: Callable[[bytes], bytes]) -> None:
    text = b"".join(b"%d\n" % number for number in range(200_000))
    assert b"".join(source(pack(text) + pack(b"more")).blocks()) == text + b"more"
    for end in (len(pack(text)) // 2, len(pack(text)) - 1):
        with pytest.raises(BadFile, match=r"^x: is damaged at byte \d+: "):
            list(source(pack(text)[:end]).lines())


def test_how_far_the_file_is_read_can_be_watched(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(packed := gzip.compress(os.urandom(1 << 20)))
    seen: list[int] = []
    assert len(b"".join(Source(tmp_path / "x", watch=seen.append).blocks())) == 1 << 20
    assert seen == sorted(seen) and len(seen) > 10 and seen[-1] == len(packed)
