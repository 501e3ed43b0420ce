"""Programs of the stand-in for HIP: built once, run recorded, and held against what they say they did."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from native.builds import HERE, SANITIZERS, STRICT, compile_c, place_recorder, recording
from programs import recorded
from rankscope.rank_file import ChunkKind
from rankscope.rank_files.chunks import RankFile, open_rank_file
from rankscope.rank_files.read import read_rank_file

SOURCES = HERE / "rocm"
VERSIONS = {"0.5": 500, "1.1": 10100}
NOT_CHOSEN = ("hipGetDevice", "hipStreamQuery")  # calls that are recorded with --cuda-api all alone

Sums = tuple[int, int, int]  # count, bytes, ns


def make_program(folder: Path, version: int, sanitizer: str = "plain", register: Path | None = None) -> Path:
    """The starter; beside it the recorder, the stand-in, what plays HIP, and maybe a real rocprofiler-register."""
    flags = SANITIZERS[sanitizer]
    place_recorder(folder, flags)
    sdk = folder / "librocprofiler-sdk.so.1"
    only = ("-DFAKE_SDK_ONLY",) if register else ()
    shared = ("-fPIC", "-shared", f"-I{SOURCES}", *flags)
    compile_c(
        sdk, SOURCES / "fake_rocprofiler.c", *shared, f"-Wl,-soname,{sdk.name}", f"-DFAKE_VERSION={version}", *only
    )
    found = (
        f"-L{folder}",
        f"-Wl,-rpath,{folder}",
        "-l:librocprofiler-sdk.so.1",
        *([str(register)] if register else ()),
    )
    compile_c(folder / "libamdhip64.so.6", SOURCES / "hip_program.c", *shared, *found)
    return compile_c(folder / "starter", SOURCES / "hip_starter.c", *flags)


def run(
    starter: Path, folder: Path, seed: int, rounds: int, threads: int, end: str = "return", **settings: str
) -> Told:
    """What one run says of itself."""
    here = starter.parent
    folder.mkdir(parents=True, exist_ok=True)
    environment = recording(folder, **{"LD_PRELOAD": str(here / "librankscope.so"), **STRICT, **settings})
    command = [str(starter), str(here / "libamdhip64.so.6"), *map(str, (seed, rounds, threads, end))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL if end == "kill" else 0, ""), (seed, done)
    return Told(done.stdout)


class Told:
    """What a program has printed of what it did."""

    def __init__(self, text: str) -> None:
        self.calls: dict[str, tuple[int, int]] = {}
        self.works: dict[tuple[int, str], Sums] = {}
        self.memory: dict[int, tuple[int, int]] = {}
        self.ranges: dict[str, int] = {}
        self.rest: dict[str, str] = {}
        for line in text.splitlines():
            word, _, given = line.partition(" ")
            if word == "call":
                name, calls, errors = given.split()
                self.calls[name] = int(calls), int(errors)
            elif word == "work":
                device, count, size, ns, name = given.split(maxsplit=4)
                self.works[int(device), name] = int(count), int(size), int(ns)
            elif word == "memory":
                device, live, peak = map(int, given.split())
                self.memory[device] = live, peak
            elif word == "range":
                name, count = given.split()
                self.ranges |= {name: int(count)} if int(count) else {}
            else:
                self.rest[word] = given


class Recorded:
    """The same of a rank file."""

    def __init__(self, folder: Path) -> None:
        (path,) = recorded.rank_files(folder)
        self.file: RankFile = open_rank_file(path)
        self.reading = read_rank_file(path)
        columns: Any = self.reading.tally_columns
        calls: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        self.works: dict[tuple[int, str], Sums] = {}
        self.ranges: Counter[str] = Counter()
        for i in range(len(columns["calls"])):
            layer, name = (recorded.word(columns[which], i) for which in ("layer", "name"))
            count = int(columns["calls"][i])
            if layer == "hip_api":
                calls[name] += count
                errors[name] += int(columns["errors"][i])
            elif layer == "gpu":
                device = int(recorded.word(columns["group"], i).split()[1])
                before = self.works.get((device, name), (0, 0, 0))
                more = count, int(columns["bytes"][i]), round(columns["total_ns"][i])
                self.works[device, name] = (before[0] + more[0], before[1] + more[1], before[2] + more[2])
            elif layer == "nvtx":
                self.ranges[name] += count
        self.calls = {name: (count, errors[name]) for name, count in calls.items()}

    def gpu_names(self) -> list[str]:
        words = self.file.strings()
        return [words[int(row["name"])] for part in self.file.parts(ChunkKind.GPUS) for row in part.rows]

    def runtime(self) -> Any:
        return self.file.parts(ChunkKind.RUNTIMES)[0].rows[0]

    def memory(self) -> dict[int, tuple[int, int]]:
        rows = [row for part in self.file.parts(ChunkKind.DEVICES) for row in part.rows]
        return {int(row["device"]): (int(row["current_bytes"]), int(row["peak_bytes"])) for row in rows}


def differences(told: Told, found: Recorded, end: str = "return") -> list[str]:
    """What is not as the program says; of one that was killed, calls alone are known to the last."""
    wanted = {name: counts for name, counts in told.calls.items() if name not in NOT_CHOSEN}
    wrong = [] if found.calls == wanted else [f"calls {found.calls} != {wanted}"]
    if end == "kill":
        return wrong
    wrong += [] if found.works == told.works else [f"work {found.works} != {told.works}"]
    wrong += [] if dict(found.ranges) == told.ranges else [f"ranges {found.ranges} != {told.ranges}"]
    untimed = int(found.runtime()["untimed"])
    wrong += [] if untimed == int(told.rest["untimed"]) else [f"untimed {untimed} != {told.rest['untimed']}"]
    return wrong
