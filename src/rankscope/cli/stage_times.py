"""The tables of `rankscope stage --compare` and `--table`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rankscope.cli.delivering import deliver
from rankscope.questions.imports.staging import Compared, Report, Timed, staging
from rankscope.record.program import first_environment
from rankscope.stage.command import in_place
from rankscope.stage.options import Options, UsageError
from rankscope.stage.outside import inserted, ourselves
from rankscope.stage.roots import NoEnvironment, default_bundle, find_environment

WAYS = ("in-place", "staged")
END_S = 20.0  # keepers tell what came from the original place once their job has ended


def table(options: Options) -> int:
    """Print the table of folders that --times or --compare have filled."""
    folders = [Path(name) for name in options.lists["table"]]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        print(f"rankscope stage: {missing[0]}: no such folder; make one with --compare --times DIR", file=sys.stderr)
        return 1
    deliver(staging([read(folder) for folder in folders]), options.value("format", "text"), None)
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
    deliver(staging([read(folder)]), options.value("format", "text"), None)
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
