"""The variables and words of a command, made to lead into the copy."""

import os
import sys

from rankscope.record.launchers import ARITY, contexts, find_launcher, scan
from rankscope.record.program import NoProgram, content, find_program
from rankscope.stage.node import ROOTS
from rankscope.stage.roots import StagedRoot, moved, root_holding, root_of


# ---------------------------------------------------------------------------------------------------------------------
# A command that starts ranks: `rankscope stage` is put before the program, so that it runs in every rank.
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


# ---------------------------------------------------------------- command
LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
FOLDERS = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME")


def read_roots(copy: str) -> list[StagedRoot]:
    """The folders that the copy stands for."""
    rows = [line.split("\0") for line in os.fsdecode(content(f"{copy}/{ROOTS}")).split("\n") if line]
    return [StagedRoot(name, original, real, venv == "1") for name, original, real, venv in rows]


def activated(environment: dict[str, str], root: StagedRoot) -> dict[str, str]:
    """The variables with the environment's programs first, as its `activate` would set them."""
    result = dict(environment)
    path = environment.get("PATH", os.defpath).split(":")
    own_folders = [f"{prefix}/bin" for prefix in (root.original, root.real)]
    if path[0] not in own_folders:
        result["PATH"] = ":".join([f"{root.original}/bin", *path])
    if root.is_venv:
        result["VIRTUAL_ENV"] = root.original
        result.pop("PYTHONHOME", None)
    return result


def in_place(environment: dict[str, str], folder: str) -> dict[str, str]:
    return activated(environment, root_of("env", folder))


def in_copy(environment: dict[str, str], roots: list[StagedRoot], copy: str) -> dict[str, str]:
    """The variables with every path in a staged folder leading into the copy."""
    result = activated(environment, roots[0])
    for name in LISTS:
        if name in result:
            result[name] = ":".join(moved(part, roots, copy) for part in result[name].split(":"))
    for name in FOLDERS:
        if name in result:
            result[name] = moved(result[name], roots, copy)
    result["RANKSCOPE_STAGE"] = copy
    return result


def command_in_copy(command: list[str], roots: list[StagedRoot], copy: str) -> list[str]:
    """The command with programs of the staged folders taken from the copy; other words stay as they are."""
    return [program_in_copy(word, roots, copy) for word in command]


def program_in_copy(word: str, roots: list[StagedRoot], copy: str) -> str:
    """The word, unless it names a program in a bin folder; the name of a file to write must not lead into the copy."""
    if "/" not in word or not os.access(word, os.X_OK):
        return word
    folder, _, name = os.path.abspath(word).rpartition("/")
    for path in (f"{folder}/{name}", f"{os.path.realpath(folder)}/{name}"):
        held = root_holding(path, roots)
        if held and held[1].startswith("bin/"):
            return moved(path, roots, copy)
    return word
