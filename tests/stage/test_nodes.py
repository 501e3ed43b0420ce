"""Several nodes: one reads the shared file, the others get the bundle from each other.

Nodes are folders here: what makes a node is the folder that its ranks share.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mpis import Mpi
from stage.jobs import Environment, copies, is_soon, stage, staged_folder
from stage.test_kill import large  # noqa: F401  # a fixture

RANK_VARIABLE = {"openmpi": "OMPI_COMM_WORLD_RANK", "mpich": "PMI_RANK", "impi": "PMI_RANK"}
PER_NODE = 2
RANK = """\
#!/bin/sh
export RANKSCOPE_STAGE_LOCAL_RANKS={per_node}
node=$((${variable} / {per_node}))
{first}
exec {python} -m rankscope stage {environment.folder} --bundle {environment.bundle} --times {times} \\
    --to {nodes}/node$node {options} -- "$@"
"""


def rank_script(mpi: Mpi, environment: Environment, folder: Path, options: str = "", first: str = "") -> Path:
    """What each rank runs: ourselves with the folder of its node."""
    script = folder / "rank.sh"
    script.write_text(
        RANK.format(
            per_node=PER_NODE,
            variable=RANK_VARIABLE[mpi.name],
            python=sys.executable,
            environment=environment,
            times=folder / "times",
            nodes=folder,
            options=options,
            first=first,
        )
    )
    script.chmod(0o755)
    return script


def node_reports(folder: Path, count: int) -> list[dict[str, Any]]:
    """What the keepers say once they have ended."""

    def read() -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in sorted((folder / "times").glob("node-*.json"))]

    assert is_soon(lambda: len(read()) == count and all(report["ended"] for report in read())), read()
    return read()


def test_one_node_reads_the_shared_file(mpi: Mpi, large: Environment, tmp_path: Path) -> None:  # noqa: F811
    script = rank_script(mpi, large, tmp_path, f"--meet {tmp_path}" if mpi.name == "mpich" else "")
    code = "import sys, many.module7; print(sys.prefix)"
    done = mpi.run(8, script, "python", "-c", code)
    assert done.returncode == 0, done.stderr
    for node in range(4):  # Intel's launcher does not keep lines of ranks apart
        assert done.stdout.count(f"{expected_copy(tmp_path / f'node{node}', large)}/env") == PER_NODE
    reports = node_reports(tmp_path, 4)
    size = large.bundle.stat().st_size
    assert [report["source"] == "shared" for report in reports].count(True) == 1
    assert sum(report["shared_bytes"] for report in reports) < size
    assert sum(report["peer_bytes"] for report in reports) == sum(report["sent_bytes"] for report in reports)
    assert sum(report["peer_bytes"] for report in reports) == 3 * next(r["shared_bytes"] for r in reports if r["first"])
    assert max(report["served_nodes"] for report in reports) <= 2
    assert all(copies(tmp_path / f"node{node}") == [] for node in range(4))
    assert not [*large.bundle.parent.glob(".rankscope-meet-*"), *tmp_path.glob(".rankscope-meet-*")]


def expected_copy(place: Path, environment: Environment) -> Path:
    from rankscope.stage.bundle import open_bundle

    file, header = open_bundle(str(environment.bundle))
    os.close(file)
    return staged_folder(place) / header.key


def test_exit_codes_of_ranks_are_theirs(openmpi: Mpi, environment: Environment, tmp_path: Path) -> None:
    script = rank_script(openmpi, environment, tmp_path)
    done = openmpi.run(4, script, "python", "-c", "import alpha, os; os._exit(9)")
    assert done.returncode == 9


def test_a_bad_bundle_is_refused_on_every_node(openmpi: Mpi, large: Environment, tmp_path: Path) -> None:  # noqa: F811
    """Damage far into the content is found by the first node, which tells the others."""
    content = bytearray(large.bundle.read_bytes())
    content[20 * 1024**2] ^= 1
    bad = Environment(large.folder, large.packages, tmp_path / "bad.bundle")
    bad.bundle.write_bytes(content)
    script = rank_script(openmpi, bad, tmp_path)
    done = openmpi.run(8, script, "python", "-c", "import sys; print(sys.prefix)")
    assert (done.returncode, done.stdout.split()) == (0, [str(large.folder)] * 8)
    reports = node_reports(tmp_path, 4)
    assert all("is refused" in report["reason"] for report in reports)
    assert all(copies(tmp_path / f"node{node}") == [] for node in range(4))


def test_from_outside_the_launcher(openmpi: Mpi, environment: Environment, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rankscope", "stage", environment.folder, "--bundle", environment.bundle]
    command += ["--to", tmp_path, "--", *openmpi.command(2, "python", "-c", "import sys; print(sys.prefix)")]
    variables = {**openmpi.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run([str(w) for w in command], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{expected_copy(tmp_path, environment)}/env"] * 2


def test_compared_with_running_in_place(openmpi: Mpi, environment: Environment, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rankscope", "stage", environment.folder, "--bundle", environment.bundle]
    command += ["--to", tmp_path, "--compare", "--format", "json"]
    command += ["--", *openmpi.command(2, "python", "-c", "import alpha")]
    done = subprocess.run(
        [str(word) for word in command],
        env={**openmpi.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tables = {table["name"]: table for table in json.loads(done.stdout)["tables"]}
    names = [column["name"] for column in tables["staging"]["columns"]]
    (row,) = [dict(zip(names, cells, strict=True)) for cells in tables["staging"]["rows"]]
    assert (row["nodes"], row["ranks"]) == (1, 2)
    assert all(row[name] > 0 for name in ("in_place_ns", "transfer_ns", "unpack_ns", "import_ns", "total_ns"))
    assert row["total_ns"] > row["transfer_ns"] + row["unpack_ns"] + row["import_ns"]
    assert "Break-even" in tables["staging"]["notes"][0]
    assert not list(tmp_path.glob("rankscope-stage-times-*"))


@pytest.mark.parametrize("whom", ["first", "all"])
def test_keepers_killed_on_the_way(openmpi: Mpi, large: Environment, tmp_path: Path, whom: str) -> None:  # noqa: F811
    """Four nodes, and the keeper of one or of all of them is killed while the bundle is on its way."""
    script = rank_script(openmpi, large, tmp_path)
    code = "import sys, many.module7; print(sys.prefix)"
    job = subprocess.Popen(
        openmpi.command(8, script, "python", "-c", code), env=openmpi.environment, stdout=subprocess.PIPE, text=True
    )
    places = [tmp_path / f"node{node}" for node in range(4)]
    assert is_soon(lambda: any(is_receiving(place) for place in places))
    chosen = [place for place in places if is_receiving(place)][:1] if whom == "first" else places
    for place in chosen:
        kill_keeper(place)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 0
    assert sorted(output.split()) == sorted(f"{expected_copy(place, large)}/env" for place in places * PER_NODE)
    assert is_soon(lambda: all(copies(place) == [] for place in places))


def is_receiving(place: Path) -> bool:
    folder = staged_folder(place)
    return folder.is_dir() and any(name.startswith("part-bundle-") for name in os.listdir(folder))


def kill_keeper(place: Path) -> None:
    """The owner of the part file, which has the process in its name."""
    for name in os.listdir(staged_folder(place)) if staged_folder(place).is_dir() else []:
        if name.startswith("part-bundle-"):
            try:
                os.kill(int(name.rpartition("-")[2].partition(".")[0]), signal.SIGKILL)
            except ProcessLookupError:
                pass


def test_a_kept_copy_of_an_environment_that_changed_is_not_used(
    openmpi: Mpi, own_environment: Environment, tmp_path: Path
) -> None:
    """Also on nodes that have a copy and need nothing from the first one."""
    script = rank_script(openmpi, own_environment, tmp_path, "--keep")
    assert openmpi.run(8, script, "python", "-c", "").returncode == 0
    node_reports(tmp_path, 4)
    (own_environment.packages / "new_package").mkdir()
    for path in (tmp_path / "times").iterdir():
        path.unlink()
    done = openmpi.run(8, script, "python", "-c", "import new_package, sys; print(sys.prefix)")
    assert (done.returncode, done.stdout.split()) == (0, [str(own_environment.folder)] * 8)
    assert all("has changed since" in report["reason"] for report in node_reports(tmp_path, 4))


def test_a_first_node_that_has_a_copy_reads_the_bundle_for_others(
    openmpi: Mpi,
    large: Environment,  # noqa: F811
    tmp_path: Path,
) -> None:
    script = rank_script(openmpi, large, tmp_path, "--keep", first="test $node = 0 || sleep 1.5")
    assert openmpi.run(2, script, "python", "-c", "").returncode == 0
    assert is_soon(lambda: len(copies(tmp_path / "node0")) == 1)
    node_reports(tmp_path, 1)
    assert openmpi.run(8, script, "python", "-c", "import many.module7").returncode == 0
    reports = node_reports(tmp_path, 4)
    assert [report["reused"] for report in reports].count(True) == 1
    assert all(report["first"] == report["reused"] for report in reports)
    served = [report for report in reports if not report["reused"] and not report["gave_up"]]
    assert served  # a node that lost its peer on a machine that stands still reads for itself, and says so
    assert sum(report["shared_bytes"] for report in served) == 0  # the first node reads the bundle, for the others
    assert sum(report["sent_bytes"] for report in reports) >= sum(report["peer_bytes"] for report in served) > 0


def test_an_mpi_of_the_environment_is_staged_too(mpi: Mpi, tmp_path: Path) -> None:
    """mpi4py on four ranks, with the MPI library mapped from the copy."""
    own = Environment(mpi.folder, mpi.folder, tmp_path / "mpi.bundle")
    recorded = stage(own, "--record", "--no-base", command=["python", "-c", "from mpi4py import MPI"])
    assert recorded.returncode == 0, recorded.stderr
    code = f"""
from mpi4py import MPI
maps = {{line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "/libmpi" in line}}
rank = MPI.COMM_WORLD.rank
with open(f"{tmp_path}/said-{{rank}}", "w") as file:
    print(MPI.COMM_WORLD.allreduce(rank), *sorted(maps), file=file)
"""
    command = [sys.executable, "-m", "rankscope", "stage", mpi.folder, "--bundle", own.bundle, "--to", tmp_path]
    done = mpi.run(4, *command, "--", "python", "-c", code)
    assert done.returncode == 0, done.stderr
    said = [path.read_text().split() for path in tmp_path.glob("said-*")]
    assert [words[0] for words in said] == ["6"] * 4  # 0 + 1 + 2 + 3
    libraries = {library for words in said for library in words[1:]}
    assert libraries and all(library.startswith(str(staged_folder(tmp_path))) for library in libraries)
    assert is_soon(lambda: copies(tmp_path) == [])
