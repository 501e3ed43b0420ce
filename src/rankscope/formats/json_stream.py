"""The events of a Chrome trace (`{…, "traceEvents": [{…}, …], …}` or the list alone) by blocks, in constant memory.

A block is cut at the last `}, {` in it and decoded. JSON is read from left to right, so what decodes as a list of
whole objects was cut between two events, whatever the strings inside hold; what does not is cut by counting brackets.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from rankscope.formats.source import Source
from rankscope.model.records import BadFile

# ---------------------------------------------------------------------------------------------------------------------
Object = dict[str, Any]


def whole_object(source: Source) -> Object:
    """A file that is one JSON object."""
    try:
        value = json.loads(source.text())
    except RecursionError:
        raise source.bad("is nested too deeply") from None
    except json.JSONDecodeError as problem:
        raise source.bad(f"is not JSON: {problem.msg}", problem.lineno) from None
    except ValueError as problem:
        raise source.bad(f"is not readable JSON: {problem}") from None
    if not isinstance(value, dict):
        raise source.bad("is not a JSON object")
    return value


# ---------------------------------------------------------------------------------------------------------------------
# The objects of a JSON array, of JSON lines or of objects one behind the other, one at a time.
LONGEST = 4 << 20  # of one object, in characters
BETWEEN_OBJECTS = " \t\r\n,[]"


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
                decoded = self._decoded(decode, text, place)
                if decoded is None:
                    break
                value, end = decoded
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
            raise self.source.bad(f"is not readable JSON: {problem}", self.line) from None
        return value, end


def _broken(text: str, place: int) -> bool:
    """Whether an error is too far from the end to come from text that is still missing."""
    rest = text[place:]
    return len(rest) > 64 and not rest.startswith('"')


def _next(text: str, place: int) -> int:
    while place < len(text) and text[place] in BETWEEN_OBJECTS:
        place += 1
    return place


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


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


# ---------------------------------------------------------------- json stream
BLOCK_BYTES = 2 << 20
PIECE_BYTES = 1 << 16  # so little is lost of a compressed file that breaks off
MEMBERS_BYTES = 16 << 20  # the most that may stand before the events, or is kept of what stands after them
EVENT_BYTES = 4 << 20  # the longest event
CUTS = 3  # tried before brackets are counted
KEYS = 8  # a word in a string may look like the key, but not so often

KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
TOKEN = re.compile(rb'\\.|["{}\[\]]', re.DOTALL)  # an escaped character is one token, so `\"` ends no string
BETWEEN = b" \t\r\n,"
UNREADABLE = (msgspec.DecodeError, RecursionError, UnicodeDecodeError)

T = TypeVar("T")


@dataclass(slots=True)
class TraceStream(Generic[T]):
    """What a trace holds: `before` and `after` are the members around the events, complete when these are through."""

    source: Source
    decode: Callable[[bytes], list[T]]  # of a JSON array of events
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    bad_events: int = 0
    first_bad_byte: int | None = None
    broken: str = ""  # why and where the file ends too early
    _is_list: bool = False  # nothing around the events
    _at_byte: int = 0  # of the first byte not yet passed on
    _last_words: bytes = b""

    def blocks(self) -> Iterator[list[T]]:
        """The events, some thousands at a time."""
        pieces = self._pieces()
        rest = self._take_before(pieces)
        closed = False
        for piece in pieces:
            if closed:
                self._keep_after(piece)
                continue
            events, rest, closed = self._cut(rest + piece)
            if events:
                yield events
        for finish in (self._cut, self._count_brackets):
            if not closed:
                events, rest, closed = finish(rest)
                yield events
        self._finish(closed)

    def _pieces(self) -> Iterator[bytes]:
        """Blocks of the file; one that breaks off ends early and is not an error, since traces of crashes do."""
        buffer: list[bytes] = []
        size = 0
        try:
            for piece in self.source.blocks(PIECE_BYTES):
                buffer.append(piece)
                size += len(piece)
                if size >= BLOCK_BYTES:
                    yield b"".join(buffer)
                    buffer, size = [], 0
        except BadFile as problem:
            self.broken = str(problem).removeprefix(f"{self.source}: ")
        if buffer:
            yield b"".join(buffer)

    def _take_before(self, pieces: Iterator[bytes]) -> bytes:
        """Read up to the first event; what is returned is the beginning of the events."""
        head = b""
        for piece in pieces:
            head += piece
            if head.lstrip().startswith(b"["):
                self._is_list, self._at_byte = True, head.index(b"[") + 1
                return head[self._at_byte :]
            for key in islice(KEY.finditer(head), KEYS):
                members = _members(head[: key.start()].rstrip(BETWEEN) + b"}")
                if members is not None:
                    self.before, self._at_byte = members, key.end()
                    return head[key.end() :]
            if len(head) > MEMBERS_BYTES:
                break
        raise self.source.bad(f"no list of traceEvents in the first {len(head)} bytes{self._why()}")

    def _why(self) -> str:
        return f"; {self.broken}" if self.broken else ""

    def _cut(self, data: bytes) -> tuple[list[T], bytes, bool]:
        """The whole events of a block, what is left of it, and whether the list of events is closed."""
        for at in _last_cuts(data):
            try:
                events = self.decode(b"[" + data[:at] + b"]")
            except UNREADABLE:
                continue
            return events, self._passed(data, at), False
        return self._count_brackets(data)

    def _passed(self, data: bytes, at: int) -> bytes:
        rest = data[at:].lstrip(BETWEEN)
        self._at_byte += len(data) - len(rest)
        return rest

    def _count_brackets(self, data: bytes) -> tuple[list[T], bytes, bool]:
        """The same as _cut, slower, and past damaged events."""
        spans, end = _spans(data)
        events = [event for start, stop in spans for event in self._one(data, start, stop)]
        if end is not None:
            self._keep_after(data[end + 1 :])
            return events, b"", True
        rest = self._passed(data, spans[-1][1] if spans else 0)
        if len(rest) > EVENT_BYTES:
            raise self.source.bad(f"the event at byte {self._at_byte} is longer than {EVENT_BYTES >> 20} MiB")
        return events, rest, False

    def _one(self, data: bytes, start: int, stop: int) -> list[T]:
        event = data[start:stop]
        for text in (event, event.decode("utf-8", "replace").encode()):
            try:
                return self.decode(b"[" + text + b"]")
            except UNREADABLE:
                continue
        self.bad_events += 1
        if self.first_bad_byte is None:
            self.first_bad_byte = self._at_byte + start
        return []

    def _keep_after(self, piece: bytes) -> None:
        if len(self._last_words) + len(piece) <= MEMBERS_BYTES:
            self._last_words += piece

    def _finish(self, closed: bool) -> None:
        if closed and self._is_list and not self.broken and not self._last_words.strip():
            return
        members = _members(b"{" + self._last_words.strip().lstrip(b",")) if closed else None
        self.after = members or {}
        if self.broken or not closed or members is None:
            place = "after its events" if closed else f"at byte {self._at_byte}, in the middle of its events"
            self.broken = f"ends early {place} (truncated?){self._why()}"


def _members(text: bytes) -> dict[str, Any] | None:
    try:
        trace_events = msgspec.json.decode(text)
    except UNREADABLE:
        return None
    return trace_events if isinstance(trace_events, dict) else None


def _last_cuts(data: bytes) -> list[int]:
    """Places behind a `}` that is followed by `, {`, from the end."""
    cuts: list[int] = []
    at = len(data)
    for _ in range(64):  # most braces near the end open the arguments of an event
        at = data.rfind(b"{", 0, at)
        if at < 0 or len(cuts) == CUTS:
            break
        comma = data[max(0, at - 256) : at].rstrip(b" \t\r\n")
        brace = comma[:-1].rstrip(b" \t\r\n")
        if comma.endswith(b",") and brace.endswith(b"}"):
            cuts.append(max(0, at - 256) + len(brace))
    return cuts


def _spans(data: bytes) -> tuple[list[tuple[int, int]], int | None]:
    """Where each whole event starts and stops, and where the list of events ends (None: not in here)."""
    spans: list[tuple[int, int]] = []
    depth, start, in_string = 0, 0, False
    for token in TOKEN.finditer(data):
        sign = token.group()
        if sign == b'"':
            in_string = not in_string
        elif in_string or len(sign) > 1:
            continue
        elif sign in b"{[":
            start = token.start() if depth == 0 else start
            depth += 1
        else:
            depth -= 1
            if depth < 0:
                return spans, token.start()
            if depth == 0:
                spans.append((start, token.end()))
    return spans, None
