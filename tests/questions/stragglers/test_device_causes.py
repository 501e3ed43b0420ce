"""Why a rank is late whose collectives run on the device: as an H200 recorded it, and by hand."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from rankscope.model.gpu import DeviceTotals, GpuRecording
from rankscope.questions.findings.stragglers import straggler
from rankscope.questions.stragglers.causes import causes
from rankscope.questions.stragglers.device_causes import DeviceCause, device_causes
from rankscope.rank_file import COLLECTIVE, GroupKind, LayerNumber, Part
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.loaded import run_of
from runs.small_run import MILLI, SECOND
from runs.step_runs import rank, steps

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results" / "h200"
STEPS, RANKS, LATE = 30, 3, 1
USUAL = {"gemm": (40, 0.1), "ncclDevKernel_AllReduce": (1, 9.0)}


def unpacked(folder: Path, archive: Path) -> Iterator[Path]:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return iter(sorted({path.parents[2] for path in folder.rglob("*.rank")}))


def test_the_h200_with_one_rank_slowed_and_with_none(tmp_path: Path) -> None:
    """A sleep in the NVTX range forward: of rank 1 for 20 ms, of rank 0 for 50 ms, and no other run names a cause."""
    expected = {"ddp-slow-1": (1, 20.0), "ddp-slow-0": (0, 50.0)}
    found = {}
    for number, archive in enumerate(sorted(RESULTS.glob("gpu_matrix*.tar.xz"))):
        for folder in unpacked(tmp_path / str(number), archive):
            run = open_run(folder, read_rank_file)
            for one in device_causes(run):
                found[folder.name] = (one.rank, pytest.approx(one.excess_ns / 1e6, rel=0.1))
                assert one.name == "range forward"
                assert causes(run).rows[0][:3] == (one.rank, one.host, "range forward")
                (finding,) = straggler(run)
                assert f"Rank {one.rank} (vm) is late by" in finding.title and "range forward" in finding.title
    assert found == expected


def simulated(
    folder: Path,
    host_ms: float = 0.0,
    part: Part = Part.OTHER,
    device_ms: float = 0.0,
    kernels: int = 0,
    hidden: bool = False,
    calls: Mapping[str, tuple[int, float]] | None = None,
    recorded_steps: int = 0,
    usual: Mapping[str, tuple[int, float]] = USUAL,
) -> RunTables:
    """Steps of 40 ms and what rank 1 is late by; the others wait in the kernel and, unless hidden, in CUDA.

    calls: of each kernel, how often a step launches it there and how long it takes in ms; elsewhere they are as usual.
    """
    late_ms = host_ms + device_ms
    readings = []
    for number in range(RANKS):
        made = rank(number, RANKS)
        is_late = number == LATE
        parts = {Part.DATA: 0.0, Part.FORWARD: 10.0, Part.BACKWARD: 10.0, Part.OTHER: 20.0 + late_ms}
        if is_late and part is not Part.OTHER:
            parts[part], parts[Part.OTHER] = parts[part] + host_ms, parts[Part.OTHER] - host_ms
        made.steps(steps([parts] * STEPS))
        blocked_ms = 10.0 + (device_ms if is_late or hidden else late_ms)
        made.tally("cudaDeviceSynchronize", STEPS, round(blocked_ms * STEPS * MILLI), layer=LayerNumber.CUDA_API)
        told_of = calls if is_late and calls else usual
        of_gpu = recorded_steps or STEPS
        for name, (count, ms) in told_of.items():
            made.tally(name, count * of_gpu, round(count * of_gpu * ms * MILLI), layer=LayerNumber.GPU, phase=5)
        group = made.group("NCCL", identity=1, size=RANKS, my_rank=number, kind=GroupKind.NCCL, collectives=STEPS)
        log = np.zeros(STEPS, COLLECTIVE)
        begins = SECOND + np.arange(STEPS) * (40 + late_ms) * MILLI + 20 * MILLI
        log["enter_ticks"] = begins + (late_ms * MILLI if is_late else 0)
        log["end_ticks"] = begins + (late_ms + 2) * MILLI
        log["name"], log["group"], log["bytes"] = made.string("ncclAllReduce"), group, 1 << 20
        log["sequence"], log["root"], log["phase"] = np.arange(1, STEPS + 1), -1, 5
        made.collectives(log)
        reading = read_rank_file(made.write(folder / f"{number}.rank"), events=True)
        compute_ms, count = 5.0 + (device_ms if is_late else 0), 100 + (kernels if is_late else 0)
        reading.devices = [DeviceTotals(0, count * of_gpu, compute_ns=round(compute_ms * of_gpu * 1e6))]
        if recorded_steps:
            reading.gpu_recordings = [GpuRecording(2, 0, 0, STEPS - 1, recorded_steps, 0, None, None, None, None)]
        readings.append(reading)
    return run_of(readings)


def told(run: RunTables) -> DeviceCause:
    (one,) = device_causes(run)
    assert one.rank == LATE and one.steps == STEPS
    return one


@pytest.mark.parametrize(
    ("part", "name"), [(Part.OTHER, "own compute on the host"), (Part.FORWARD, "forward"), (Part.DATA, "data loading")]
)
def test_a_late_host(part: Part, name: str, tmp_path: Path) -> None:
    one = told(simulated(tmp_path, host_ms=12.0, part=part))
    assert (
        one.name == name and one.excess_ns == pytest.approx(12 * MILLI) and one.waited_ns == pytest.approx(12 * MILLI)
    )
    assert "its host is busy outside CUDA calls for 42 ms per step, its peers for 30 ms" in one.evidence


def test_a_slower_device(tmp_path: Path) -> None:
    one = told(simulated(tmp_path, device_ms=8.0))
    assert one.name == "slower device" and one.excess_ns == pytest.approx(8 * MILLI)
    assert one.evidence == "its GPU computes 13 ms per step, its peers' 5 ms, with 100 kernels and copies against 100"
    (finding,) = straggler(simulated(tmp_path, device_ms=8.0))
    assert "power limit" in finding.action


def test_more_work_is_no_slower_device(tmp_path: Path) -> None:
    assert told(simulated(tmp_path, device_ms=8.0, kernels=40)).name == "more work on the device"


@pytest.mark.parametrize("recorded_steps", [0, 10])
@pytest.mark.parametrize(
    ("calls", "name"),
    [
        ({"gemm": (40, 0.1), "spin_kernel": (1, 8.0)}, "an extra kernel: spin_kernel"),
        ({"gemm": (120, 0.1)}, "more calls of the kernel gemm"),
        ({"gemm": (40, 0.3)}, "a slower kernel: gemm"),
        ({"gemm": (40, 0.1), "ncclDevKernel_AllReduce": (1, 17.0)}, "more work on the device"),
    ],
)
def test_the_kernel_that_is_to_blame(
    calls: dict[str, tuple[int, float]], name: str, recorded_steps: int, tmp_path: Path
) -> None:
    run = simulated(tmp_path, device_ms=8.0, kernels=40, calls=calls, recorded_steps=recorded_steps)
    one = told(run)
    assert one.name == name and one.excess_ns == pytest.approx(8 * MILLI)
    (finding,) = straggler(run)
    assert finding.title.endswith(name) and "its host" not in finding.action


def test_kernels_that_are_all_slower_are_a_slower_device(tmp_path: Path) -> None:
    names = ("gemm", "norm", "softmax")
    usual, slow = (dict.fromkeys(names, (40, 0.1 * factor)) for factor in (1, 1.7))
    run = simulated(tmp_path, device_ms=8.0, calls=slow, usual=usual)
    assert told(run).name == "slower device"


def test_nothing_is_told_where_nobody_is_late_or_the_sums_do_not_explain_it(tmp_path: Path) -> None:
    assert device_causes(simulated(tmp_path)) == []
    # the peers' hosts are as busy as the late one's: whatever it waited for, they did not
    run = simulated(tmp_path, host_ms=12.0, hidden=True)
    assert device_causes(run) == [] and "Other ranks wait for rank 1" in straggler(run)[0].title
