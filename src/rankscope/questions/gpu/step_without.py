"""The step as it would be: outside windows of recording, without waiting for the device, without communication.

Recording a GPU lengthens the steps that it records, so what could be saved is worked out for the others, where there
are such.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

import numpy as np

from rankscope.model.records import Layer
from rankscope.model.tables import Tables
from rankscope.questions.gpu.steps import PAUSE, PREEMPTED, DeviceSteps
from rankscope.questions.steps.data import steps_of

Array = Any  # of numpy
FEWEST = 8  # steps
RECORDED = """
    SELECT rank, list(DISTINCT number) FROM device_steps JOIN ranks USING (process) JOIN gpu_recordings USING (process)
    WHERE role = 'rank' AND windows > 0 GROUP BY rank"""


def unrecorded_steps(tables: Tables) -> dict[int, Array]:
    """Of each rank whose GPUs are recorded in windows: which of its steps are steady and outside them."""
    steps = steps_of(tables)
    recorded = dict(tables.query(RECORDED))
    masks = {
        rank_steps.rank: steps.steady(rank_steps) & ~np.isin(rank_steps.number, recorded[rank_steps.rank])
        for rank_steps in steps.ranks
        if rank_steps.rank in recorded
    }
    return {rank: mask for rank, mask in masks.items() if mask.sum() >= FEWEST}


def unrecorded_ns(tables: Tables) -> dict[int, float]:
    """The mean of these steps; of one longer than three medians, three medians."""
    masks = unrecorded_steps(tables)
    lengths = {rank.rank: rank.length_ns[masks[rank.rank]] for rank in steps_of(tables).ranks if rank.rank in masks}
    return {rank: float(np.minimum(values, PAUSE * np.median(values)).mean()) for rank, values in lengths.items()}


def bare_step_ns(devices: list[DeviceSteps], bare: Mapping[int, float]) -> float:
    """The mean step, of those that are not recorded where there are such."""
    return mean(min(device.step_ns, bare.get(device.rank, device.step_ns)) for device in devices)


def recording_ns(device: DeviceSteps, bare: Mapping[int, float]) -> float:
    """What recording adds to a step of that rank; 0 where all of them are recorded."""
    return max(0.0, device.step_ns - bare.get(device.rank, device.step_ns))


HOST_RECORDED = 1.28  # a host that launches, while waits are recorded, takes so much longer at least (on an H200)
# causes of idle time in which the host launches nothing: it takes no longer for being recorded
HELD_UP = ("data", "blocked", "checkpoint", "gc", "compile", PREEMPTED)


def sync_saving_ns(device: DeviceSteps, bare_ns: float | None = None) -> float:
    """What a step would be shorter if the host did not wait for the device: then the longer of the two would decide.

    By the median step, as the long ones are long for other reasons; with windows by the steps outside them
    (`bare_ns`), in which the host launches faster, and waits longer. Where not every step waits, only in those that do.
    """
    steps_that_wait = min(1.0, device.counts["sync_calls"])
    step_ns, wait_ns = min(device.step_ns, device.p50_ns), device.counts["sync_ns"]
    host_ns, device_ns = step_ns - wait_ns, device.busy_ns + device.idle["device"]
    if bare_ns is not None and wait_ns:
        step_ns = min(device.step_ns, bare_ns)
        held_up_ns = sum(device.idle[cause] for cause in HELD_UP)
        launching_ns = max(0.0, device.step_ns - wait_ns - held_up_ns)
        host_ns = held_up_ns + launching_ns / max(device.step_ns / step_ns, HOST_RECORDED)
    return steps_that_wait * max(0.0, step_ns - max(host_ns, device_ns)) if wait_ns else 0.0


# how far the device is behind the host when a step ends, at the least (almost), and the step: mean on the host
BEHIND = """
    SELECT quantile_cont(d.end_ns - s.end_ns, 0.05), avg(s.end_ns - s.begin_ns)
    FROM device_steps d JOIN ranks USING (process) JOIN steps s USING (process, number)
    WHERE role = 'rank' AND NOT d.cut GROUP BY process"""
# of the collectives in steady steps, those that DistributedDataParallel issues in backward
REDUCED = f"""
    SELECT coalesce(sum(calls) FILTER (name = 'ncclAllReduce') / sum(calls), 0) FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = '{Layer.NCCL}' AND tallies.phase = 'steady'"""
NEARLY_ALL = 0.9


def host_floor_ns(tables: Tables) -> tuple[float, str] | None:
    """What the slowest host needs for a step of its own, whatever the devices do, and how that is known.

    Its parts, with a backward pass that takes as long as the forward pass at least: what is longer may be the
    enqueuing of communication. Where forward communicates, too (FSDP, tensor parallel), both passes may be held up by
    it, and only the other parts count. None: a host that is always a whole step ahead of its device may be held up in
    any part.
    """
    steps = steps_of(tables)
    behind = tables.query(BEHIND)
    if steps.source != "recorded" or not behind or any(lag_ns >= step_ns for lag_ns, step_ns in behind):
        return None
    is_reduced = tables.query(REDUCED)[0][0] >= NEARLY_ALL
    floors: list[float] = []
    masks = unrecorded_steps(tables)
    for rank_steps in steps.ranks:
        chosen: Array = masks.get(rank_steps.rank, steps.steady(rank_steps))
        parts = {part: float(values[chosen].mean()) for part, values in rank_steps.own.items() if chosen.any()}
        if not parts.get("forward") or not parts.get("backward"):
            return None
        parts["backward"] = min(parts["backward"], parts["forward"])
        floors.append(sum(ns for part, ns in parts.items() if is_reduced or part not in ("forward", "backward")))
    how = "if backward takes as long as forward" if is_reduced else "outside forward and backward"
    return (max(floors), how) if floors else None
