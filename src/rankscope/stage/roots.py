"""Which folders are staged, and where a path in one of them lies in the copy."""

import os

OF_THE_SYSTEM = ("/", "/usr")  # a system's own Python is on every node already


class StagedRoot:
    """One folder that is staged."""

    def __init__(self, name: str, original: str, real: str, is_venv: bool) -> None:
        self.name = name  # of its folder in the copy
        self.original = original  # as the user calls it
        self.real = real  # the same without symbolic links
        self.is_venv = is_venv


class NoEnvironment(Exception):
    """The folder is not one that can be staged; the text says why."""


def find_environment(given: str, environment: dict[str, str]) -> str:
    """The folder to stage: the one given, else the active one."""
    folder = given or environment.get("VIRTUAL_ENV", "") or environment.get("CONDA_PREFIX", "")
    if not folder:
        raise NoEnvironment("no environment given and none is active; as in: rankscope stage /path/to/venv -- command")
    if not os.path.isdir(folder):
        raise NoEnvironment(f"{folder}: no such folder")
    return os.path.abspath(folder)


def default_bundle(folder: str) -> str:
    return f"{os.path.basename(folder)}.bundle"


def find_roots(folder: str, more: list[str], with_base: bool | None) -> list[StagedRoot]:
    """The environment, the interpreter it was made from (where that is no system's), and what the user adds."""
    roots = [root_of("env", folder)]
    base = base_prefix(folder)
    if base and (with_base or (with_base is None and is_worth_staging(base, folder))):
        roots.append(root_of("base", base))
    for number, other in enumerate(more, start=1):
        if not os.path.isdir(other):
            raise NoEnvironment(f"{other}: no such folder")
        roots.append(root_of(f"also{number}", os.path.abspath(other)))
    return roots


def root_of(name: str, folder: str) -> StagedRoot:
    return StagedRoot(name, folder, os.path.realpath(folder), os.path.isfile(f"{folder}/pyvenv.cfg"))


def base_prefix(folder: str) -> str:
    """The prefix of the interpreter that a venv was made from, "" for other folders."""
    home = venv_settings(folder).get("home", "")
    return os.path.dirname(os.path.realpath(home)) if home else ""


def venv_settings(folder: str) -> dict[str, str]:
    try:
        with open(f"{folder}/pyvenv.cfg", encoding="utf-8", errors="surrogateescape") as file:
            parts = [line.partition("=") for line in file]
    except OSError:
        return {}
    return {name.strip().lower(): value.strip() for name, equals, value in parts if equals}


def is_worth_staging(base: str, folder: str) -> bool:
    """An interpreter beside the environment is as far away as the environment is."""
    return base not in OF_THE_SYSTEM and os.stat(base).st_dev == os.stat(folder).st_dev


def root_holding(path: str, roots: list[StagedRoot]) -> tuple[StagedRoot, str] | None:
    """The innermost root that holds this path, and the path within it."""
    holder: tuple[StagedRoot, str] | None = None
    longest = -1
    for root in roots:
        for prefix in (root.real, root.original):
            if (path == prefix or path.startswith(prefix + "/")) and len(prefix) > longest:
                holder, longest = (root, path[len(prefix) + 1 :]), len(prefix)
    return holder


def moved(path: str, roots: list[StagedRoot], copy: str) -> str:
    """The path as it is in the copy; one outside of all roots stays."""
    held = root_holding(path, roots)
    if not held:
        return path
    root, within = held
    return f"{copy}/{root.name}/{within}" if within else f"{copy}/{root.name}"
