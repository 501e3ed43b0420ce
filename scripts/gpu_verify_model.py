"""Holds rank files against what gpu_model.py and gpu_matmul.py say they did: counts and bytes exactly, times to 3 %."""

from __future__ import annotations

import re
from typing import Any

from gpu_checks import Checks
from gpu_rows import Process, summed

TIME_SHARE = 0.03
MATMUL = re.compile("gemm|xmma|nvjet|cutlass", re.IGNORECASE)
DEFAULT_DOMAIN = ("", "<unnamed>")
CHOSEN = ("cuLaunchKernel", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemFree", "cuMemHostAlloc",
          "cuCtxSynchronize")  # fmt: skip


def check_model(checks: Checks, process: Process, told: dict[str, Any], api: str, base: Process | None = None) -> None:
    """base: the same program without allocations of its own, which tells what CUDA allocates by itself."""
    for part, reason in told["skipped"].items():
        checks.that(False, f"part {part} did not run: {reason}")
    check_kernels(checks, process, told)
    check_copies(checks, process, told)
    check_memory(checks, process, told, base)
    if api != "none":
        check_calls(checks, process, told, api)
    if "ranges" in told:
        check_ranges(checks, process, told)
        if api != "none":
            check_within(checks, process, told)
    check_times(checks, process, told)
    for field in ("dropped", "unfinished", "lost_ranges", "other_kinds"):
        checks.equal(field, process.state(field), 0)
    checks.equal("lost calls", process.facts.lost_calls, 0)


def check_kernels(checks: Checks, process: Process, told: dict[str, Any]) -> None:
    """By name, and how they spread over the streams, whose numbers only CUDA knows."""
    for name, by_stream in told["kernels"].items():
        found = summed([row for row in process.counted("gpu") if row.name == name], lambda row: row.group)
        checks.equal(f"kernel {name} by stream", sorted(found.values()), sorted(by_stream.values()))
    others = [row.name for row in process.counted("gpu") if not row.name.startswith(("model_", "[CUDA "))]
    checks.equal("kernels of other names", sorted(set(others)), [])


def check_copies(checks: Checks, process: Process, told: dict[str, Any]) -> None:
    for name, (calls, size) in told["copies"].items():
        rows = [row for row in process.counted("gpu") if row.name == name]
        checks.equal(name, sum(row.calls for row in rows), calls)
        checks.equal(f"{name}, bytes", sum(row.bytes for row in rows), size)


def check_memory(checks: Checks, process: Process, told: dict[str, Any], base: Process | None) -> None:
    def by_cuda(field: str) -> int:
        return (base.device(field) or 0) if base else 0

    for field in ("allocations", "allocated_bytes"):
        found = (process.device(field) or 0) - by_cuda(field)
        checks.equal(f"device memory, {field} (without {by_cuda(field)} of CUDA itself)", found, told["memory"][field])
    for field in ("current_bytes", "peak_bytes"):
        least, found = told["memory"][field], process.device(field) or 0
        most = least + by_cuda("allocated_bytes")
        checks.that(
            least <= found <= most, f"device memory, {field}: {found} recorded, {least} to {most} by the program"
        )
    pools = process.device("pool_allocations")
    if pools is None:
        checks.skip("this recorder does not tell allocations out of pools apart")
    else:
        checks.equal("allocations out of pools", pools, told["pool_allocations"])
    if "pinned_peak_bytes" in told:
        checks.equal("pinned memory, peak", process.state("pinned_peak_bytes"), told["pinned_peak_bytes"])
    moved = [(field, process.device(field)) for field in ("migrated_in_bytes", "migrated_out_bytes", "gpu_faults")]
    checks.note(f"managed memory of {told.get('managed_bytes', 0)} bytes touched from both sides: {dict(moved)}")


def check_calls(checks: Checks, process: Process, told: dict[str, Any], api: str) -> None:
    """Calls of the runtime always; of the driver where all are asked for: chosen ones are heard of a flush later."""
    calls = summed(process.counted("cuda_api"), lambda row: row.name)
    for name, times in told.get("runtime_calls", {}).items():
        checks.equal(name, calls.get(name, 0), times)
    if api != "all":
        return
    for name, by_thread in told["calls"].items():
        if name.startswith(CHOSEN):
            checks.equal(
                f"{unversioned(name)} of {len(by_thread)} threads", calls.get(unversioned(name), 0), sum(by_thread)
            )
    errors = summed(process.counted("cuda_api"), lambda row: row.name, lambda row: row.errors)
    for name, times in told.get("failed_calls", {}).items():
        checks.equal(f"{unversioned(name)} that failed", errors.get(unversioned(name), 0), times)
    failed = sum(told.get("failed_calls", {}).values())
    checks.equal("failed calls in all", sum(errors.values()), failed)


def unversioned(name: str) -> str:
    """cuMemAlloc_v2 is recorded as what everybody calls it."""
    return re.sub(r"_v\d+$", "", name)


def check_ranges(checks: Checks, process: Process, told: dict[str, Any]) -> None:
    rows = process.counted("nvtx")
    for domain, names in told["ranges"].items():
        inside = [row for row in rows if row.group == domain or (not domain and row.group in DEFAULT_DOMAIN)]
        for name, times in names.items():
            found = sum(row.calls for row in inside if row.name == name)
            checks.equal(f"NVTX range {domain or '(default domain)'}/{name}", found, times)
    checks.equal("threads with NVTX ranges", len({row.thread for row in rows}), told["range_threads"])


def check_within(checks: Checks, process: Process, told: dict[str, Any]) -> None:
    """What was launched inside each range: with all ranges further inside, and in it directly."""
    rows = [row for row in process.ranged("gpu") if row.name.startswith("model_")]
    if not rows:
        checks.that(False, "nothing is attributed to NVTX ranges")
        return
    for name, kernels in told["within"].items():
        inside = summed([row for row in rows if name in row.path], lambda row: row.name)
        checks.equal(f"inside range {name}", sorted(inside.items()), sorted(kernels.items()))
    for name, kernels in told["directly_within"].items():
        directly = summed([row for row in rows if row.path[-1] == name], lambda row: row.name)
        checks.equal(f"directly in range {name}", sorted(directly.items()), sorted(kernels.items()))


def check_times(checks: Checks, process: Process, told: dict[str, Any]) -> None:
    """One kernel more than the events saw ran before, too short to count."""
    rows = [row for row in process.counted("gpu") if row.name == "model_spin"]
    if "spin_ns" in told and rows:
        total_ns = sum(row.total_ns for row in rows) - min(row.min_ns for row in rows)
        checks.near("long kernels, ns beside CUDA events", total_ns, sum(told["spin_ns"]), TIME_SHARE)
        longest = max(row.max_ns for row in rows)
        checks.near("the longest of them", longest, max(told["spin_ns"]), TIME_SHARE)


def check_matmul(checks: Checks, process: Process, told: dict[str, Any]) -> None:
    matmuls = [row for row in process.counted("gpu") if MATMUL.search(row.name)]
    calls, total_ns = sum(row.calls for row in matmuls), sum(row.total_ns for row in matmuls)
    checks.equal("matrix multiplications", calls, told["matmuls"] + told["warm"])
    if calls:
        checks.near("one of them, ns beside CUDA events", total_ns / calls, told["matmul_loop_ns"] / told["matmuls"],
                    TIME_SHARE)  # fmt: skip
    arctangents = sum(row.calls for row in process.counted("gpu") if "atan" in row.name)
    checks.equal("arctangents, mostly of a replayed graph", arctangents, told["atan_kernels"])
    launches = sum(row.calls for row in process.counted("cuda_api") if row.name.startswith("cudaGraphLaunch"))
    checks.equal("cudaGraphLaunch", launches, told["graph_launches"])
