"""Lets one program, started in several modes, take turns: bare, recorded, under torch.profiler, in every round anew.

    gpu_turns.py --worker scripts/gpu_loop.py --modes bare bare-again sync profiler --seconds 30 --out turns.jsonl

Machines change their speed from second to second, so only turns of the same round are compared. `bare-again` is a
second bare program: what it differs by is what no figure here can tell. Each round is written when it is done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RECORDED = {  # modes with the recorder on, and its options
    **{mode: ("--cuda", "exact", "--cuda-api", mode) for mode in ("none", "sync", "all")},
    "exact": ("--cuda", "exact"),
    "windows": ("--cuda", "windows"),
}
START_S, TURN_S, END_S = 100, 30, 60  # the longest that a start, a turn and an end may take


class Player:
    """A program in one mode."""

    def __init__(self, mode: str, worker: str, runs: Path) -> None:
        command = [sys.executable, worker, mode]
        if mode in RECORDED:
            record = [
                sys.executable,
                "-m",
                "rankscope",
                "run",
                "--quiet",
                "--out",
                str(runs / mode),
                *RECORDED[mode],
            ]
            command = record + command
        self.mode = mode
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def answer(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            line = self.process.stdout.readline()
            if line.startswith(b"{"):
                return dict(json.loads(line))
            if not line:
                break
        raise RuntimeError(f"{self.mode}: no answer")

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n".encode())

    def turn(self) -> dict[str, Any]:
        self.tell("go")
        return self.answer(TURN_S)

    def end(self) -> dict[str, Any]:
        try:
            self.tell("end")
            told = self.answer(END_S)
            return {**told, "exit": self.process.wait(END_S)}
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            self.process.kill()
            return {"mode": self.mode, "failed": str(error), "exit": self.process.wait()}


def play(options: argparse.Namespace, players: list[Player], out: Any) -> None:
    for player in players:
        player.answer(START_S)
    until, number = time.monotonic() + options.seconds, 0
    order = random.Random(0)
    while time.monotonic() < until and number < options.rounds:
        order.shuffle(players)
        turns = {player.mode: player.turn() for player in players}
        out.write(json.dumps({"set": options.set, "round": number, "turns": turns}) + "\n")
        out.flush()
        number += 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--modes", nargs="+", required=True)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rounds", type=int, default=10**6)
    parser.add_argument("--set", type=int, default=1, help="number of this set of processes")
    parser.add_argument("--runs", type=Path, required=True, help="where the recorded ones leave their runs")
    parser.add_argument("--out", type=Path, required=True, help="lines are added to this file")
    return parser.parse_args()


def main() -> int:
    options = parse()
    options.runs.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    players = [Player(mode, options.worker, options.runs) for mode in options.modes]
    failed = ""
    with options.out.open("a") as out:
        try:
            play(options, players, out)
        except (RuntimeError, OSError) as error:
            failed = str(error)
        for player in players:
            ended = player.end()
            out.write(json.dumps({"set": options.set, "ended": ended}) + "\n")
    if failed:
        print(f"gpu_turns: {failed}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
