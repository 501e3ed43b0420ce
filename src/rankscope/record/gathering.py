"""Collects rank files that stayed on a node because their process died before it could copy them."""

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rankscope.record.copying import copy, is_copy
from rankscope.record.heads import RUNNING, Head, Unreadable, read_head
from rankscope.record.place import process


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
    files = sorted(source.glob("ranks/*/*.rank"))
    outcomes = [gather_one(run, path, remove) for path in files]
    sweep(run, {path.parent.name for path in files})
    return outcomes


def sweep(run: Path, hosts: Iterable[str]) -> None:
    """Remove what gathering on this node, or a process of it, had begun to write when it was killed."""
    here = os.uname().nodename
    for host in hosts:
        for name in os.listdir(run / "ranks" / host) if (run / "ranks" / host).is_dir() else ():
            words = name.split(".")
            by_gather = name.startswith(".") and f".rank.{here}." in name
            by_process = host == here and name.startswith(".") and name.endswith(".part")
            writer = words[-1] if by_gather else words[1] if by_process else ""
            if writer.isdecimal() and process(int(writer)) is None:
                with contextlib.suppress(OSError):
                    os.unlink(run / "ranks" / host / name)


# path on the node, path below the run, bytes on disk, whether the run has an older one
Left = tuple[str, str, int, bool]


def left_here(run: Path, source: Path) -> list[Left]:
    """The rank files under source/ranks that the run does not have, or not as new.

    An equal copy of a process that did not say that it has ended may be older: counters move without leaving a time.
    """
    found: list[Left] = []
    for path in sorted(source.glob("ranks/*/*.rank")):
        folder = f"ranks/{path.parent.name}"
        with contextlib.suppress(OSError):  # in the run by now, most likely
            size = path.stat().st_blocks * 512
            try:
                head = read_head(path)
                target, known = target_of(run, path, head)
            except Unreadable:  # whoever reads it says what is wrong with it
                found.append((str(path), f"{folder}/{path.stem}-left.rank", size, False))
                continue
            if known is None or head.age > known.age or (head.age == known.age and head.state == RUNNING):
                found.append((str(path), f"{folder}/{target.name}", size, known is not None))
    return found


def gather_one(run: Path, path: Path, remove: bool) -> Outcome:
    """Bring one rank file into the run; what is wrong with it stays its own affair."""
    try:
        head = read_head(path)
        target, known = target_of(run, path, head)
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


def target_of(run: Path, path: Path, head: Head) -> tuple[Path, Head | None]:
    """Where the copy goes, and what is there already; two programs may have had the same process id on one host."""
    target = run / "ranks" / path.parent.name / path.name
    for candidate in (target, target.with_stem(f"{path.stem}-{head.loaded_realtime_ns}")):
        try:
            known = read_head(candidate)
        except (FileNotFoundError, Unreadable):  # nothing there, or half a copy
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
