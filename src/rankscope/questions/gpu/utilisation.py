"""How well are the GPUs used: operations a second against what they could do, and energy?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.model.tables import Cell, Column, Table, Tables, Unit
from rankscope.questions.gpu.peaks import peaks_of
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.steps.data import steps_of
from rankscope.questions.wording import counted, rank_words

TERA, GIGA_NS = 1e12, 1e9
CPU = -1
NEGLIGIBLE = 0.01  # of a rank's operations: what the CPU does beside its GPUs

# ---------------------------------------------------------------- operations
UTILISATION_COLUMNS = (
    Column("rank", Unit.NAME, "Rank"),
    Column("device", Unit.NAME, "Device", "the GPU's number in that process, or CPU"),
    Column("name", Unit.NAME, "Name", "the GPU's name as its driver gives it"),
    Column("samples", Unit.COUNT, "Sampled steps", "steps whose operators were counted: the 2nd, the 64th, each 256th"),
    Column(
        "step_tflop",
        Unit.NUMBER,
        "TFLOP per step",
        "10¹² floating-point operations of a sampled step, mean: matrix products, convolutions, attention and "
        "recurrent layers by the shapes of their operators; a product and its sum are two",
    ),
    Column("error", Unit.SHARE, "±", "standard error of `step_tflop` ÷ `step_tflop`; empty with one sample"),
    Column("recomputed", Unit.SHARE, "Recomputed", "of `step_tflop`: forward repeated inside backward (checkpointing)"),
    Column("step_ns", Unit.NS, "Step", "mean steady step of the rank, on its host's clock"),
    Column("tflop_per_s", Unit.NUMBER, "TFLOP/s", "`step_tflop` ÷ `step_ns`"),
    Column("precision", Unit.NAME, "In", "precisions of the operators and their shares of the operations"),
    Column(
        "peak_tflop_per_s",
        Unit.NUMBER,
        "Peak TFLOP/s",
        "peak of a GPU of this name for that mix of precisions, dense: operations ÷ Σ (operations of a "
        "precision ÷ its peak); empty: not known",
    ),
    Column(
        "mfu",
        Unit.SHARE,
        "MFU",
        "model FLOPs utilisation: Σ over precisions (operations − recomputed ones) ÷ peak, ÷ `step_ns`; empty: a peak "
        "is not known",
    ),
    Column("hfu", Unit.SHARE, "HFU", "hardware FLOPs utilisation: the same with the recomputed ones"),
    Column(
        "counted",
        Unit.NAME,
        "Counted",
        "all, or why `step_tflop` and what follows from it is at least this, or unknown",
    ),
)
FLOPS = """
    SELECT rank, device, number, precision, flops, recomputed_flops, unseen, unseen_name, compiled, graphs
    FROM step_flops JOIN ranks USING (process) WHERE role = 'rank' ORDER BY rank, device, number, precision"""
NAMES = "SELECT rank, device, name FROM gpus JOIN ranks USING (process) WHERE role = 'rank'"
OBSERVED = """
    SELECT rank, what FROM marks JOIN ranks USING (process)
    WHERE role = 'rank' AND name = 'observer' AND rank NOT IN (
        SELECT rank FROM step_flops JOIN ranks USING (process) WHERE role = 'rank')"""
UNSAMPLED = "no step was sampled: the second is the first that is"


@dataclass(slots=True)
class DeviceFlops:
    """What the operators of one device compute in a step, and how much of what it could."""

    rank: int
    device: int
    name: str
    samples: int
    flops: float | None  # None: unknown
    error: float | None
    shares: dict[str, float]  # by precision
    recomputed: float  # share
    step_ns: float | None
    at_peak_s: float | None  # how long its operations take at its peaks
    model_at_peak_s: float | None  # the same without what is recomputed
    counted: str

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation."""
        return self.model_at_peak_s / (self.step_ns / GIGA_NS) if self.model_at_peak_s and self.step_ns else None


def device_flops_of(tables: Tables) -> list[DeviceFlops]:
    """Of every device with sampled steps, in the order of ranks."""
    names = {(rank, device): name for rank, device, name in tables.query(NAMES)}
    lengths = _step_lengths(tables)
    of_rank: dict[int, list[Any]] = {}
    for rank, *row in tables.query(FLOPS):
        of_rank.setdefault(rank, []).append(row)
    device_flops = []
    for rank, rows in of_rank.items():
        numbers = sorted({row[1] for row in rows})
        devices = sorted({row[0] for row in rows})
        total = sum(row[3] for row in rows)
        for device in devices:
            device_rows = [row for row in rows if row[0] == device]
            if device == CPU and len(devices) > 1 and sum(row[3] for row in device_rows) < NEGLIGIBLE * total:
                continue
            device_flops.append(
                _device(rank, device, names.get((rank, device), ""), device_rows, numbers, lengths.get(rank))
            )
    return device_flops


def _step_lengths(tables: Tables) -> dict[int, float]:
    steps = steps_of(tables)
    lengths_of = {rank_steps.rank: rank_steps.length_ns[steps.steady(rank_steps)] for rank_steps in steps.ranks}
    return {rank: float(lengths.mean()) for rank, lengths in lengths_of.items() if len(lengths)}


def _device(
    rank: int, device: int, name: str, rows: Sequence[Any], numbers: Sequence[int], step_ns: float | None
) -> DeviceFlops:
    sums = dict.fromkeys(numbers, 0)
    for row in rows:
        sums[row[1]] += row[3]
    each = np.array([sums[number] for number in numbers], np.float64)
    mean = float(each.mean())
    error = float(each.std(ddof=1)) / len(each) ** 0.5 / mean if len(each) > 1 and mean else None
    total = float(each.sum()) or 1.0
    by: dict[str, float] = {}
    again: dict[str, float] = {}
    for _, _, precision, flops, recomputed, *_ in rows:
        if flops:
            by[precision] = by.get(precision, 0.0) + flops / len(numbers)
            again[precision] = again.get(precision, 0.0) + recomputed / len(numbers)
    at_peak = _at_peak_s(name, by)
    model = _at_peak_s(name, {precision: flops - again[precision] for precision, flops in by.items()})
    coverage = _counted(rows)
    known = mean if mean or coverage == ALL_COUNTED else None
    shares = {precision: flops / mean for precision, flops in sorted(by.items(), key=lambda item: -item[1])}
    recomputed = sum(row[4] for row in rows) / total
    return DeviceFlops(
        rank, device, name, len(numbers), known, error, shares, recomputed, step_ns, at_peak, model, coverage
    )


def _at_peak_s(name: str, flops: Mapping[str, float]) -> float | None:
    peaks = peaks_of(name)
    if peaks is None or not flops or any(precision not in peaks for precision in flops):
        return None
    return sum(value / (peaks[precision] * TERA) for precision, value in flops.items())


ALL_COUNTED = "all"


def _counted(rows: Sequence[Any]) -> str:
    """Whether all was, and what not: rows of the query FLOPS without their rank."""
    why = []
    if any(row[8] for row in rows):
        why.append("CUDA graphs were replayed, and what is in them is not counted")
    if any(row[7] for row in rows):
        why.append("torch.compile was used, and kernels that it generates are not counted")
    unseen = max((row[5] for row in rows), default=0)
    if unseen:
        name = next(row[6] for row in rows if row[5])
        why.append(f"{counted(unseen, 'operator')} per step like {name} cannot be counted")
    if not why:
        return ALL_COUNTED
    return ("at least: " if any(row[3] for row in rows) else "unknown: ") + "; ".join(why)


def utilisation(tables: Tables, selection: Selection = ALL) -> Table:
    """Floating-point operations a second of each rank's devices, and their share of what the GPU could do (MFU)."""
    table = Table("utilisation", "Utilisation", UTILISATION_COLUMNS, [])
    unrated = set[str]()
    for device_flops in device_flops_of(tables):
        if selection.ranks is None or device_flops.rank in selection.ranks:
            table.rows.append(_utilisation_row(device_flops))
            if device_flops.mfu is None and device_flops.flops and device_flops.device != CPU:
                unrated.add(device_flops.name or "a GPU without a name")
    if table.rows:
        table.notes.append("Masked attention pairs count as computed; nothing else that a GPU does is counted.")
    table.notes += [f"MFU unknown: the peak of {name} in these precisions is not known." for name in sorted(unrated)]
    if any(row[1] == "CPU" for row in table.rows):
        table.notes.append("MFU unknown on CPUs: their peak is not known.")
    table.notes += _unsampled(tables, selection)
    return arranged(table, selection)


def _unsampled(tables: Tables, selection: Selection) -> list[str]:
    """Ranks of torch without a sampled step, by why."""
    reasons: dict[str, list[int]] = {}
    for rank, what in tables.query(OBSERVED):
        if selection.ranks is None or rank in selection.ranks:
            kind, _, why = what.partition(": ")
            reason = f"operators are not seen by {kind} ({why})" if why else UNSAMPLED
            reasons.setdefault(reason, []).append(rank)
    return [f"Unknown of {rank_words(ranks)}: {reason}." for reason, ranks in sorted(reasons.items())]


def _utilisation_row(device_flops: DeviceFlops) -> tuple[Cell, ...]:
    flops, seconds = device_flops.flops, device_flops.step_ns / GIGA_NS if device_flops.step_ns else None
    rate = flops / seconds / TERA if flops is not None and seconds else None
    peak = flops / device_flops.at_peak_s / TERA if flops and device_flops.at_peak_s else None
    hfu = device_flops.at_peak_s / seconds if device_flops.at_peak_s and seconds else None
    mix = ", ".join(
        f"{name} {100 * share:.0f} %" if len(device_flops.shares) > 1 else name
        for name, share in device_flops.shares.items()
    )
    return (
        *(
            device_flops.rank,
            "CPU" if device_flops.device == CPU else str(device_flops.device),
            device_flops.name,
            device_flops.samples,
        ),
        *(
            flops / TERA if flops is not None else None,
            device_flops.error,
            device_flops.recomputed if flops else None,
            device_flops.step_ns,
        ),
        *(rate, mix, peak, device_flops.mfu, hfu, device_flops.counted),
    )


# ---------------------------------------------------------------- energy
COUNTER_S = 0.1  # NVML brings its counter up to date at least so often
ENERGY_COLUMNS = (
    Column("host", Unit.NAME, "Host"),
    Column("ranks", Unit.NAME, "Ranks", "ranks that use this GPU"),
    Column("device", Unit.NAME, "GPU", "the GPU's number in the process of the first of them"),
    Column("name", Unit.NAME, "Name", "as its driver gives it"),
    Column("samples", Unit.COUNT, "Samples", "times at which NVML's energy counter was read, about one a second"),
    Column("span_ns", Unit.NS, "Between them", "from the first to the last"),
    Column(
        "energy_j",
        Unit.NUMBER,
        "Energy, J",
        "by how much the counter grew meanwhile: of the whole GPU, other processes included",
    ),
    Column("power_w", Unit.NUMBER, "Mean power, W", "`energy_j` ÷ `span_ns`"),
    Column(
        "steps",
        Unit.NUMBER,
        "Steady steps",
        "steady steps of the first rank between the first and the last sample within them, with parts of steps",
    ),
    Column("step_j", Unit.NUMBER, "J per step", "energy between those two samples ÷ `steps`"),
    Column(
        "error",
        Unit.SHARE,
        "±",
        "2 × 0.1 s, by which the counter may be late at each end, ÷ the time between those two samples",
    ),
    Column("sm_mhz", Unit.NUMBER, "Clock, MHz", "clock of the multiprocessors, mean of the samples"),
    Column("temperature_c", Unit.NUMBER, "Hottest, °C", "highest temperature in a sample"),
    Column("processes", Unit.COUNT, "Processes", "most processes that computed on it, as far as the driver knows"),
    Column("unknown", Unit.NAME, "Unknown", "why its energy is not known"),
)
GPUS = """
    SELECT host, rank, process, device, name, uuid, samples, last_ns - first_ns, energy_mj, note
    FROM gpus JOIN ranks USING (process) WHERE role = 'rank' ORDER BY host, rank, device"""
POWER = """
    SELECT at_ns, energy_mj, sm_mhz, temperature_c, processes FROM gpu_power
    WHERE process = ? AND device = ? ORDER BY at_ns"""
SHORT = "fewer than two samples, which are a second apart"


def gpu_energy(tables: Tables, selection: Selection = ALL) -> Table:
    """Energy, power, clock and temperature of each GPU by NVML, and its energy a step."""
    table = Table("gpu_energy", "Energy of the GPUs", ENERGY_COLUMNS, [])
    by_device: dict[tuple[str, ...], list[Any]] = {}
    for host, rank, process, device, name, uuid, *rest in tables.query(GPUS):
        if selection.ranks is None or rank in selection.ranks:
            key = (host, uuid) if uuid else (host, str(process), str(device))
            by_device.setdefault(key, []).append((rank, process, device, name, *rest))
    shared = 0
    for (host, *_), users in by_device.items():
        shared += len({user[0] for user in users}) > 1
        table.rows.append(_energy_row(tables, host, users))
    if table.rows:
        table.notes.append("Total energy of the GPU, also while it was idle. GPUs that no rank uses are not here.")
    if shared:
        table.notes.append(f"{counted(shared, 'GPU')} shared by several ranks: a step is then one of each of them.")
    processes = [row[-2] or 0 for row in table.rows]
    if any(count > len(users) for count, users in zip(processes, by_device.values(), strict=True)):  # type: ignore[operator]
        table.notes.append("More processes than ranks computed on a GPU: their energy is in it.")
    return arranged(table, selection)


def _energy_row(tables: Tables, host: str, users: Sequence[Any]) -> tuple[Cell, ...]:
    """By the process that has looked at the GPU for longest."""
    rank, process, device, name, samples, span_ns, energy_mj, note = max(users, key=lambda user: user[4])
    ranks = rank_words(user[0] for user in users).partition(" ")[2]
    power = np.array(tables.query(POWER, (process, device)), np.float64).reshape(-1, 5)
    energy_j = energy_mj / 1e3 if energy_mj is not None else None
    watts = energy_j / (span_ns / GIGA_NS) if energy_j is not None and span_ns else None
    steps, step_j, error = _step_energy(tables, rank, power[:, 0], power[:, 1])
    return (
        *(host, ranks, str(device), name, samples, span_ns if samples else None, energy_j, watts, steps, step_j, error),
        *(_of(power[:, 2], np.mean), _of(power[:, 3], np.max), _count(power[:, 4])),
        note or ("" if energy_j is not None else SHORT),
    )


def _of(values: Any, summed: Any) -> float | None:
    known = values[~np.isnan(values)]
    return float(summed(known)) if len(known) else None


def _count(values: Any) -> int | None:
    most = _of(values, np.max)
    return None if most is None else int(most)


def _step_energy(tables: Tables, rank: int, at_ns: Any, energy_mj: Any) -> tuple[float | None, ...]:
    """Steps between the first and the last sample within the steady ones, joules a step and the error of that."""
    steps = steps_of(tables)
    rank_steps = next((each for each in steps.ranks if each.rank == rank), None)
    if rank_steps is None or not len(at_ns):
        return None, None, None
    steady = steps.steady(rank_steps)
    begin, end = rank_steps.values["begin_ns"][steady], (rank_steps.values["begin_ns"] + rank_steps.length_ns)[steady]
    if not len(begin):
        return None, None, None
    inside = np.flatnonzero((at_ns >= begin[0]) & (at_ns <= end[-1]))
    if len(inside) < 2:
        return None, None, None
    first, last = int(inside[0]), int(inside[-1])
    edges, numbers = np.append(begin, end[-1]), np.arange(len(begin) + 1, dtype=np.float64)
    between = float(np.interp(at_ns[last], edges, numbers) - np.interp(at_ns[first], edges, numbers))
    seconds = float(at_ns[last] - at_ns[first]) / GIGA_NS
    joules = float(energy_mj[last] - energy_mj[first]) / 1e3
    return between, joules / between if between else None, min(1.0, 2 * COUNTER_S / seconds)
