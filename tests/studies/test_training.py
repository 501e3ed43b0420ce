"""The study of training: real cells on one and two ranks, its figures against counts of our own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rankscope.model.tables import Table
from rankscope.studies.errors import BadStudy
from rankscope.studies.plan import Outcome, cells
from rankscope.studies.programs import path_of
from rankscope.studies.training import STUDY, tables
from studies.small_studies import named, python_of, ran, settings_of

pytestmark = pytest.mark.timeout(400)  # the cells run in the first test's name
STEPS, WARMUP, BATCH = 3, 2, 4
SETTINGS = settings_of(STUDY, steps=str(STEPS), batches=str(BATCH))
FULL_WIDTH = {"alexnet": 61_100_840, "resnet50": 25_557_032}  # as their authors' own implementations have


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    folder, python = tmp_path_factory.mktemp("training"), python_of("torch")
    one = {"model": ["alexnet"], "style": ["ddp"]}
    return [
        *ran(folder / "one", STUDY, SETTINGS, [python], [1], one),
        *ran(folder / "two", STUDY, SETTINGS, [python], [2]),
    ]


@pytest.fixture(scope="module")
def shown(outcomes: list[Outcome]) -> list[Table]:
    return tables(outcomes, SETTINGS)


@pytest.mark.slow
def test_images_per_second_are_steps_times_batch_by_seconds(outcomes: list[Outcome], shown: list[Table]) -> None:
    rows = {(row["model"], row["style"], row["batch"], row["ranks"]): row for row in named(shown, "training")}
    assert len(rows) == len(outcomes) == 6
    for outcome in outcomes:
        row = rows[(*(value for _, value in outcome.cell.values), outcome.cell.ranks)]
        left = [json.loads(path.read_text()) for path in Path(outcome.folder).glob("results/*.json")]
        seconds = max(sum(rank["seconds"]) for rank in left)
        assert row["images_per_s"] == pytest.approx(STEPS * BATCH / seconds)
        assert row["step_ns"] == pytest.approx(1e9 * seconds / STEPS)
        assert row["first_step_ns"] == pytest.approx(1e9 * max(rank["warmup_seconds"][0] for rank in left))
    alone, two = rows["alexnet", "ddp", "4", 1], rows["alexnet", "ddp", "4", 2]
    assert (alone["speed_up"], alone["efficiency"]) == (1.0, 1.0)
    assert two["speed_up"] == pytest.approx(two["images_per_s"] / alone["images_per_s"])  # type: ignore[operator]
    assert two["efficiency"] == pytest.approx(two["speed_up"] / 2)  # type: ignore[operator]


@pytest.mark.slow
def test_parts_add_up_to_the_recorded_steps(outcomes: list[Outcome], shown: list[Table]) -> None:
    for outcome in outcomes:
        lengths = "SELECT count(*), sum(end_ns - begin_ns) FILTER (number > 2) FROM steps"
        ((count, all_ns),) = outcome.run.query(lengths).rows
        assert count == (WARMUP + STEPS) * outcome.cell.ranks
        model, style, batch = (value for _, value in outcome.cell.values)
        rows = named(shown, f"profile_{model}_{style}_{batch}_{outcome.cell.ranks}")
        (whole,) = [row for row in named(shown, "training") if (row["model"], row["style"]) == (model, style)
                    and row["ranks"] == outcome.cell.ranks]  # fmt: skip
        told = [value for name, value in whole.items() if name.endswith("_share") and value is not None]
        assert sum(told) == pytest.approx(1.0, abs=1e-6)  # type: ignore[arg-type]
        at = next((place for place, row in enumerate(rows) if row["type"] == "Collectives:"), len(rows))
        parts_ns = sum(row["total_ns"] for row in rows[:at])  # type: ignore[misc]
        assert 0.8 * float(str(all_ns)) < parts_ns <= float(str(all_ns)) * (1 + 1e-9), "rows below 2 % are left out"


@pytest.mark.slow
def test_collectives_of_each_style_are_counted(shown: list[Table]) -> None:
    def collectives(model: str, style: str) -> dict[str, int]:
        rows = named(shown, f"profile_{model}_{style}_4_2")
        at = next(place for place, row in enumerate(rows) if row["type"] == "Collectives:")
        return {str(row["name"]): int(str(row["calls"])) for row in rows[at:]}

    # one bucket; on each of two ranks once in every measured step
    assert collectives("alexnet", "data-parallel") == {"broadcast": 2 * STEPS, "reduce": 2 * STEPS}
    assert set(collectives("alexnet", "ddp")) == {"all_reduce"}
    assert not set(collectives("alexnet", "fsdp")) & {"broadcast", "reduce"}


@pytest.mark.slow
def test_shares_by_cell_are_those_of_the_profiles(shown: list[Table]) -> None:
    rows = named(shown, "shares_alexnet_ddp")
    for ranks in (1, 2):
        profile = {row["name"]: row["share"] for row in named(shown, f"profile_alexnet_ddp_4_{ranks}")}
        cells_of = {row["name"]: row[f"batch_4_ranks_{ranks}"] for row in rows}
        assert {name: cells_of[name] for name in profile} == profile


def test_models_have_the_size_of_their_kind() -> None:
    code = "import json, models; print(json.dumps({name: sum(one.numel() for one in make(1, 224).model.parameters()) for name, make in models.MODELS.items()}))"  # noqa: E501
    folder = Path(path_of("models")).parent
    done = subprocess.run([python_of("torch"), "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    sizes = json.loads(done.stdout)
    assert {name: sizes[name] for name in FULL_WIDTH} == FULL_WIDTH
    assert 10e6 < sizes["transformer"] < 20e6


def test_one_axis_at_a_time_unless_the_whole_matrix_is_wanted() -> None:
    assert len(cells(STUDY, settings_of(STUDY), (1, 2), 1, {})) == 2 * (1 + 2 + 2 + 1)
    assert len(cells(STUDY, settings_of(STUDY, matrix="whole"), (1, 2), 1, {})) == 2 * 3 * 3 * 2
    with pytest.raises(BadStudy, match="--models vgg: choose of alexnet"):
        cells(STUDY, settings_of(STUDY, models="vgg"), (1,), 1, {})
    with pytest.raises(BadStudy, match="whole numbers above 0"):
        cells(STUDY, settings_of(STUDY, batches="8,0"), (1,), 1, {})
