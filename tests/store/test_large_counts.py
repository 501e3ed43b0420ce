"""MPI's functions for large counts are the routine without `_c`, in every table."""

from __future__ import annotations

import numpy as np

from rankscope.model.tables import Words
from rankscope.store.columns import columns_table

CALLS = np.array([3, 4, 5, 6], np.int64)


def table(names: list[str], codes: list[int]) -> list[dict[str, object]]:
    columns = {
        "layer": Words(np.zeros(4, np.int32), ["mpi"]),
        "name": Words(np.array(codes, np.int32), names),
        "calls": CALLS,
        "total_ns": CALLS * 10.0,
    }
    made = columns_table("tallies", 0, columns).to_pylist()
    return [{name: row[name] for name in ("name", "calls", "large_count")} for row in made]


def test_both_are_one_routine() -> None:
    names = ["MPI_Bcast_c", "MPI_Allreduce", "MPI_Allreduce_c", "MPI_Bcast"]
    told = table(names, [0, 1, 2, 3])
    assert [row["name"] for row in told] == ["MPI_Bcast", "MPI_Allreduce", "MPI_Allreduce", "MPI_Bcast"]
    assert [row["large_count"] for row in told] == [True, False, True, False]
    assert [row["calls"] for row in told] == CALLS.tolist()


def test_where_only_one_was_called() -> None:
    told = table(["", "MPI_Ialltoallw_c", "ncclAllReduce", "do_c"], [1, 1, 2, 3])
    assert [row["name"] for row in told] == ["MPI_Ialltoallw", "MPI_Ialltoallw", "ncclAllReduce", "do_c"]
    assert [row["large_count"] for row in told] == [True, True, False, False]
