"""How fast do models train by devices, batch and style, and where does the time of a step go?"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

from rankscope.model.tables import Cell as Value
from rankscope.model.tables import Column, Table, Unit
from rankscope.studies.activities import KINDS, PARTS, ProfiledActivity, activities, profile, shares
from rankscope.studies.errors import BadStudy
from rankscope.studies.interpreters import Pythons
from rankscope.studies.plan import Cell, CellJob, Missing, Outcome, Parameter, Settings, Study, by_place
from rankscope.studies.programs import path_of

AXES = {"model": "models", "style": "styles", "batch": "batches"}
KNOWN = {"model": ("alexnet", "resnet50", "transformer"), "style": ("ddp", "data-parallel", "fsdp")}
WARMUP = 2
MOST = 16  # activities in the table of how they move
Place = tuple[str | int, ...]
NOTES = (
    "Images/s (sequences/s for the transformer): measured steps × batch ÷ the seconds of the slowest rank for them. "
    f"The first {WARMUP} steps are left out. The batch is over all ranks.",
    "data-parallel: what torch.nn.DataParallel does with the devices of one process, done with ranks: rank 0 sends the "
    "parameters to all before each step and gets the sum of their gradients after it.",
)
CROWDED = "SELECT host FROM ranks WHERE role = 'rank' GROUP BY host HAVING count(*) > max(cpus_allowed)"
SMALL = "Without a GPU, models are an eighth as wide and images 64 pixels wide (--shrink, --image): see Parameters."


def axes(settings: Settings) -> Mapping[str, Sequence[str]]:
    return {axis: listed(axis, settings) for axis in AXES}


def listed(axis: str, settings: Settings) -> list[str]:
    option = AXES[axis]
    chosen = [word.strip() for word in settings[option].split(",") if word.strip()]
    unknown = [word for word in chosen if word not in KNOWN.get(axis, chosen)]
    if axis == "batch":
        unknown = [word for word in chosen if not word.isdigit() or not int(word)]
    if unknown or not chosen:
        choice = f"choose of {', '.join(KNOWN[axis])}" if axis in KNOWN else "give whole numbers above 0"
        raise BadStudy(f"--{option} {settings[option]}: {choice}, separated by commas")
    return chosen


def sensible(cell: Cell, settings: Settings) -> bool:
    """One axis at a time, from the first value of each on: the whole matrix takes long, and says little more."""
    if settings["matrix"] == "whole":
        return True
    return sum(cell[axis] != listed(axis, settings)[0] for axis in AXES) < 2


def job(cell: Cell, settings: Settings, pythons: Pythons, folder: str) -> CellJob | Missing:
    python = pythons.having("torch")
    if python is None:
        return Missing(pythons.without("torch"))
    words = {"into": folder, **{axis: cell[axis] for axis in AXES}, "warmup": str(WARMUP)}
    words |= {name: settings[name] for name in ("steps", "device", "shrink", "image")}
    options = [word for name, value in words.items() for word in (f"--{name}", value)]
    return CellJob((python.path, path_of("training"), *options), "local", python.path, {"OMP_NUM_THREADS": "1"})


def tables(outcomes: Sequence[Outcome], settings: Settings) -> list[Table]:
    places = by_place(outcomes, *AXES)
    seen = {place: activities(repeats[0].run, WARMUP) for place, repeats in places.items()}
    return [speeds(places, seen, settings), *moves(seen), *profiles(seen, int(settings["steps"]))]


def images_per_s(outcome: Outcome) -> float:
    """Of the whole job, by the rank that took longest."""
    steps = len(outcome.results[0]["seconds"])
    return float(steps * outcome.results[0]["samples"] / max(sum(result["seconds"]) for result in outcome.results))


def speeds(
    places: Mapping[Place, list[Outcome]], seen: Mapping[Place, list[ProfiledActivity]], settings: Settings
) -> Table:
    activities_seen = (
        activity for profiled in seen.values() for activity in profiled if activity.kind in (PARTS, KINDS)
    )
    keys = list(dict.fromkeys((activity.kind, activity.name) for activity in activities_seen))
    columns = [Column(axis, Unit.NAME, axis.capitalize()) for axis in AXES]
    columns += [Column("ranks", Unit.COUNT, "Ranks"), Column("parameters", Unit.COUNT, "Parameters")]
    columns += [Column("images_per_s", Unit.NUMBER, "Images/s"), Column("speed_up", Unit.NUMBER, "Speed-up")]
    columns += [Column("efficiency", Unit.SHARE, "Efficiency"), Column("step_ns", Unit.NS, "Step")]
    columns += [Column("first_step_ns", Unit.NS, "First step")]
    columns += [
        Column(f"{re.sub('[^a-z]+', '_', name.lower())}_share", Unit.SHARE, name.capitalize()) for _, name in keys
    ]
    rows: list[tuple[Value, ...]] = []
    for place, repeats in places.items():
        outcome, speed = repeats[0], statistics.median(map(images_per_s, repeats))
        first_s = statistics.median(max(rank["warmup_seconds"][0] for rank in repeat.results) for repeat in repeats)
        share_of = {(row.kind, row.name): share for row, share in zip(seen[place], shares(seen[place]), strict=True)}
        speed_up, of_ranks = against_least(place, places, speed)
        figures = (
            outcome.results[0]["parameters"],
            speed,
            speed_up,
            of_ranks,
            1e9 * outcome.results[0]["samples"] / speed,
        )
        rows.append((*place, *figures, 1e9 * first_s, *(share_of.get(key) for key in keys)))
    table = Table("training", "Training speed, and shares of the step", columns, rows, list(NOTES))
    if settings["device"] == "cpu":
        table.notes.append(SMALL)
        crowded = sorted({int(place[-1]) for place, repeats in places.items() if repeats[0].run.query(CROWDED).rows})
        if crowded:
            many = ", ".join(map(str, crowded))
            table.warnings.append(
                f"more ranks than CPUs on a host at {many} ranks: their speed-up says nothing about scaling"
            )
    table.notes.append(
        "Shares: of the time of all steps after warm-up, all ranks."
        if settings["device"] == "cpu"
        else "Shares: of the time of all GPU activities of the run, added up; an NCCL kernel also runs while it waits."
    )
    return table


def against_least(place: Place, places: Mapping[Place, list[Outcome]], speed: float) -> tuple[float, float]:
    """Speed-up over the fewest ranks of the same kind, and its share of what so many more ranks could give."""
    least = min(int(other[-1]) for other in places if other[:-1] == place[:-1])
    speed_up = speed / statistics.median(map(images_per_s, places[(*place[:-1], least)]))
    return speed_up, speed_up * least / int(place[-1])


def moves(seen: Mapping[Place, list[ProfiledActivity]]) -> list[Table]:
    """Activity × cell, one table for each model and style: how shares move with devices and batch."""
    shown = []
    for model, style in dict.fromkeys((str(place[0]), str(place[1])) for place in seen):
        by_cell = {place[2:]: profiled for place, profiled in seen.items() if place[:2] == (model, style)}
        cells = sorted(by_cell, key=lambda cell: (int(cell[0]), int(cell[1])))
        share_of = {
            cell: {
                (activity.kind, activity.name): share or 0.0
                for activity, share in zip(by_cell[cell], shares(by_cell[cell]), strict=True)
            }
            for cell in cells
        }
        keys = list(dict.fromkeys(key for cell in cells for key in share_of[cell]))
        heaviest = sorted(keys, key=lambda key: -max(share_of[cell].get(key, 0.0) for cell in cells))[:MOST]
        columns = [Column("type", Unit.NAME, "Type"), Column("name", Unit.NAME, "Name")]
        columns += [Column(f"batch_{b}_ranks_{n}", Unit.SHARE, f"batch {b}, ranks {n}") for b, n in cells]
        rows: list[tuple[Value, ...]] = [
            (*key, *(share_of[cell].get(key) for cell in cells)) for key in keys if key in heaviest
        ]
        table = Table(f"shares_{model}_{style}", f"{model}, {style}: shares by batch and ranks", columns, rows)
        table.notes.append("Each share is of the time of its type in that cell.")
        shown.append(table)
    return shown


def profiles(seen: Mapping[Place, list[ProfiledActivity]], steps: int) -> list[Table]:
    shown = []
    for (model, style, batch, ranks), profiled in seen.items():
        title = f"Ranks = {ranks}, Batch size = {batch} ({model}, {style})"
        shown.append(profile(f"profile_{model}_{style}_{batch}_{ranks}", title, profiled))
    if shown:
        on_gpu = any(activity.kind == KINDS for profiled in seen.values() for activity in profiled)
        text = (
            f"GPU activities of the whole run, {WARMUP} + {steps} steps and the set-up, all ranks added up."
            if on_gpu
            else f"No GPU: parts of the {steps} steps after the first {WARMUP}, each without its blocked time, and "
            "the collectives in them (from start to end, while the step may continue), all ranks added up."
        )
        shown[0].notes.insert(0, text)
    return shown


STUDY = Study(
    "training",
    "Training: speed and activities by model, devices, batch and style",
    __doc__,
    axes,
    job,
    tables,
    {
        "models": Parameter("alexnet,resnet50,transformer", "models to train"),
        "styles": Parameter("ddp,data-parallel,fsdp", "parallelism to compare"),
        "batches": Parameter("8,32", "global batch sizes: samples per step over all ranks"),
        "matrix": Parameter(
            "cross", "cross: vary one axis at a time, from the first value of each; whole: all combinations"
        ),
        "steps": Parameter("8", f"measured steps, after {WARMUP} steps of warm-up"),
        "device": Parameter("cpu", "cpu or cuda; ranks may share a GPU"),
        "shrink": Parameter("0", "divide the models' widths by this; 0: by 1 on a GPU, else by 8"),
        "image": Parameter("0", "image size in pixels; 0: 224 on a GPU, else 64"),
    },
    scales=(1, 2, 4),
    timeout_s=300,
    sensible=sensible,
)
