"""The variables and words of a command, made to lead into the copy."""

import os

from rankscope.record.program import content
from rankscope.stage.node import ROOTS
from rankscope.stage.roots import Root, moved, root_holding, root_of

LISTS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
FOLDERS = ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME")


def read_roots(copy: str) -> list[Root]:
    """The folders that the copy stands for."""
    rows = [line.split("\0") for line in os.fsdecode(content(f"{copy}/{ROOTS}")).split("\n") if line]
    return [Root(name, original, real, venv == "1") for name, original, real, venv in rows]


def activated(environment: dict[str, str], root: Root) -> dict[str, str]:
    """The variables with the environment's programs first, as its `activate` would set them."""
    result = dict(environment)
    path = environment.get("PATH", os.defpath).split(":")
    own = [f"{prefix}/bin" for prefix in (root.original, root.real)]
    if path[0] not in own:
        result["PATH"] = ":".join([f"{root.original}/bin", *path])
    if root.is_venv:
        result["VIRTUAL_ENV"] = root.original
        result.pop("PYTHONHOME", None)
    return result


def in_place(environment: dict[str, str], folder: str) -> dict[str, str]:
    return activated(environment, root_of("env", folder))


def in_copy(environment: dict[str, str], roots: list[Root], copy: str) -> dict[str, str]:
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


def command_in_copy(command: list[str], roots: list[Root], copy: str) -> list[str]:
    """The command with programs of the staged folders taken from the copy; other words stay as they are."""
    return [program_in_copy(word, roots, copy) for word in command]


def program_in_copy(word: str, roots: list[Root], copy: str) -> str:
    """The word, unless it names a program in a bin folder; the name of a file to write must not lead into the copy."""
    if "/" not in word or not os.access(word, os.X_OK):
        return word
    folder, _, name = os.path.abspath(word).rpartition("/")
    for path in (f"{folder}/{name}", f"{os.path.realpath(folder)}/{name}"):
        held = root_holding(path, roots)
        if held and held[1].startswith("bin/"):
            return moved(path, roots, copy)
    return word
