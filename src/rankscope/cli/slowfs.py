"""`rankscope slowfs`: shows a folder through a file system that is slow in a known way and counts what it is asked."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from rankscope.cli.printing import add_form_options, deliver_tables
from rankscope.cli.slowness_options import add_slowness_options, slowness_of
from rankscope.model.tables import Cell, Column, Table, Unit
from rankscope.output.text import to_text
from rankscope.slowfs import mount as mounting
from rankscope.slowfs.mount import BLIND_SPOTS, Unavailable, program, reason_against_running, shim_environment

HELP = "mount a folder through a slow file system that counts operations"
ABOUT = """\
Mounts a folder read-only through a file system that is as slow as requested and
counts its operations, so that the imports of a large job on a busy file server
can be studied on one machine."""
EXAMPLES = """\
  rankscope slowfs run env --latency 1ms -- env/bin/python -c 'import torch'
  rankscope slowfs run /opt/env --cache negative --ops-per-second 20000 -- \\
      mpirun -n 4 /opt/env/bin/python train.py
  rankscope slowfs mount /opt/env /mnt/slow --latency 1ms
  rankscope slowfs stats /mnt/slow
  rankscope slowfs unmount /mnt/slow

Exit code: run: that of the command (125: nothing could be mounted); the others:
0 done, 1 not possible, 2 wrong usage.
"""
CACHES_WORD = {"none": "nothing cached", "positive": "names cached", "negative": "existing and missing names cached"}
NO_COUNTERS = ("pid", "delayed_ns", "queued_ns")


def run(argv: list[str]) -> int:
    """Do what the first word says."""
    options, command = parsed(argv)
    try:
        return int(options.action(options, command))
    except Unavailable as problem:
        print(f"rankscope slowfs: {problem}", file=sys.stderr)
        return 125 if options.action is run_on else 1


def parsed(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the command behind `--`."""
    arguments = parser()
    cut = argv.index("--") if "--" in argv else len(argv)
    options, command = arguments.parse_args(argv[:cut]), argv[cut + 1 :]
    if bool(command) != (options.action is run_on):
        arguments.error(
            "only run takes a command" if command else "run needs one: rankscope slowfs run FOLDER -- command"
        )
    return options, command


def parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    arguments = argparse.ArgumentParser("rankscope slowfs", description=ABOUT, epilog=EXAMPLES, formatter_class=form)
    actions = arguments.add_subparsers(metavar="run|mount|stats|unmount", required=True)
    add_run(actions)
    mount = actions.add_parser("mount", help="mount until unmounted; needs root or fusermount3")
    mount.add_argument("folder", type=Path, metavar="FOLDER", help="what is shown")
    mount.add_argument("mount_point", type=Path, metavar="MOUNTPOINT", help="where; may be the folder itself")
    add_slowness_options(mount)
    mount.set_defaults(action=mount_at)
    stats = actions.add_parser("stats", help="the counters of a mount, or of a server file, so far")
    stats.add_argument("place", type=Path, metavar="MOUNTPOINT|FILE", help="a mounted slow folder or a --server file")
    add_form_options(stats)
    stats.set_defaults(action=show_stats)
    unmount = actions.add_parser("unmount", help="unmount, even if the server has died")
    unmount.add_argument("mount_point", type=Path, metavar="MOUNTPOINT")
    unmount.set_defaults(action=unmount_at)
    return arguments


def add_run(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    arguments = actions.add_parser("run", help="run a command that alone sees the slow folder; no root needed")
    arguments.add_argument("folder", type=Path, metavar="FOLDER", help="what is shown")
    arguments.add_argument("--at", type=Path, metavar="MOUNTPOINT", help="where (default: over the folder itself)")
    methods = "a real mount, or a preloaded library that sees less (default: a mount where possible)"
    arguments.add_argument("--method", choices=["auto", "fuse", "shim"], default="auto", help=methods)
    arguments.add_argument(
        "--counters", type=Path, metavar="FILE", help="write the counters there too, a line for each"
    )
    add_slowness_options(arguments)
    arguments.set_defaults(action=run_on)


def mount_at(options: argparse.Namespace, _: list[str]) -> int:
    mounting.mount(options.folder, options.mount_point, slowness_of(options))
    print(f"{options.mount_point}: mounted, {CACHES_WORD[options.cache]}; rankscope slowfs unmount removes it")
    return 0


def unmount_at(options: argparse.Namespace, _: list[str]) -> int:
    if mounting.unmount(options.mount_point):
        return 0
    raise Unavailable(f"{options.mount_point}: no slow file system is mounted there")


def show_stats(options: argparse.Namespace, _: list[str]) -> int:
    place: Path = options.place
    counters = mounting.of_server(place) if place.is_file() else mounting.of_mount(place)
    deliver_tables([counters_table(counters)], options.format, options.out)
    return 0


def run_on(options: argparse.Namespace, command: list[str]) -> int:
    """Run the command on the slow folder, say on stderr what that took, and return the command's exit code."""
    reason = None if options.method == "shim" else reason_against_running()
    if reason and options.method == "fuse":
        raise Unavailable(reason)
    if reason:
        print(f"rankscope slowfs: {reason}; --method shim is used", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="rankscope-slowfs-") as folder:
        by_shim = options.method == "shim" or reason is not None
        code, counters = (run_shimmed if by_shim else run_mounted)(options, command, Path(folder))
    print(to_text([counters_table(counters, BLIND_SPOTS if by_shim else "")], 100), end="", file=sys.stderr)
    return code


def run_mounted(options: argparse.Namespace, command: list[str], folder: Path) -> tuple[int, dict[str, int]]:
    source, place = mounting.checked(options.folder, options.at or options.folder)
    file = options.counters or folder / "counters"
    words = [program(), "run", *slowness_of(options).flags(), f"--counters={file}", str(source), str(place), "--"]
    code = passed_on(subprocess.Popen([*words, *command]))
    if not file.exists():
        raise Unavailable("ended before the command did")
    return code, mounting.parsed(file.read_text(encoding="ascii"))


def run_shimmed(options: argparse.Namespace, command: list[str], folder: Path) -> tuple[int, dict[str, int]]:
    if options.at is not None and options.at.resolve() != options.folder.resolve():
        raise Unavailable("the shim cannot show a folder at another place: leave out --at")
    server = options.server or folder / "server"
    slowness = slowness_of(options).sharing(server)
    code = passed_on(subprocess.Popen(command, env=shim_environment(options.folder, slowness)))
    counters = mounting.of_server(server)
    if options.counters is not None:
        options.counters.write_text("".join(f"{name} {value}\n" for name, value in counters.items()), encoding="ascii")
    return code, counters


def passed_on(process: subprocess.Popen[bytes]) -> int:
    """Waits; what would end us is for the command, whose end we then tell."""

    def forward(number: int, _: FrameType | None) -> None:
        process.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGHUP, forward)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal has sent it to the command too
    code = process.wait()
    return code if code >= 0 else 128 - code


def counters_table(counters: dict[str, int], note: str = "") -> Table:
    """What the file system was asked, as a table."""
    columns = [Column("operation", Unit.NAME, "operation"), Column("count", Unit.COUNT, "count")]
    rows: list[tuple[Cell, ...]] = [(name, value) for name, value in counters.items() if name not in NO_COUNTERS]
    delayed_s, queued_s = counters["delayed_ns"] / 1e9, counters["queued_ns"] / 1e9
    notes = [f"answers delayed by {delayed_s:.3f} s in all, {queued_s:.3f} s in the queue", note]
    return Table("slowfs", "Operations of the slow file system", columns, rows, [text for text in notes if text])
