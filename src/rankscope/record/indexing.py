"""The import index of an environment: told to the job, and used without recording."""

import os

from rankscope.agent.build import cache_folder
from rankscope.record.options import Options
from rankscope.record.program import NoProgram, become, find_program, first_environment, restore_signals

SUFFIX = ".rsindex"


def index_folder() -> str:
    """Where indexes lie unless somebody says otherwise; each Python looks for its own there."""
    return os.path.join(os.path.abspath(cache_folder()), "indexes")


def index_variable(told: str) -> str:
    """What RANKSCOPE_INDEX is to be: a file, or the folder of all indexes."""
    return os.path.abspath(told) if told else index_folder()


def start_with_index(told: str, command: list[str]) -> int:
    """Replace this process by the command, whose Pythons use the index and are not recorded."""
    from rankscope.record.start import AGENT, give_up, launched, python_path

    environment = first_environment()
    options = Options()
    options.command = command
    try:
        program = find_program(command[0], environment)
    except NoProgram as error:
        return give_up(error)
    added = {"RANKSCOPE_INDEX": environment.get("RANKSCOPE_INDEX") or index_variable(told)}
    if ":" not in AGENT:
        added["PYTHONPATH"] = python_path(environment)
    words = launched(options, program, environment, added)[0]
    restore_signals()
    become(program, words, {**environment, **added})
    return give_up(become(program, command, environment))
