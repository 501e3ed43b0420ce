"""What does one need to see first: did it work, where does the time go, what to do, and which ranks differ?"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from statistics import mean

from rankscope.model.records import Layer
from rankscope.model.tables import Cell, Table, Unit
from rankscope.pictures import Advice, Bar, Bars, Screen
from rankscope.questions.run.coverage import LOSSES
from rankscope.questions.run.screen_ranks import IDLE, OWN, Answer, Row, compared, number, percent, rows_of
from rankscope.questions.steps.traced import KERNELS, SAID
from rankscope.questions.wording import counted, rank_words, seconds, size

# Every word of the screen with its meaning: docs/reference/metrics.md and `rankscope explain` have them from here.
LABELS = {
    "compute": "on GPUs: at least one compute kernel runs; on hosts, in steps found by their pattern: outside "
    "collectives",
    "data loading": "the loop waits for its data loader",
    "exposed communication": "on GPUs: a communication kernel runs and no compute kernel does; on hosts: the loop "
    "is blocked in collectives",
    "wait": "of exposed communication: waiting for ranks that have not arrived yet, by the matched collectives",
    "transfer": "of exposed communication: after the last rank has arrived, exit skew included",
    "unmatched": "of exposed communication: in collectives that were not recorded on all their ranks",
    "pipeline bubble": "a stage of a pipeline is idle: it waits for a message that the other end has not posted yet, "
    "or for the other stages to finish the step (table bubbles)",
    "warm-up": "of the pipeline bubble: before the stage's first backward pass",
    "drain": "of the pipeline bubble: after its last forward pass",
    "uneven stages": "of the pipeline bubble: in between, because other stages take longer",
    "copies": "copies and memsets on a GPU, and no kernel",
    "idle": "nothing runs on a GPU",
    "idle: launching": "the GPU is idle because the host launches kernels too slowly",
    "idle: data loading": "the GPU is idle while the host waits for its data loader",
    "idle: synchronising": "the GPU is idle while the host is in a call that waits for the device",
    "idle: no CPU": "the GPU is idle while the host thread is runnable but has no CPU",
    "idle: Python": "the GPU is idle while the host is outside all parts of the step",
    "idle: GC": "the GPU is idle while Python collects garbage",
    "idle: compiling": "the GPU is idle while torch compiles",
    "idle: host collective": "the GPU is idle while the host is blocked in a collective",
    "idle: checkpoint": "the GPU is idle while the host writes a checkpoint",
    "idle: kernel start": "gaps under 3 µs, which the device takes to start the next kernel",
    "idle: unknown": "the GPU is idle, and what the host did is not known",
    "zero_grad": "the loop clears gradients",
    "forward": "the loop is in the forward pass, without the time blocked in collectives",
    "backward": "the loop is in the backward pass, without the time blocked in collectives",
    "optimizer": "the loop is in the optimizer, without the time blocked in collectives",
    "checkpoint": "the loop writes a checkpoint",
    "other": "the loop is in none of the other parts of the step",
    "rest": "everything too small for its own line",
    "overlapped": "communication hidden behind compute; part of compute",
    "MFU": "model FLOPs utilisation: FLOPs of a step ÷ its time ÷ peak of the GPU, mean over the GPUs (table "
    "utilisation)",
    "MFU at least": "the same if not every operator could be counted",
    "wait caused": "the rank's share of the wait that all ranks cause",
    "imbalance": "largest ÷ mean over the ranks of a step's time outside exposed communication",
    "largest kernel": "the GPU activity that takes most time, with its share of all GPU activities",
    "largest collective": "the collective, by size, in which ranks spend most time, with its share of the wait and "
    "transfer of all matched collectives",
    "blocked": "in a pipeline: its bubble and exposed communication together",
    "steps/s": "1 ÷ the mean steady step of the rank whose steps take longest",
    "growth": "a figure at the largest size of the job ÷ the same at the smallest",
    "save up to": "how much shorter the job would be at most, if only this finding were fixed",
    "proof": "what the tables that `rankscope report --table` shows say for a finding",
    "not checked": "problems that could not be checked: the run has no data about them",
    "recording cost": "the largest share in the table overhead: the part of the cost that could be measured",
    "HIGH": "a finding that could save 10 % or more of the steps' time (of the run, for costs outside steps)",
    "MED": "a finding that could save 3 % or more of the steps' time (of the run, for costs outside steps)",
    "LOW": "a finding that could save less than that",
    "ONCE": "a finding about a one-time cost of each job, however long it runs",
    "CHECK": "a finding that makes other numbers doubtful",
}
LEVELS = ("CHECK", "HIGH", "MED", "LOW", "ONCE")
HIGH, MEDIUM = 0.1, 0.03  # of the steps: a longer job has more of them, but only one start; else of the run
PAID_ONCE = ("slow_start", "first_collective", "compiling")
NOTICEABLE = 0.01  # of the step: less is not worth a line
MOST_EXPECTED = 10_000_000
MOST_BARS = 6


def screen(answer: Answer, name: str, load: str, bad_files: Sequence[str] = ()) -> Screen:
    """The first screen of a run, all of it from the answers to other questions; `load` adds files to it."""
    overview, coverage, findings = answer("overview"), answer("coverage"), answer("findings")
    [about] = rows_of(overview) or [{}]
    loaded = bool(about.get("tools"))
    problems = [*_missing(coverage, answer("ranks"), loaded, load), *_unread(bad_files), *_warnings(overview, coverage)]
    problems += _restarted(answer("attempts"))
    advice = [_advice(row) for row in rows_of(findings) if row["rule"] != "incomplete_coverage" or not problems]
    not_checked = [note for note in findings.notes if note.startswith("Not checked")] if about.get("ranks") else []
    ranks, note, imbalance = compared(answer)
    step = _step(answer)
    summed = _summed(about, answer)
    return Screen(
        _name(str(about.get("command") or ""), name),
        _facts(about, coverage, summed),
        problems,
        _completeness(coverage, str(about.get("tools") or ""), summed, _cost(answer)),
        step or _without_steps(answer),
        _phases(answer("phases")),
        advice,
        "" if advice else _verdict(about, not_checked, ranks),
        ranks,
        note,
        not_checked,
        _next(answer),
        int(about.get("ranks") or 0),
        _mean(step),
        any(row["what"] == "ended: still running" for row in rows_of(coverage)),
        imbalance,
        _largest_calls(answer) if step else (),
    )


def _largest_calls(answer: Answer) -> list[tuple[str, str, float]]:
    """The kernel and the collective that cost most: the bars of a step name neither."""
    largest = []
    kernels = rows_of(answer("gpu"))
    if kernels:
        most = max(kernels, key=lambda row: number(row, "total_ns"))
        largest.append(("largest kernel", str(most["name"]), number(most, "share")))
    collectives = rows_of(answer("collectives"))
    spent = [number(row, "wait_ns") + number(row, "transfer_ns") for row in collectives]
    if sum(spent):
        most = collectives[spent.index(max(spent))]
        size_text = f" up to {size(number(most, 'up_to_bytes'))}" if number(most, "up_to_bytes") else ""
        largest.append(("largest collective", f"{most['name']}{size_text}", max(spent) / sum(spent)))
    return largest


def _mean(step: Bars | None) -> float | None:
    return next((float(value) for label, value, _ in step.figures if label == "mean"), None) if step else None  # type: ignore[arg-type]


# ---------------------------------------------------------------- what ran, and was all of it seen?
def _name(command: str, run: str) -> str:
    """The program as one would call it: without interpreter, launcher and folders."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    script = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
    if script is None:
        script = 0 if words else None
    if script is None:
        return run
    return " ".join([os.path.basename(words[script]), *words[script + 1 :]])


def _summed(about: Row, answer: Answer) -> str:
    """Of whom the only profile of a run is the sum, by the tool's own count; "" where it is one process."""
    if not about.get("tools") or about.get("ranks") != 1:
        return ""
    counts = {"processes": 0, "hostnames": 0}
    for row in rows_of(answer("figures")):
        if row["name"] in counts:
            counts[row["name"]] = max(counts[row["name"]], int(number(row, "value_count")))
    if counts["processes"] < 2:
        return ""
    hosts = f" on {counted(counts['hostnames'], 'host')}" if counts["hostnames"] else ""
    return f"{counts['processes']:,} processes{hosts}"


def _facts(about: Row, coverage: Table, summed: str) -> list[str]:
    from_files = str(about.get("tools") or "")
    facts = [f"loaded from {from_files.replace('_', ' ')}"] if from_files else []
    if about.get("elapsed_ns"):
        facts.append(seconds(float(about["elapsed_ns"])))
    if summed:
        facts.append(f"{summed}, summed")
    elif about.get("ranks"):
        facts.append(counted(int(about["ranks"]), "rank"))
    if about.get("hosts"):
        facts.append(counted(int(about["hosts"]), "host"))
    ends = {row["what"].removeprefix("ended: "): row for row in rows_of(coverage) if row["what"].startswith("ended: ")}
    if list(ends) == ["still running"]:
        facts.append("running")
    elif len(ends) == 1:
        [end] = ends
        verb = "exited " if end.startswith("exit") else "" if end.startswith("stopped") else "ended with "
        facts.append(f"all {verb}{end.removeprefix('exit ')}")
    else:
        facts += [
            f"{row['count']} × {end} (rank{'s' * (row['count'] != 1)} {row['where']})" for end, row in ends.items()
        ]
    return facts


def _missing(coverage: Table, ranks: Table, loaded: bool, load: str) -> list[str]:
    """How many ranks there should be, and how to get the others, which depends on where these came from."""
    expected = max((row["count"] for row in rows_of(coverage) if row["what"].startswith("ranks expected")), default=0)
    seen = {row["rank"] for row in rows_of(ranks)}
    missing = set(range(min(expected, MOST_EXPECTED))) - seen
    if not missing:
        return []
    if loaded:
        which = f" ({rank_words(seen)})" if seen else ""
        others = "the other one" if len(missing) == 1 else f"the other {len(missing):,}"
        return [
            f"INCOMPLETE: {len(seen):,} of {expected:,} ranks loaded{which}: who waits for whom cannot be seen. "
            f"Load {others}: `{load}`"
        ]
    return [
        f"INCOMPLETE: {len(missing):,} of {expected:,} ranks not recorded ({rank_words(missing)}): sums are too "
        "small. "
        "Start every rank under `rankscope run`, or collect files left on dead ranks' nodes: `rankscope gather`"
    ]


def _warnings(overview: Table, coverage: Table) -> list[str]:
    """What else is wrong with the run or its recording; missing ranks have their own sentence."""
    others = [text for text in coverage.warnings if " expected by " not in text or " not recorded" not in text]
    warnings = [f"FAILED: {text}" for text in others if "ended abnormally" in text]
    warnings += [f"RUNNING: {text}" for text in overview.warnings]
    return warnings + [f"WARNING: {text}" for text in others if "ended abnormally" not in text]


def _restarted(attempts: Table) -> list[str]:
    """How often the job was started before this attempt, and how the one before it ended."""
    rows = rows_of(attempts)
    if len(rows) < 2:
        return []
    before = rows[-2]
    sentence = (
        f"attempt {before['attempt']} ended after {counted(int(number(before, 'steps')), 'step')}: {before['ended']}"
    )
    return [f"RESTARTED: this is attempt {rows[-1]['attempt']}; {sentence}. What it cost: rankscope goodput"]


def _unread(bad_files: Sequence[str]) -> list[str]:
    return [f"INCOMPLETE: {counted(len(bad_files), 'file')} could not be read: {bad_files[0]}"] if bad_files else []


def _completeness(coverage: Table, tools: str, summed: str, cost: str) -> str:
    rows = {row["what"]: row for row in rows_of(coverage)}
    seen = rows.get("ranks seen", {"count": 0})["count"]
    if tools:
        if not seen:
            return "Loaded: aggregate figures, no data per rank"
        what = "one sum over all processes" if summed else counted(seen, "rank")
        return f"Loaded: {what}; whether {tools.replace('_', ' ')} dropped anything is not known"
    expected = max((row["count"] for what, row in rows.items() if what.startswith("ranks expected")), default=seen)
    lost = [f"{row['count']:,} {what}" for what, row in rows.items() if what in LOSSES.values() and row["count"]]
    text = f"Complete: {seen:,} of {expected:,} rank{'s' * (expected != 1)}, {'; '.join(lost) or 'nothing lost'}"
    return f"{text}; {cost}" if cost else text


UNMEASURED = {Layer.HIP_API: "rocprofiler", Layer.ZE: "device times", Layer.OPENCL: "device times"}


def _cost(answer: Answer) -> str:
    """What recording cost on the rank that it cost most; the devices' part is known where windows have measured it."""
    known = max((number(row, "share") for row in rows_of(answer("overhead"))), default=None)
    if not known:
        return ""
    without = f" without {_unmeasured(answer)}" if answer("gpu").rows and not answer("gpu_windows").rows else ""
    return f"recording cost ≥ {percent(known)}{without}"


def _unmeasured(answer: Answer) -> str:
    """Whose part of the cost is not known, by the runtime of the devices."""
    layers = {row["layer"] for row in rows_of(answer("tallies"))}
    return next((words for layer, words in UNMEASURED.items() if layer in layers), "CUPTI")


# ---------------------------------------------------------------- where does the time go?
def _step(answer: Answer) -> Bars | None:
    """The mean step on the GPUs' clock where there is one, else on the hosts'."""
    lengths = next((row for row in rows_of(answer("steps")) if row["rank"] == "all" and row["name"] == "step"), None)
    on_gpus = rows_of(answer("gpu_steps"))
    on_hosts = rows_of(answer("step_parts"))
    if not on_gpus and not on_hosts:
        return None
    step_ns = mean(number(row, "step_ns") for row in on_gpus or on_hosts)
    figures: list[tuple[str, Cell, Unit]] = [("mean", step_ns, Unit.NS)]
    if on_gpus:  # of the same clock as the mean
        figures += [(name, mean(number(row, f"{name}_ns") for row in on_gpus), Unit.NS) for name in ("p50", "p99")]
    elif lengths is not None:
        figures += [("p50", lengths["p50_ns"], Unit.NS), ("p99", lengths["p99_ns"], Unit.NS)]
    slowest = max(number(row, "step_ns") for row in on_gpus or on_hosts)
    seen = max((int(number(row, "steps")) for row in rows_of(answer("gpu_windows"))), default=0) if on_gpus else 0
    label = f"of {seen:,} step" if seen else "step"  # windows have recorded some of them
    figures.append((label, max(int(number(row, "steps")) for row in on_gpus or on_hosts), Unit.COUNT))
    figures += _mfu(answer)
    figures += [("steps/s", 1e9 / slowest, Unit.NUMBER)] if slowest else []
    bars = device_bars(on_gpus) if on_gpus else host_bars(on_hosts, rows_of(answer("bubbles")))
    is_guess = any(note.startswith(SAID[KERNELS]) for note in answer("steps").notes)
    title = f"Where a {'guessed ' if is_guess else ''}step goes"
    if on_gpus:
        where = "the GPU" if len(on_gpus) == 1 else f"{len(on_gpus)} GPUs"
        return Bars(f"{title} on {where}", figures, bars, "gpu_steps")
    return Bars(title, figures, bars, "step_parts")


def _mfu(answer: Answer) -> list[tuple[str, Cell, Unit]]:
    """Only where it is known of every GPU."""
    rows = [row for row in rows_of(answer("utilisation")) if row["device"] != "CPU"]
    if not rows or any(row["mfu"] is None for row in rows):
        return []
    label = "MFU" if all(row["counted"] == "all" for row in rows) else "MFU at least"
    return [(label, mean(number(row, "mfu") for row in rows), Unit.SHARE)]


def device_bars(rows: Sequence[Row]) -> list[Bar]:
    """Compute, exposed communication, copies and idle time by cause, mean over the GPUs."""
    step = mean(number(row, "step_ns") for row in rows)

    def part(label: str, name: str, depth: int = 0) -> Bar:
        ns = mean(number(row, name) for row in rows)
        return Bar(label, ns, ns / step if step else 0.0, depth)

    exposed = part("exposed communication", "exposed_ns")
    bars = [part("compute", "compute_ns"), part("overlapped", "overlapped_ns", 1), exposed]
    if exposed.ns and all(row.get("wait_ns") is not None for row in rows):
        wait = part("wait", "wait_ns", 1)
        bars += [wait, Bar("transfer", exposed.ns - wait.ns, exposed.share - wait.share, 1)]
    bars += [part("copies", "copy_ns"), part("idle", "idle_ns")]
    bars += sorted((part(label, name, 1) for name, label in IDLE.items()), key=lambda bar: -bar.ns)
    return _worth_a_line(bars)


EXPOSED = ("wait", "transfer", "unmatched")  # of which exposed communication consists


BUBBLE = {"warmup_ns": "warm-up", "drain_ns": "drain", "imbalance_ns": "uneven stages"}


def host_bars(rows: Sequence[Row], stages: Sequence[Row] = ()) -> list[Bar]:
    """The host's own parts, the bubble of a pipeline and exposed communication, mean over the ranks."""
    step = mean(number(row, "step_ns") for row in rows)

    def bar(label: str, ns: float, depth: int = 0) -> Bar:
        return Bar(label, ns, ns / step if step else 0.0, depth)

    own = {label: mean(number(row, name) for row in rows) for name, label in OWN.items()}
    blocked = mean(number(row, "exposed_ns") for row in rows)
    idle = {name: mean(number(row, name) for row in stages) if stages else 0.0 for name in BUBBLE}
    if stages and mean(number(row, "window_ns") for row in stages) <= step:  # all of it is in the step: what is in no
        unaccounted = min(own["other"], max(0.0, sum(idle.values()) - blocked))  # operation of a table is idle, too
        own["other"], blocked = own["other"] - unaccounted, blocked + unaccounted
    held = min(1.0, blocked / sum(idle.values())) if any(idle.values()) else 0.0  # steps of ranks end at other times
    waiting = [bar("pipeline bubble", held * sum(idle.values()))]
    waiting += [bar(label, held * idle[name], 1) for name, label in BUBBLE.items()]
    exposed = bar("exposed communication", blocked - waiting[0].ns)
    within = {name: mean(number(row, f"exposed_{name}_ns") for row in rows) for name in EXPOSED}
    if stages:  # messages are in no matched collective: what of them is no bubble moves data
        moved = mean(number(row, "transfer_ns") for row in stages)
        within["transfer"] += min(moved, within["unmatched"])
        within["unmatched"] = max(0.0, within["unmatched"] - waiting[0].ns - moved)
        # the rest of the bubble is waited for in collectives: a stage that is done waits there for the others
        within["wait"] = max(0.0, min(within["wait"], exposed.ns - within["transfer"] - within["unmatched"]))
    parts = [bar(name, min(ns, exposed.ns), 1) for name, ns in within.items()]
    own_bars = sorted((bar(label, ns) for label, ns in own.items()), key=lambda bar_of: -bar_of.ns)
    return _worth_a_line([*own_bars, *waiting, exposed, *parts])


def _worth_a_line(bars: Sequence[Bar]) -> list[Bar]:
    """Those that can be seen, and the rest of the whole in one."""
    noticeable = [bar for bar in bars if bar.share >= NOTICEABLE]
    dropped = [bar for bar in bars if bar.share < NOTICEABLE and bar.depth == 0]
    rest = sum(bar.ns for bar in dropped)
    share = sum(bar.share for bar in dropped)
    return [*noticeable, Bar("rest", rest, share)] if share >= NOTICEABLE / 2 else noticeable


def _without_steps(answer: Answer) -> Bars | None:
    """Of a run without steps: the GPUs' time, or what the largest layer that was counted spends it in."""
    for make in (_gpu_time, _kernels, _routines, _tallies, _ranges):
        bars = make(answer)
        if bars is not None:
            return bars
    return None


def _gpu_time(answer: Answer) -> Bars | None:
    rows = [row for row in rows_of(answer("gpu_time")) if number(row, "span_ns")]
    if not rows:
        return None
    span = mean(number(row, "span_ns") for row in rows)

    def bar(label: str, value: Callable[[Row], float]) -> Bar:
        ns = mean(value(row) for row in rows)
        return Bar(label, ns, ns / span)

    def copies(row: Row) -> float:
        return max(0.0, number(row, "busy_ns") - number(row, "compute_ns") - number(row, "exposed_ns"))

    bars = [
        bar("compute", lambda row: number(row, "compute_ns")),
        bar("exposed communication", lambda row: number(row, "exposed_ns")),
        bar("copies", copies),
        bar("idle", lambda row: number(row, "idle_ns")),
    ]
    figures = [("active", span, Unit.NS), ("GPU", len(rows), Unit.COUNT)]
    note = "no steps: first to last activity"
    return Bars("Where GPU time goes", figures, _worth_a_line(bars), "gpu_time", note)


def _largest(rows: Sequence[Row], name: Callable[[Row], str], title: str, table: str, note: str) -> Bars | None:
    total = sum(number(row, "total_ns") for row in rows)
    if not total:
        return None
    ordered = sorted(rows, key=lambda row: -number(row, "total_ns"))[:MOST_BARS]
    bars = [Bar(name(row), number(row, "total_ns"), number(row, "total_ns") / total) for row in ordered]
    left = total - sum(bar.ns for bar in bars)
    bars += [Bar("rest", left, left / total)] if left >= NOTICEABLE * total else []
    return Bars(title, [("total", total, Unit.NS)], _worth_a_line(bars), table, note)


def _kernels(answer: Answer) -> Bars | None:
    rows = rows_of(answer("gpu"))
    return _largest(rows, lambda row: str(row["name"]), "Where GPU time goes", "gpu", "summed over kernels")


def _routines(answer: Answer) -> Bars | None:
    rows = rows_of(answer("routines"))
    of_wall = sum(number(row, "share") for row in rows)
    note = f"{percent(of_wall)} of wall time; summed over ranks, wait included" if of_wall else "summed over ranks"
    return _largest(rows, _routine, "Where MPI time goes", "routines", note)


def _routine(row: Row) -> str:
    """Some tools have a rank's MPI time in one sum."""
    return "not split by call" if row["name"] == "(all MPI)" else str(row["name"])


LAYERS: dict[str, str] = {
    Layer.GLOO: "Gloo",
    Layer.ONECCL: "oneCCL",
    Layer.CUDA_API: "CUDA",
    Layer.HIP_API: "HIP",
    Layer.XPU_API: "SYCL",
    Layer.ZE: "Level Zero",
    Layer.OPENCL: "OpenCL",
    Layer.OMP: "OpenMP",
    Layer.HOROVOD: "Horovod",
    Layer.PYTHON: "Python",
    Layer.OS: "operating system",
    Layer.CALLS: "system call",
    **{
        layer: layer.upper() for layer in (Layer.MPI, Layer.NCCL, Layer.JAX, Layer.NVTX, Layer.GPU, Layer.CXI, Layer.IO)
    },
}


def _tallies(answer: Answer) -> Bars | None:
    rows = [row for row in rows_of(answer("tallies")) if not row.get("within")]
    layers = {row["layer"]: 0.0 for row in rows}
    for row in rows:
        layers[row["layer"]] += number(row, "total_ns")
    if not layers:
        return None
    layer = max(layers, key=lambda key: layers[key])
    of_layer = [row for row in rows if row["layer"] == layer]
    title = f"Where {LAYERS.get(layer, layer)} time goes"
    return _largest(of_layer, lambda row: str(row["name"]), title, "tallies", "summed over ranks")


def _ranges(answer: Answer) -> Bars | None:
    rows = [{"name": row["name"], "total_ns": row.get("own_ns")} for row in rows_of(answer("ranges"))]
    note = "own time of ranges, summed over threads"
    return _largest(rows, lambda row: str(row["name"]), "Where the time of the trace goes", "ranges", note)


def _phases(table: Table) -> Bars | None:
    """The run from process start to end; what is small is put together."""
    rows = rows_of(table)
    if not rows:
        return None
    bars = [Bar(_phase(row), number(row, "median_ns"), number(row, "share")) for row in rows]
    return Bars("Where the run goes", [], sorted(bars, key=lambda bar: -bar.share), "phases")


def _phase(row: Row) -> str:
    """A phase that is one call is called like it."""
    what = str(row.get("what") or "")
    phase = str(row["phase"])
    names = {"start": "process start", "imports": f"import {what or 'torch'}"}
    return names.get(phase, what if phase == "init" and what else phase)


# ---------------------------------------------------------------- what to do
def _advice(row: Row) -> Advice:
    share, of_steps = row.get("share"), row.get("steps_share")
    weight = share if of_steps is None else of_steps
    level = "LOW"
    if row.get("saved_ns") is None:
        level = "CHECK"
    elif row["rule"] in PAID_ONCE:
        level = "ONCE"
    elif weight is None or weight >= HIGH:
        level = "HIGH"
    elif weight >= MEDIUM:
        level = "MED"
    proofs = []
    for text in str(row.get("evidence") or "").split("; "):
        table, colon, proof = text.partition(": ")
        if colon and table.replace("_", "").isalnum():
            proofs.append((table, proof))
        elif proofs:  # a semicolon within the sentence
            proofs[-1] = (proofs[-1][0], f"{proofs[-1][1]}; {text}")
    title, action, rule = str(row["finding"]), str(row["action"]), str(row["rule"])
    return Advice(level, title, action, proofs, rule, row["saved_ns"], share, of_steps)


def _verdict(about: Row, not_checked: Sequence[str], figures: Table | None) -> str:
    if not about.get("ranks") and figures is not None:
        grow = any(column.name == "growth" for column in figures.columns)
        return f"Aggregate figures only: nothing to check{'. `rankscope scale RUN` shows how they grow' * grow}."
    if not about.get("ranks"):
        return "Nothing to check: this run has no ranks."
    if not_checked:
        return "No findings; some checks could not run."
    return "No findings; every check had its data."


# ---------------------------------------------------------------- words
SHOWN_NEXT = (
    *("gpu_steps", "steps", "collectives", "waiting", "gpu", "kernels", "routines", "imports", "phases", "figures"),
)


def _next(answer: Answer) -> list[str]:
    """Tables of this run to go on with."""
    return [name for name in SHOWN_NEXT if answer(name).rows][:5]
