"""The study of MPI: real trainings on Open MPI and MPICH, the recorded calls against what the program counted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rankscope.model.tables import Table
from rankscope.studies.interpreters import Pythons
from rankscope.studies.mpi import STUDY, tables
from rankscope.studies.plan import Missing, Outcome, cells
from studies.small_studies import named, python_of, ran, settings_of

pytestmark = pytest.mark.timeout(400)  # the cells run in the first test's name
MPIS = ("openmpi", "mpich")
REDUCE = "MPI_Allreduce"
STEPS, EPOCHS, LAYERS = 6, 2, 3
SETTINGS = settings_of(STUDY, mpi="openmpi,mpich", steps=str(STEPS), hidden="64", slow_rank="1", slow_ms="30")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    pythons = [python_of(mpi) for mpi in MPIS]
    return ran(tmp_path_factory.mktemp("mpi"), STUDY, SETTINGS, pythons, [1, 2])


@pytest.fixture(scope="module")
def shown(outcomes: list[Outcome]) -> list[Table]:
    return tables(outcomes, SETTINGS)


def counted(outcome: Outcome) -> Counter[tuple[str, int]]:
    """Calls by routine and size, as the program counted them, on its first rank."""
    told = outcome.results[0]["counted"]
    return Counter({(name, int(size)): calls for name, sizes in told.items() for size, calls in sizes.items()})


def of(shown: list[Table], name: str, outcome: Outcome) -> list[dict[str, object]]:
    place = (outcome.cell["mpi"], outcome.cell.ranks)
    return [dict(row) for row in named(shown, name) if (row["mpi"], row["ranks"]) == place]


def test_recorded_calls_and_sizes_are_those_of_the_program(outcomes: list[Outcome], shown: list[Table]) -> None:
    assert [(one.cell["mpi"], one.cell.ranks) for one in outcomes] == [(mpi, n) for mpi in MPIS for n in (1, 2)]
    for outcome in outcomes:
        own = counted(outcome)
        assert own["MPI_Allreduce", 8] == EPOCHS * STEPS * LAYERS
        routines = {row["name"]: row for row in of(shown, "routines", outcome)}
        for name in ("MPI_Allreduce", "MPI_Bcast", "MPI_Gather"):
            sizes = {size: calls for (routine, size), calls in own.items() if routine == name}
            assert float(str(routines[name]["calls"])) == sum(sizes.values())
            mean_bytes = sum(size * calls for size, calls in sizes.items()) / sum(sizes.values())
            assert float(str(routines[name]["mean_bytes"])) == pytest.approx(mean_bytes, abs=0.06)
            told = {
                float(str(row["mean_bytes"])): float(str(row["calls"]))
                for row in of(shown, "sizes", outcome)
                if row["name"] == name
            }
            assert told == {float(size): float(calls) for size, calls in sizes.items()}, "every size is a class here"


def test_negotiation_is_what_has_eight_bytes_at_most(outcomes: list[Outcome], shown: list[Table]) -> None:
    for outcome in outcomes:
        own = counted(outcome)
        small = sum(calls for (_, size), calls in own.items() if size <= 8)
        reduces = {size: calls for (name, size), calls in own.items() if name == "MPI_Allreduce"}
        (row,) = of(shown, "negotiation", outcome)
        assert row["small_calls"] == small
        assert row["reduce_calls_share"] == pytest.approx(reduces[8] / sum(reduces.values()))
        assert 0 < float(str(row["small_share"])) < 1 and 0 < float(str(row["reduce_share"])) < 1
        seconds = max(sum(rank["seconds"][1]) for rank in outcome.results)
        assert row["samples_per_s"] == pytest.approx(STEPS * 64 * outcome.cell.ranks / seconds)


def test_the_rank_that_the_others_wait_for_communicates_least(outcomes: list[Outcome], shown: list[Table]) -> None:
    for outcome in outcomes:
        (row,) = of(shown, "balance", outcome)
        if outcome.cell.ranks == 2:
            assert (row["least_rank"], row["most_rank"]) == (1, 0), "rank 1 sleeps in every step"
            (row,) = of(shown, "negotiation", outcome)
            small, large = float(str(row["small_wait_share"])), float(str(row["large_wait_share"]))
            # where others take the CPUs, ranks wait for each other in the larger ones, too
            assert small > 0.5 and small > 0.8 * large, "and the others wait for it where they meet first"


@pytest.mark.parametrize("mpi", MPIS)
def test_the_largest_scale_in_the_layout_of_libmpitrace(outcomes: list[Outcome], shown: list[Table], mpi: str) -> None:
    (table,) = [table for table in shown if table.name == f"mpitrace_mpi4py_{mpi}"]
    lines = [str(row[0]) for row in table.rows]
    assert table.verbatim and "Data for MPI rank 0 of 2:" in lines and "Data for MPI rank 1 of 2:" in lines
    (outcome,) = [one for one in outcomes if (one.cell["mpi"], one.cell.ranks) == (mpi, 2)]
    calls = sum(calls for (name, _), calls in counted(outcome).items() if name == "MPI_Allreduce")
    rows = [line.split() for line in lines if line.startswith("MPI_Allreduce") and "#calls" not in line]
    assert [int(row[1]) for row in rows] == [calls, calls]


def test_horovod_negotiates_by_itself(tmp_path: Path) -> None:
    python = python_of("horovod", "make env-horovod")
    settings = settings_of(STUDY, libraries="horovod", steps=str(STEPS), hidden="64")
    (outcome,) = ran(tmp_path, STUDY, settings, [python], [2])
    found = named(tables([outcome], settings), "sizes")
    reduces = {float(str(row["mean_bytes"])): float(str(row["calls"])) for row in found if row["name"] == REDUCE}
    for inputs, outputs in ((64, 64), (64, 10)):  # two layers have the one size, and one has the other
        layers = 2 if outputs == 64 else 1
        assert reduces[4.0 * (inputs + 1) * outputs] == EPOCHS * STEPS * layers
    assert reduces[8.0] >= EPOCHS * STEPS, "it asks at least once in each step whether tensors are ready"


def test_what_cannot_run_says_why() -> None:
    pythons = Pythons([python_of("openmpi"), python_of("torch")])

    def reason(**chosen: str) -> str:
        settings = settings_of(STUDY, **chosen)
        (cell,) = cells(STUDY, settings, (2,), 1, {})
        found = STUDY.job(cell, settings, pythons, "folder")
        assert isinstance(found, Missing)
        return found.reason

    assert reason(mpi="mpich").startswith("no mpich beside")
    assert "install it, or name the Python" in reason(libraries="horovod")
    assert reason(device="cuda").startswith("no ") and "torch" in reason(device="cuda")
