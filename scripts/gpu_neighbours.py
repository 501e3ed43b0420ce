"""gpu_neighbours.py FOLDER: NCCL with a profiler plugin of somebody else, alone and behind ours, by turns.

Two ranks each (gpu_programs/reduces.py), all alive at once, in an order that changes from round to round, so that every
job makes the same number of all-reduces. Leaves in FOLDER what scripts/gpu_neighbours_verify.py reads:
  turns.jsonl    microseconds of every enqueuing call, by job and round
  ends.json      how each job ended, and how many all-reduces its ranks made
  counts.JOB.RANK   what the foreign plugin has counted
  runs/JOB       what we have recorded; profiler.bare, profiler.both: torch.profiler inside, without and with us
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "scripts" / "gpu_programs"
PLUGIN_SOURCES = {
    "theirs.so": ROOT / "tests" / "native" / "nccl" / "foreign_plugin.c",
    "theirs_alone.so": ROOT / "tests" / "native" / "nccl" / "foreign_plugin.c",  # counts for itself
    "alternating.so": PROGRAMS / "alternating_plugin.c",
}
INSPECTOR = "66"  # collectives and channels of kernels, as NCCL Inspector asks for
EVERYTHING = str(0x7FFF & ~0x20)  # but when the proxy sleeps and wakes up, which is another number in every run
START_S, TURN_S, END_S = 45.0, 15.0, 20.0  # the longest that each may take
COUNT, ALTERNATING_COUNT = 40, 400


@dataclass
class Job:
    name: str
    theirs: str = ""  # the mask that the foreign plugin asks with, "" where there is none
    is_recorded: bool = False
    options: tuple[str, ...] = ("--cuda", "off")
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    def start(self, folder: Path, backend: str) -> None:
        command = [sys.executable, str(PROGRAMS / "reduces.py"), "--backend", backend]
        if self.is_recorded:
            record = [sys.executable, "-m", "rankscope", "run", "--quiet", "--out", str(folder / "runs" / self.name)]
            command = [*record, *self.options, *command]
        environment = {**os.environ, "NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", **self.settings}
        environment["PADDING"] = "x" * random.randrange(4096)  # where the stack begins is luck, in all alike
        if self.theirs:
            environment |= {"NCCL_PROFILER_PLUGIN": str(folder / "theirs.so"), "FOREIGN_MASK": self.theirs}
            environment |= {"FOREIGN_OUT": str(folder / f"counts.{self.name}"), "FOREIGN_GOES_ON": "1"}
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / f"{self.name}.err").open("w"),
            text=True,
            start_new_session=True,
        )

    def told(self, seconds: float) -> dict[str, Any]:
        """The next line that is an answer."""
        assert self.process is not None and self.process.stdout is not None
        until = time.monotonic() + seconds
        while select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))[0]:
            line = self.process.stdout.readline()
            if line.startswith("{"):
                return dict(json.loads(line))
            if not line:
                break
        raise RuntimeError(f"{self.name}: no answer")

    def ask(self, line: str, seconds: float) -> dict[str, Any]:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.told(seconds)

    def end(self) -> dict[str, Any]:
        assert self.process is not None
        try:
            return {**self.ask("end", END_S), "exit": self.process.wait(END_S)}
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            self.kill()
            return {"failed": str(error), "exit": self.process.wait()}

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)


def jobs_of(folder: Path) -> list[Job]:
    """Two of those whose events are compared: processes differ by themselves."""
    alternating = {
        "ALTERNATING_PLUGIN": str(folder / "alternating.so"),
        "ALTERNATING_ALONE": str(folder / "theirs_alone.so"),
    }
    default: tuple[str, ...] = ()
    return [
        Job("bare"),
        Job("ours", is_recorded=True),
        *(Job(f"theirs-{number}", INSPECTOR) for number in (1, 2)),
        *(Job(f"both-{number}", INSPECTOR, is_recorded=True) for number in (1, 2)),
        Job("theirs-all", EVERYTHING),
        Job("both-all", EVERYTHING, is_recorded=True, options=default),
        Job("alternating", INSPECTOR, is_recorded=True, settings=alternating),
    ]


def plugin_version() -> int:
    import torch

    known = ((2, 29), 6), ((2, 28), 5), ((2, 27), 4)
    return next((version for since, version in known if torch.cuda.nccl.version() >= since), 4)


def build(folder: Path) -> None:
    version = os.environ.get("NCCL_PLUGIN_VERSION") or str(plugin_version())
    for name, source in PLUGIN_SOURCES.items():
        command = ["cc", "-O2", "-shared", "-fPIC", f"-DVERSION={version}", f"-I{ROOT}/src/rankscope/native/nccl"]
        subprocess.run([*command, str(source), "-o", str(folder / name)], check=True)


def play(jobs: list[Job], until: float, out: IO[str]) -> None:
    """Rounds until then; the first one holds what only happens once."""
    order, number = random.Random(0), 0
    while time.monotonic() < until or number < 2:
        order.shuffle(jobs)
        taken_us = {job.name: job.ask(f"go {COUNT}", TURN_S) for job in jobs}
        out.write(json.dumps({"round": number, "jobs": taken_us}) + "\n")
        out.flush()
        number += 1


def crashing(folder: Path, backend: str) -> tuple[list[Job], list[subprocess.Popen[bytes]]]:
    """A plugin that crashes, and torch.profiler inside: without and with us, all beside each other."""
    settings = {"FOREIGN_MODE": "crash"}
    jobs = [Job("crash-theirs", INSPECTOR, settings=settings)]
    jobs.append(Job("crash-both", INSPECTOR, is_recorded=True, settings=settings))
    for job in jobs:
        job.start(folder, backend)
    environment = {**os.environ, "NCCL_PROFILER_PLUGIN": str(folder / "theirs.so")}
    inside = [sys.executable, str(PROGRAMS / "profiler_inside.py")]
    record = [sys.executable, "-m", "rankscope", "run", "--quiet", "--out", str(folder / "runs" / "profiler")]
    profiled = []
    for name, command in (("bare", inside), ("both", [*record, *inside])):
        out, error = (folder / f"profiler.{name}").open("w"), (folder / f"profiler-{name}.err").open("w")
        profiled.append(subprocess.Popen(command, env=environment, stdout=out, stderr=error, start_new_session=True))
    return jobs, profiled


def crash(job: Job) -> dict[str, Any]:
    """How a job ends whose plugin crashes: the signal of the rank, and the exit code of what was started."""
    told: dict[str, Any] = {}
    try:
        job.told(START_S)
        told = job.ask("go 30", TURN_S)
    except (RuntimeError, OSError) as error:
        told = {"failed": str(error)}
    assert job.process is not None
    with contextlib.suppress(subprocess.TimeoutExpired):
        return {"rank": told, "exit": job.process.wait(END_S)}
    job.kill()
    return {"rank": told, "exit": "none: it hangs"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60, help="from the start to the last round (default: 60)")
    parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"], help="gloo: to try the script itself")
    options = parser.parse_args()
    folder = options.folder.resolve()
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    build(folder)
    jobs, ends = jobs_of(folder), {}
    profiled: list[subprocess.Popen[bytes]] = []
    crashed: list[Job] = []
    try:
        for job in jobs:
            job.start(folder, options.backend)
        for job in jobs:
            job.told(START_S)
        print(f"all started after {time.monotonic() - begun:.1f} s", flush=True)
        with (folder / "turns.jsonl").open("w") as out:
            play(list(jobs), begun + options.seconds, out)
            alternating = next(job for job in jobs if job.name == "alternating")
            for number, by in enumerate(("", "calls") * 3):  # more of what is compared within one process
                taken_us = {"alternating": alternating.ask(f"go {ALTERNATING_COUNT} {by}", TURN_S)}
                out.write(json.dumps({"round": -1 - number, "by": by, "jobs": taken_us}) + "\n")
        print(f"rounds until {time.monotonic() - begun:.1f} s", flush=True)
        crashed, profiled = crashing(folder, options.backend)
        ends |= {job.name: job.end() for job in jobs}
        ends |= {job.name: crash(job) for job in crashed}
        ends |= {f"profiler-{number}": {"exit": job.wait(END_S)} for number, job in enumerate(profiled)}
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        ends["failed"] = {"failed": str(error)}
    finally:
        for job in (*jobs, *crashed):
            job.kill()
        for process in profiled:
            process.kill()
        (folder / "ends.json").write_text(json.dumps(ends, indent=1))
    print(f"{time.monotonic() - begun:.1f} s in all; {ends.get('failed', 'no job failed to answer')}", flush=True)
    return "failed" in ends


if __name__ == "__main__":
    sys.exit(main())
