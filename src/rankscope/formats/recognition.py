"""Which formats read a file, and what comes out: its readings, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from rankscope import rank_file
from rankscope.formats.registry import Format, all_recognised, format_named
from rankscope.formats.source import Source
from rankscope.model import BadFile, Note, RankFacts, Reading, Severity
from rankscope.readers.document import parts

Piece = tuple[Source, Format]


def pieces(source: Source, wanted: str | None = None) -> list[Piece]:
    """What to read with which format: the whole file, or the parts of a document that no one format covers."""
    head = source.head()
    if wanted is not None:
        return [(source, format_named(wanted))]
    if not head:
        raise source.bad("is empty")
    whole = all_recognised(head)
    split = [(part, known) for part in parts(source, head) for known in all_recognised(part.head())]
    if whole and {known.name for _, known in split} <= {known.name for known in whole}:
        return [(source, known) for known in whole]
    if not split:
        raise _unknown(source, head)
    return split


def _unknown(source: Source, head: bytes) -> BadFile:
    if head.startswith(rank_file.MAGIC):
        return source.bad("is a rank file of rankscope: give the folder of its run to rankscope report")
    if (place := head.find(b"\0")) >= 0:
        return source.bad(f"is of no known format (binary: a zero at byte {place}); rankscope load --list names them")
    return source.bad("is of no known format; rankscope load --list names them, --as chooses one")


def readings(source: Source, chosen: list[Piece]) -> Iterator[tuple[str, Reading]]:
    """Format and reading, piece by piece; a bad piece of several is told in a note, a bad file raises BadFile."""
    bad: list[BadFile] = []
    found = False
    for piece, known in chosen:
        try:
            for reading in _sound(piece, known):
                found = True
                yield known.name, reading
        except BadFile as problem:
            if len(chosen) == 1:
                raise
            bad.append(problem)
    if len(bad) == len(chosen):
        raise bad[0]
    if not found:
        raise source.bad(f"holds nothing that the {chosen[0][1].name} reader knows")
    if bad:
        yield "", _about_file(str(source), bad)


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
        told = " ".join(f"{type(problem).__name__}: {problem}"[:200].split())
        raise piece.bad(f"the {known.name} reader failed ({told}): please report this") from problem
    if piece.odd_line is not None:
        yield _odd_bytes(piece, known.name)


def _odd_bytes(piece: Source, tool: str) -> Reading:
    made = _about_file(str(piece.path), [])
    made.facts.tool = tool
    told = "not UTF-8 from here on: letters that could not be read stand as \ufffd"
    made.notes.append(Note(told, Severity.WARNING, piece.at(piece.odd_line or 1)))
    return made


def _about_file(path: str, bad: list[BadFile]) -> Reading:
    made = Reading(RankFacts(source=path, role="document"))
    made.notes = [Note(f"this part was left out: {problem}", Severity.WARNING, path) for problem in bad]
    return made
