"""Runs whose imports are known to the last call, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from rankscope.store.folder import Job
from rankscope.store.run import RunContents, _arrow_tables

MS = 1_000_000


class HandFilled:
    """The tables of a run, each row written down by hand."""

    def __init__(self) -> None:
        self.database = duckdb.connect(":memory:")
        tables = _arrow_tables(RunContents(Path("run"), Job(cwd="/home/me")))
        for name, table in tables.items():
            self.database.register("given", table)
            self.database.execute(f"CREATE TABLE {name} AS SELECT * FROM given")

    def query(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.database.execute(sql, list(parameters)).fetchall()

    def columns(self, sql: str, parameters: Sequence[Any] = ()) -> Mapping[str, Any]:
        raise NotImplementedError

    def add(self, table: str, **values: Any) -> None:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        self.database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))

    def process(self, process: int = 0, command: str = "python3 -c 'import app'", **more: Any) -> None:
        standard = {
            "rank": 0 if process == 0 else None,
            "role": "rank" if process == 0 else "helper",
            "tool": "",
            "host": "node0",
            "pid": 100 + process,
            "parent_pid": 1 if process == 0 else 100,
            "started_ns": 0,
            "elapsed_ns": 1000 * MS,
            "user_ns": 600 * MS,
            "system_ns": 200 * MS,
        }
        self.add("ranks", process=process, command=command, **{**standard, **more})

    def module(self, module: int, parent: int, name: str, wall: int, self_wall: int, **more: Any) -> None:
        """A module with times in ms; its CPU time is its wall time unless told otherwise."""
        times = {
            "wall_ns": wall * MS,
            "self_wall_ns": self_wall * MS,
            "cpu_ns": wall * MS,
            "self_cpu_ns": self_wall * MS,
        }
        rest = {"process": 0, "thread": 0, "begin_ns": 0, "failed": False, "shared_objects": 0, "ended": True}
        self.add("modules", module=module, parent=parent, name=name, **{**rest, **times, **more})

    def calls(self, module: int, cause: str, call: str, calls: int, **more: Any) -> None:
        rest = {"process": 0, "mount": "/", "failed": 0, "missing": 0, "total_ns": calls * 1000, "bytes": 0}
        self.add("system_calls", module=module, cause=cause, call=call, calls=calls, **{**rest, **more})

    def path(self, module: int, cause: str, operation: str, path: str, times: int = 1, **more: Any) -> None:
        rest = {"process": 0, "result": "ok", "bytes": 0}
        self.add("paths", module=module, cause=cause, operation=operation, path=path, times=times, **{**rest, **more})

    def method(self, process: int, method: str, **more: Any) -> None:
        rest = {"note": "", "seen_share": None, "lost_calls": 0, "lost_paths": 0, "lost_modules": 0, "loader_calls": 0}
        self.add("calls_method", process=process, method=method, **{**rest, **more})


def small_run() -> HandFilled:
    """`app` imports `fast` and `slow`, which imports `deep` and starts ldconfig; an import of `gone` fails."""
    made = HandFilled()
    made.process()
    made.process(1, "/sbin/ldconfig -p", started_ns=350 * MS, elapsed_ns=40 * MS, user_ns=10 * MS, system_ns=10 * MS)
    made.module(1, 0, "app", 900, 100, begin_ns=50 * MS)
    made.module(2, 1, "fast", 5, 5, begin_ns=100 * MS)
    made.module(3, 1, "slow", 795, 495, begin_ns=150 * MS, shared_objects=2)
    made.module(4, 3, "deep", 300, 300, begin_ns=600 * MS)
    made.module(5, 1, "gone", 0, 0, begin_ns=950 * MS, failed=True)
    made.calls(0, "interpreter", "openat", 10, failed=4, missing=4)
    made.calls(0, "interpreter", "mmap", 20, mount="")
    made.calls(1, "search", "newfstatat", 30, failed=5, missing=5)
    made.calls(1, "code", "read", 6, bytes=6000)
    made.calls(2, "search", "stat", 4)
    made.calls(3, "loader", "openat", 100, failed=90, missing=90)
    made.calls(3, "module", "vfork", 1, mount="")
    made.calls(3, "module", "lstat", 200, mount="/soft")
    made.calls(4, "code", "pread64", 8, bytes=8000, mount="/soft")
    made.calls(5, "search", "newfstatat", 3, failed=3, missing=2)
    made.calls(0, "interpreter", "openat", 12, process=1, failed=2, missing=2)
    made.method(0, "dispatch", seen_share=0.997)
    made.method(1, "preload", note="prctl is not allowed", seen_share=0.82)
    made.add("mounts", process=0, mount="/", fs_type="ext4")
    made.add("mounts", process=0, mount="/soft", fs_type="lustre")
    made.add("mounts", process=1, mount="/", fs_type="ext4")
    return made
