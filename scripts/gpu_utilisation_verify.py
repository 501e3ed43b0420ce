"""Compares what was recorded by gpu_utilisation.sh with what the programs printed; one line for each figure."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.rank_files.read import read_rank_file

MJ_PER_J = 1e3


def main(folder: Path) -> None:
    print(f"{'kind':14} {'figure':34} {'recorded':>16} {'expected':>16}  ratio")
    for out in sorted(folder.glob("*.out")):
        lines = [line for line in out.read_text().splitlines() if line.startswith("{")]
        if not lines:
            print(f"{out.stem:14} the program printed nothing: {out.with_suffix('.err').read_text()[-300:]}")
            continue
        for path in folder.glob(f"{out.stem}/ranks/*/*.rank"):
            reading = read_rank_file(path)
            if reading.step_columns:
                compare(out.stem, json.loads(lines[-1]), reading)


def compare(kind: str, told: dict[str, Any], reading: Any) -> None:
    tables = reading.utilisation_columns
    flops = tables.get("step_flops")
    if flops:
        numbers, first = np.asarray(flops["number"]), flops["number"][0]
        of_first = numbers == first
        by = {word: int(flops["flops"][i]) for i, word in enumerate(flops["precision"]) if of_first[i]}
        again = int(np.asarray(flops["recomputed_flops"])[of_first].sum())
        show(kind, "FLOP a step, FlopCounterMode", sum(by.values()), told["flops"])
        samples = len(set(numbers.tolist()))
        said = {name: bool(flops[name][0]) for name in ("compiled", "graphs")} | {"unseen": int(flops["unseen"][0])}
        print(f"{kind:14} {samples} steps sampled, {by}, recomputed {again}, {said} {flops['unseen_name'][0]}")
    else:
        print(f"{kind:14} no step was sampled: {[mark.what for mark in reading.marks if mark.name == 'observer']}")
    steps = reading.step_columns
    lengths = (steps["end_ns"] - steps["begin_ns"])[steps["number"] > 2]
    if len(lengths):
        print(f"{kind:14} {len(lengths)} steady steps, mean {lengths.mean() / 1e6:.4g} ms")
    allocator = tables.get("allocator")
    if allocator:
        for name in ("allocated_peak_bytes", "reserved_peak_bytes", "retries", "ooms"):
            key = name.replace("_peak_bytes", "_bytes_peak")
            show(kind, f"allocator, {name}", int(allocator[name][-1]), told[key])
    if "stats_us" in told:
        print(
            f"{kind:14} a look at the allocator takes {told['stats_us']:.1f} µs, at NVML's counter {told['nvml_us']} µs"
        )
    gpus = tables.get("gpus")
    if gpus:
        for i, name in enumerate(gpus["name"]):
            print(f"{kind:14} GPU {gpus['device'][i]}: {name}, {gpus['samples'][i]} samples, {gpus['note'][i]}")
    power = tables.get("gpu_power")
    if power and told.get("energy_mj") is not None:
        at_s, energy = np.asarray(power["at_ns"]) / 1e9, np.asarray(power["energy_mj"], float)
        between = (at_s >= told["begun_s"] - 1.5) & (at_s <= told["ended_s"] + 1.5)
        watts = np.diff(energy[between]) / np.diff(at_s[between]) / MJ_PER_J
        mean_w = (energy[between][-1] - energy[between][0]) / (at_s[between][-1] - at_s[between][0]) / MJ_PER_J
        expected_w = told["energy_mj"] / (told["ended_s"] - told["begun_s"]) / MJ_PER_J
        show(kind, "mean power, W", round(float(mean_w), 1), round(expected_w, 1))
        middle = [f"{value:.4g}" for value in watts]
        print(f"{kind:14} W between samples {middle}, MHz {list(power['sm_mhz'])}, °C {list(power['temperature_c'])}")


def show(kind: str, figure: str, recorded: float, expected: float) -> None:
    ratio = f"{recorded / expected:.5f}" if expected else "equal" if recorded == expected else "?"
    print(f"{kind:14} {figure:34} {recorded:>16} {expected:>16}  {ratio}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
