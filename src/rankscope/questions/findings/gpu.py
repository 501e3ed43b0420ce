"""The GPU has nothing to compute: it communicates, waits for the host, or copies."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean

from rankscope.model.tables import Tables
from rankscope.questions.findings.finding import Finding, seconds
from rankscope.questions.gpu.activities import COMMUNICATION, COPY, kind_of
from rankscope.questions.gpu.step_without import (
    bare_step_ns,
    host_floor_ns,
    recording_ns,
    sync_saving_ns,
    unrecorded_ns,
)
from rankscope.questions.gpu.steps import DeviceSteps, device_steps_of
from rankscope.questions.steps.data import steps_of
from rankscope.questions.wording import counted

NOTICEABLE = 0.05  # of the step
MOSTLY = 0.5


def _mean(devices: list[DeviceSteps], value: Callable[[DeviceSteps], float]) -> float:
    """Over the devices, whose steps all take the same time."""
    return mean(value(device) for device in devices)


def _of_step(ns: float, step_ns: float, is_bare: bool) -> str:
    unrecorded = "unrecorded " * is_bare
    return f"{seconds(ns)} of each {seconds(step_ns)} {unrecorded}step ({100 * ns / step_ns:.0f} %)"


def gpu_communication(tables: Tables) -> list[Finding]:
    """Kernels that communicate while none computes."""
    devices = device_steps_of(tables)
    if not devices:
        return []
    exposed, step = _mean(devices, lambda device: device.busy["exposed"]), _mean(devices, lambda device: device.step_ns)
    if exposed < NOTICEABLE * step:
        return []
    overlapped = _mean(devices, lambda device: device.overlapped_ns)
    shares = [device.wait_share for device in devices if device.wait_share is not None]
    waits = mean(shares) if shares else None
    evidence = [f"gpu_steps: {seconds(overlapped)} per step is overlapped with compute, {seconds(exposed)} is not"]
    action = "overlap it with backward (smaller DDP buckets, FSDP prefetch), send less (bf16 gradients, accumulation)"
    if waits is not None:
        evidence.append(f"collectives: {100 * waits:.0f} % of the time in them is waiting for the last rank")
        if waits > MOSTLY:
            action = "find out why ranks arrive late (rankscope report --table causes): most of it is waiting"
    bare = unrecorded_ns(tables)
    bare_step = bare_step_ns(devices, bare)
    floor, saved = host_floor_ns(tables), exposed * bare_step / step  # as much less as the step is shorter
    where = "the GPUs" if len(devices) > 1 else "the GPU"
    title = f"Exposed communication on {where} takes {_of_step(saved, bare_step, bool(bare))}"
    if floor is not None and bare_step - floor[0] < saved:
        saved = max(0.0, bare_step - floor[0])
        title += f"; overlapping it would save {seconds(saved)} per step: then the hosts limit the step"
        evidence.append(f"step_parts: the slowest host needs {seconds(floor[0])} per step, {floor[1]}")
    return [Finding("gpu_communication", title, action, evidence, saved * steps_of(tables).all_steps())]


def gpu_idle_causes(tables: Tables) -> list[Finding]:
    """What the host does, or does not do, while the GPUs have nothing to do."""
    gpus = device_steps_of(tables)
    if not gpus:
        return []
    bare, steps = unrecorded_ns(tables), steps_of(tables).all_steps()
    step = bare_step_ns(gpus, bare)
    added = _mean(gpus, lambda gpu: recording_ns(gpu, bare))
    sync = _mean(gpus, lambda gpu: sync_saving_ns(gpu, bare.get(gpu.rank)))
    findings = []

    def idle(cause: str) -> float:
        return _mean(gpus, lambda gpu: gpu.idle[cause])

    def add(rule: str, ns: float, title: str, action: str, evidence: str) -> None:
        if ns >= NOTICEABLE * step:
            title = f"{title} {_of_step(ns, step, bool(bare))}"
            findings.append(Finding(rule, title, action, [f"gpu_steps: {evidence}"], ns * steps))

    calls, kernels = _mean(gpus, lambda gpu: gpu.counts["sync_calls"]), _mean(gpus, lambda gpu: gpu.counts["kernels"])
    busy, inside = _mean(gpus, lambda gpu: gpu.busy_ns), _mean(gpus, lambda gpu: gpu.counts["sync_ns"])
    add(
        "synchronising",
        sync,
        "Synchronising host and GPU costs",
        "take .item(), .cpu(), print(loss) and torch.cuda.synchronize() out of the step, or call them every 100 steps",
        f"{calls:.3g} calls per step wait for the device, {seconds(inside)} in total",
    )
    lengths = [gpu.mean_kernel_ns for gpu in gpus if gpu.mean_kernel_ns is not None]
    each = f" of {seconds(mean(lengths))} each" if lengths else ""
    add(
        "launch_bound",
        max(0.0, idle("launch") - sync - added),
        "The GPU waits for the host to launch kernels for",
        "use CUDA graphs (torch.compile(mode='reduce-overhead')), torch.compile, or larger batches",
        f"{kernels:.0f} kernels per step{each}, GPU busy {100 * busy / _mean(gpus, lambda gpu: gpu.step_ns):.0f} %",
    )
    add(
        "gpu_idle",
        idle("unknown"),
        "GPU idle time of unknown cause takes",
        "mark the parts of the loop with ranges (NVTX, torch.profiler.record_function), or record with `rankscope run`",
        "the host neither launches nor waits for the device",
    )
    add(
        "data_bound",
        idle("data"),
        "The GPU waits for the data loader for",
        "give the data loader more workers or a faster source, or prefetch more",
        f"{seconds(idle('data'))} of {seconds(_mean(gpus, lambda gpu: gpu.idle_ns))} idle per step is waiting for data",
    )
    add(
        "between_parts",
        max(0.0, idle("python") - max(0.0, sync - idle("launch"))),
        "The GPU waits for Python outside forward, backward and optimizer for",
        "look at what the loop does there: logging, metrics, copies of tensors to the host",
        "the host is outside all parts of the step",
    )
    add(
        "gc_bound",
        idle("gc"),
        "The GPU waits for Python's garbage collection for",
        "call gc.freeze() after start-up, or gc.disable() and collect every few hundred steps",
        "idle during collections",
    )
    add(
        "recompiling",
        idle("compile"),
        "The GPU waits for torch to compile for",
        "keep shapes constant, or mark them dynamic (torch._dynamo.mark_dynamic)",
        "idle while torch compiles in steady steps",
    )
    add(
        "without_cpu",
        idle("preempted"),
        "The GPU waits for a host thread without a CPU for",
        "start fewer threads and data workers, or bind each rank to its own cores",
        "the loop's thread was runnable but had no CPU",
    )
    add(
        "host_collectives",
        idle("blocked"),
        "The GPU waits while the host is blocked in a collective for",
        "communicate on the device (NCCL), less often, or overlapped with compute (async_op=True, Iallreduce)",
        "the host is blocked in a collective of Gloo or MPI",
    )
    return findings


def gpu_copies_alone(tables: Tables) -> list[Finding]:
    """Copies during which nothing is computed."""
    devices = device_steps_of(tables)
    if not devices:
        return []
    bare = unrecorded_ns(tables)
    copy, step = _mean(devices, lambda device: device.busy["copy"]), bare_step_ns(devices, bare)
    if copy < NOTICEABLE * step:
        return []
    size = _mean(devices, lambda device: device.counts["copy_bytes"])
    pageable = _mean(devices, lambda device: device.counts["pageable_bytes"])
    of_it = 100 * pageable / size if size else 0.0
    action = "copy one batch ahead on a separate stream, with non_blocking=True"
    if pageable > MOSTLY * size:
        action = "pin host memory (DataLoader(pin_memory=True)), then copy one batch ahead with non_blocking=True"
    return [
        Finding(
            "gpu_copies",
            f"Exposed copies on the GPU take {_of_step(copy, step, bool(bare))}",
            action,
            [f"gpu_steps: {size / 1e6:.3g} MB per step, {of_it:.0f} % from or to pageable memory"],
            copy * steps_of(tables).all_steps(),
        )
    ]


# ---------------------------------------------------------------- where no step is known: all that the GPUs did
IN_WINDOW, IDLE_IN_WINDOW = 0.2, 0.5
WINDOWS = """
    WITH recordings AS (
        SELECT process, watched_ns / recorded_ns AS times FROM gpu_recordings
        WHERE windows > 0 AND seen_steps = 0 AND recorded_ns > 0)
    SELECT span_ns, communication_ns - hidden_ns, busy_ns - (compute_ns + communication_ns - hidden_ns),
        CASE WHEN tool <> '' OR times IS NOT NULL THEN span_ns - busy_ns ELSE 0 END, coalesce(times, 1)::DOUBLE,
        activities
    FROM devices JOIN ranks USING (process) LEFT JOIN recordings USING (process) WHERE role = 'rank' AND span_ns > 0"""


def gpu_active_window(tables: Tables) -> list[Finding]:
    """All that was recorded of the GPUs, where no step is known. Idle time only of loaded traces, which begin and end
    where somebody wanted to look, and of windows of recording: that of a whole process has its start in it."""
    windows = tables.query(WINDOWS) if not device_steps_of(tables) else []
    if not windows:
        return []
    span, exposed, copying, idle, times, activities = (mean(float(row[at]) for row in windows) for at in range(6))
    several = len(windows) > 1
    gpus, only = ("The GPUs", "only communicate") if several else ("The GPU", "only communicates")
    first = "their first activity to their last" if several else "its first activity to its last"
    where = f"the {seconds(span)} " + ("recorded" if times > 1 else f"from {first}")
    rate = f"{1e9 * activities / span:,.0f} kernels and copies a second of {seconds((span - idle) / activities)} each"
    candidates = (
        (exposed, IN_WINDOW, only, "overlap it with compute, or send less (--table gpu_time)", ""),
        (
            copying,
            IN_WINDOW,
            "only copy" if several else "only copies",
            "copy on a separate stream while kernels run (--table gpu_copies)",
            "",
        ),
        (
            idle,
            IDLE_IN_WINDOW,
            "are idle" if several else "is idle",
            "launch less often: larger batches, CUDA graphs (torch.compile(mode='reduce-overhead')), no .item() or "
            ".cpu() between kernels (--table gpu_gaps, gpu_idle)",
            rate,
        ),
    )
    covers = "the saving is scaled up from the recorded time" if times > 1 else "this covers the whole run"
    evidence = f"gpu_time: mean of {counted(len(windows), 'GPU')}; no steps were found, so {covers}"
    return [
        Finding(
            "gpu_active_window",
            f"{gpus} {what} for {seconds(ns)} of {where} ({100 * ns / span:.0f} %)",
            action,
            [evidence, *([f"gpu: {more}"] if more else [])],
            ns * times,
            in_steps=False,
        )
        for ns, least, what, action, more in candidates
        if ns >= least * span
    ]


# ---------------------------------------------------------------- where only sums are known: a profiler's summary
SUMMED = """
    SELECT process, name, sum(total_ns)::DOUBLE FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'gpu' AND total_ns IS NOT NULL GROUP BY ALL"""
OF_SUM = {COMMUNICATION: 0.2, COPY: 0.3}  # of the time of all activities
SUMMED_ADVICE = {
    COMMUNICATION: "overlap it with compute, or send less; a recorded run or a timeline (nsys, torch.profiler) shows "
    "how much is overlapped already, and who waits for whom",
    COPY: "pin host memory, copy ahead on a separate stream, and keep on the GPU what is needed again",
}


def gpu_sums(tables: Tables) -> list[Finding]:
    """Communication or copies take much of what the GPUs did, of runs that say nothing about when."""
    if device_steps_of(tables) or tables.query(TIMED):
        return []
    spent: dict[str, float] = {}
    processes = set()
    for process, name, total_ns in tables.query(SUMMED):
        spent[kind_of(name)] = spent.get(kind_of(name), 0.0) + total_ns
        processes.add(process)
    all_ns = sum(spent.values())
    return [
        Finding(
            "gpu_sums",
            f"{what} {100 * spent[kind] / all_ns:.0f} % of GPU time, {seconds(spent[kind] / len(processes))} per rank",
            SUMMED_ADVICE[kind],
            [f"gpu: {seconds(spent[kind])} of {seconds(all_ns)}, summed over {counted(len(processes), 'rank')}"],
            spent[kind] / len(processes),
            in_steps=False,
        )
        for kind, what in ((COMMUNICATION, "Communication kernels take"), (COPY, "Copies take"))
        if all_ns and spent.get(kind, 0.0) >= OF_SUM[kind] * all_ns
    ]


TIMED = """SELECT 1 FROM devices WHERE span_ns > 0
    UNION ALL SELECT 1 FROM untraced_events WHERE layer = 'gpu' LIMIT 1"""
