"""The folder of a run: found or made, and described in run.json by whoever made it."""

import os
import time

from rankscope.record.options import RunOptions
from rankscope.record.place import Place, cleaned

ROOT = "rankscope-runs"
MOST_EQUAL_NAMES = 1000
Json = str | int | bool | None | list[str] | dict[str, "Json"]


class RunFolder:
    """Where this run is kept."""

    def __init__(self, path: str, created: bool, claim: str = "") -> None:
        self.path = path
        self.created = created
        self.claim = claim  # who made it and when: the same for all ranks of the run, and no other run's

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def node_name(self) -> str:
        """Its name on nodes, where runs of all folders and of all times may lie side by side."""
        digest = 0xCBF29CE484222325  # FNV-1a: importing hashlib would cost more than all else here
        for octet in os.fsencode(self.claim or self.path):
            digest = (digest ^ octet) * 0x100000001B3 % 2**64
        return f"{self.name}-{digest:016x}"


def find_folder(options: RunOptions, place: Place) -> RunFolder:
    """The run's folder, made if we are the first to ask."""
    root = os.path.abspath(ROOT)
    dated = f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{run_name(options)}"
    if not options.out and not place.shared:
        return new_folder(root, dated)
    from rankscope.record.rendezvous import agreed_folder, given_folder  # a process alone has nobody to agree with

    if options.out:
        return RunFolder(*given_folder(os.path.abspath(options.out), place))
    return RunFolder(*agreed_folder(root, dated, place))


def new_folder(root: str, dated: str) -> RunFolder:
    """A folder that nobody else has."""
    for n in range(1, MOST_EQUAL_NAMES):
        path = f"{root}/{dated}" if n == 1 else f"{root}/{dated}-{n}"
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        except FileNotFoundError:
            os.makedirs(path)
        return RunFolder(path, True, f"{time.time_ns()}|{os.uname().nodename}|{os.getpid()}|{path}")
    raise OSError(f"{root}: too many runs named {dated}")


def run_name(options: RunOptions) -> str:
    """What the run is called after: --name, the Python script, or the program."""
    if options.name:
        return cleaned(options.name)
    for word in options.command:
        if word.endswith(".py"):
            return cleaned(os.path.basename(word)[:-3])
    return cleaned(os.path.basename(options.command[0]))


def describe(folder: RunFolder, description: dict[str, Json]) -> None:
    """Write run.json, whole or not at all."""
    temporary = f"{folder.path}/.run.json.{os.getpid()}"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        os.write(file, to_json(description).encode() + b"\n")
    finally:
        os.close(file)
    os.rename(temporary, f"{folder.path}/run.json")


def point_latest(folder: RunFolder) -> None:
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
