"""Which formats read a file, and what comes out: its readings, one after the other."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rankscope import rank_file
from rankscope.formats.registry import Format, all_recognised, format_named
from rankscope.formats.source import Source
from rankscope.model.records import BadFile, Note, RankFacts, Reading, Role, Severity

# ---------------------------------------------------------------------------------------------------------------------
# Splits a document into its parts: what is set as code, block by block, and the text around it.
DOCUMENT_BYTES = 16 << 20  # nobody writes longer ones by hand
MOST_BLOCKS = 1000
FENCE = re.compile(rb"^ {0,3}(`{3,}|~{3,})[^`\r\n]{0,200}\r?$")


def parts(source: Source, head: bytes) -> list[Source]:
    """The text (with its code blanked, so that lines keep their numbers) and every fenced block; none if not fenced."""
    if b"\0" in head or not (b"```" in head or b"~~~" in head):
        return []
    lines = _lines(source)
    blocks = list(_blocks(lines)) if lines is not None else []
    if lines is None or not 0 < len(blocks) <= MOST_BLOCKS:
        return []
    around = list(lines)
    for first, last in blocks:
        around[first - 1 : last + 1] = [b""] * (last - first + 2)
    inside = [source.part(b"\n".join(lines[first:last]), first + 1) for first, last in blocks]
    return [source.part(b"\n".join(around), 1), *inside]


def _lines(source: Source) -> list[bytes] | None:
    content = bytearray()
    for block in source.blocks():
        content += block
        if len(content) > DOCUMENT_BYTES:
            return None
    return bytes(content).split(b"\n")


def _blocks(lines: list[bytes]) -> Iterator[tuple[int, int]]:
    """Places from the first line inside a block to its closing fence; a block that is not closed is text."""
    opened: tuple[int, bytes] | None = None
    for at, line in enumerate(lines):
        if not line.lstrip().startswith((b"```", b"~~~")) or not (fence := FENCE.match(line)):
            continue
        if opened is None:
            opened = at + 1, fence[1]
        elif fence[1].startswith(opened[1]) and not line.strip(b"`~ \r"):
            yield opened[0], at
            opened = None


# ---------------------------------------------------------------------------------------------------------------------
# Which files were meant: those named, those of folders and of patterns.
@dataclass(slots=True)
class FoundFiles:
    """The files in order, each once, and a line for every word that led to none."""

    files: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def find_files(words: Sequence[str]) -> FoundFiles:
    """Files and folders by name, else by pattern; folders with all that is below them."""
    found_files = FoundFiles()
    for word in words:
        paths = [Path(word)] if os.path.lexists(word) else [Path(match) for match in _matches(word)]
        if not paths:
            found_files.problems.append(f"{word}: no such file or folder")
        for path in paths:
            _add(path, found_files)
    once: dict[str, Path] = {}
    for path in found_files.files:
        once.setdefault(os.path.realpath(path), path)
    found_files.files = list(once.values())
    return found_files


def _matches(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern, recursive=True), key=natural) if glob.has_magic(pattern) else []


def _add(path: Path, found_files: FoundFiles) -> None:
    if is_run(path):
        found_files.problems.append(f"{path}: is already a rankscope run: rankscope report {path} shows it")
    elif path.is_dir():
        below = list(_below(path))
        found_files.files += below
        if not below:
            found_files.problems.append(f"{path}: no files in it")
    elif path.is_file():
        found_files.files.append(path)
    else:
        found_files.problems.append(f"{path}: {'not a file' if path.exists() else 'a broken link'}")


def _below(folder: Path) -> Iterator[Path]:
    """Regular files, no hidden ones, and nothing of rankscope's own runs."""
    for at, folders, names in os.walk(folder):
        folders[:] = sorted((name for name in folders if name[0] != "." and not is_run(Path(at, name))), key=natural)
        paths = [Path(at, name) for name in sorted(names, key=natural) if name[0] != "."]
        yield from (path for path in paths if path.is_file())


def is_run(path: Path) -> bool:
    return (path / "run.json").exists() and ((path / "ranks").is_dir() or (path / "loaded").is_dir())


def natural(text: str) -> list[tuple[int, str]]:
    """Order in which 10 comes after 9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]{1,18})", text)]


# ---------------------------------------------------------------------------------------------------------------------
# Which rank a file speaks of, where it does not say so itself.
IN_NAME = re.compile(r"(?<![a-z])rank[-_. ]?(\d{1,7})(?!\d)", re.IGNORECASE)


def settle_ranks(source: Source, processes: Sequence[RankFacts]) -> list[Note]:
    """Give a file's only process the rank that the user said or, as the last resort, the file's name."""
    ranks = [facts for facts in processes if facts.role == Role.RANK]
    if source.hints.rank is not None:
        return _as_told(source, ranks, source.hints.rank)
    named = IN_NAME.findall(source.path.name)
    if len(ranks) != 1 or ranks[0].rank is not None or not named:
        return []
    ranks[0].rank, ranks[0].rank_source = int(named[-1]), "file name"
    return [Note(f"rank {ranks[0].rank} comes from the file's name: the file does not state it", where=str(source))]


def _as_told(source: Source, ranks: Sequence[RankFacts], rank: int) -> list[Note]:
    ranks_stated = [facts.rank for facts in ranks if facts.rank is not None]
    if len(ranks) == 1 and not ranks_stated:
        ranks[0].rank, ranks[0].rank_source = rank, "--rank"
    elif ranks_stated and ranks_stated != [rank]:
        text = f"--rank {rank} was not used: the file itself says rank {ranks_stated[0]}"
        return [Note(text, Severity.WARNING, str(source))]
    elif len(ranks) > 1:
        text = f"--rank {rank} was not used: the file describes {len(ranks)} processes"
        return [Note(text, Severity.WARNING, str(source))]
    return []


# ---------------------------------------------------------------- recognition
Piece = tuple[Source, Format]


def pieces(source: Source, wanted: str | None = None) -> list[Piece]:
    """What to read with which format: the whole file, or the parts of a document that no one format covers."""
    head = source.head()
    if wanted is not None:
        return [(source, format_named(wanted))]
    if not head:
        raise source.bad("is empty")
    recognised = all_recognised(head)
    split = [(part, known) for part in parts(source, head) for known in all_recognised(part.head())]
    if recognised and {known.name for _, known in split} <= {known.name for known in recognised}:
        return [(source, known) for known in recognised]
    if not split:
        raise _unknown(source, head)
    return split


def _unknown(source: Source, head: bytes) -> BadFile:
    if head.startswith(rank_file.MAGIC):
        return source.bad("is a rank file of rankscope: give the folder of its run to rankscope report")
    if (place := head.find(b"\0")) >= 0:
        return source.bad(f"has no known format (binary: a zero at byte {place}); see rankscope load --list")
    return source.bad("has no known format; see rankscope load --list, or choose one with --as")


def readings(source: Source, chosen: list[Piece]) -> Iterator[tuple[str, Reading]]:
    """Format and reading, piece by piece; a bad piece of several is told in a note, a bad file raises BadFile."""
    bad: list[BadFile] = []
    any_reading = False
    _share_lines(chosen)
    for piece, known in chosen:
        try:
            for reading in _sound(piece, known):
                any_reading = True
                yield known.name, reading
        except BadFile as problem:
            if len(chosen) == 1:
                raise
            bad.append(problem)
    if len(bad) == len(chosen):
        raise bad[0]
    if not any_reading:
        raise source.bad(f"contains nothing that the {chosen[0][1].name} reader recognises")
    if bad:
        yield "", _about_file(str(source), bad)


def _share_lines(chosen: list[Piece]) -> None:
    """What one of several readers of a piece has in its tables is no foreign line to the others."""
    for piece, known in chosen:
        others = [other for other, _ in chosen if other is piece]
        piece.alone = piece.alone and len(others) == 1
        if len(others) > 1 and known.own_lines is not None:
            with suppress(BadFile):  # said when it is its turn
                piece.taken |= known.own_lines(piece)


def _sound(piece: Source, known: Format) -> Iterator[Reading]:
    """The readings of one piece; whatever a reader stumbles over is an error of this file only."""
    try:
        for reading in known.read(piece):
            reading.facts.source = reading.facts.source or str(piece.path)
            reading.facts.tool = reading.facts.tool or known.name
            yield reading
    except BadFile:
        raise
    except Exception as problem:  # a reader that fails is our mistake, and no reason to leave the other files
        text = " ".join(f"{type(problem).__name__}: {problem}"[:200].split())
        raise piece.bad(f"the {known.name} reader failed ({text}): please report this") from problem
    if piece.odd_line is not None:
        yield _odd_bytes(piece, known.name)


def _odd_bytes(piece: Source, tool: str) -> Reading:
    reading = _about_file(str(piece.path), [])
    reading.facts.tool = tool
    text = "not UTF-8 from here on: unreadable bytes are shown as \ufffd"
    reading.notes.append(Note(text, Severity.WARNING, piece.at(piece.odd_line or 1)))
    return reading


def _about_file(path: str, bad: list[BadFile]) -> Reading:
    reading = Reading(RankFacts(source=path, role=Role.DOCUMENT))
    reading.notes = [Note(f"this part was left out: {problem}", Severity.WARNING, path) for problem in bad]
    return reading
