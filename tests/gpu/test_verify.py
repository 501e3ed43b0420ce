"""The checks of GPU evidence can fail: a recording that is right passes, and each thing put wrong is found."""

from __future__ import annotations

import gzip
import json
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mpis import ROOT
from rankscope import rank_file
from rankscope.rank_file import GroupKind, LayerNumber
from rankscope.rank_file_writer import RankFileWriter

MS = 1_000_000
TOLD: dict[str, Any] = {
    "skipped": {}, "pid": 7,
    "kernels": {
        "model_alpha": {"0": 3, "1": 2}, "model_in_outer": {"0": 4}, "model_in_inner": {"0": 6}, "model_spin": {"0": 3},
    },
    "copies": {"[CUDA memcpy HtoD]": [5, 500], "[CUDA memset]": [2, 80]},
    "memory": {"allocations": 4, "allocated_bytes": 400, "current_bytes": 100, "peak_bytes": 300},
    "pool_allocations": 1, "pinned_peak_bytes": 50, "managed_bytes": 10,
    "runtime_calls": {"cudaMalloc": 3}, "failed_calls": {"cuMemAlloc_v2": 1},
    "calls": {"cuLaunchKernel": [6, 12], "cuMemAlloc_v2": [2]},
    "ranges": {"": {"outer": 2, "inner": 2}, "model": {"step": 1}}, "range_threads": 2,
    "within": {"outer": {"model_in_outer": 4, "model_in_inner": 6}, "inner": {"model_in_inner": 6}},
    "directly_within": {"outer": {"model_in_outer": 4}, "inner": {"model_in_inner": 6}},
    "spin_ns": [20 * MS, 20 * MS],
}  # fmt: skip


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


def row(layer: str, name: str, calls: int, group: str = "", within: str = "", thread: int = 0, **more: Any) -> Any:
    from gpu_rows import Row

    each = more.pop("each_ns", 1000)
    made = Row(layer, name, group, within, thread, calls, calls * each, each, each, 0, 0, "call")
    return replace(made, **more)


def good_rows() -> list[Any]:
    inner = "<unnamed>/outer\x1f<unnamed>/inner"
    return [
        row("gpu", "model_alpha", 2, "stream 8"), row("gpu", "model_alpha", 3, "stream 9"),
        row("gpu", "model_in_outer", 4, "stream 8"), row("gpu", "model_in_inner", 6, "stream 8"),
        row("gpu", "model_spin", 3, "stream 8", total_ns=40 * MS + 500, min_ns=500, max_ns=20 * MS),
        row("gpu", "[CUDA memcpy HtoD]", 5, bytes=500), row("gpu", "[CUDA memset]", 2, bytes=80),
        row("gpu", "model_in_outer", 4, within="<unnamed>/outer"), row("gpu", "model_in_inner", 6, within=inner),
        row("cuda_api", "cudaMalloc", 3), row("cuda_api", "cuLaunchKernel", 12, thread=1),
        row("cuda_api", "cuLaunchKernel", 6, thread=2), row("cuda_api", "cuMemAlloc", 2, errors=1),
        row("nvtx", "outer", 2, "<unnamed>", thread=1), row("nvtx", "inner", 2, "<unnamed>", thread=1),
        row("nvtx", "step", 1, "model", thread=2),
    ]  # fmt: skip


def process_of(rows: list[Any]) -> Any:
    from gpu_rows import Process

    process = object.__new__(Process)
    process.rows, process.notes = rows, []
    process.facts = SimpleNamespace(lost_calls=0, rank=None)
    process.how, process.devices = np.zeros(1, rank_file.CUDA), np.zeros(1, rank_file.DEVICE)
    process.how["pinned_peak_bytes"] = 50
    for field, value in TOLD["memory"].items():
        process.devices[field] = value
    if "pool_allocations" in (process.devices.dtype.names or ()):
        process.devices["pool_allocations"] = 1
    return process


def test_what_cuda_allocates_by_itself_is_taken_off() -> None:
    from gpu_checks import Checks
    from gpu_verify_model import check_memory

    process, base = process_of([]), process_of([])
    base.devices["allocations"], base.devices["allocated_bytes"] = 10, 1000
    process.devices["allocations"], process.devices["allocated_bytes"] = 14, 1400
    for peak, failed in ((300, 0), (1300, 0), (299, 1), (1301, 1)):
        process.devices["peak_bytes"] = peak
        checks = Checks()
        check_memory(checks, process, TOLD, base)
        assert checks.failed == failed, peak


def failures_of(rows: list[Any], told: dict[str, Any] = TOLD) -> int:
    from gpu_checks import Checks
    from gpu_verify_model import check_model

    checks = Checks()
    check_model(checks, process_of(rows), told, "all")
    assert checks.passed > 10
    return checks.failed


def test_a_right_recording_passes() -> None:
    assert failures_of(good_rows()) == 0


@pytest.mark.parametrize("at", range(16))
def test_one_call_too_many_is_found(at: int) -> None:
    rows = good_rows()
    assert len(rows) == 16
    rows[at] = replace(rows[at], calls=rows[at].calls + 1)
    assert failures_of(rows) >= 1


@pytest.mark.parametrize("at", range(16))
def test_a_missing_row_is_found(at: int) -> None:
    rows = good_rows()
    del rows[at]
    assert failures_of(rows) >= 1


def test_bytes_times_errors_and_parts_left_out_are_found() -> None:
    for at, change in ((4, {"total_ns": 42 * MS}), (5, {"bytes": 501}), (12, {"errors": 0}), (0, {"name": "other"})):
        rows = good_rows()
        rows[at] = replace(rows[at], **change)
        assert failures_of(rows) >= 1, change
    assert failures_of(good_rows(), {**TOLD, "skipped": {"graph": "no"}}) == 1


# ---------------------------------------------------------------- beside torch.profiler


def trace(path: Path, kernels: int, us: float) -> None:
    events: list[dict[str, Any]] = []
    for number in range(kernels):
        place, name = {"pid": 1, "tid": 1, "ph": "X"}, "void k<float>(int)" if number % 2 else "Memset (Device)"
        start = 1000.0 + 10 * number
        events.append({**place, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start, "dur": 1.0,
                       "args": {"correlation": number + 1}})  # fmt: skip
        kind = "kernel" if number % 2 else "gpu_memset"
        events.append({**place, "cat": kind, "name": name, "ts": start + 5, "dur": us,
                       "args": {"correlation": number + 1, "device": 0, "stream": 7}})  # fmt: skip
    events.append(
        {"ph": "X", "cat": "user_annotation", "name": "measured", "pid": 1, "tid": 1, "ts": 1000.0, "dur": 9e6}
    )
    content = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events}
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def recorded_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_compare_profiler

    rows = []
    for within in ("", "<unnamed>/measured\x1f<unnamed>/batch"):
        rows += [
            row("gpu", "_Z1kIfEvi", 10, within=within, each_ns=5000),
            row("gpu", "[CUDA memset]", 10, within=within),
        ]
    process = process_of(rows)
    process.facts.rank = 0
    monkeypatch.setattr(gpu_compare_profiler, "processes_of", lambda run: [process])


@pytest.mark.parametrize(("kernels", "us", "bad"), [(20, 5.0, 0), (20, 5.1, 0), (20, 5.5, 1), (22, 5.0, 2 + 1)])
def test_counts_and_times_beside_the_profiler(
    kernels: int, us: float, bad: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpu_checks import Checks
    from gpu_compare_profiler import compare

    trace(tmp_path / "p.0.trace.json.gz", kernels, us)
    recorded_rank(monkeypatch)
    checks = Checks()
    compare(checks, "one rank", [(tmp_path, tmp_path / "p.json")])
    assert checks.failed == bad
    assert checks.passed == 4 - bad


# ---------------------------------------------------------------- whole archives


def archive(folder: Path, steps_kept: int, sizes: tuple[int, int]) -> Path:
    """A kill after 100 steps of 10 ms, and a minute of 2,000 kernels."""
    work = folder / "work"
    killed = RankFileWriter(pid=5, host=b"node")
    stream = killed.group("GPU 0 stream 7", kind=GroupKind.STREAM)
    killed.tally("train_step", steps_kept, steps_kept * 1000, layer=LayerNumber.GPU, group=stream)
    killed.write(work / "killed-0/ranks/node/5.rank")
    steps = [(number + 1, 10 * MS * number) for number in range(1000)]
    (work / "killed-0.steps").write_bytes(b"".join(struct.pack("=QQ", *step) for step in steps))
    (work / "kills.jsonl").write_text(json.dumps({"number": 0, "pid": 5, "killed_ns": 10_000 * MS, "exit": -9}) + "\n")
    many = RankFileWriter(pid=6, host=b"node")
    for number in range(2000):
        many.tally(f"size_kernel_{number:04d}", 10, 1000, layer=LayerNumber.GPU)
    many.write(work / "size/ranks/node/6.rank")
    said = [{"s": 5.0 + 60 * at, "launches": 20_000, "used_bytes": size, "pid": 6} for at, size in enumerate(sizes)]
    (work / "size.out").write_text("".join(json.dumps(line) + "\n" for line in said))
    with tarfile.open(folder / "gpu_check.tar.gz", "w:gz") as packed:
        packed.add(work, ".")
    return folder / "gpu_check.tar.gz"


@pytest.mark.parametrize(
    ("steps_kept", "sizes", "wrong"),
    [(950, (900_000, 900_000), ""), (300, (900_000, 900_000), "kill 0: s lost"), (1100, (900_000,) * 2, "kill 0: 1100"),
     (950, (900_000, 904_096), "grow"), (950, (4_100_000,) * 2, "bytes of the rank file")],
)  # fmt: skip
def test_a_whole_archive(
    steps_kept: int, sizes: tuple[int, int], wrong: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    import gpu_verify

    monkeypatch.setattr("sys.argv", ["gpu_verify.py", str(archive(tmp_path, steps_kept, sizes))])
    assert gpu_verify.main() == (1 if wrong else 0)
    bad = [line for line in capsys.readouterr().out.splitlines() if line.startswith("BAD")]
    assert len(bad) == bool(wrong) and all(wrong in line for line in bad), bad


def test_an_archive_with_nothing_in_it_is_no_success(tmp_path: Path) -> None:
    import gpu_verify

    assert gpu_verify.verify(tmp_path) == 1


def test_a_part_that_failed_is_found(tmp_path: Path) -> None:
    import gpu_verify

    for said, code in (
        ("kill exit 0 after 9 s", 0),
        ("kill exit 124 after 99 s", 1),
        ("size skipped: no time left", 1),
    ):
        (tmp_path / "parts.txt").write_text(f"model exit 0 after 1 s\n{said}\n")
        assert gpu_verify.verify(tmp_path) == code, said
