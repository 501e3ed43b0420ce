"""`rankscope stage`: run a command from a copy of its environment on the node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rankscope.cli.report import deliver_tables
from rankscope.questions.imports.projection import has_table
from rankscope.questions.imports.staging import Compared, Report, Timed, staging
from rankscope.rank_files.read import read_rank_file
from rankscope.record.program import first_environment
from rankscope.stage.build_bundle import NoRehearsal
from rankscope.stage.command import in_place, inserted, ourselves
from rankscope.stage.contents import LOOKED_AT, OPENED, Touched, add
from rankscope.stage.options import Options, UsageError, parse
from rankscope.stage.roots import NoEnvironment, default_bundle, find_environment
from rankscope.store.folder import NoRun
from rankscope.store.run import open_run

# ---------------------------------------------------------------------------------------------------------------------
# The files that a recorded run asked for, for `rankscope stage --run` and `--method paths`.
OPENING = ("open", "exec", "list")
NO_PATHS = "has no paths: record it with rankscope run --imports paths"


def touched_in(folder: str) -> Touched:
    """What the processes of a run, recorded with --imports paths, asked for and found."""
    try:
        tables = open_run(Path(folder), read_rank_file, events=False)
    except NoRun as error:
        raise NoRehearsal(str(error)) from None
    if not has_table(tables, "paths"):
        raise NoRehearsal(f"{folder} {NO_PATHS}")
    touched: Touched = {}
    for operation, path in tables.query("SELECT DISTINCT operation, path FROM paths WHERE result = 'ok'"):
        add(touched, path, OPENED if operation in OPENING else LOOKED_AT)
    if not touched:
        raise NoRehearsal(f"{folder} {NO_PATHS}")
    return touched


# ---------------------------------------------------------------------------------------------------------------------
# The tables of `rankscope stage --compare` and `--table`.
WAYS = ("in-place", "staged")
END_S = 20.0  # keepers tell what came from the original place once their job has ended


def table(options: Options) -> int:
    """Print the table of folders that --times or --compare have filled."""
    folders = [Path(name) for name in options.lists["table"]]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        print(f"rankscope stage: {missing[0]}: no such folder; make one with --compare --times DIR", file=sys.stderr)
        return 1
    deliver_tables(staging([read(folder) for folder in folders]), options.value("format", "text"), None)
    return 0


def compare(options: Options) -> int:
    """Run the command in place and staged in turns, then print the table; the exit code is the first that is not 0."""
    if not options.command:
        raise UsageError("--compare needs a command; as in: -- mpirun -n 8 python -c 'import torch'")
    if options.value("times"):
        return compare_in(options, Path(options.value("times")).absolute())
    with tempfile.TemporaryDirectory(prefix="rankscope-stage-times-", dir=".") as folder:
        return compare_in(options, Path(folder).absolute())


def compare_in(options: Options, folder: Path) -> int:
    try:
        environment = first_environment()
        root = find_environment(options.environment, environment)
    except NoEnvironment as error:
        print(f"rankscope stage: {error}", file=sys.stderr)
        return 2
    bundle = os.path.abspath(options.value("bundle") or default_bundle(root))
    if not os.path.exists(bundle):
        print(f"rankscope stage: {bundle}: no such bundle; make it with --record", file=sys.stderr)
        return 1
    for number in range(1, int(options.value("rounds", "1")) + 1):
        for way in WAYS:
            times = folder / f"{way}-{number}"
            print(f"rankscope: {way}, round {number}", file=sys.stderr, flush=True)
            exit_code = subprocess.run(
                words(options, root, bundle, times, way), env=in_place(environment, root)
            ).returncode
            if exit_code:
                print(f"rankscope stage: the command ended with exit code {exit_code} {way}", file=sys.stderr)
                return exit_code if exit_code > 0 else 1
            wait_for_keepers(times)
    deliver_tables(staging([read(folder)]), options.value("format", "text"), None)
    return 0


def words(options: Options, root: str, bundle: str, times: Path, way: str) -> list[str]:
    """The command with ourselves in every rank."""
    times.mkdir(parents=True)
    given = [word for word in options.given if word not in ("--compare", options.environment)]
    stage = [*ourselves(), "stage", root, *given, "--bundle", bundle, "--times", str(times)]
    stage += ["--in-place"] if way == "in-place" else []
    return inserted(options.command, [*stage, "--"], in_place(dict(os.environ), root)) or [
        *stage,
        "--",
        *options.command,
    ]


def wait_for_keepers(folder: Path) -> None:
    deadline_s = time.monotonic() + END_S
    while time.monotonic() < deadline_s:
        if all(report.get("ended") for report in reports(folder, "node")):
            return
        time.sleep(0.1)


def read(folder: Path) -> Compared:
    """The notes in a folder: of both ways, each in folders of its own; a folder of --times alone is one way."""
    compared = Compared()
    for part in sorted([folder, *(child for child in folder.iterdir() if child.is_dir())]):
        timed = Timed(reports(part, "rank"), reports(part, "node"))
        if timed.ranks:
            way = compared.staged if timed.nodes else compared.in_place
            way.append(timed)
    return compared


def reports(folder: Path, kind: str) -> list[Report]:
    found: list[Report] = []
    for path in sorted(folder.glob(f"{kind}-*.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            print(f"rankscope stage: {path}: cannot be read; left out", file=sys.stderr)
    return found


# ---------------------------------------------------------------- stage
HELP = """\
usage: rankscope stage [ENV] --record [options] -- command …       once: pack what the command touches
       rankscope stage [ENV] [options] -- command …                run it from a copy on the node

Runs a command from node-local storage. Of a Python environment a program touches a few percent; a rehearsal notes what
that is and packs it into one file, the bundle. In a job, one process of each node brings the bundle to the node: the
first node reads the shared file system, the others get it from each other. A file that is not in the bundle is found in
the original place. The command's output, exit code and signals are its own.

  rankscope stage /soft/env --record -- python -c 'import torch'          makes env.bundle
  mpirun -n 512 rankscope stage /soft/env --to /tmp -- python train.py    inside a launcher
  rankscope stage /soft/env -- mpirun -n 512 python train.py              the same, from outside
  rankscope stage /soft/env --compare -- mpirun -n 512 python -c 'import torch'

ENV is a venv or another folder with bin and lib (default: the active one).

bundle:
  --bundle FILE    the bundle (default: the name of ENV with .bundle, here)
  --record         run the command in place, note what it touches, and pack that
  --method X       how that is noted: strace (every path of every program), paths (as rankscope run --imports paths),
                   audit (what Python opens and maps); default: the first of these that works here
  --files LIST     also pack the files named in LIST, one in a line, or in a log of strace
  --run RUN        also pack what the ranks of a recorded run asked for (rankscope run --imports paths)
  --include GLOB   also pack files that fit, as in --include 'torch/lib/*'
  --all            pack everything in ENV
  --also DIR       another folder to stage
  --base, --no-base  the interpreter that a venv was made from, too, or not (default: if it is beside ENV)
  --compress zlib  a smaller bundle, for file systems slower than 250 MB/s (default: none)
  --image          pack one squashfs image, which nodes mount (needs mksquashfs here and squashfuse on the nodes)

run:
  --to DIR         node-local folder (default: RANKSCOPE_STAGE_TO, SLURM_TMPDIR, TMPDIR, /tmp)
  --keep           leave the copy on the node for the next job (default: the last rank removes it)
  --check X        whether ENV has changed since: quick (its folders; the default), full (every packed file), none
  --expect ID      refuse a bundle with another identity (its beginning is enough)
  --meet DIR       shared folder where nodes find each other (default: beside the bundle)
  --patience S     give up after so many seconds and run in place (default 600)
  --strict         where it cannot be staged, start nothing
  --in-place       do not stage: for comparison

times:
  --times DIR      note how long transfer, unpacking and the command took
  --table DIR      print the table of such a folder (several --table: of several node counts)
  --compare        run the command in place and staged, and print the table; --rounds N repeats both
  --format X       form of the table: text, csv, json, markdown

on this node:
  --status         copies here: size, users, files that came from the original place
  --clean          remove copies that nobody uses, kept ones too

Exit code: the command's own; 1 no bundle could be made; 2 wrong usage; 3 not staged (with --strict); 127 or 126 if the
command is not found or cannot be run.
"""


def run(arguments: list[str]) -> int:
    """Pack, or become the command; what only one process does is imported only there."""
    try:
        options = parse(arguments)
        if options.help:
            print(HELP, end="")
            return 0
        return act(options)
    except UsageError as error:
        print(f"rankscope stage: {error}", file=sys.stderr)
        return 2


def act(options: Options) -> int:
    if options.has("status") or options.has("clean"):
        from rankscope.stage.status import show

        return show(options)
    if options.has("compare") or options.lists["table"]:
        return compare(options) if options.has("compare") else table(options)
    if is_packing(options):
        from rankscope.stage.build_bundle import make_bundle

        return make_bundle(options, touched_in_run)
    if not options.command or not options.command[0]:
        raise UsageError("no command given; as in: rankscope stage ENV -- python train.py")
    from rankscope.stage.run import run_staged

    return run_staged(options)


def touched_in_run(folder: str) -> dict[str, str]:
    """Read a recorded run; only then are the readers and the store imported."""

    return touched_in(folder)


def is_packing(options: Options) -> bool:
    asked = options.has("record") or options.has("all")
    return asked or any(options.lists[name] for name in ("files", "include", "run"))
