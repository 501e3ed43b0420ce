"""The import index of an environment: told to the job, and used without recording."""

import os

from rankscope.agent.build import cache_folder
from rankscope.record.options import RunOptions
from rankscope.record.preload import LIBRARY
from rankscope.record.program import NoProgram, become, find_program, first_environment, restore_signals

SUFFIX, LIBRARIES_SUFFIX = ".rsindex", ".libraries"
AUDITOR = os.path.join(os.path.dirname(LIBRARY), "librankscope_libraries.so")  # answers the dynamic loader


def index_folder() -> str:
    """Where indexes lie unless somebody says otherwise; each Python looks for its own there."""
    return os.path.join(os.path.abspath(cache_folder()), "indexes")


def index_variable(path: str) -> str:
    """What RANKSCOPE_INDEX is to be: a file, or the folder of all indexes."""
    return os.path.abspath(path) if path else index_folder()


def index_variables(index: str, command: list[str], environment: dict[str, str]) -> dict[str, str]:
    """What a job is told of its index, and of the map of libraries where there is one beside it."""
    if environment.get("RANKSCOPE_INDEX"):
        return {}
    added = {"RANKSCOPE_INDEX": index_variable(index)}
    path = added["RANKSCOPE_INDEX"] if index else index_of(command, environment)
    libraries = path.removesuffix(SUFFIX) + LIBRARIES_SUFFIX if path else ""
    if (
        libraries
        and has_good_auditing()
        and "LD_AUDIT" not in environment
        and os.path.exists(libraries)
        and os.path.exists(AUDITOR)
    ):
        added |= {"LD_AUDIT": AUDITOR, "RANKSCOPE_LIBRARIES": libraries}
    return added


def missing_index(index: str, command: list[str], environment: dict[str, str]) -> str:
    """What to say where a job is to use an index and there is none, "" where there is one or nobody can tell."""
    path = index_variable(index) if index else index_of(command, environment)
    if not path or environment.get("RANKSCOPE_INDEX") or os.path.exists(path):
        return ""
    return f"there is no import index {path}: build it with rankscope index ENV; imports run without it"


def has_good_auditing() -> bool:
    """Before glibc 2.35 a program with an auditor paid for every call between libraries."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        return name == "glibc" and tuple(map(int, version.split(".")[:2])) >= (2, 35)
    except (OSError, ValueError):
        return False


def index_of(command: list[str], environment: dict[str, str]) -> str:
    """The index of the first Python of the command, "" where none is named."""
    from rankscope.agent.import_index.layout import file_name

    for word in command:
        if os.path.basename(word).startswith("python") or os.path.basename(word) == "torchrun":
            try:
                program = find_program(word, environment)
            except NoProgram:
                return ""
            prefix = os.path.dirname(os.path.dirname(os.path.abspath(program)))
            return os.path.join(index_folder(), file_name(os.path.realpath(prefix)))
    return ""


def start_with_index(index: str, command: list[str]) -> int:
    """Replace this process by the command, whose Pythons use the index and are not recorded."""
    from rankscope.record.start import AGENT, give_up, launched, python_path

    environment = first_environment()
    options = RunOptions()
    options.command = command
    try:
        program = find_program(command[0], environment)
    except NoProgram as error:
        return give_up(error)
    added = index_variables(index, command, environment)
    if ":" not in AGENT:
        added["PYTHONPATH"] = python_path(environment)
    words = launched(options, program, environment, added)[0]
    restore_signals()
    become(program, words, {**environment, **added})
    return give_up(become(program, command, environment))
