"""MPI calls of a library that has looked the functions up by name: recorded with --lookups, and not changed by it."""

from __future__ import annotations

from pathlib import Path

import pytest

import rankscope as api
from mpis import ROOT, Mpi
from rankscope.record.start import AUDITOR, lookup_problem, lookup_variables

PROGRAM = ROOT / "tests" / "programs" / "mpi_by_name.py"
CALLS = 25


def library_of(mpi: Mpi) -> Path:
    """The library itself: in wheels a link may be a file without content."""
    found = [path for path in mpi.folder.glob("lib/**/libmpi.so*") if path.stat().st_size]
    assert found
    return max(found, key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("asked", [[], ["--lookups"]], ids=["without", "with"])
def test_calls_by_name(mpi: Mpi, rankscope: Path, asked: list[str], tmp_path: Path) -> None:
    if asked and lookup_problem():
        pytest.skip(lookup_problem())
    job = [rankscope, "run", "--quiet", *asked, "--out", tmp_path / "run", "--", mpi.python, PROGRAM]
    done = mpi.run(2, *job, library_of(mpi), str(CALLS))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank}: {CALLS} sums" for rank in range(2)]
    sql = "SELECT name, sum(calls)::BIGINT, sum(bytes)::BIGINT FROM tallies WHERE layer = 'mpi' GROUP BY name"
    found = {name: rest for name, *rest in api.open(tmp_path / "run").query(sql).rows}
    if not asked:
        assert "MPI_Allreduce" not in found
        return
    assert found["MPI_Allreduce"] == [2 * CALLS, 2 * CALLS * 4]
    assert found["MPI_Init"][0] == found["MPI_Finalize"][0] == 2


def test_other_auditors_stay() -> None:
    if lookup_problem():
        pytest.skip(lookup_problem())
    assert lookup_variables({}, {}) == {"LD_AUDIT": AUDITOR}
    assert lookup_variables({"LD_AUDIT": "/a.so:/b.so"}, {}) == {"LD_AUDIT": f"/a.so:/b.so:{AUDITOR}"}
    assert lookup_variables({"LD_AUDIT": "/a.so"}, {"LD_AUDIT": "/c.so"}) == {"LD_AUDIT": f"/c.so:{AUDITOR}"}
