"""The parts of a C++ function's name as demanglers write it: enough to leave some of them out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

OPERATOR = re.compile(
    r"operator(?:\(\)|\[\]|<=>|<<=|>>=|->\*|->|<<|>>|&&|\|\||\+\+|--|[-+*/%^&|~!=<>]=?|,"
    r"| (?:new|delete)(?:\[\])?|\"\" ?\w+)"
)
SIGN = re.compile(rf"(?<!\w){OPERATOR.pattern}|->|[<>(){{}}\[\],]")  # brackets and commas, but for those of operators
WORD = re.compile(r"[~A-Za-z_$][\w$.]*(?:\[abi:\w+\])*|\(anonymous namespace\)|'(?:lambda|unnamed)\d*'|<unnamed>")
TAIL = re.compile(r"(?: const| volatile|[*&]|\[\d*\]| )*")
CLOSING = {"<": ">", "(": ")", "{": "}", "[": "]"}
BUILTIN = frozenset(
    "void bool char short int long float double unsigned signed wchar_t char8_t char16_t char32_t __int128 half const "
    "__half __nv_bfloat16 auto typename struct class enum volatile size_t".split()
)
DEEPEST = 60

Path = tuple[tuple[int, int], ...]  # part and argument, from the outside in


@dataclass(frozen=True, slots=True)
class NamePart:
    """One of the words between colons."""

    word: str
    arguments: tuple[Name | str, ...] = ()
    called: bool = False  # it has parameters


@dataclass(frozen=True, slots=True)
class Name:
    """A function or class with all that it lies in."""

    parts: tuple[NamePart, ...]
    tail: str = ""  # of a type: const, *

    @property
    def words(self) -> str:
        return "::".join(part.word for part in self.parts) + self.tail


class Unknown(Exception):
    """Text of no known shape."""


def function_of(text: str) -> Name | None:
    """The function that a demangled name names, without what it returns and takes; None where that is not clear."""
    try:
        begin = _after_return_type(text)
        name, end = _name(text, begin, 0)
    except Unknown:
        return None
    rest = text[end:]
    clear = not rest.strip() or re.fullmatch(r"(?: const| \[clone [^\]]*\])+", rest)
    return name if clear and (name.parts[-1].called or begin == 0) else None


def leaves(name: Name, at: Path = ()) -> Iterator[tuple[Path, str]]:
    """All that a name says, each with its place."""
    yield at, name.words
    for which, part in enumerate(name.parts):
        for number, argument in enumerate(part.arguments):
            place = (*at, (which, number))
            if isinstance(argument, str):
                yield place, argument
            else:
                yield from leaves(argument, place)


def _after_return_type(text: str) -> int:
    """Where the name begins: after the last space outside of brackets that stands before its parameters."""
    begin = at = 0
    while at < len(text):
        if match := OPERATOR.match(text, at):
            at = match.end()
        elif match := WORD.match(text, at):
            at = match.end()
        elif text[at] == "(":
            at = _closed(text, at)
            if text[at : at + 2] != "::" and not text.startswith(" const::", at):
                return begin
        elif text[at] in CLOSING:
            at = _closed(text, at)
        else:
            begin = at + 1 if text[at] == " " and not text.startswith(" const::", at) else begin
            at += 1
    return begin


def _closed(text: str, at: int) -> int:
    """Behind the bracket that closes the one here."""
    waiting: list[str] = []
    for match in SIGN.finditer(text, at):
        sign = match[0]
        if sign in CLOSING:
            waiting.append(CLOSING[sign])
        elif len(sign) == 1 and sign != ",":
            if not waiting or waiting.pop() != sign:
                break
            if not waiting:
                return match.end()
    raise Unknown(text)


def _name(text: str, at: int, deep: int) -> tuple[Name, int]:
    parts: list[NamePart] = []
    while True:
        part, at = _part(text, at, deep)
        parts.append(part)
        for between in ("::", " const::"):
            if text.startswith(between, at):
                at += len(between)
                break
        else:
            return Name(tuple(parts)), at


def _part(text: str, at: int, deep: int) -> tuple[NamePart, int]:
    match = OPERATOR.match(text, at) or WORD.match(text, at)
    if match:
        word, at = match[0], match.end()
    elif text.startswith("{", at):
        end = _closed(text, at)
        word, at = text[at:end], end
    else:
        raise Unknown(text)
    arguments: tuple[Name | str, ...] = ()
    called = False
    if text.startswith("<", at) or text.startswith(" <", at):
        begin = text.index("<", at)
        at = _closed(text, begin)
        arguments = tuple(_argument(argument, deep + 1) for argument in _split(text[begin + 1 : at - 1]))
    if text.startswith("(", at):
        at, called = _closed(text, at), True
    return NamePart(word, arguments, called), at


def _split(text: str) -> list[str]:
    """The arguments between commas."""
    parts, begin, deep = [], 0, 0
    for sign in SIGN.finditer(text):
        if sign[0] in CLOSING:
            deep += 1
        elif sign[0] == "," and not deep:
            parts.append(text[begin : sign.start()].strip())
            begin = sign.end()
        elif len(sign[0]) == 1 and sign[0] != ",":
            deep -= 1
    return [*parts, text[begin:].strip()]


def _argument(text: str, deep: int) -> Name | str:
    """A class by its parts; numbers, built-in types and all else as they are."""
    if deep > DEEPEST or text.split(" ")[0].rstrip("*&") in BUILTIN:
        return text
    try:
        name, end = _name(text, 0, deep)
    except Unknown:
        return text
    tail = text[end:]
    is_plain = len(name.parts) == 1 and not name.parts[0].arguments and name.words in ("true", "false")
    return text if is_plain or not TAIL.fullmatch(tail) else Name(name.parts, tail)
