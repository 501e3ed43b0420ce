"""The observer of torch, compiled before the job starts where the torch in use can be seen from here."""

import os

from rankscope.record.program import NoProgram, find_program


def prepare(command: list[str], environment: dict[str, str]) -> None:
    """Compile it if it is not in the cache; whatever goes wrong, the ranks find out by themselves."""
    if environment.get("RANKSCOPE_TORCH") in ("0", "python"):
        return
    torch_folder = find_torch(command, environment)
    if torch_folder:
        from rankscope.agent.build import NotBuilt, find_or_build

        try:
            find_or_build(torch_folder)
        except (NotBuilt, OSError):
            pass


def find_torch(command: list[str], environment: dict[str, str]) -> str:
    """The torch beside the first Python (or torchrun) of the command, "" where there is none."""
    for word in command:
        name = os.path.basename(word)
        if name.startswith("python") or name == "torchrun":
            try:
                program = find_program(word, environment)
            except NoProgram:
                return ""
            return torch_beside(os.path.dirname(os.path.dirname(os.path.abspath(program))))
    return ""


def torch_beside(prefix: str) -> str:
    library = os.path.join(prefix, "lib")
    try:
        versions = [name for name in os.listdir(library) if name.startswith("python3")]
    except OSError:
        return ""
    for version in versions:
        folder = os.path.join(library, version, "site-packages", "torch")
        if os.path.exists(os.path.join(folder, "version.py")):
            return folder
    return ""
