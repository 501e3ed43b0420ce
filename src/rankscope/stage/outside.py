"""A command that starts ranks: `rankscope stage` is put before the program, so that it runs in every rank."""

import os
import sys

from rankscope.record.arguments import ARITY, contexts, scan
from rankscope.record.launchers import find_launcher
from rankscope.record.program import NoProgram, find_program


def inserted(command: list[str], words: list[str], environment: dict[str, str]) -> list[str] | None:
    """The launcher's command with these words before each program; None if it is not such a command.

    torchrun starts Python itself and one per node is enough: it is staged as it is.
    """
    try:
        family, begin = find_launcher(find_program(command[0], environment), command)
    except NoProgram:
        return None
    if family not in ARITY or family == "torchrun":
        return None
    arguments, result = command[begin:], command[:begin]
    for first, last in contexts(arguments):
        part = arguments[first:last]
        program_at = scan(part, ARITY[family])[1]
        result += [":"] if first else []
        result += [*part[:program_at], *words, *part[program_at:]]
    return result


def ourselves() -> list[str]:
    """The words that start this very rankscope."""
    script = os.path.abspath(sys.argv[0])
    if os.path.basename(script) == "rankscope" and os.access(script, os.X_OK):
        return [script]
    return [sys.executable, "-m", "rankscope"]
