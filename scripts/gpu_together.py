"""What recording costs over minutes: the same training in several modes at the same time, by turns on the same cores.

    gpu_together.py --seconds 300 --modes bare bare-again windows exact profiler --out together.jsonl --runs FOLDER

For launch-bound programs, which leave the GPU idle: they share it without waiting for each other, and each has cores of
its own. Every few seconds the programs change cores, so that a slow core slows all of them in turn; what each did in
a turn is one line. Turns in which all rest (gpu_turns.py) would give windows time to rest that a job does not have.
`--report FILE` reads the lines: a cycle is as many turns as there are programs, so that each was on all cores.
As a program: gpu_together.py --work MODE.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TURN_S = 5.0
RECORDED = {
    "exact": ("--cuda", "exact"),
    "windows": ("--cuda", "windows"),
    "no-cuda": ("--cuda", "off"),
    "no-torch": ("--cuda", "off"),  # nor the torch observer: what the library costs by being there
}


def work(mode: str) -> None:
    """Trains until told to end; a line for each turn that is asked for: steps and the seconds they took."""
    import torch

    from gpu_programs.problems import transformer

    model = transformer(128, 4)
    x = torch.randn(4, 64, 128, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)

    def train(until: float) -> tuple[int, float]:
        begun, steps = time.monotonic(), 0
        while time.monotonic() < until:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
            steps += 1
        torch.cuda.synchronize()
        return steps, time.monotonic() - begun

    train(time.monotonic() + 0.5)
    print("ready", flush=True)
    for line in sys.stdin:
        if line == "end\n":
            break
        until = float(line)
        profile: Any = torch.profiler.profile() if mode == "profiler" else contextlib.nullcontext()
        with profile:
            steps, seconds = train(until)
        print(json.dumps({"steps": steps, "seconds": seconds}), flush=True)


def start(mode: str, runs: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", mode]
    kind = mode.split("-again")[0]  # bare-again, bare-again-2: more processes of a mode
    if kind in RECORDED:
        command = [
            sys.executable,
            "-m",
            "rankscope",
            "run",
            "--quiet",
            "--out",
            str(runs / mode),
            *RECORDED[kind],
            *command,
        ]
    environment = {**os.environ, **({"RANKSCOPE_TORCH": "0"} if kind == "no-torch" else {})}
    environment["PADDING"] = "x" * random.randrange(4096)  # where the stack begins is a matter of luck, in all alike
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def move(pid: int, cores: set[int]) -> None:
    """The process, its threads and its children."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            os.sched_setaffinity(int(task.name), cores)
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                move(int(child), cores)


def play(options: argparse.Namespace) -> None:
    players = {mode: start(mode, options.runs) for mode in options.modes}
    for mode, player in players.items():
        assert player.stdout is not None
        if player.stdout.readline() != "ready\n":
            raise SystemExit(f"gpu_together: {mode} did not start")
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // len(players)
    begun, number = time.monotonic(), 0
    with options.out.open("a") as out:
        while time.monotonic() - begun < options.seconds:
            for place, player in enumerate(players.values()):
                first = (place + number) % len(players) * each
                move(player.pid, set(cores[first : first + each]))
            until = time.monotonic() + TURN_S
            for player in players.values():
                assert player.stdin is not None
                player.stdin.write(f"{until}\n")
                player.stdin.flush()
            turn = {mode: json.loads(player.stdout.readline()) for mode, player in players.items() if player.stdout}
            out.write(json.dumps({"turn": number, "at_s": time.monotonic() - begun, "of": turn}) + "\n")
            out.flush()
            number += 1
    for mode, player in players.items():
        player.communicate("end\n", timeout=60)
        print(f"{mode}: exit {player.returncode}")


def report(lines: Path) -> None:
    """Of each program: the median over cycles of its step ÷ the mean step of the bare ones in the same cycle."""
    turns = [json.loads(line)["of"] for line in lines.read_text().splitlines()]
    modes = list(turns[0])
    bare = [mode for mode in modes if mode.startswith("bare")]
    cycles = [turns[at : at + len(modes)] for at in range(0, len(turns) - len(modes) + 1, len(modes))] or [turns]
    for mode in modes:
        ratios = []
        for cycle in cycles:
            step_s = {name: sum(turn[name]["seconds"] / turn[name]["steps"] for turn in cycle) for name in modes}
            ratios.append(step_s[mode] / statistics.mean(step_s[name] for name in bare))
        print(f"{mode:16} {statistics.median(ratios):.4f}  {' '.join(f'{ratio:.3f}' for ratio in ratios)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default="", metavar="MODE")
    parser.add_argument("--modes", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--report", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.report:
        report(options.report)
    elif options.work:
        work(options.work)
    else:
        options.runs.mkdir(parents=True, exist_ok=True)
        play(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
