"""The folder of a run: found or made, and described in run.json by whoever made it."""

from __future__ import annotations

import os
import time

from rankscope.record.claim import MOST_JOBS_WITH_ONE_KEY, Claimant, agree, turn_of
from rankscope.record.options import Options
from rankscope.record.place import Place

ROOT = "rankscope-runs"
LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
LONGEST_NAME = 60
Json = str | int | bool | None | list[str] | dict[str, "Json"]


class Folder:
    """Where this run is kept."""

    def __init__(self, path: str, created: bool) -> None:
        self.path = path
        self.created = created

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


def find_folder(options: Options, place: Place, asking: Claimant) -> Folder:
    """The run's folder, made if we are the first to ask."""
    if options.out:
        return given_folder(os.path.abspath(options.out), asking)
    root = os.path.abspath(ROOT)
    dated = f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{run_name(options)}"
    if not place.shared:
        return new_folder(root, dated)
    return agreed_folder(root, dated, place, asking)


def given_folder(path: str, asking: Claimant) -> Folder:
    """The folder given by --out, or path-2, path-3 … where it already holds the run of another job."""
    folders = [path] + [f"{path}-{n}" for n in range(2, MOST_JOBS_WITH_ONE_KEY)]
    index, _, created = agree([f"{folder}/.job" for folder in folders], os.path.basename(path), asking)
    return Folder(folders[index], created)


def new_folder(root: str, dated: str) -> Folder:
    """A folder that nobody else has."""
    os.makedirs(root, exist_ok=True)
    for n in range(1, MOST_JOBS_WITH_ONE_KEY):
        path = f"{root}/{dated}" if n == 1 else f"{root}/{dated}-{n}"
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return Folder(path, True)
    raise OSError(f"{root}: too many runs named {dated}")


def agreed_folder(root: str, dated: str, place: Place, asking: Claimant) -> Folder:
    """The one folder of all ranks of this job."""
    tagged = f"{dated}-{asking.launcher.pid}" if asking.launcher else dated  # apart from a job of the same second
    base = f"{root}/.jobs/{cleaned(asking.key)}"
    _, name, created = agree(generations(base), tagged, asking)
    if asking.wrapped:
        turn = turn_of(f"{root}/.jobs/{name}", place.rank)
        if turn > 1:
            _, name, created = agree(generations(f"{base}.turn{turn}"), tagged, asking)
    os.makedirs(f"{root}/{name}", exist_ok=True)
    return Folder(f"{root}/{name}", created)


def generations(base: str) -> list[str]:
    return [base] + [f"{base}.{n}" for n in range(2, MOST_JOBS_WITH_ONE_KEY)]


def run_name(options: Options) -> str:
    """What the run is called after: --name, the Python script, or the program."""
    if options.name:
        return cleaned(options.name)
    for word in options.command:
        if word.endswith(".py"):
            return cleaned(os.path.basename(word)[:-3])
    return cleaned(os.path.basename(options.command[0]))


def cleaned(text: str) -> str:
    """The text as (part of) a file name."""
    return "".join(letter if letter in LETTERS else "-" for letter in text)[:LONGEST_NAME].strip("-.") or "run"


def describe(folder: Folder, description: dict[str, Json]) -> None:
    """Write run.json, whole or not at all."""
    temporary = f"{folder.path}/.run.json.{os.getpid()}"
    with open(temporary, "wb", buffering=0) as file:
        file.write(to_json(description).encode() + b"\n")
    os.rename(temporary, f"{folder.path}/run.json")


def point_latest(folder: Folder) -> None:
    """Let `latest` beside the folder lead to it."""
    root = os.path.dirname(folder.path)
    temporary = f"{root}/.latest.{os.getpid()}"
    os.symlink(folder.name, temporary)
    os.rename(temporary, f"{root}/latest")


def to_json(value: Json) -> str:
    """The value as JSON; importing json would cost more than the rest of this module."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(quoted(item) for item in value) + "]"
    if isinstance(value, str):
        return quoted(value)
    return "null" if value is None else str(value).lower()


def quoted(text: str) -> str:
    """A JSON string in ASCII; bytes that are no UTF-8 become U+FFFD."""
    readable = os.fsencode(text).decode("utf-8", "replace")
    return '"' + "".join(escaped(letter) for letter in readable) + '"'


def escaped(letter: str) -> str:
    if letter in '"\\':
        return "\\" + letter
    if " " <= letter <= "~":
        return letter
    halves = letter.encode("utf-16-be")
    return "".join(f"\\u{halves[i]:02x}{halves[i + 1]:02x}" for i in range(0, len(halves), 2))
