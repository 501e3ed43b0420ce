"""`rankscope gather`: collect rank files left on nodes by ranks that died."""

import sys
from pathlib import Path

from rankscope.record.gather import GatheredFile, gather, local_folder_of
from rankscope.record.options import UsageError

HELP = """\
usage: rankscope gather RUN [--from DIR] [--remove]

Copies rank files left in node-local folders (rankscope run --local) into the
folder of the run. Processes that ended cleanly have copied theirs; those of
killed ranks are still on their node. Run it once on each node:

  mpirun -N 1 rankscope gather rankscope-runs/latest      Open MPI
  mpiexec -ppn 1 rankscope gather rankscope-runs/latest   MPICH, Intel MPI, PALS
  srun --ntasks-per-node=1 rankscope gather rankscope-runs/latest

options:
  --from DIR   the node-local folder of the run (default: the one in run.json)
  --remove     remove a local file once its copy has been read back and verified
  --help       show this text

A copy in the run that is newer is kept. Exit code: 0 all collected or nothing
left, 1 some file could not be collected (the line says which and why), 2 wrong
usage.
"""


def run(arguments: list[str]) -> int:
    """Collect, say what was done, and return the exit code."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP, end="")
        return 0
    try:
        folder, source, remove = parse(arguments)
    except UsageError as error:
        print(f"rankscope gather: {error}", file=sys.stderr)
        return 2
    outcomes = gather(folder, source, remove)
    for outcome in outcomes:
        tell(outcome, remove)
    print(summary(outcomes, source))
    return int(any(outcome.action == "failed" for outcome in outcomes))


def parse(arguments: list[str]) -> tuple[Path, Path, bool]:
    """The run, the node-local folder, and whether to remove."""
    rest, remove, source = list(arguments), False, ""
    folders: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "--remove":
            remove = True
        elif word.partition("=")[0] == "--from":
            source = word.partition("=")[2] or (rest.pop(0) if rest else "")
        elif word.startswith("-"):
            raise UsageError(f"unknown option {word}; see rankscope gather --help")
        else:
            folders.append(word)
    if len(folders) != 1:
        raise UsageError("give one run, as in: rankscope gather rankscope-runs/latest")
    return (folder := run_folder(folders[0])), Path(source) if source else recorded_source(folder), remove


def run_folder(text: str) -> Path:
    folder = Path(text).resolve()
    if not folder.is_dir():
        raise UsageError(f"{text} is not a folder; rankscope runs lists the runs")
    return folder


def recorded_source(folder: Path) -> Path:
    try:
        source = local_folder_of(folder)
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder}/run.json cannot be read ({error}); give the node's folder with --from") from None
    if source is None:
        raise UsageError(f"{folder.name} was not recorded with --local; give the node's folder with --from")
    return source


def tell(outcome: GatheredFile, remove: bool) -> None:
    """One line for what the user should know of one file."""
    if outcome.action == "failed":
        print(f"rankscope gather: {outcome.source} {outcome.reason}; left where it is", file=sys.stderr)
    elif outcome.alive:
        print(f"{outcome.source} belongs to a process that is still running; gather again when it has ended")
    elif remove and not outcome.removed:
        print(f"{outcome.source} differs from the copy in the run; not removed")


def summary(outcomes: list[GatheredFile], source: Path) -> str:
    if not outcomes:
        return f"nothing to collect: no rank files in {source} on this node"
    counts = {name: sum(outcome.action == name for outcome in outcomes) for name in ("copied", "kept", "failed")}
    removed = sum(outcome.removed for outcome in outcomes)
    return (
        f"{len(outcomes)} rank files in {source}: {counts['copied']} copied, {counts['kept']} already in the run, "
        f"{counts['failed']} failed, {removed} removed"
    )
