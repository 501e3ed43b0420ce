"""The study of collectives: real jobs by every backend that is here, wrong sums, and the figures of nccl-tests."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mpis import ROOT, Mpi
from rankscope.cli import main
from rankscope.studies import backends
from rankscope.studies.allreduce import OPERATIONS, STUDY, sizes
from rankscope.studies.collective_tables import MeasuredPoint, bus_factor
from rankscope.studies.errors import BadStudy
from scripts import level_zero_random as level_zero
from studies.real_cells import ENVIRONMENTS, python_of, rows, run_cells, tables_of

WORKLOADS = ROOT / "src" / "rankscope" / "studies" / "workloads"
BROKEN = ROOT / "tests" / "programs" / "broken_allreduce.py"
SETTINGS = {"sizes": "4,4k,64k", "iterations": "4"}
CALLS = 1 + 1 + 4  # first, warm-up, timed


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The workload's own module of what is given and expected."""
    monkeypatch.syspath_prepend(str(WORKLOADS))
    import exchanges as found

    return found


def test_sizes() -> None:
    assert sizes("4..256M")[0::13] == [4, 256 << 20]
    assert len(sizes("4..256M")) == 14
    assert sizes("1k,4, 64KiB,4") == [4, 1024, 65536]
    for wrong in ("", "0", "4M..4", "many", "4,,8"):
        with pytest.raises(BadStudy):
            sizes(wrong)


# Printed by nccl-tests: operation, ranks, bytes, microseconds, algorithm and bus bandwidth in GB/s.
@pytest.mark.parametrize(
    ("operation", "ranks", "size_bytes", "time_us", "algorithm", "bus"),
    [
        ("allreduce", 8, 1_048_576, 27.76, 37.78, 66.11),
        ("allreduce", 8, 4_194_304, 53.24, 78.78, 137.87),
        ("allreduce", 256, 33_554_432, 1464.2, 22.92, 45.65),
        ("allreduce", 256, 536_870_912, 16129, 33.29, 66.31),
        ("reduce", 2, 262_144, 29.13, 9.00, 9.00),
    ],
)
def test_figures_of_nccl_tests(
    operation: str, ranks: int, size_bytes: int, time_us: float, algorithm: float, bus: float
) -> None:
    ns = time_us * 1e3
    point = MeasuredPoint(operation, "nccl", ranks, size_bytes, size_bytes, 20, ns, ns, ns, ns, ns)
    assert point.algorithm_rate == pytest.approx(algorithm * 1e9, rel=1e-3)
    assert point.bus_rate == pytest.approx(bus * 1e9, rel=1e-3)


def test_factors_of_nccl_tests() -> None:
    told = {operation: bus_factor(operation, 8) for operation in OPERATIONS}
    parted = dict.fromkeys(("allgather", "reduce_scatter", "alltoall", "gather", "scatter"), 7 / 8)
    assert told == {"allreduce": 14 / 8, "broadcast": 1, "reduce": 1, "barrier": 1, **parted}


def test_one_rank_has_no_bus() -> None:
    point = MeasuredPoint("allreduce", "gloo", 1, 4, 4, 1, 5, 5, 5, 5, 5)
    assert (point.algorithm_rate, point.bus_rate) == (0.8e9, None)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("size_bytes", [4, 100, 4096])
def test_what_is_expected_is_what_the_operation_means(exchanges: ModuleType, world: int, size_bytes: int) -> None:
    """Held against each operation written out in plain Python."""

    def values(pieces: list[object]) -> list[float]:
        return [
            float((piece.start + at) % 7 * piece.times + piece.plus)  # type: ignore[attr-defined]
            for piece in pieces
            for at in range(piece.count)  # type: ignore[attr-defined]
        ]

    for operation in OPERATIONS:
        shapes = [exchanges.Shape(operation, rank, world, size_bytes) for rank in range(world)]
        given = [values(shape.given()) for shape in shapes]
        for rank, shape in enumerate(shapes):
            expected = values(shape.expected())
            assert expected == carried_out(operation, given, rank, shape.part), (operation, rank)
            assert [value for piece in shape.expected() for value in piece.values()][:1] == expected[:1]


def carried_out(operation: str, given: list[list[float]], rank: int, part: int) -> list[float]:
    world = len(given)
    mine = slice(rank * part, (rank + 1) * part)
    summed = [sum(column) for column in zip(*given, strict=True)] if "reduce" in operation else []
    if operation in ("reduce", "gather") and rank:
        return []
    return {
        "allreduce": summed,
        "reduce": summed,
        "reduce_scatter": summed[mine],
        "broadcast": given[0],
        "allgather": [value for one in given for value in one],
        "gather": [value for one in given for value in one],
        "scatter": given[0][mine],
        "alltoall": [value for other in range(world) for value in given[other][mine]],
        "barrier": [],
    }[operation]


def test_the_workload_has_the_same_operations(exchanges: ModuleType) -> None:
    assert exchanges.OPERATIONS == OPERATIONS


@pytest.mark.parametrize("name", ["openmpi", "mpich"])
def test_mpi4py(name: str, tmp_path: Path) -> None:
    outcomes = run_cells("allreduce", tmp_path, [1, 2], [python_of(name)], backends="mpi4py", **SETTINGS)
    assert [(one.state, one.reason) for one in outcomes] == [("done", "")] * 2
    called = outcomes[1].run.query("SELECT sum(calls) FROM tallies WHERE name LIKE 'MPI_Allreduce%'").rows
    assert called == [(2 * 3 * CALLS,)]
    tables = tables_of("allreduce", outcomes, backends="mpi4py", **SETTINGS)
    assert [row[:2] for row in tables["latency_ns"].rows] == [(n, size) for n in (1, 2) for size in (4, 4096, 65536)]
    full = rows(tables["sizes"])
    assert [row["calls"] for row in full] == [4] * 6
    for row in full:
        assert 0 < float(str(row["min_ns"])) <= float(str(row["median_ns"])) <= float(str(row["max_ns"]))
    host = rows(tables["host"])
    assert [row["ranks"] for row in host] == [1, 2]
    assert all(int(str(row["mpi4py_host_calls"])) >= int(str(row["ranks"])) * 3 * CALLS for row in host)
    assert rows(tables["sent"])[1]["mpi4py_sent_bytes"] == 2 * CALLS * (4 + 4096 + 65536)
    assert tables["device"].rows == [] and tables["device"].notes[0].startswith("Absent")
    assert tables["copied"].rows == [] and tables["copied"].notes[0].startswith("Absent")
    counted = rows(tables["counts"])
    assert [(one["part"], one["hostnames"], one["processes"]) for one in counted] == [
        ("BACKEND_MPI", 1, 1),
        ("BACKEND_MPI", 1, 2),
    ]
    split = rows(tables["waits_by_size"])
    assert [(row["up_to_bytes"], row["collectives"]) for row in split] == [(n, CALLS) for n in (4, 4096, 65536)]
    assert tables["waits"].warnings == []


@pytest.mark.parametrize("backend", ["gloo", "horovod", "horovod_gloo", "oneccl"])
def test_other_backends(backend: str, tmp_path: Path) -> None:
    pythons = [python_of(ENVIRONMENTS[backend])]
    outcomes = run_cells("allreduce", tmp_path, [2], pythons, backends=backend, **SETTINGS)
    assert [(one.state, one.reason) for one in outcomes] == [("done", "")]
    tables = tables_of("allreduce", outcomes, backends=backend, **SETTINGS)
    assert [row[:2] for row in tables["latency_ns"].rows] == [(2, size) for size in (4, 4096, 65536)]
    split: Counter[Any] = Counter()
    for row in rows(tables["waits_by_size"]):  # a rank that lost its CPU between call and wait has a row of its own
        split[row["up_to_bytes"]] += int(str(row["collectives"]))
    assert rows(tables["sent"])[0][f"{backend}_sent_bytes"] == 2 * CALLS * (4 + 4096 + 65536)
    assert int(str(rows(tables["host"])[0][f"{backend}_host_calls"])) >= 2 * 3 * CALLS
    assert tables["host"].warnings == [] and tables["waits"].warnings == []
    if backend == "horovod":  # beside its data, what the ranks agree on beforehand
        assert {n: split[n] for n in (4096, 65536)} == {4096: CALLS, 65536: CALLS}
    else:
        assert split == dict.fromkeys((4, 4096, 65536), CALLS)
    parts = {
        "gloo": ["BACKEND_GLOO"],
        "horovod": ["BACKEND_MPI", "BACKEND_HOROVOD"],
        "horovod_gloo": ["BACKEND_GLOO", "BACKEND_HOROVOD"],
        "oneccl": ["BACKEND_ONECCL"],
    }
    counted = rows(tables["counts"])
    assert [(one["part"], one["processes"]) for one in counted] == [(part, 2) for part in parts[backend]]


def test_horovods_thread_is_seen(tmp_path: Path) -> None:
    """What it negotiates and carries out, which is no call of the program's."""
    (outcome,) = run_cells("allreduce", tmp_path, [2], [python_of("horovod")], backends="horovod", **SETTINGS)
    assert (outcome.state, outcome.reason) == ("done", "")
    sql = """SELECT name, sum(calls)::BIGINT FROM tallies WHERE layer = 'horovod' AND kind = 'progress' GROUP BY 1"""
    seen = dict(outcome.run.query(sql).rows)
    assert seen["horovod:allreduce"] == seen["execution: MPIAllreduce"] == 2 * 3 * CALLS
    assert seen["negotiation: MPIController::CrossRankBitwiseAnd"] > 0
    assert seen["negotiation: MPIController::RecvReadyTensors"] > 0


def test_oneccl_by_mpi_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks MPI's functions up by name; told to leave its collectives to MPI, each of them is one call."""
    monkeypatch.setenv("CCL_ALLREDUCE", "direct")
    python = python_of("oneccl")
    (outcome,) = run_cells("allreduce", tmp_path, [2], [python], backends="oneccl_mpi", **SETTINGS)
    assert (outcome.state, outcome.reason) == ("done", "")
    called = outcome.run.query(
        "SELECT sum(calls) FROM tallies WHERE name = 'MPI_Iallreduce' AND large_count AND kind = 'call'"
    ).rows
    assert called == [(2 * 3 * CALLS,)]
    split = rows(tables_of("allreduce", [outcome], **SETTINGS)["waits_by_size"])
    assert {row["name"] for row in split} == {"ccl::allreduce"}  # MPI's are inside
    assert sum(int(str(row["collectives"])) for row in split) == 3 * CALLS


def test_buffers_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts of host, device and memory, on the scripted driver of Level Zero: three copies of each call."""
    if level_zero.installed() is None:
        pytest.skip("no Level Zero loader and headers: make env-levelzero")
    for name, value in level_zero.Scripted(tmp_path).variables().items():
        monkeypatch.setenv(name, value)
    chosen = {"backends": "mpi4py", "device": "ze", **SETTINGS}
    (outcome,) = run_cells("allreduce", tmp_path / "study", [2], [python_of("openmpi")], **chosen)
    assert (outcome.state, outcome.reason) == ("done", "")
    tables = tables_of("allreduce", [outcome], **chosen)
    parts = [row["part"] for row in rows(tables["counts"])]
    assert parts == ["BACKEND_MPI", "BACKEND_ZE", "Device profiling"]
    assert [row["threads"] for row in rows(tables["counts"])] == [2, 2, None]
    (device,), (copied,) = rows(tables["device"]), rows(tables["copied"])
    assert device["mpi4py_device_calls"] == copied["mpi4py_copied_calls"] == 2 * 3 * CALLS * 3
    assert float(str(device["mpi4py_device_ns"])) > 0
    assert copied["mpi4py_copied_bytes"] == 2 * CALLS * 3 * (4 + 4096 + 65536)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_document_000_with_a_device_and_every_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real libraries, a device of the scripted driver: host, device and memory of each, and no empty cell."""
    if level_zero.installed() is None:
        pytest.skip("no Level Zero loader and headers: make env-levelzero")
    names = ("mpi4py", "gloo", "horovod", "horovod_gloo", "oneccl", "oneccl_mpi")
    pythons = [python_of(environment) for environment in ("openmpi", "torch", "horovod", "oneccl")]
    for name, value in level_zero.Scripted(tmp_path).variables().items():
        monkeypatch.setenv(name, value)
    chosen = {"backends": ",".join(names), "device": "ze", **SETTINGS}
    outcomes = run_cells("allreduce", tmp_path / "study", [2], pythons, **chosen)
    assert [(one.cell["backend"], one.state, one.reason) for one in outcomes] == [(name, "done", "") for name in names]
    tables = tables_of("allreduce", outcomes, **chosen)
    for part in ("host", "device", "copied", "sent"):
        (row,) = tables[part].rows
        assert len(row) == 1 + 3 * len(names) and None not in row and 0 not in row, part
    for part in ("device", "copied"):  # each program makes the same copies, and waits for them
        (row,) = tables[part].rows
        assert len(set(row[2::3])) == 1 and len(set(row[3::3])) == 1, row
    for row in rows(tables["counts"]):
        is_device = row["part"] == "Device profiling"
        empty = {name for name, value in row.items() if value is None}
        assert empty == ({"threads"} if is_device else {"devices"}), row


@pytest.mark.slow
def test_every_operation_by_mpi4py(openmpi: Mpi, tmp_path: Path) -> None:
    """On three ranks, so that parts do not fit by luck."""
    for operation in OPERATIONS:
        every_size = ("--op", operation, "--sizes", "4,1000,65536", "--iterations", "3")
        program = (WORKLOADS / "allreduce.py", "--backend", "mpi4py", "--into", tmp_path / operation)
        told = openmpi.run(3, openmpi.python, *program, *every_size)
        assert told.returncode == 0, (operation, told.stderr)
        left = sorted((tmp_path / operation / "results").glob("*.json"))
        assert len(left) == 3
        assert all('"wrong": ""}' in path.read_text() for path in left), operation


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "horovod", "horovod_gloo", "oneccl"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_by_the_others(backend: str, operation: str, tmp_path: Path) -> None:
    lacking = ("reduce", "gather", "scatter") if "horovod" in backend else ("gather", "scatter") * (backend == "oneccl")
    chosen = {"backends": backend, "op": operation, **SETTINGS}
    (outcome,) = run_cells("allreduce", tmp_path, [3], [python_of(ENVIRONMENTS[backend])], **chosen)
    if operation in lacking:
        assert outcome.state == "failed" and f"has no {operation}" in outcome.reason
    else:
        assert (outcome.state, outcome.reason) == ("done", "")


@pytest.mark.parametrize("how", ["sum of one rank missing", "does nothing", "one value of one rank"])
def test_a_wrong_sum_makes_the_cell_failed(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "path_of", lambda workload: str(BROKEN))
    monkeypatch.setenv("BROKEN_HOW", how)
    (outcome,) = run_cells("allreduce", tmp_path, [2], [python_of("openmpi")], backends="mpi4py", **SETTINGS)
    assert outcome.state == "failed"
    assert outcome.reason.startswith("wrong result: allreduce of ")
    assert " is " in outcome.reason and ", not " in outcome.reason


def test_what_cannot_be_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for wrong in (["--op", "fold"], ["--sizes", "4M..4"], ["--iterations", "0"], ["--backends", "telepathy"]):
        assert main(["study", "allreduce", "--dry-run", "--backends", "mpi4py", *wrong]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"rankscope study: {wrong[0]}") and told.count("\n") == 1


def test_backends_that_are_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "allreduce", "--dry-run", "--scale", "2", "--python", python_of("openmpi")]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["mpi4py, 2 ranks, repeat 1"]
    assert main(["study", "allreduce", "--dry-run", "--backends", "horovod", "--python", python_of("openmpi")]) == 0
    assert "make env-horovod" in capsys.readouterr().out


def test_the_workload_needs_no_rankscope(tmp_path: Path) -> None:
    """One rank by itself, in a Python that has numpy and no MPI: there it says so in one line."""
    command = [sys.executable, "-S", str(WORKLOADS / "allreduce.py"), "--backend", "telepathy", "--into", str(tmp_path)]
    told = subprocess.run([*command, "--sizes", "4"], capture_output=True, text=True, check=False)
    assert told.returncode == 1 and told.stderr == "telepathy: no such backend\n"


def test_the_study_says_what_it_is() -> None:
    assert STUDY.name == "allreduce" and STUDY.scales == (1, 2, 4, 8)
