"""`rankscope tables`: lists the tables of a report by subject."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rankscope.api.words import table_list
from rankscope.cli.printing import add_form_options, deliver, deliver_tables, width
from rankscope.model.tables import Table

HELP = "list the tables of a report by subject"
ABOUT = """\
List the tables of `rankscope report --table NAME` by subject, with the question each one answers.
`rankscope explain NAME` says more about one."""
NAMES = 22  # columns


def run(argv: list[str]) -> int:
    """0, always."""
    options = parser().parse_args(argv)
    if options.format == "text":
        deliver(["\n".join(lines(table_list(), width(options.out))) + "\n"], options.out)
    else:
        deliver_tables([table_list()], options.format, options.out)
    return 0


def lines(table: Table, columns: int) -> Iterator[str]:
    """A heading for each subject, a line for each table: as much of the question as it has room for."""
    before = ""
    for subject, name, about in table.rows:
        if subject != before:
            yield from ([""] if before else []) + [str(subject).upper()]
            before = str(subject)
        room = columns - NAMES - 2
        text = str(about) if len(str(about)) <= room else str(about).partition("; ")[0]
        yield f"  {name:{NAMES}}{text if len(text) <= room else text[: room - 1] + '…'}"


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope tables", description=ABOUT)
    add_form_options(arguments)
    return arguments
