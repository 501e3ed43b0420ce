"""Collects rank files that stayed on a node because their process died before it could copy them."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from rankscope.record.copying import copy, is_copy
from rankscope.record.heads import RUNNING, Head, Unreadable, read_head
from rankscope.record.place import may_run, process


@dataclass
class Outcome:
    """What became of one rank file."""

    source: Path
    action: str  # copied, kept (the run has it already), failed
    reason: str = ""
    removed: bool = False
    alive: bool = False


def local_folder_of(run: Path) -> Path | None:
    """The node-local folder that run.json names."""
    options = json.loads((run / "run.json").read_text()).get("options", {})
    return Path(options["local_dir"]) if options.get("local_dir") else None


def gather(run: Path, source: Path, remove: bool) -> list[Outcome]:
    """Bring every rank file under source/ranks into the run."""
    outcomes = []
    for host, files in files_by_host(source):
        names = names_of(run, host)
        sweep(run / "ranks" / host, names)
        outcomes += [gather_one(run, path, names, remove) for path in files]
    return outcomes


def files_by_host(source: Path) -> Iterator[tuple[str, list[Path]]]:
    """The rank files of each host of which a node has some: mostly its own."""
    for folder in sorted(source.glob("ranks/*")):
        if files := sorted(folder.glob("*.rank")):
            yield folder.name, files


def names_of(run: Path, host: str) -> set[str]:
    """What the run has of a host: listed once, which costs less than to ask for each file in vain."""
    try:
        return set(os.listdir(run / "ranks" / host))
    except FileNotFoundError:
        return set()


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove what gathering on this node, or a process of it, had begun to write when it was killed."""
    here = os.uname().nodename
    for name in names:
        words = name.split(".")
        by_gather = name.startswith(".") and f".rank.{here}." in name and words[-1].isdecimal()
        by_process = folder.name == here and name.startswith(".") and name.endswith(".part")
        over = process(int(words[-1])) is None if by_gather else by_process and writer_is_gone(words[1:-1])
        if over:
            with contextlib.suppress(OSError):
                os.unlink(folder / name)


def writer_is_gone(words: list[str]) -> bool:
    """Of a process, which native/collect.c names by its number, start, namespace and boot."""
    try:
        pid, start_ticks, namespace, boot_id = int(words[0]), int(words[1]), int(words[2]), int(words[3], 16)
    except (IndexError, ValueError):
        return False
    return not may_run(pid, start_ticks, namespace, boot_id)


# path on the node, path below the run, bytes on disk, whether the run has an older one
Left = tuple[str, str, int, bool]


def left_here(run: Path, source: Path) -> list[Left]:
    """The rank files under source/ranks that the run does not have, or not as new.

    An equal copy of a process that did not say that it has ended may be older: counters move without leaving a time.
    """
    found = []
    for host, files in files_by_host(source):
        names = names_of(run, host)
        found += [one for path in files if (one := left_one(run, path, names))]
    return found


def left_one(run: Path, path: Path, names: Set[str]) -> Left | None:
    """One file, if the run does not have it, or not as new."""
    with contextlib.suppress(OSError):  # in the run by now, most likely
        size_bytes, folder = path.stat().st_blocks * 512, f"ranks/{path.parent.name}"
        try:
            head = read_head(path)
            target, known = target_of(run, path, head, names)
        except Unreadable:  # whoever reads it says what is wrong with it
            return str(path), f"{folder}/{path.stem}-left.rank", size_bytes, False
        if known is None or head.age > known.age or (head.age == known.age and head.state == RUNNING):
            return str(path), f"{folder}/{target.name}", size_bytes, known is not None
    return None


def gather_one(run: Path, path: Path, names: Set[str], remove: bool) -> Outcome:
    """Bring one rank file into the run; what is wrong with it stays its own affair."""
    try:
        head = read_head(path)
        target, known = target_of(run, path, head, names)
        if known and (known.age > head.age or is_copy(path, target, head.used_bytes)):
            outcome = Outcome(path, "kept")
        else:
            copy(path, target)
            outcome = Outcome(path, "copied")
        outcome.alive = head.is_alive_here()
        if remove and not outcome.alive:
            outcome.removed = remove_if_equal(path, target)
    except Unreadable as error:
        return Outcome(path, "failed", str(error))
    except FileNotFoundError as error:
        if not path.exists():  # its process has ended meanwhile, and brought it into the run itself
            return Outcome(path, "kept", removed=remove)
        return Outcome(path, "failed", error.strerror or str(error))
    except OSError as error:
        return Outcome(path, "failed", error.strerror or str(error))
    return outcome


def target_of(run: Path, path: Path, head: Head, names: Set[str]) -> tuple[Path, Head | None]:
    """Where the copy goes, and what is there already; two programs may have had the same process id on one host."""
    target = run / "ranks" / path.parent.name / path.name
    for candidate in (target, target.with_stem(f"{path.stem}-{head.loaded_realtime_ns}")):
        if candidate.name not in names:
            return candidate, None
        try:
            known = read_head(candidate)
        except (FileNotFoundError, Unreadable):  # half a copy
            return candidate, None
        if known.identity == head.identity:
            return candidate, known
    raise Unreadable(f"would overwrite {candidate}, which is of another process")


def remove_if_equal(path: Path, target: Path) -> bool:
    """Remove the local file once the run's copy has been read back and holds the same."""
    if not is_copy(path, target, read_head(path).used_bytes):
        return False
    path.unlink()
    return True
