"""Operations, energy and torch's allocator: every figure worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from questions.gpu.test_gpu_steps import training
from rankscope.model.records import Mark, Reading
from rankscope.model.tables import Table, Unit
from rankscope.questions.gpu.memory import gpu_allocator
from rankscope.questions.gpu.peaks import PEAKS, peaks_of
from rankscope.questions.gpu.utilisation import gpu_energy, utilisation
from rankscope.questions.page.page import page_of
from rankscope.questions.run.screen import screen
from rankscope.questions.selection import Selection
from rankscope.store.run import RunTables
from runs.loaded import run_of

H200, SECOND, GIB, TERA = "NVIDIA H200", 1_000_000_000, 2**30, 10**12
Sample = tuple[int, int, str, int, int]  # step, device, precision, 10¹² operations, recomputed ones


def columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def sampled(*samples: Sample, name: str = H200, step_ms: float = 10.0, rank: int = 0, **told: Any) -> Reading:
    """A rank of equal steps, some of them sampled."""
    reading = training(rank, step_ms)
    given = {"operators": 1, "unseen": 0, "unseen_name": "", "compiled": False, "graphs": False} | told
    rows = [(*row[:3], row[3] * TERA, row[4] * TERA, *given.values()) for row in samples]
    names = ("number", "device", "precision", "flops", "recomputed_flops", *given)
    gpus = columns(("device", "name", "uuid"), [(0, name, "aa")])
    reading.utilisation_columns = {"step_flops": columns(names, rows), "gpus": gpus} if rows else {"gpus": gpus}
    return reading


def rows_of(table: Table) -> list[dict[str, Any]]:
    return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]


def test_mfu_is_the_time_at_the_peak_over_the_time_of_a_step() -> None:
    [row] = rows_of(utilisation(run_of([sampled((3, 0, "bf16", 4, 1), (16, 0, "bf16", 6, 1))])))
    assert (row["samples"], row["step_tflop"], row["step_ns"]) == (2, 5, 10_000_000)
    assert row["tflop_per_s"] == pytest.approx(500)
    assert row["error"] == pytest.approx(2**0.5 / 2**0.5 / 5)
    assert row["recomputed"] == pytest.approx(0.2)
    assert row["peak_tflop_per_s"] == pytest.approx(989.4)
    assert row["mfu"] == pytest.approx(400 / 989.4)
    assert row["hfu"] == pytest.approx(500 / 989.4)
    assert (row["precision"], row["counted"], row["device"], row["name"]) == ("bf16", "all", "0", H200)


def test_each_precision_has_its_own_peak() -> None:
    [row] = rows_of(utilisation(run_of([sampled((3, 0, "tf32", 3, 0), (3, 0, "fp32", 1, 0))])))
    at_peak_s = 3 / 494.7 + 1 / 67
    assert row["mfu"] == row["hfu"] == pytest.approx(at_peak_s / 0.01)
    assert row["peak_tflop_per_s"] == pytest.approx(4 / at_peak_s)
    assert row["precision"] == "tf32 75 %, fp32 25 %"


def test_without_a_peak_there_is_no_mfu_and_it_says_why() -> None:
    table = utilisation(run_of([sampled((3, 0, "bf16", 4, 0), name="NVIDIA Unheard-of")]))
    [row] = rows_of(table)
    assert (row["tflop_per_s"], row["peak_tflop_per_s"], row["mfu"], row["hfu"]) == (
        pytest.approx(400),
        None,
        None,
        None,
    )
    assert any("the peak of NVIDIA Unheard-of" in note for note in table.notes)
    table = utilisation(run_of([sampled((3, -1, "fp32", 4, 0))]))
    assert (table.rows[0][1], rows_of(table)[0]["mfu"]) == ("CPU", None)
    assert any("CPUs" in note for note in table.notes)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"compiled": True}, "at least: torch.compile was used"),
        ({"unseen": 2, "unseen_name": "flash_attn::fwd"}, "at least: 2 operators per step like flash_attn::fwd"),
        ({"graphs": True}, "at least: CUDA graphs were replayed"),
    ],
)
def test_what_was_not_counted_makes_it_a_lower_bound(told: dict[str, Any], expected: str) -> None:
    [row] = rows_of(utilisation(run_of([sampled((3, 0, "bf16", 4, 0), **told)])))
    assert row["counted"].startswith(expected)
    assert row["mfu"] == pytest.approx(400 / 989.4)


def test_a_replayed_graph_alone_is_unknown() -> None:
    [row] = rows_of(utilisation(run_of([sampled((3, -1, "", 0, 0), graphs=True)])))
    assert row["counted"].startswith("unknown: CUDA graphs")
    assert (row["step_tflop"], row["tflop_per_s"], row["mfu"]) == (None, None, None)


def test_without_the_compiled_observer_it_says_so() -> None:
    reading = sampled()
    reading.marks = [Mark("observer", 1, "Python hooks: no C++ compiler")]
    table = utilisation(run_of([reading]))
    assert not table.rows
    assert table.notes == ["Unknown of rank 0: operators are not seen by Python hooks (no C++ compiler)."]


def test_a_little_on_the_cpu_beside_the_gpu_is_no_row() -> None:
    [row] = rows_of(utilisation(run_of([sampled((3, 0, "bf16", 400, 0), (3, -1, "fp32", 1, 0))])))
    assert row["device"] == "0"


def figures_of(run: RunTables) -> dict[str, Any]:
    from rankscope.questions.registry import QUESTIONS

    seen = screen(lambda name: QUESTIONS[name].answer(run, Selection()), "run", "")
    assert seen.bars is not None
    return {label: (value, unit) for label, value, unit in seen.bars.figures}


def test_the_first_screen_and_the_page_have_mfu_only_where_it_is_known() -> None:
    run = run_of([sampled((3, 0, "bf16", 4, 0)), sampled((3, 0, "bf16", 2, 0), rank=1)])
    assert figures_of(run)["MFU"] == (pytest.approx(300 / 989.4), Unit.SHARE)
    assert {one.label: one.value for one in page_of(run, "run").figures}["MFU"] == "30 %"
    bound = figures_of(run_of([sampled((3, 0, "bf16", 4, 0), compiled=True)]))
    assert "MFU" not in bound and bound["MFU at least"][0] == pytest.approx(400 / 989.4)
    unknown = run_of([sampled((3, 0, "bf16", 4, 0)), sampled((3, 0, "bf16", 2, 0), rank=1, name="?")])
    assert not {"MFU", "MFU at least"} & set(figures_of(unknown))
    assert "MFU" not in {one.label for one in page_of(unknown, "run").figures}


@pytest.mark.parametrize(
    ("name", "bf16_or_fp16"),
    [
        ("NVIDIA H200", 989.4),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("Tesla V100-SXM2-16GB", 125),
        ("NVIDIA L40S", 362),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA A10G", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("", None),
    ],
)
def test_peaks_are_those_of_the_very_gpu(name: str, bf16_or_fp16: float | None) -> None:
    peaks = peaks_of(name)
    assert (peaks and peaks["fp16"]) == bf16_or_fp16


def test_peaks_grow_as_numbers_shrink() -> None:
    for name, peaks in PEAKS.items():
        order = [peaks[one] for one in ("fp64", "fp32", "tf32", "fp16", "fp8") if one in peaks]
        assert order == sorted(order), name
        assert "bf16" not in peaks or peaks["bf16"] == peaks["fp16"], name


def powered(rank: int = 0, samples: int = 9, note: str = "") -> Reading:
    """20 steps of half a second from 0 on; a GPU of 300 W looked at each second from the first on."""
    reading = training(rank, 500.0)
    reading.facts.host = "node0"
    names = ("device", "name", "uuid", "samples", "first_ns", "last_ns", "energy_mj", "note")
    first, last = (SECOND, samples * SECOND) if samples else (None, None)
    gpu = (0, H200, "aa", samples, first, last, 300_000 * (samples - 1) if samples > 1 else None, note)
    power = [(0, at * SECOND, 300_000 * at + 7, 1980, 60 + at, 2) for at in range(1, samples + 1)]
    tables = {"gpus": columns(names, [gpu])}
    if power:
        tables["gpu_power"] = columns(("device", "at_ns", "energy_mj", "sm_mhz", "temperature_c", "processes"), power)
    reading.utilisation_columns = tables
    return reading


def test_energy_of_a_step_is_that_between_two_samples() -> None:
    [row] = rows_of(gpu_energy(run_of([powered()])))
    assert (row["host"], row["ranks"], row["device"], row["samples"]) == ("node0", "0", "0", 9)
    assert (row["energy_j"], row["span_ns"], row["power_w"]) == (2400, 8 * SECOND, pytest.approx(300))
    assert (row["steps"], row["step_j"]) == (pytest.approx(16), pytest.approx(150))
    assert row["error"] == pytest.approx(0.2 / 8)
    assert (row["sm_mhz"], row["temperature_c"], row["processes"], row["unknown"]) == (1980, 69, 2, "")


def test_a_shared_gpu_is_told_once() -> None:
    table = gpu_energy(run_of([powered(0, 3), powered(1)]))
    [row] = rows_of(table)
    assert (row["ranks"], row["samples"], row["power_w"]) == ("0-1", 9, pytest.approx(300))
    assert any("shared by several ranks" in note for note in table.notes)
    assert not any("More processes" in note for note in table.notes)
    assert any("More processes" in note for note in gpu_energy(run_of([powered()])).notes)


def test_energy_that_is_not_known_says_why() -> None:
    [row] = rows_of(gpu_energy(run_of([powered(samples=0, note="Not Supported")])))
    assert (row["energy_j"], row["power_w"], row["step_j"], row["unknown"]) == (None, None, None, "Not Supported")
    [row] = rows_of(gpu_energy(run_of([powered(samples=1)])))
    assert row["energy_j"] is None and "fewer than two samples" in row["unknown"]


def test_the_allocator_by_its_peaks_and_its_last_look() -> None:
    reading = training()
    names = ("allocated_bytes", "allocated_peak_bytes", "reserved_bytes", "reserved_peak_bytes", "split_bytes")
    given = [(1, 2, 4, 5, 5, 1), (8, 3, 6, 8, 8, 2), (9, 4, 6, 7, 8, 2)]  # step, GiB of each
    rows = [(one[0], 0, one[0] * SECOND, *(value * GIB for value in one[1:]), at, 0) for at, one in enumerate(given)]
    gpus = columns(("device", "name", "memory_bytes"), [(0, H200, 16 * GIB)])
    allocator = columns(("number", "device", "at_ns", *names, "retries", "ooms"), rows)
    reading.utilisation_columns = {"allocator": allocator, "gpus": gpus}
    table = gpu_allocator(run_of([reading]))
    [row] = rows_of(table)
    assert [text.partition(",")[0] for text in table.warnings] == ["Rank 0"] and "failed 2 times" in table.warnings[0]
    assert (row["samples"], row["retries"], row["ooms"]) == (3, 2, 0)
    assert (row["allocated_peak_bytes"], row["reserved_peak_bytes"]) == (6 * GIB, 8 * GIB)
    assert (row["fragmentation"], row["reserved_share"]) == (0.25, 0.5)
    assert (row["allocated_bytes"], row["reserved_bytes"], row["growth_bytes"]) == (4 * GIB, 7 * GIB, 2 * GIB)
