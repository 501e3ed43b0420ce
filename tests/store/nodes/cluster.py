"""Nodes of a cluster on one machine: each has its own host name, and its own folder where the others see theirs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import rankscope

FOUND = f"{Path(rankscope.__file__).parents[1]}:{Path(__file__).parents[2]}"
ENTER = 'hostname "$1" && mount --bind "$2" "$3" && shift 3 && exec "$@"'
NAMESPACES = ("unshare", "--user", "--map-root-user", "--uts", "--mount")
HOSTS = ("node00000", "node00001", "elsewhere")  # where workers are
WITHOUT = "no user, host name and mount namespaces here: nodes cannot be made"


class Nodes:
    """Some nodes; what is in `local` is another folder on each of them."""

    def __init__(self, place: Path) -> None:
        self.place, self.local = place, place / "local"
        self.local.mkdir(parents=True)

    def folder(self, host: str) -> Path:
        """What that node sees in `local`."""
        made = self.place / "nodes" / host
        made.mkdir(parents=True, exist_ok=True)
        return made

    def command(self, host: str, *words: str) -> list[str]:
        """A command as it is given on that node; its process stays the one that is started."""
        return [*NAMESPACES, "sh", "-c", ENTER, "node", host, str(self.folder(host)), str(self.local), *words]

    def rankscope(self, host: str, *words: str) -> list[str]:
        return self.command(host, sys.executable, "-m", "rankscope", *words)

    def are_possible(self) -> bool:
        try:
            return subprocess.run(self.command("probe", "true"), capture_output=True).returncode == 0
        except OSError:
            return False


def environment(**more: object) -> dict[str, str]:
    """In which our own package is found, and what tests send to workers."""
    return {**os.environ, "PYTHONPATH": FOUND, **{name: str(value) for name, value in more.items()}}


class DaskNodes(Nodes):
    """A scheduler, and workers on nodes."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._started: list[subprocess.Popen[bytes]] = []
        self.address = self._scheduler()

    def _begin(self, command: list[str]) -> subprocess.Popen[bytes]:
        log = (self.place / f"dask-{len(self._started)}.log").open("wb")
        self._started.append(
            subprocess.Popen(command, stdout=log, stderr=log, env=environment(), start_new_session=True)
        )
        return self._started[-1]

    def _scheduler(self) -> str:
        told = self.place / "scheduler.json"
        words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(told))
        self._begin([sys.executable, "-m", "dask", "scheduler", *words])
        for _ in range(600):
            if told.exists() and told.read_text().endswith("}"):
                return str(json.loads(told.read_text())["address"])
            time.sleep(0.05)
        raise TimeoutError("no scheduler")

    def worker(self, host: str, nanny: bool = False) -> subprocess.Popen[bytes]:
        """One more worker on that node; with a nanny another takes its place when it is killed."""
        words = ("--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1", "--nanny" if nanny else "--no-nanny")
        return self._begin(self.command(host, sys.executable, "-m", "dask", "worker", self.address, *words))

    def end(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a nanny has a child
        process.wait()

    def stop(self) -> None:
        for process in self._started:
            self.end(process)

    def wait_for(self, client: Any, hosts: list[str]) -> None:
        """Until exactly these are there, one of the list for each worker."""
        from rankscope.store.executors import Cluster

        for _ in range(600):
            found = Cluster(client).workers()
            if sorted(host for host, workers in found.items() for _ in workers) == sorted(hosts):
                return
            time.sleep(0.05)
        raise TimeoutError(f"workers on {sorted(found)}, not on {hosts}")
