"""Runs a command in place and staged in turns, and reads what its ranks and nodes noted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rankscope.record.program import first_environment
from rankscope.stage.command import in_place, inserted, ourselves
from rankscope.stage.options import StageOptions, UsageError
from rankscope.stage.roots import NoEnvironment, default_bundle, find_environment

Show = Callable[[StageOptions, list[str]], int]  # the folders with notes -> exit code
WAYS = ("in-place", "staged")
END_S = 20.0  # keepers tell what came from the original place once their job has ended


def run_in_turns(options: StageOptions, show: Show) -> int:
    """Run the command in place and staged in turns, then show the table; the exit code is the first that is not 0."""
    if not options.command:
        raise UsageError("--compare needs a command; as in: -- mpirun -n 8 python -c 'import torch'")
    if options.value("times"):
        return _turns(options, show, Path(options.value("times")).absolute())
    with tempfile.TemporaryDirectory(prefix="rankscope-stage-times-", dir=".") as folder:
        return _turns(options, show, Path(folder).absolute())


def _turns(options: StageOptions, show: Show, folder: Path) -> int:
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
            words = _words(options, root, bundle, times, way)
            exit_code = subprocess.run(words, env=in_place(environment, root)).returncode
            if exit_code:
                print(f"rankscope stage: the command ended with exit code {exit_code} {way}", file=sys.stderr)
                return exit_code if exit_code > 0 else 1
            _wait_for_keepers(times)
    return show(options, [str(folder)])


def _words(options: StageOptions, root: str, bundle: str, times: Path, way: str) -> list[str]:
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


def _wait_for_keepers(folder: Path) -> None:
    deadline_s = time.monotonic() + END_S
    while time.monotonic() < deadline_s:
        if all(report.get("ended") for report in reports(folder, "node", [])):
            return
        time.sleep(0.1)


def reports(folder: Path, kind: str, unread: list[Path]) -> list[Mapping[str, Any]]:
    """The notes of every rank, or of every node; those that cannot be read are told."""
    read: list[Mapping[str, Any]] = []
    for path in sorted(folder.glob(f"{kind}-*.json")):
        try:
            read.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            unread.append(path)
    return read
