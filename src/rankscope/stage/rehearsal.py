"""A rehearsal: the command runs once, in place, and what it touches is noted."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable

from rankscope.record.start import WRAPPERS
from rankscope.stage.outside import ourselves
from rankscope.stage.touched import OPENED, Touched, add, from_strace, read_list

WATCHING = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watching_opens")
LONGEST_PATH = "4096"
ReadRun = Callable[[str], Touched]


class NoRehearsal(Exception):
    """The rehearsal cannot be used; the text says why."""


def best_method() -> str:
    """The one that sees most: strace may be missing or forbidden, and our recorder may not have been built."""
    strace = shutil.which("strace")
    if strace and subprocess.run([strace, "-o", os.devnull, "true"], stderr=subprocess.DEVNULL).returncode == 0:
        return "strace"
    return "paths" if os.path.exists(WRAPPERS) else "audit"


def rehearse(command: list[str], environment: dict[str, str], method: str, read_run: ReadRun) -> Touched:
    """What the command touches; it has to end well, or else it has not touched everything."""
    with tempfile.TemporaryDirectory(prefix="rankscope-rehearsal-") as folder:
        command, environment = watched(command, environment, method, folder)
        try:
            exit_code = subprocess.run(command, env=environment, check=False).returncode
        except OSError as error:
            raise NoRehearsal(f"{command[0]}: {error.strerror}") from None
        if exit_code:
            raise NoRehearsal(f"the rehearsal ended with exit code {exit_code}; nothing was packed")
        return read_run(f"{folder}/run") if method == "paths" else collected(folder, method)


def watched(
    command: list[str], environment: dict[str, str], method: str, folder: str
) -> tuple[list[str], dict[str, str]]:
    """The command and its variables, so that what it touches is noted in the folder."""
    if method == "strace":
        options = ["-qq", "-ff", "-y", "-s", LONGEST_PATH, "-e", "trace=%file", "-o", f"{folder}/log"]
        return ["strace", *options, *command], environment
    if method == "paths":
        return [
            *ourselves(),
            "run",
            "--quiet",
            "--imports",
            "paths",
            "--out",
            f"{folder}/run",
            "--",
            *command,
        ], environment
    theirs = environment.get("PYTHONPATH", "")
    path = f"{WATCHING}:{theirs}" if theirs else WATCHING
    return command, {**environment, "PYTHONPATH": path, "RANKSCOPE_STAGE_NOTES": folder}


def collected(folder: str, method: str) -> Touched:
    """The notes of all processes."""
    touched: Touched = {}
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if method == "strace":
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                found = from_strace(file, os.getcwd())
        else:
            found = dict.fromkeys(read_list(path), OPENED)
        for touched_path, how in found.items():
            add(touched, touched_path, how)
    if not touched:
        raise NoRehearsal("the rehearsal touched nothing that could be seen; name files with --files or --include")
    return touched
