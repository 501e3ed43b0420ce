"""The objects of a JSON array, of JSON lines or of objects one behind the other, one at a time."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rankscope.formats.source import Source

LONGEST = 4 << 20  # of one object, in characters
BETWEEN = " \t\r\n,[]"

Object = dict[str, Any]


@dataclass(slots=True)
class Objects:
    """Iterates over a file's objects; afterwards, `cut_off` tells whether the last one was incomplete."""

    source: Source
    cut_off: bool = False
    line: int = 1

    def __iter__(self) -> Iterator[Object]:
        decode = json.JSONDecoder(parse_constant=_refuse).raw_decode
        text, place = "", 0
        for block in self._blocks():
            text, place = text[place:] + block, 0
            while (start := _next(text, place)) < len(text):
                self.line += text.count("\n", place, start)
                place = start
                found = self._decoded(decode, text, place)
                if found is None:
                    break
                value, end = found
                yield value
                self.line += text.count("\n", place, end)
                place = end
            else:
                self.line += text.count("\n", place)
                place = len(text)
        self.cut_off = place < len(text)

    def _blocks(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for block in self.source.blocks():
            yield decoder.decode(block)

    def _decoded(self, decode: Any, text: str, place: int) -> tuple[Object, int] | None:
        """The object that begins here and where it ends, or None where more text is needed."""
        if text[place] != "{":
            raise self.source.bad(f"{text[place : place + 20]!r} where an object should begin", self.line)
        try:
            value, end = decode(text, place)
        except json.JSONDecodeError as problem:
            if len(text) - place > LONGEST:
                raise self.source.bad(f"an object of more than {LONGEST >> 20} MiB, or not JSON", self.line) from None
            if _broken(text, problem.pos):
                raise self.source.bad(
                    f"is not JSON: {problem.msg}", self.line + text.count("\n", place, problem.pos)
                ) from None
            return None
        except (RecursionError, ValueError) as problem:
            raise self.source.bad(f"is not JSON that can be read: {problem}", self.line) from None
        return value, end


def _broken(text: str, place: int) -> bool:
    """Whether an error is too far from the end to come from text that is still missing."""
    rest = text[place:]
    return len(rest) > 64 and not rest.startswith('"')


def _next(text: str, place: int) -> int:
    while place < len(text) and text[place] in BETWEEN:
        place += 1
    return place


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def whole_number(value: Any) -> int | None:
    """A JSON value as a count that fits in 64 bits, or None; counts may be written as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return value if fits else None


def real_number(value: Any) -> float | None:
    """A JSON value as a number of a size that occurs, or None."""
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and -1e24 < value < 1e24
    return float(value) if fits else None


def word(value: Any, longest: int = 500) -> str:
    """A JSON value as a name: empty where it is none."""
    return value[:longest] if isinstance(value, str) else ""
