"""Programs of the stand-in for HIP: built once, run recorded, and held against what they say they did."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from native.builds import HERE, SANITIZERS, STRICT, compile_c, place_recorder, recording
from native.gpu import device_runs
from native.gpu.device_runs import Sums, told_call

SOURCES = HERE / "rocm"
VERSIONS = {"0.5": 500, "1.1": 10100}
NOT_CHOSEN = ("hipGetDevice", "hipStreamQuery")  # calls that are recorded with --cuda-api all alone


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
                name, counts = told_call(given)
                self.calls[name] = counts
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


class Recorded(device_runs.Recorded):
    """The same of a rank file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "hip_api")


def differences(told: Told, found: Recorded, end: str = "return") -> list[str]:
    """What is not as the program says; of one that was killed, calls alone are known to the last."""
    wanted = {name: counts for name, counts in told.calls.items() if name not in NOT_CHOSEN}
    wrong = [] if found.calls == wanted else [f"calls {found.calls} != {wanted}"]
    if end == "kill":
        return wrong
    wrong += [] if found.works_on == told.works else [f"work {found.works_on} != {told.works}"]
    wrong += [] if dict(found.ranges) == told.ranges else [f"ranges {found.ranges} != {told.ranges}"]
    untimed = int(found.runtime()["untimed"])
    wrong += [] if untimed == int(told.rest["untimed"]) else [f"untimed {untimed} != {told.rest['untimed']}"]
    return wrong
