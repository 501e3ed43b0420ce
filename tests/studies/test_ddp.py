"""The study of DDP's hooks: real trainers and servers, statistics against numpy, results against each other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rankscope.model.tables import Table
from rankscope.studies.ddp import STUDY, tables
from rankscope.studies.plan import Outcome, cells
from studies.small_studies import named, python_of, ran, settings_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # the cells run in the first test's name
BATCHES, BUCKETS, SLOW_MS = 4, 3, 60.0
SIZES = {"batches": str(BATCHES), "batch": "8", "width": "64"}
SETTINGS = settings_of(STUDY, **SIZES, servers="0,1", slow_rank="1", slow_ms=str(SLOW_MS))
TRAINER = {"batch_level_metric,batch_all", "foward_metric,forward_pass", "backward_metric,backward"}
HOOKS = {
    "allreduce": {"gloo_dense_allreduce"},
    "hybrid": {"gloo_dense_allreduce", "rpc_sparse_average"},
    "rpc": {"rpc_dense_average", "rpc_sparse_average"},
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """Two trainers each: alone, or with one server."""
    folder, python = tmp_path_factory.mktemp("ddp"), python_of("torch")
    return [
        *ran(folder / "two", STUDY, SETTINGS, [python], [2], {"hook": ["allreduce"]}),
        *ran(folder / "three", STUDY, SETTINGS, [python], [3], {"hook": ["hybrid", "rpc"], "servers": ["1"]}),
    ]


@pytest.fixture(scope="module")
def shown(outcomes: list[Outcome]) -> list[Table]:
    return tables(outcomes, SETTINGS)


def raw(outcomes: list[Outcome], role: str, passed: str) -> Iterator[tuple[str, str, list[float]]]:
    for outcome in outcomes:
        own = [one["times_ms"][passed] for one in outcome.results if one["role"] == role]
        for metric in sorted({name for one in own for name in one}):
            yield outcome.cell["hook"], metric, [time for one in own for time in one[metric]]


@pytest.mark.parametrize(
    ("table", "role", "passed"),
    [
        ("trainer_metrics", "trainer", "measured"),
        ("trainer_metrics_warmup", "trainer", "warmup"),
        ("server_metrics", "server", "measured"),
    ],
)
def test_statistics_are_those_of_the_raw_times(
    outcomes: list[Outcome], shown: list[Table], table: str, role: str, passed: str
) -> None:
    rows = {(row["hook"], row["name"]): row for row in named(shown, table)}
    found = list(raw(outcomes, role, passed))
    assert len(rows) == len(found)
    for hook, metric, times in found:
        row = rows[hook, metric]
        expected = (np.min(times), np.max(times), np.mean(times), np.var(times, ddof=1), np.std(times, ddof=1))
        told = [float(str(row[name])) for name in ("min_ms", "max_ms", "mean_ms", "variance_ms2", "stdev_ms")]
        assert told == pytest.approx(expected, rel=1e-5) and row["times"] == len(times)
        assert (row["trainers"], row["servers"]) == (2, int(hook != "allreduce"))


def test_names_and_numbers_of_the_metrics(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        for one in (one for one in outcome.results if one["role"] == "trainer"):
            for times in one["times_ms"].values():
                hooks = {name for name in times if name.startswith("hook_future_metric,")}
                assert {name.split(",")[1] for name in hooks} == HOOKS[outcome.cell["hook"]]
                assert set(times) - hooks == TRAINER
                assert all(len(times[name]) == BATCHES for name in TRAINER)
            measured = one["times_ms"]["measured"]
            assert sum(len(times) for name, times in measured.items() if "hook" in name) == BUCKETS * BATCHES


def test_every_hook_learns_the_same(outcomes: list[Outcome]) -> None:
    losses = [[one["loss"] for one in outcome.results if one["role"] == "trainer"] for outcome in outcomes]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4) and losses[2] == pytest.approx(losses[0], rel=1e-4)


def test_servers_know_how_long_they_waited_for_the_last(outcomes: list[Outcome], shown: list[Table]) -> None:
    for outcome in outcomes[1:]:
        sent = sum(len(times) for hook, metric, times in raw([outcome], "trainer", "measured") if ",rpc_" in metric)
        (waits,) = [times for _, name, times in raw([outcome], "server", "measured") if name.endswith(",straggler")]
        assert len(waits) == sent / 2, "one wait for what two trainers sent"
        assert np.median(waits) > SLOW_MS / 2, "one of them sleeps before it sends"
        (row,) = [row for row in named(shown, "ddp") if row["hook"] == outcome.cell["hook"]]
        assert row["straggler_ns"] == pytest.approx(1e6 * np.mean(waits))
        assert row["straggler_max_ns"] == pytest.approx(1e6 * max(waits))
        (server,) = [one for one in outcome.results if one["role"] == "server"]
        batches = [one["times_ms"]["measured"]["batch_level_metric,batch_all"] for one in outcome.results[:2]]
        assert max(waits) <= server["waiting_ms"]["measured"] <= sum(waits), "waits for buckets of a batch overlap"
        assert row["straggler_share"] == pytest.approx(server["waiting_ms"]["measured"] * 2 / np.sum(batches))
        assert 0 < float(str(row["straggler_share"])) < 1


def test_profiles_tell_each_process_for_itself(outcomes: list[Outcome], shown: list[Table]) -> None:
    rows = named(shown, "processes_allreduce_0_gloo")
    collectives = {row["rank"]: row for row in rows if row["name"] == "all_reduce"}
    assert set(collectives) == {0, 1}
    assert collectives[0]["calls"] == collectives[1]["calls"]
    assert collectives[1]["total_ns"] < collectives[0]["total_ns"], "the slow one waits for nobody"  # type: ignore[operator]
    roles = {(row["rank"], row["role"]) for row in named(shown, "processes_rpc_1_gloo")}
    assert roles == {(0, "trainer"), (1, "trainer"), (2, "server")}


def test_cells_that_make_sense() -> None:
    found = cells(STUDY, settings_of(STUDY), (1, 2, 4), 1, {})
    assert {(cell["hook"], cell["servers"], cell.ranks) for cell in found} == {
        ("allreduce", "0", 1), ("allreduce", "0", 2), ("allreduce", "0", 4), ("hybrid", "1", 2), ("hybrid", "1", 4),
        ("hybrid", "2", 4), ("rpc", "1", 2), ("rpc", "1", 4), ("rpc", "2", 4),
    }  # fmt: skip
