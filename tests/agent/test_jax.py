"""JAX, recorded: a twin of it wherever there is a C++ compiler, and the real one where `make env-jax` has made it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import rankscope as rs
from mpis import ROOT

PROGRAMS = ROOT / "tests" / "programs"
TWIN = PROGRAMS / "xla_twin"
JAX = Path(os.environ.get("RANKSCOPE_JAX_PYTHON", ROOT / ".envs" / "jax" / "bin" / "python"))
CACHE = tempfile.TemporaryDirectory(prefix="rankscope-jax-")  # what is kept of a library is another test's affair
STEPS = 24
OPERATIONS = ("all_reduce", "broadcast", "reduce_scatter", "all_gather", "collective_permute", "all_to_all")

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="XLA's methods are replaced on x86-64 only")
with_jax = pytest.mark.skipif(not JAX.exists(), reason=".envs/jax is missing: make env-jax")


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_") and key != "PYTHONPATH"}
    return {**kept, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", "RANKSCOPE_CACHE": CACHE.name, **more}


def side_by_side(commands: Sequence[Sequence[str]]) -> list[str]:
    """One command that starts all of them and fails if one does."""
    script = "import subprocess, sys\n"
    script += f"running = [subprocess.Popen(words) for words in {[list(map(str, words)) for words in commands]!r}]\n"
    script += "sys.exit(max(abs(one.wait()) for one in running))"
    return [sys.executable, "-c", script]


def run(command: Sequence[Any], **variables: str) -> subprocess.CompletedProcess[str]:
    words = list(map(str, command))
    done = subprocess.run(words, env=environment(**variables), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


# ---------------------------------------------------------------- the twin
@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, with its symbol table and nothing of XLA exported."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    made = tmp_path_factory.mktemp("twin") / "libjax_common.so"
    source = TWIN / "libjax_common.cpp"
    flags = ["-std=c++17", "-O1", "-shared", "-Wl,--build-id", "-fPIC", "-fvisibility=hidden", "-fno-devirtualize"]
    subprocess.run([compiler, *flags, "-o", made, source], check=True)
    return made


@pytest.fixture(scope="module")
def twins(twin: Path, rankscope: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[rs.Run, str, str]:
    """Two processes of it: the run, its output, and that of the same without the recorder."""
    folder = tmp_path_factory.mktemp("twins") / "run"
    start = side_by_side([[sys.executable, str(TWIN / "training.py"), str(at), "2", str(STEPS)] for at in range(2)])
    variables = {"XLA_TWIN": str(twin)}
    recorded = run([rankscope, "run", "--out", folder, *start], **variables)
    bare = run(start, **variables)
    return rs.open(folder), recorded.stdout, bare.stdout


def rows(found: rs.Run, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.query(sql).rows]


STEPS_SQL = (
    "SELECT rank, count(*) FROM steps JOIN ranks USING (process) WHERE role = 'rank' GROUP BY rank ORDER BY rank"
)


@on_x86
def test_the_output_is_that_of_the_bare_run(twins: tuple[rs.Run, str, str]) -> None:
    _, recorded, bare = twins
    assert sorted(recorded.splitlines()) == sorted(bare.splitlines())
    assert "[1, 3, 21]" in bare or "[3, 21]" in bare


@on_x86
def test_processes_are_ranks(twins: tuple[rs.Run, str, str]) -> None:
    found = rows(twins[0], "SELECT rank, world_size, rank_source FROM ranks WHERE role = 'rank' ORDER BY rank")
    assert found == [(0, 2, "jax.distributed.initialize"), (1, 2, "jax.distributed.initialize")]


@on_x86
def test_the_program_that_gives_its_state_back_is_the_step(twins: tuple[rs.Run, str, str]) -> None:
    assert rows(twins[0], STEPS_SQL) == [(0, STEPS), (1, STEPS)]


@on_x86
def test_every_collective_is_in_the_log_with_bytes_and_group(twins: tuple[rs.Run, str, str]) -> None:
    sql = """SELECT rank, name, count(*), min(bytes), max(bytes) FROM events JOIN ranks USING (process)
        WHERE role = 'rank' AND layer = 'gloo' AND sequence > 0 GROUP BY ALL ORDER BY ALL"""
    sizes = dict.fromkeys(OPERATIONS, 4000) | {"all_to_all": 64}
    expected = [(rank, name, STEPS, sizes[name], sizes[name]) for rank in range(2) for name in sorted(OPERATIONS)]
    assert rows(twins[0], sql) == expected
    groups = rows(twins[0], "SELECT DISTINCT size FROM groups WHERE kind = 'process_group'")
    assert groups == [(2,)]
    matched = twins[0].table("collectives")
    assert {row[matched.columns.index("members")] for row in matched.rows} == {2}


@on_x86
def test_programs_are_counted_and_compiling_again_has_its_reason(twins: tuple[rs.Run, str, str]) -> None:
    told = {row["program"]: row for row in twins[0].table("programs")}
    assert (told["train"]["runs"], told["evaluate"]["runs"], told["add"]["runs"]) == (STEPS, STEPS // 4, STEPS)
    train = told["train"]
    assert (train["compilations"], train["again"]) == (2, 1)
    assert train["why"] == "batch float32[8, 16] -> float32[4, 16]"
    assert train["compile_ns"] == pytest.approx(0.5e9, rel=0.02)
    assert told["copy to the host"]["bytes"] == STEPS * 64
    assert told["copy to devices"]["bytes"] == 64


@on_x86
def test_the_phases_know_initialisation_and_end(twins: tuple[rs.Run, str, str]) -> None:
    marks = dict(
        rows(twins[0], "SELECT DISTINCT name, what FROM marks WHERE name IN ('init_begin', 'finalize', 'xla')")
    )
    assert (marks["init_begin"], marks["finalize"]) == ("jax.distributed.initialize", "jax.distributed.shutdown")
    assert marks["xla"].startswith("jaxlib 0.0.twin: programs, collectives of Gloo seen; not seen: collectives of MPI")


@on_x86
def test_coverage_says_what_is_not_understood(twins: tuple[rs.Run, str, str]) -> None:
    coverage = twins[0].table("coverage")
    assert any(
        "JAX is only partly understood: of jaxlib 0.0.twin, collectives of MPI" in text for text in coverage.warnings
    )


@pytest.fixture
def stripped(twin: Path, tmp_path: Path) -> Path:
    """The same build, without its symbols."""
    if shutil.which("strip") is None:
        pytest.skip("no strip")
    bare = tmp_path / twin.name
    shutil.copy(twin, bare)
    subprocess.run(["strip", bare], check=True)
    return bare


def run_twin(rankscope: Path, folder: Path, library: Path, cache: Path) -> rs.Run:
    command = [rankscope, "run", "--out", folder, sys.executable, TWIN / "training.py", 0, 1, 4]
    done = run(command, XLA_TWIN=str(library), RANKSCOPE_CACHE=str(cache))
    assert done.stdout.startswith("0 of 1: ")
    return rs.open(folder)


@on_x86
def test_a_library_is_read_once(twin: Path, stripped: Path, rankscope: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    run_twin(rankscope, tmp_path / "first", twin, cache)
    (kept,) = cache.iterdir()
    assert kept.name.startswith("xla-") and not kept.stat().st_mode & 0o022
    assert rows(run_twin(rankscope, tmp_path / "known", stripped, cache), STEPS_SQL) == [(0, 4)]
    whole = kept.read_bytes()
    for spoilt, mode in ((whole[:-1], 0o644), (whole.replace(b"1", b"2", 1), 0o644), (whole, 0o666)):
        kept.write_bytes(spoilt)
        kept.chmod(mode)
        found = run_twin(rankscope, tmp_path / f"spoilt-{len(spoilt)}-{mode}-{spoilt == whole}", stripped, cache)
        assert rows(found, STEPS_SQL) == []


@on_x86
def test_a_library_without_symbols_is_left_alone(stripped: Path, rankscope: Path, tmp_path: Path) -> None:
    found = run_twin(rankscope, tmp_path / "run", stripped, tmp_path / "cache")
    assert rows(found, "SELECT rank, rank_source FROM ranks WHERE role = 'rank'") == [(0, "jax.distributed.initialize")]
    assert any(
        "programs, collectives of Gloo, collectives of MPI are not recorded" in text
        for text in found.table("coverage").warnings
    )


# ---------------------------------------------------------------- the real one
Training = Callable[..., tuple[rs.Run, list[dict[str, Any]], str]]


@pytest.fixture
def training(rankscope: Path, tmp_path: Path) -> Training:
    """Start the program on some processes: the run, what each process knows of itself, and the output."""

    def start(processes: int, *more: str, recorded: bool = True) -> tuple[rs.Run, list[dict[str, Any]], str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = [PROGRAMS / "jax_training.py", *("{}", processes, port), f"--truth={tmp_path}", *more]
        commands = [[str(JAX), *(str(word).replace("{}", str(at)) for word in words)] for at in range(processes)]
        record = [rankscope, "run", "--out", tmp_path / "run"] if recorded else []
        done = run([*record, *side_by_side(commands)])
        truth = [json.loads((tmp_path / f"{at}.json").read_text()) for at in range(processes)]
        return rs.open(tmp_path / "run") if recorded else None, truth, done.stdout  # type: ignore[return-value]

    return start


COLLECTIVES_SQL = """SELECT rank, count(*) FROM events JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'gloo' AND sequence > 0 GROUP BY rank ORDER BY rank"""


@with_jax
@on_x86
@pytest.mark.timeout(240)
def test_a_late_process_of_jax_is_named(training: Training) -> None:
    found, truth, output = training(2, "--steps=40", "--late=1", "--delay-ms=30")
    assert output.count("after 40 steps") == 2
    assert rows(found, STEPS_SQL) == [(0, 40), (1, 40)]
    expected = [(rank, 40 * one["collectives_a_step"]) for rank, one in enumerate(truth)]
    assert rows(found, COLLECTIVES_SQL) == expected
    findings = found.findings()
    straggler = [row["finding"] for row in findings if row["rule"] == "straggler"]
    assert straggler and straggler[0].startswith("Rank 1"), findings.rows
    told = {row["program"]: row for row in found.table("programs")}
    assert (told["train_step"]["runs"], told["train_step"]["compilations"]) == (40, 1)


@with_jax
@on_x86
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_groups_of_a_mesh_and_a_loop_that_runs_ahead(training: Training) -> None:
    found, truth, _ = training(4, "--steps=30", "--model=transformer", "--look-every=0")
    assert rows(found, STEPS_SQL) == [(rank, 30) for rank in range(4)]
    expected = [(rank, 30 * one["collectives_a_step"]) for rank, one in enumerate(truth)]
    assert rows(found, COLLECTIVES_SQL) == expected
    sizes = rows(
        found, "SELECT DISTINCT size FROM groups WHERE kind = 'process_group' AND collectives > 0 ORDER BY size"
    )
    assert (2,) in sizes


@with_jax
@on_x86
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_new_shapes_are_the_reason_to_compile_again(training: Training) -> None:
    found, _, _ = training(1, "--steps=20", "--shapes=3")
    train = next(row for row in found.table("programs") if row["program"] == "train_step")
    assert (train["compilations"], train["again"], train["runs"]) == (3, 2, 20)
    assert train["why"].startswith("batch float32[")
