"""Ways to damage a file: every one keeps enough of it to get past the first check of a reader."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Sequence
from random import Random

import zstandard

MOST_BYTES = 256 << 10
NUMBERS = (
    b"-1", b"0", b"1", b"-0.0", b"99999999999999999999999", b"9223372036854775808", b"1e308", b"1e999", b"nan", b"-inf",
    b"Infinity", b"1.2.3", b"0x1f", b"1_000", b"1,5", b"12.5%", b"-3us", b"7h", b"1e-320", b"\xd9\xa3", b"\xc2\xbd",
    b"1" * 5000, b"", b"--", b"None", b"null", b"true", b"{}", b"[]", b"\"\"",
)  # fmt: skip
PIECES = (
    b"\0", b"\xff", b"\r", b"\n\n\n", b"\t", b"\x1b[2J", b"\xef\xbb\xbf",
    b"\xe2\x80\xae", b"\"", b"'", b"\\", b"\\ud800",
    b"<b>", b"|", b"||", b"```\n", b"{", b"}", b"]", b"," * 50, b"[" * 3000, b"{\"a\":" * 3000, b"(" * 500, b"=" * 99,
    b"a" * 20000, b" " * 20000, b"%s%n", b"__import__('os')", b"==1== ", b"\xed\xa0\x80",
)  # fmt: skip
NUMBER = re.compile(rb"-?\d[\d.,]*")

Mutation = Callable[[bytes, Random, Sequence[bytes]], bytes]


def flip(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    made = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        made[dice.randrange(len(made))] ^= 1 << dice.randrange(8)
    return bytes(made)


def cut(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    return data[: dice.randrange(len(data))]


def behead(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    return data[dice.randrange(len(data)) :]


def drop(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    start, end = _slice(data, dice)
    return data[:start] + data[end:]


def double(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    start, end = _slice(data, dice)
    return data[:end] + data[start:end] * dice.choice((1, 1, 2, 50)) + data[end:]


def insert(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.choice(PIECES) + data[at:]


def renumber(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    found = list(NUMBER.finditer(data))
    for match in sorted(dice.sample(found, min(len(found), dice.randint(1, 3))), key=lambda one: -one.start()):
        data = data[: match.start()] + dice.choice(NUMBERS) + data[match.end() :]
    return data


def shuffle_lines(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    start, end = sorted(dice.randrange(len(lines) + 1) for _ in range(2))
    middle = lines[start:end]
    dice.shuffle(middle)
    return b"\n".join(lines[:start] + middle + lines[end:])


def repeat_line(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    return b"\n".join(lines[:at] + [lines[at]] * dice.choice((2, 20, 500)) + lines[at + 1 :])


def glue_lines(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    at = dice.randrange(len(lines))
    return b"\n".join(lines[:at]) + dice.choice((b"", b" ", b"\r", b"\t")) + b"\n".join(lines[at:])


def splice(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    """The start of this file and the end of another, or another in the middle."""
    mine, theirs = data.split(b"\n"), dice.choice(others).split(b"\n")
    at, there = dice.randrange(len(mine) + 1), dice.randrange(len(theirs) + 1)
    rest = mine[at:] if dice.random() < 0.5 else []
    return b"\n".join(mine[:at] + theirs[there:] + rest)


def _slice(data: bytes, dice: Random) -> tuple[int, int]:
    start = dice.randrange(len(data))
    return start, min(len(data), start + dice.choice((1, 2, 8, 64, 512, 4096)))


MUTATIONS: tuple[Mutation, ...] = (
    flip, cut, behead, drop, double, insert, renumber, renumber, shuffle_lines, repeat_line, glue_lines, splice,
)  # fmt: skip


def mutated(data: bytes, dice: Random, others: Sequence[bytes]) -> bytes:
    """One to four mutations; now and then packed, and the packed file damaged as well."""
    for _ in range(dice.choice((1, 1, 2, 4))):
        if data:
            data = dice.choice(MUTATIONS)(data, dice, others)[:MOST_BYTES]
    if dice.random() < 0.04:
        packed = dice.choice((gzip.compress, zstandard.compress))(data)
        return dice.choice((flip, cut, flip))(packed, dice, others) if dice.random() < 0.5 else packed
    return data
