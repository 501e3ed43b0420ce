"""Where a study ran: what another reader needs to know before comparing its figures with his own."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from rankscope import __version__
from rankscope.studies.interpreters import Python, Pythons
from rankscope.studies.programs import version_of

VARIABLES = re.compile(
    r"(NCCL|RCCL|CCL|FI|UCX|UCC|OMPI|PMIX|PRTE|MPICH|I_MPI|MPIR|HYDRA|GLOO|TORCH|HOROVOD|OMP|MKL|OPENBLAS|CUDA|HIP|ZE|SLURM|PBS|PALS|KMP|GOMP)_"
)
VERSION = re.compile(r"^.*\b\d+\.\d+.*$", re.MULTILINE)  # the first line that has one: not all begin with it
SECRET = re.compile(r"TOKEN|SECRET|PASSW|KEY|JWT|CREDENTIAL|AUTH", re.IGNORECASE)
ACCOUNT = re.compile(r"//[^/@\s]+@")  # name and password in an address


def environment(pythons: Pythons) -> dict[str, Any]:
    """Versions, topology, networks, variables and CPU binding, as far as they can be had without asking anybody."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "date": now.isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "rankscope": __version__,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1,
        "networks": networks(),
        "devices": devices(),
        "pythons": [described(python) for python in pythons.all],
        "launchers": launchers(pythons),
        "variables": {
            name: "…" if SECRET.search(name) else ACCOUNT.sub("//…@", value)
            for name, value in sorted(os.environ.items())
            if VARIABLES.match(name)
        },
        "load": os.getloadavg()[0],
    }


def described(python: Python) -> dict[str, str]:
    packages = ", ".join(f"{name} {version}".strip() for name, version in python.modules.items())
    return {"path": python.path, "version": python.version, "packages": packages}


def joined(before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """Of a study that was started several times: what is now, with what was otherwise before beside it."""
    if not before:
        return now
    merged = dict(now)
    for name in ("host", "cpu", "rankscope"):
        if before.get(name) not in (None, now[name]):
            merged[name] = f"{before[name]}; later {now[name]}"
    merged["date"] = f"{str(before.get('date')).partition(' ')[0]} to {now['date']}"
    merged["pythons"] = [
        *before.get("pythons", []),
        *(python for python in now["pythons"] if python not in before.get("pythons", [])),
    ]
    return merged


def cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor()
    match = re.search(r"^(?:model name|Model|cpu)\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.processor()


def networks() -> dict[str, str]:
    """Name to what the kernel knows of its speed; InfiniBand and the like beside Ethernet."""
    speeds = {}
    for place in sorted(Path("/sys/class/net").glob("*")):
        speeds[place.name] = (
            f"{speed} Mbit/s" if (speed := line_of(place / "speed")) not in ("", "-1") else line_of(place / "operstate")
        )
    for place in sorted(Path("/sys/class/infiniband").glob("*/ports/*/rate")):
        speeds[place.parts[-4]] = line_of(place)
    return speeds


def line_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # a virtual interface has no speed to tell
        return ""


def devices() -> list[str]:
    if not shutil.which("nvidia-smi"):
        return []
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.splitlines()


def launchers(pythons: Pythons) -> list[str]:
    """What each says of its version."""
    paths = dict.fromkeys(
        [python.mpirun for python in pythons.all if python.mpirun] + [p for p in ("srun",) if shutil.which(p)]
    )
    versions = {path: VERSION.search(version_of(path)) for path in paths}
    return [f"{path}: {' '.join(match[0].split())}" for path, match in versions.items() if match]
