"""Modules, system calls and paths come out of a rank file as they were written; damage is refused by place."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import numpy as np
import pytest

from rankscope import rank_file
from rankscope.model.records import BadFile
from rankscope.rank_file import CallsMethod, Cause, ChunkKind, ImportsMode, ModuleFlag, Operation
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.read import read_rank_file
from rankscope.store.columns import reading_tables
from rankscope.store.run import RunTables, open_run

SECOND = 1_000_000_000
OPENAT, READ, NEWFSTATAT, FUTEX = 257, 0, 262, 202


def writer() -> RankFileWriter:
    made = RankFileWriter(pid=7, host="node", started_realtime_ns=5 * SECOND, rank=0)
    made.set(loaded={"ticks": 100, "monotonic_ns": 100, "realtime_ns": 6 * SECOND})
    made.set(facts={"anchor": {"ticks": 200 + 10**9, "monotonic_ns": 200 + 10**9, "realtime_ns": 7 * SECOND}})
    made.set(imports_mode=ImportsMode.PATHS, calls_method=CallsMethod.DISPATCH, loader_calls=69)
    made.modules(
        {"name": "torch", "begin_ticks": 100, "wall_ticks": 900, "self_wall_ticks": 400, "cpu_ns": 800},
        {"name": "torch._C", "parent": 1, "begin_ticks": 300, "wall_ticks": 500, "shared_objects": 8, "thread": 2},
        {"name": "gone", "parent": 1, "flags": ModuleFlag.ENDED | ModuleFlag.FAILED},
        {"name": "killed.in", "begin_ticks": 150, "flags": 0},
    )
    made.system_call(1, Cause.SEARCH, NEWFSTATAT, "/lus", "lustre", calls=10, failed=4, missing=3, ticks=50)
    made.system_call(1, Cause.SEARCH, NEWFSTATAT, "/lus", "lustre", calls=5)  # of another thread
    made.system_call(2, Cause.LOADER, READ, "/", "ext4", calls=2, bytes=832)
    made.system_call(0, Cause.INTERPRETER, FUTEX, calls=1)
    made.path("/lus/env/torch/__init__.py", Operation.STAT, 1, times=2)
    made.path("/opt/lib/libtorch.so", Operation.OPEN, 2, Cause.LOADER, result=errno.ENOENT)
    made.path("/usr/lib/libc.so.6", Operation.OPEN, 2, Cause.LOADER, size_bytes=4711)
    return made


def opened(made: RankFileWriter, folder: Path) -> RunTables:
    made.write(folder / "ranks" / "node" / "7.rank")
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text('{"format": 1, "name": "run", "command": ["python"]}')
    return open_run(folder, read_rank_file)


def test_modules(tmp_path: Path) -> None:
    run = opened(writer(), tmp_path)
    rows = run.query(
        "SELECT module, parent, name, begin_ns, wall_ns, self_wall_ns, failed, shared_objects FROM modules"
    )
    assert rows[0] == (1, 0, "torch", SECOND, 900, 400, False, 0)
    assert rows[1] == (2, 1, "torch._C", SECOND + 200, 500, 0, False, 8)
    assert rows[2][2] == "gone" and rows[2][6]
    # an import that did not end lasted to the last sign of life
    assert rows[3][4] == 10**9 + 50
    assert run.query("SELECT count(*) FROM modules WHERE NOT ended") == [(1,)]


def test_system_calls(tmp_path: Path) -> None:
    run = opened(writer(), tmp_path)
    sums = "sum(calls), sum(failed), sum(missing), sum(total_ns), sum(bytes)"
    rows = run.query(f"SELECT module, cause, call, mount, {sums} FROM system_calls GROUP BY ALL ORDER BY module")
    assert rows == [
        (0, "interpreter", "futex", "", 1, 0, 0, 0, 0),
        (1, "search", "newfstatat", "/lus", 15, 4, 3, 50, 0),
        (2, "loader", "read", "/", 2, 0, 0, 0, 832),
    ]
    assert sorted(run.query("SELECT mount, fs_type FROM mounts")) == [("/", "ext4"), ("/lus", "lustre")]
    assert run.query("SELECT method, note, seen_share, loader_calls FROM calls_method") == [("dispatch", "", 1.0, 69)]


def test_paths(tmp_path: Path) -> None:
    run = opened(writer(), tmp_path)
    assert run.query("SELECT module, cause, operation, path, result, times, bytes FROM paths") == [
        (1, "search", "stat", "/lus/env/torch/__init__.py", "ok", 2, 0),
        (2, "loader", "open", "/opt/lib/libtorch.so", "ENOENT", 1, 0),
        (2, "loader", "open", "/usr/lib/libc.so.6", "ok", 1, 4711),
    ]


def test_losses_are_told(tmp_path: Path) -> None:
    made = writer()
    made.set(lost_modules=1, lost_system_calls=5, lost_paths=7, calls_note=made.string("no kernel for it"))
    run = opened(made, tmp_path)
    texts = " ".join(str(row[0]) for row in run.query("SELECT text FROM notes"))
    assert "1 imported modules" in texts and "5 system calls did not fit" in texts and "7 uses of paths" in texts
    assert "system calls: no kernel for it" in texts
    assert run.query("SELECT seen_share, lost_calls, lost_paths FROM calls_method") == [(None, 5, 7)]
    made.set(calls_note=0)
    share = opened(made, tmp_path / "seen").query("SELECT seen_share FROM calls_method")[0][0]
    assert share == pytest.approx(18 / 23)


def test_nothing_was_asked_for(tmp_path: Path) -> None:
    run = opened(RankFileWriter(pid=7, host="node"), tmp_path)
    for table in ("modules", "system_calls", "paths", "calls_method", "mounts"):
        assert run.query(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize("field, value", [("record_bytes", 4), ("record_bytes", 1 << 20), ("path_bytes", 1 << 30)])
def test_damaged_paths_are_refused(field: str, value: int, tmp_path: Path) -> None:
    raw = bytearray(writer().to_bytes())
    kinds = np.frombuffer(bytes(raw), np.uint32)[:: rank_file.PAGE // 4]
    place = int(np.flatnonzero(kinds == ChunkKind.PATHS)[-1]) * rank_file.PAGE + rank_file.CHUNK.itemsize
    offset = rank_file.PATH.fields[field][1]  # type: ignore[index]
    raw[place + offset : place + offset + 4] = value.to_bytes(4, "little")
    path = tmp_path / "7.rank"
    path.write_bytes(raw)
    with pytest.raises(BadFile, match=f"path at byte {place}"):
        read_rank_file(path)


def test_names_that_are_not_there_are_refused(tmp_path: Path) -> None:
    made = writer()
    made.modules({"name": "x"})
    made._tables[-1][1]["name"] = 9999
    with pytest.raises(BadFile, match="string id 9999"):
        read_rank_file(made.write(tmp_path / "7.rank"))


def test_any_damage_is_refused_or_read(tmp_path: Path) -> None:
    """Bytes changed at random in the chunks of imports: a table or a BadFile, nothing else."""
    raw, chance, refused = writer().to_bytes(), random.Random(6), 0
    path = tmp_path / "7.rank"
    for _ in range(100):
        damaged = bytearray(raw)
        for _ in range(chance.randrange(1, 60)):
            damaged[chance.randrange(rank_file.PAGE, len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            reading_tables(0, read_rank_file(path), events=True)
        except BadFile:
            refused += 1
    assert 0 < refused < 100
