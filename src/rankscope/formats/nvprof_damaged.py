"""nvprof summaries that went through a scanner or a converter: what can be recovered is, and every repair is told."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.formats import nvprof
from rankscope.formats.source import Source
from rankscope.formats.summary_table import Section, check, tallies, unlisted
from rankscope.model import Note, RankFacts, Reading, Severity
from rankscope.readers.damaged_rows import MOST_ROWS, Block, read_line
from rankscope.readers.damaged_totals import settle

STARTED = re.compile(r"NVPROF is profiling process (\d{1,10}), command: ")
HEADING = re.compile(r"#{1,6} +\S")
OWN = ("NVPROF is profiling", "Profiling application", "Profiling result")
KNOWN = re.compile(rb"NVPROF is profiling process \d{1,10}, command: ")
LONGEST = 200  # letters of a heading that are told again


def sniff(head: bytes) -> bool:
    """Whether nvprof is named but none of its lines begins as nvprof's: those are left to the reader of whole logs."""
    return KNOWN.search(head) is not None and b"GPU activities" in head and not nvprof.sniff(head)


def read(source: Source) -> Iterator[Reading]:
    """One reading per profile."""
    found = [block for block in blocks(source) if block.rows]
    if not found:
        raise source.bad("holds no row of nvprof that could be read")
    for rank, block in enumerate(found):
        yield reading(block, source, rank if len(found) > 1 else source.hints.rank, len(found))


def blocks(source: Source) -> Iterator[Block]:
    """The text between two headings or two beginnings of a profile."""
    block = Block("", 1)
    for number, line in source.lines():
        begins = STARTED.search(line)
        if HEADING.match(line) and not any(mark in line for mark in OWN):
            yield block
            block = Block(line.strip("#* ")[:LONGEST], number)
        elif begins:
            if block.rows:
                yield block
                block = Block("", number)
            block.pid, block.command = int(begins[1]), _command(line[begins.end() :])
        else:
            read_line(block, number, line)
    yield block


def _command(text: str) -> str:
    return text.partition(" ==")[0].replace("\\_", "_").strip()


def reading(block: Block, source: Source, rank: int | None, profiles: int) -> Reading:
    """One profile, settled and checked; profiles in one file are runs of their own, not ranks of one."""
    facts = RankFacts(pid=block.pid, rank=rank, command=block.command, source=str(source.path))
    if profiles > 1:
        facts.rank_source, facts.world_size = "order in the file", 1
    section, loose = settle(block), Section("", "gpu", rows=block.pairs)
    made = Reading(facts, tallies=tallies(section), figures=unlisted(section) or unlisted(loose))
    if block.heading:
        made.notes.append(Note(f"under the heading {block.heading!r}", Severity.NOTE, source.at(block.line)))
    made.notes += [Note(text, severity, source.at(line)) for line, text, severity in block.told]
    made.notes += check(section, source)
    if block.full:
        made.notes.append(Note(f"only {MOST_ROWS} rows are looked at", Severity.WARNING, source.at(block.line)))
    return made
