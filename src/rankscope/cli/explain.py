"""`rankscope explain`: says what a word of a report means."""

from __future__ import annotations

import argparse
import sys
import textwrap

from rankscope.api.words import Meaning, explain
from rankscope.cli.printing import deliver, width
from rankscope.model.tables import Wrong
from rankscope.output.cells import printable

HELP = "explain a label, a column, a table or a finding"
ABOUT = """\
Explain a word of a report: a label of the first screen, a column (by its heading or its name in CSV), a table, a phase,
or the rule of a finding. Definitions and formulas are those of the documentation."""
WIDEST = 100


def run(argv: list[str]) -> int:
    """0: explained; 2: no such word."""
    options = parser().parse_args(argv)
    try:
        meanings = explain(" ".join(options.word))
    except Wrong as problem:
        print(f"rankscope: {printable(str(problem))}", file=sys.stderr)
        return 2
    deliver(["\n".join(shown(meaning, min(width(None), WIDEST)) for meaning in meanings)], None)
    return 0


def shown(meaning: Meaning, columns: int) -> str:
    """The word, what kind of word it is, and its meaning below."""
    also = f" ({meaning.also})" if meaning.also and meaning.also != meaning.word else ""
    head = textwrap.wrap(f"{meaning.word}{also}: {meaning.kind}", columns, subsequent_indent="    ")
    lines = [line for text in meaning.text.splitlines() for line in textwrap.wrap(text, columns - 2)]
    return "\n".join([*head, *(f"  {line}" for line in lines)]) + "\n"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope explain", description=ABOUT)
    arguments.add_argument("word", nargs="+", metavar="WORD", help="as in: exposed communication")
    return arguments
