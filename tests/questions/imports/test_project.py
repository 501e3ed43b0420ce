"""Projection, fit and break-even: by hand on small numbers, and as document 001 was read by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.cli import load
from rankscope.cli.imports_project import main
from rankscope.model.imports import PathOperation
from rankscope.questions.imports.break_even import NoSeries, fitted, series_of, staging_break_even, staging_verdict
from rankscope.questions.imports.projection import CACHES, FileServer, ImportCounts, counts_of, lookups, projected
from rankscope.slowfs.mount import Slowness
from rankscope.slowfs.replay import ReplayPlan, replay
from slow_file_system import skip_unless_runnable

START_TIMES = ROOT / "tests/formats/fixtures/start_times.md"
DOCUMENT = next(iter((ROOT.parent / "shared" / "seeds").glob("001*")), None)

# Three files in two folders; b/x is asked for three times, a/no twice.
OPERATIONS = [
    PathOperation("stat", "/env/a/f"),
    PathOperation("open", "/env/a/f", "ok", 2),
    PathOperation("stat", "/env/b/x", "ok", 3),
    PathOperation("stat", "/env/a/no", "ENOENT", 2),
    PathOperation("stat", "/env/gone/deep/no", "ENOENT"),
    PathOperation("list", "/env/b"),
    PathOperation("stat", "/usr/lib"),
]


def test_counts_by_hand() -> None:
    found = counts_of(OPERATIONS, "/env", calls=100)
    assert found == ImportCounts(
        calls=100,
        path_operations=10,
        walked=2 * 3 + 2 * 3 + 2 * 2 + 1 + 1,  # the way to gone/deep/no ends at gone
        attributes=4,
        opens=2 + 3,
        missing=3,
        existing_names=4,  # a, a/f, b, b/x
        missing_names=2,  # a/no, gone
    )
    per_rank = {cache: found.of_rank(cache) for cache in CACHES}
    assert per_rank == {"calls": 100, "walk": 18 + 4 + 5, "none": 10, "positive": 12, "negative": 11, "node": 11}
    assert {cache: found.of_node(cache, 12) for cache in ("none", "negative", "node")} == {
        "none": 120,
        "negative": 132,
        "node": 4 + 2 + 60,
    }


def test_time_is_the_larger_of_latency_and_server() -> None:
    counts = ImportCounts(path_operations=1000)
    few = projected(counts, "none", 1, 2, FileServer(100_000, 1e6))
    many = projected(counts, "none", 100, 2, FileServer(100_000, 1e6))
    assert few is not None and many is not None
    assert (few.server_operations, few.latency_bound_ns, few.server_bound_ns, few.time_ns) == (2000, 1e9, 2e7, 1e9)
    assert few.at_most_ns == 1.02e9
    assert (many.server_operations, many.time_ns) == (200_000, 2e9)
    assert projected(counts, "node", 1, 2, FileServer(100_000)) is None


@pytest.mark.parametrize("cache", ["none", "positive", "negative"])
def test_lookups_are_those_of_a_real_mount(tmp_path: Path, cache: str) -> None:
    skip_unless_runnable()
    for file in ("a/f", "b/x"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    moved = [
        PathOperation(one.operation, one.path.replace("/env", str(tmp_path)), one.result, one.times)
        for one in OPERATIONS[:-1]
    ]
    done = replay(moved, ReplayPlan(tmp_path, reads=False, slowness=Slowness(cache=cache)))
    assert done.counters is not None
    assert done.clients[0][3] == 0  # all as recorded
    assert lookups(moved, str(tmp_path), cache) == done.counters["lookup"]


def test_fit_finds_both_parts() -> None:
    exact = fitted({nodes: max(20.0, 0.5 * nodes) for nodes in (1, 2, 4, 8, 16, 32, 64, 128, 256)})
    assert exact.alone_s == pytest.approx(20)
    assert exact.per_node_s == pytest.approx(0.5)
    assert exact.factor == pytest.approx(1)
    assert exact.at(512) == pytest.approx(256)
    assert exact.at(1025) is None  # too far from what was measured
    flat = fitted(dict.fromkeys((1, 8, 64, 512), 3.0))
    assert (flat.alone_s, flat.per_node_s) == (pytest.approx(3), 0)


@pytest.mark.parametrize(
    ("points", "why"),
    [
        ({1: 1.0, 2: 2.0, 4: 3.0}, "too few"),
        ({10: 1.0, 11: 2.0, 12: 3.0, 13: 1.0}, "too close together"),
        ({1: 10.0, 8: 1.0, 64: 30.0, 512: 2.0}, "lie off any such curve"),
        ({1: 0.0, 8: 1.0, 64: 30.0, 512: 2.0}, "above zero"),
    ],
)
def test_fit_refuses_what_the_points_do_not_support(points: dict[int, float], why: str) -> None:
    refused = fitted(points)
    assert why in refused.refusal
    assert refused.at(1) is None


def test_break_even_by_hand() -> None:
    staged = {1: 100.0, 64: 110.0}
    assert staging_break_even({1: 10.0, 64: 60.0, 128: 160.0}, staged).at == pytest.approx(96)
    assert staging_break_even({1: 10.0, 64: 60.0}, staged).at is None
    back = staging_break_even({1: 10.0, 64: 60.0, 128: 160.0, 256: 20.0}, staged)
    assert back.meetings == pytest.approx((96, 128 + 128 * 50 / 140))
    assert staging_verdict(back).endswith("after the last one in place is faster")
    always = staging_break_even({4: 300.0, 8: 400.0}, staged)
    assert always.at is None and staging_verdict(always).startswith("never in range: staging is faster at every size")


# ------------------------------------------------------------------ document 001, as it was read by hand


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> str:
    if DOCUMENT is None:
        pytest.skip("document 001 is not here")
    folder = tmp_path_factory.mktemp("document") / "run"
    assert load.run([str(DOCUMENT), "--out", str(folder)]) == 0
    return str(folder)


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[dict[str, object]]]:
    """The tables by name, their rows by column."""
    capsys.readouterr()
    assert main([*words, "--format", "json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    return {
        table["name"]: [
            dict(zip((column["name"] for column in table["columns"]), row, strict=True)) for row in table["rows"]
        ]
        for table in tables
    }


def test_bounds_at_512_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    # 25,084 opens and 47,659 stats of 145,367 calls; the names and opens of the last are those of one import torch.
    words = "--calls 145367 --path-operations 72743 --existing-names 2003 --missing-names 555 --opens 1253".split()
    tables = shown(capsys, *words, "--server-ops", "600000", "--nodes", "512", "--ppn", "12")
    seconds = {row["cache"]: round(float(str(row["time_ns"])) / 1e9) for row in tables["import_projection"]}
    assert {cache: seconds[cache] for cache in ("calls", "none", "node")} == {"calls": 1489, "none": 745, "node": 15}


@pytest.mark.parametrize(
    ("in_place", "staged", "nodes"),
    [
        ("soft-CCL", "Total TMP- CCL", 160),
        ("soft-HVD", "TOTAL -TMP -HVD", 184),
        ("slash soft ccl", "260s+tmp  ccl", 133),
        ("MPI4py slash soft init", "260s+MPI4py tmp INIT", 95),
        ("MPI4py lustre init", "260s+MPI4py tmp INIT", 512),
        ("lus-CCL", "Total TMP- CCL", None),
    ],
)
def test_break_even_of_the_document(
    document: str, capsys: pytest.CaptureFixture[str], in_place: str, staged: str, nodes: int | None
) -> None:
    row = shown(capsys, document, "--measured", in_place, "--staging", staged)["import_break_even"][0]
    found = row["break_even_nodes"]
    assert (None if found is None else round(float(str(found)))) == nodes
    assert ("never in range" in str(row["verdict"])) == (nodes is None)


def test_fit_of_the_document(document: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--measured", "soft-CCL", "--measured", "lus-CCL", "--path-operations", "72743", "--ppn", "12"]
    soft, lus = shown(capsys, document, *words, "--server-ops", "600000")["import_fit"]
    # The points of /soft by themselves give back the server rate that was told: 600,000.
    assert math.isclose(float(str(soft["server_operations_per_s"])), 600_000, rel_tol=0.1)
    assert "no fit: the points lie off" in str(lus["verdict"])


@pytest.fixture(scope="module")
def start_times(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A document of our own, whose laws it says."""
    folder = tmp_path_factory.mktemp("start_times") / "run"
    assert load.run([str(START_TIMES), "--out", str(folder)]) == 0
    return str(folder)


def test_break_even_of_known_laws(start_times: str, capsys: pytest.CaptureFixture[str]) -> None:
    """0.5 n = 66 at 132 nodes; 4 + 0.02 n is 14.24 at 512 and not yet 66."""
    asked = [start_times, "--staging", "Total local-train", "--measured"]
    home = shown(capsys, *asked, "home-train")["import_break_even"][0]
    scratch = shown(capsys, *asked, "scratch-train")["import_break_even"][0]
    assert home["break_even_nodes"] == pytest.approx(132)
    assert scratch["break_even_nodes"] is None and "never in range" in str(scratch["verdict"])


def test_fit_of_a_known_law(start_times: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a second for 12 ranks of 50,000 operations each is 1,200,000 operations a second."""
    words = ["--measured", "home-train", "--path-operations", "50000", "--ppn", "12", "--server-ops", "600000"]
    (fit,) = shown(capsys, start_times, *words)["import_fit"]
    assert float(str(fit["server_operations_per_s"])) == pytest.approx(1_200_000, rel=0.01)


def test_a_series_that_is_not_there(start_times: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([start_times, "--measured", "soft-XYZ"]) == 1
    assert "no series of times by nodes has this name" in capsys.readouterr().err


def test_series_that_differ_under_one_name_are_refused() -> None:
    class Loaded:
        def query(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
            return [(1.0, 5e9), (2.0, 6e9), (1.0, 5e9), (2.0, 7e9)]

        def columns(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, object]:
            raise NotImplementedError

    with pytest.raises(NoSeries, match="several series of that name differ at 2 nodes"):
        series_of("tmp", Loaded())


def test_series_add_up_size_by_size() -> None:
    assert series_of("1:5,8:6+260s", None) == {1: 265.0, 8: 266.0}
    assert series_of("2:1.5+1:10,4:20", None) == {1: 11.5, 2: 11.5, 4: 21.5}


def test_every_place_has_its_own_staging_or_the_one_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    places = ["--measured", "soft=1:10,9:90", "--measured", "lus=1:10,9:90"]
    rows = shown(capsys, *places, "--staging", "50s", "--staging", "lus=20s")["import_break_even"]
    assert [row["break_even_nodes"] for row in rows] == [5, 2]
    assert main([*places, "--staging", "lus=20s"]) == 1
    assert "soft: has no staging to compare with" in capsys.readouterr().err
    assert main([*places, "--staging", "daos=20s"]) == 1
    assert "daos: no such place" in capsys.readouterr().err


def test_wrong_usage_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("rankscope imports project: nothing to project: ")
    assert main(["--calls", "5"]) == 1
    assert "--server-ops" in capsys.readouterr().err
    assert main(["--calls", "5", "--server-ops", "9", "--staging", "1s"]) == 1
    assert "give them with --measured" in capsys.readouterr().err
