"""nsys exports become events: sums against SQL of the test's own, and old and odd schemas by hand."""

from __future__ import annotations

import gzip
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from formats.test_kineto import notes, rows
from rankscope.formats import nsys
from rankscope.formats.registry import recognised
from rankscope.formats.source import Hints, Source
from rankscope.model.records import BadFile, Reading, Severity

SAMPLE = Path(__file__).parents[2].parent / "shared/samples/nsys/h100_2gpu_1s.sqlite"
PID, OTHER = 111 << 24, 112 << 24
STRINGS = {1: "void gemm<float>(int)", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "MPI_Allreduce", 5: "poll", 6: "step"}
SCHEMA = """
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
    CREATE TABLE MPI_RANKS (globalPid INTEGER, rank INTEGER);
    CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL
        (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, shortName INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY
        (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
        (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
    CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,
        globalTid INTEGER, domainId INTEGER, jsonText TEXT);
    CREATE TABLE MPI_COLLECTIVES_EVENTS
        (start INTEGER, end INTEGER, globalTid INTEGER, textId INTEGER,
        commHandle INTEGER, rootRank INTEGER, size INTEGER);
    CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER);"""
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "StringIds": list(STRINGS.items()),
    "TARGET_INFO_SESSION_START_TIME": [(1_000_000,)],
    "PROCESSES": [(PID, 111, "python"), (OTHER, 112, "python")],
    "MPI_RANKS": [(PID, 4), (OTHER, 5)],
    "TARGET_INFO_GPU": [(0, "H100"), (1, "H100")],
    "CUPTI_ACTIVITY_KIND_KERNEL": [(10, 30, 0, 7, 9, PID, 2), (11, 29, 1, 7, 9, OTHER, 2), (40, 35, 0, 7, 10, PID, 2)],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [(50, 60, 0, 8, PID, 4096, 1), (61, 62, 0, 8, PID, 1, 99)],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [(5, 9, PID + 3, 9, 3)],
    "NVTX_EVENTS": [
        (0, None, 75, "NCCL", None, PID + 3, 2, None),
        (1, 8, 59, "aten::add, seq = 5, op_id = 7", None, PID + 3, 0, None),
        (2, 4, 59, "ncclAllReduce", None, PID + 3, 2, '{"Message size [bytes]": 640}'),
        (3, 6, 60, None, 6, PID + 3, 0, None),
    ],
    "MPI_COLLECTIVES_EVENTS": [(70, 80, PID + 3, 4, 1140850688, 0, 800)],
    "OSRT_API": [(90, 95, PID + 4, 5)],
}


@pytest.fixture
def old_export(tmp_path: Path) -> Path:
    return made(tmp_path / "old.sqlite", SCHEMA, ROWS)


def made(path: Path, schema: str, content: dict[str, list[tuple[Any, ...]]]) -> Path:
    with closing(sqlite3.connect(path)) as database:
        database.executescript(schema)
        for table, listed in content.items():
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(listed[0]))})", listed)
        database.commit()
    return path


def by_process(path: Path, **hints: Any) -> list[list[Reading]]:
    processes: list[list[Reading]] = []
    for reading in nsys.read(Source(path, Hints(**hints))):
        if reading.continues:
            processes[-1].append(reading)
        else:
            processes.append([reading])
    return processes


def test_an_old_export_of_an_mpi_job(old_export: Path) -> None:
    first, second = by_process(old_export)
    found = rows(first, "layer", "name", "group", "start_ns", "end_ns", "bytes", "correlation", "thread")
    assert [(row[0], row[1], row[2], row[3] - 1_000_000, row[4] - 1_000_000, *row[5:]) for row in found] == [
        ("gpu", "gemm", "0/7", 10, 30, None, 9, 0),
        ("gpu", "[CUDA memcpy Host-to-Device]", "0/8", 50, 60, 4096, None, 0),
        ("gpu", "[CUDA memcpy]", "0/8", 61, 62, 1, None, 0),
        ("cuda_api", "cudaLaunchKernel", "", 5, 9, None, 9, 3),
        ("nvtx", "aten::add", "", 1, 8, None, None, 3),
        ("nccl", "ncclAllReduce", "NCCL", 2, 4, 640, None, 3),
        ("nvtx", "step", "", 3, 6, None, None, 3),
        ("mpi", "MPI_Allreduce", "1140850688", 70, 80, 800, None, 3),
        ("os", "poll", "", 90, 95, None, None, 4),
    ]
    assert rows(second, "layer", "name", "group") == [("gpu", "gemm", "1/7")]
    facts = [readings[0].facts for readings in (first, second)]
    assert [(one.pid, one.rank, one.rank_source, one.devices) for one in facts] == [
        (111, 4, "MPI_RANKS", "2 × H100"),
        (112, 5, "MPI_RANKS", "2 × H100"),
    ]
    told = "CUPTI_ACTIVITY_KIND_KERNEL: 1 events left out: they end before they start, or have no times"
    assert (notes(first), notes(second)) == ([(Severity.WARNING, told)], [])


def test_kernels_without_a_process_are_one_process(tmp_path: Path) -> None:
    schema = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER)"
    path = made(tmp_path / "x.sqlite", schema, {"CUPTI_ACTIVITY_KIND_KERNEL": [(1, 2, 0, 7)]})
    [readings] = by_process(path, rank=3)
    assert rows(readings, "layer", "group", "start_ns") == [("gpu", "0/7", 1)]
    assert (readings[0].facts.rank, readings[0].facts.pid) == (3, None)
    assert "times are not Unix times" in notes(readings)[0][1]


@pytest.mark.skipif(not SAMPLE.exists(), reason=f"no sample at {SAMPLE}")
def test_the_sample_against_sql() -> None:
    source = Source(SAMPLE)
    known = recognised(source)
    assert known is not None and known.name == "nsys"
    tables = {"gpu": ["KERNEL", "MEMCPY", "MEMSET"], "gpu_sync": ["SYNCHRONIZATION"], "cuda_api": ["RUNTIME"]}
    named = [(layer, f"CUPTI_ACTIVITY_KIND_{one}") for layer, ones in tables.items() for one in ones]
    expected: Counter[tuple[int, str, str]] = Counter()
    with closing(sqlite3.connect(f"file:{SAMPLE}?mode=ro", uri=True)) as database:
        for layer, table in [*named, ("nvtx", "NVTX_EVENTS")]:
            whose = "globalTid" if layer in ("cuda_api", "nvtx") else "globalPid"
            sql = f"SELECT {whose} >> 24 & 0xffffff, count(*), sum(end - start), sum(start) FROM {table} GROUP BY 1"
            for pid, count, total, starts in database.execute(sql):
                base = count * (1_779_630_014_975_716_426 - 35_255_823_190)
                expected += Counter(
                    {(pid, layer, "n"): count, (pid, layer, "ns"): total, (pid, layer, "at"): starts + base}
                )
        [(copied,)] = database.execute("SELECT sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY")
        [(set_,)] = database.execute("SELECT sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMSET")
    found: Counter[tuple[int, str, str]] = Counter()
    moved = 0
    for readings in by_process(SAMPLE):
        pid = readings[0].facts.pid or 0
        for layer, start, end, size in rows(readings, "layer", "start_ns", "end_ns", "bytes"):
            found += Counter({(pid, layer, "n"): 1, (pid, layer, "ns"): end - start, (pid, layer, "at"): start})
            moved += size or 0
        assert notes(readings) == []
    assert found == expected
    assert moved == copied + set_


def test_a_compressed_export_says_what_to_do(tmp_path: Path, old_export: Path) -> None:
    packed = tmp_path / "x.sqlite.gz"
    packed.write_bytes(gzip.compress(old_export.read_bytes()))
    with pytest.raises(BadFile, match=r"x\.sqlite\.gz: is compressed: decompress it first"):
        list(nsys.read(Source(packed)))


def test_damage_is_a_bad_file(tmp_path: Path, old_export: Path) -> None:
    content = old_export.read_bytes()
    for name, bad in (("cut", content[: len(content) // 2]), ("text", b"hello"), ("zero", content[:100] + bytes(5000))):
        path = tmp_path / name
        path.write_bytes(bad)
        with pytest.raises(BadFile, match=f"{name}: "):
            list(nsys.read(Source(path)))


def test_a_view_in_the_place_of_a_table_is_not_asked(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start, x AS end FROM n"
    path = made(tmp_path / "x.sqlite", f"CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS {endless}", {})
    with pytest.raises(BadFile, match="has no kernels"):
        list(nsys.read(Source(path)))


def test_the_file_is_not_changed_and_nothing_is_left_beside_it(old_export: Path) -> None:
    before = old_export.read_bytes()
    by_process(old_export)
    assert old_export.read_bytes() == before
    assert [path.name for path in old_export.parent.iterdir()] == ["old.sqlite"]


def test_another_database_is_not_taken_for_nsys(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite", "CREATE TABLE people (name TEXT)", {})
    assert not nsys.sniff(Source(path).head())


def test_what_sums_need_of_copies_ranges_memory_and_communicators(tmp_path: Path) -> None:
    schema = (
        SCHEMA.replace("copyKind INTEGER);", "copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);")
        + """
        CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER, name TEXT, label TEXT);
        CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start INTEGER, globalPid INTEGER, deviceId INTEGER, bytes INTEGER,
            memKind INTEGER, memoryOperationType INTEGER);"""
    )
    content = ROWS | {
        "CUPTI_ACTIVITY_KIND_MEMCPY": [(50, 60, 0, 8, PID, 4096, 1, 0, 2), (61, 62, 0, 8, PID, 1, 1, 1, 2)],
        "ENUM_CUDA_MEM_KIND": [(0, "", "Pageable"), (1, "", "Pinned"), (2, "", "Device")],
        "CUDA_GPU_MEMORY_USAGE_EVENTS": [
            (3, PID, 0, 700, 2, 1),  # of before the report
            (1, PID, 0, 500, 2, 0),
            (2, PID, 0, 200, 2, 0),
            (4, PID, 0, 999, 1, 0),  # pinned on the host
        ],
    }
    first, _ = by_process(made(tmp_path / "x.sqlite", schema, content))
    hinted = [one.event_columns["pageable"].tolist() for one in first if "pageable" in one.event_columns]
    assert hinted == [[True, False]]
    [ranged] = [one.event_columns for one in first if "user_range" in one.event_columns]
    assert ranged["user_range"].tolist() == [False, True, True]  # an operator, NCCL's and the program's
    [device] = [one for reading in first for one in reading.devices]
    assert (device.allocations, device.allocated_bytes, device.peak_bytes, device.current_bytes) == (2, 700, 700, 0)
    [group] = first[0].groups
    assert (group.name, group.identity, group.size) == ("1140850688", "MPI_COMM_WORLD, by order", 2)
