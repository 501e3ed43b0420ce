"""`rankscope stage`: run a command from a node-local copy of its environment."""

import sys

from rankscope.stage.options import StageOptions, UsageError, parse

HELP = """\
usage: rankscope stage [ENV] --record [options] -- command …
       rankscope stage [ENV] [options] -- command …

Runs a command from node-local storage. A program touches a few percent of its
Python environment; a rehearsal finds those files and packs them into one, the
bundle. In a job, one process per node fetches the bundle: the first node reads
the shared file system, the others copy it from each other. A file that is not
in the bundle is read from its original place. The command's output, exit code
and signals are its own.

  rankscope stage /soft/env --record -- python -c 'import torch'
                   once: makes env.bundle of what the command touches
  mpirun -n 512 rankscope stage /soft/env --to /tmp -- python train.py
                   runs it from a copy on each node; inside a launcher
  rankscope stage /soft/env -- mpirun -n 512 python train.py
                   the same, from outside
  rankscope stage /soft/env --compare -- mpirun -n 512 python -c 'import torch'
                   runs it in place and from the copies, and prints both times

ENV is a venv or another folder with bin and lib (default: the active one).

bundle:
  --bundle FILE    the bundle (default: the name of ENV with .bundle, here)
  --record         run the command in place, note what it touches, and pack that
  --method X       how to find out: strace (every path of every program), paths
                   (as rankscope run --imports paths), audit (what Python opens
                   and maps); default: the first of these that works here
  --files LIST     also pack the files named in LIST, one per line, or in an
                   strace log
  --run RUN        also pack what the ranks of a recorded run asked for
                   (rankscope run --imports paths)
  --include GLOB   also pack files that fit, as in --include 'torch/lib/*'
  --all            pack everything in ENV
  --also DIR       stage this folder, too
  --base, --no-base  pack the interpreter a venv was made from, or not (default:
                     if it is beside ENV)
  --compress zlib  a smaller bundle, for file systems slower than 250 MB/s
                   (default: none)
  --image          pack one squashfs image, which nodes mount (needs mksquashfs
                   here and squashfuse on the nodes)

run:
  --to DIR         node-local folder (default: RANKSCOPE_STAGE_TO, SLURM_TMPDIR,
                   TMPDIR, /tmp)
  --keep           leave the copy on the node for the next job (default: the
                   last rank removes it)
  --check X        whether ENV has changed since: quick (its folders; the
                   default), full (every packed file), none
  --expect ID      refuse a bundle with another identity (a prefix is enough)
  --meet DIR       shared folder where nodes find each other (default: beside
                   the bundle)
  --patience S     give up after S seconds and run in place (default 600)
  --strict         if staging fails, start nothing
  --in-place       do not stage: for comparison

times:
  --times DIR      record how long transfer, unpacking and the command took
  --table DIR      print the table of such a folder (several --table: of several
                   node counts)
  --compare        run the command in place and staged, and print the table;
                   --rounds N repeats both
  --format X       form of the table: text, csv, json, markdown

on this node:
  --status         copies here: size, users, files that came from the original
                   place
  --clean          remove copies that nobody uses, kept ones too

Exit code: the command's own; 1 no bundle could be made; 2 wrong usage; 3 not
staged (with --strict); 127 or 126 if the command is not found or cannot be run.
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


def act(options: StageOptions) -> int:
    if options.has("status") or options.has("clean"):
        from rankscope.stage.status import show

        return show(options)
    if options.has("compare"):
        from rankscope.stage.compare import run_in_turns

        return run_in_turns(options, table)
    if options.lists["table"]:
        return table(options, options.lists["table"])
    if is_packing(options):
        from rankscope.stage.build_bundle import make_bundle

        return make_bundle(options, touched_in_run)
    if not options.command or not options.command[0]:
        raise UsageError("no command given; as in: rankscope stage ENV -- python train.py")
    from rankscope.stage.run import run_staged

    return run_staged(options)


def touched_in_run(folder: str) -> dict[str, str]:
    """Read a recorded run; only then are the readers and the store imported."""
    from rankscope.api.staging import touched_in

    return touched_in(folder)


def table(options: StageOptions, folders: list[str]) -> int:
    """Print the table of folders that --times or --compare have filled."""
    from pathlib import Path

    from rankscope.api.staging import staging_tables
    from rankscope.cli.printing import deliver_tables

    missing = [name for name in folders if not Path(name).is_dir()]
    if missing:
        print(f"rankscope stage: {missing[0]}: no such folder; make one with --compare --times DIR", file=sys.stderr)
        return 1
    tables, unread = staging_tables([Path(name) for name in folders])
    for path in unread:
        print(f"rankscope stage: {path}: cannot be read; left out", file=sys.stderr)
    deliver_tables(tables, options.value("format", "text"), None)
    return 0


def is_packing(options: StageOptions) -> bool:
    is_named = options.has("record") or options.has("all")
    return is_named or any(options.lists[name] for name in ("files", "include", "run"))
