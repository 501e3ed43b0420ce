"""Kineto traces: rankscope against HolisticTraceAnalysis, on the same made-up trace, in turns.

    python benchmarks/kineto_against_hta.py [--rounds N] [--save]

Asked of both: load the trace, temporal breakdown, overlap of communication and computation, kernel breakdown. Each
turn is a new process; CPU time (user + system, its children included), wall time and the largest resident set are the
kernel's own figures. Then rankscope alone on traces of 1, 2 and 5 million events: does each event of a longer trace
cost more? HolisticTraceAnalysis is installed by name into .envs/hta. Both must agree, figure by figure; where it is
known to be wrong (a kernel's figures among more than ten of its kind, fractions of a microsecond) is left to tests.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parent, HERE / "results"
sys.path.insert(0, str(HERE))
from kineto_trace import write_trace  # noqa: E402
from startup import cpu_model  # noqa: E402

MILLION = 1_000_000
BAR_CPU, BAR_MEMORY = 20.0, 5.0  # times less than HolisticTraceAnalysis
BAR_FLAT = 1.25  # most that CPU time an event and memory may grow from 1 to 5 million events

OURS = """
import json, sys
from pathlib import Path
from rankscope.questions.gpu.activities import gpu_work
from rankscope.questions.gpu.walk import time_of
from rankscope.formats.registry import recognised
from rankscope.formats.source import Source

source = Source(Path(sys.argv[1]))
work = gpu_work(reading.event_columns for reading in recognised(source).read(source))
[device] = work.devices.values()
time, names = time_of(device), work.names

def figures(one):
    sample_stdev_ns = (one.deviations_ns2 / max(1, one.calls - 1)) ** 0.5
    return [ns / 1000 for ns in (one.total_ns, one.min_ns, one.max_ns, one.mean_ns, sample_stdev_ns)]

print(json.dumps({
    "kernel_us": time.span_ns / 1000,
    "idle_us": time.idle_ns / 1000,
    "compute_us": time.compute_ns / 1000,
    "overlap_percent": round(100 * time.hidden_ns / time.comm_ns, 2),
    "compute_alone_us": (time.compute_ns - time.hidden_ns) / 1000,
    "hidden_us": time.hidden_ns / 1000,
    "exposed_us": time.exposed_ns / 1000,
    "copy_us": time.copy_ns / 1000,
    "kernels": {name: figures(one) for name, one in names.items()},
}))
"""
THEIRS = """
import json, logging, sys
from pathlib import Path
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis

path = Path(sys.argv[1])
analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent), include_last_profiler_step=True)
[time] = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
[overlap] = analysis.get_comm_comp_overlap(visualize=False).to_dict("records")
by_kind, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
kinds = {one["kernel_type"]: float(one["sum"]) for one in by_kind.to_dict("records")}
columns = ("sum (us)", "min (us)", "max (us)", "mean (us)", "stddev")
print(json.dumps({
    "kernel_us": float(time["kernel_time(us)"]),
    "idle_us": float(time["idle_time(us)"]),
    "compute_us": float(time["compute_time(us)"]),
    "overlap_percent": float(overlap["comp_comm_overlap_pctg"]),
    "compute_alone_us": kinds["COMPUTATION"],
    "hidden_us": kinds["COMPUTATION overlapping COMMUNICATION"],
    "exposed_us": kinds["COMMUNICATION"] + kinds.get("COMMUNICATION overlapping MEMORY", 0.0),
    "copy_us": sum(us for kind, us in kinds.items() if "MEMORY" in kind),
    "kernels": {one["name"]: [float(one[column]) for column in columns] for one in kernels.to_dict("records")},
}))
"""
OUTSIDE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)
sys.stdout.buffer.write(done.stdout)
"""


def hta_python() -> str:
    """The Python of an environment with HolisticTraceAnalysis."""
    folder = ROOT / ".envs/hta"
    if not (folder / "bin/python").exists():
        venv.create(folder, with_pip=True)
    python = str(folder / "bin/python")
    if subprocess.run([python, "-c", "import hta"], capture_output=True).returncode:
        subprocess.run([python, "-m", "pip", "install", "-q", "HolisticTraceAnalysis"], check=True)
    return python


def measured(command: list[str]) -> dict[str, Any]:
    """What one process printed, and what it cost."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # through a process in between: the kernel tells the largest resident set of all children so far, and that has one
    outside = [sys.executable, "-S", "-c", OUTSIDE, *command]
    path = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(outside, env=path, stdout=subprocess.PIPE, check=True)
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    peak_kb, answer = done.stdout.decode().split("\n", 1)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = json.loads(answer.splitlines()[-1])
    return {"cpu_s": cpu_s, "wall_s": wall_s, "peak_mb": int(peak_kb) / 1024, "answer": found}


def told(who: str, turn: dict[str, Any]) -> str:
    return f"{who}: {turn['cpu_s']:.2f} s CPU, {turn['wall_s']:.2f} s, {turn['peak_mb']:.0f} MB"


def median(turns: list[dict[str, Any]], key: str) -> float:
    return statistics.median(turn[key] for turn in turns)


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """What the two do not agree on, to a millionth."""
    mine, its = ({**one, **one["kernels"], "kernels": 0} for one in (ours, theirs))
    return sorted(key for key in mine.keys() | its.keys() if not equal(mine.get(key), its.get(key)))


def equal(mine: Any, its: Any) -> bool:
    if isinstance(mine, list) and isinstance(its, list):
        return all(map(equal, mine, its))
    return None not in (mine, its) and abs(mine - its) <= 1e-6 * max(1.0, abs(its))


def traces(folder: Path, sizes: list[int]) -> dict[int, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    made = {size: folder / f"kineto-{size}.json" for size in sizes}
    for size, path in made.items():
        if not path.exists():
            write_trace(path.with_suffix(".part"), size)
            path.with_suffix(".part").rename(path)
    return made


def measure(rounds: int, alone_rounds: int) -> dict[str, Any]:
    """All figures of one machine."""
    files = traces(ROOT / "build/benchmark", [MILLION, 2 * MILLION, 5 * MILLION])
    ours, theirs = [sys.executable, "-c", OURS], [hta_python(), "-c", THEIRS]
    load, turns, other = os.getloadavg()[0], [], []
    for _ in range(rounds):
        turns.append(measured([*ours, str(files[MILLION])]))
        other.append(measured([*theirs, str(files[MILLION])]))
        print(told("rankscope", turns[-1]), told("HolisticTraceAnalysis", other[-1]), sep="\n", file=sys.stderr)
    alone: dict[int, list[dict[str, Any]]] = {size: [] for size in files}
    for _ in range(alone_rounds):
        for size, path in files.items():
            alone[size].append(measured([*ours, str(path)]))
    version = subprocess.run([theirs[0], "-m", "pip", "show", "HolisticTraceAnalysis"], capture_output=True, text=True)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_model(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "hta": next(line.split()[1] for line in version.stdout.splitlines() if line.startswith("Version")),
        "rounds": rounds,
        "load_before": round(load, 2),
        "file_mb": round(files[MILLION].stat().st_size / 1e6),
        "rankscope": figures(turns),
        "holistic_trace_analysis": figures(other),
        "times_less_cpu": round(median(other, "cpu_s") / median(turns, "cpu_s"), 1),
        "times_less_memory": round(median(other, "peak_mb") / median(turns, "peak_mb"), 1),
        "not_equal": differences(turns[0]["answer"], other[0]["answer"]),
        "by_events": {
            size: {**figures(some), "us_per_event": round(median(some, "cpu_s") / size * 1e6, 3)}
            for size, some in alone.items()
        },
    }


def figures(turns: list[dict[str, Any]]) -> dict[str, float]:
    keys = ("cpu_s", "wall_s", "peak_mb")
    return {key: round(median(turns, key), 2) for key in keys} | {
        "cpu_s_best": round(min(turn["cpu_s"] for turn in turns), 2)
    }


def growth(result: dict[str, Any]) -> tuple[float, float]:
    """How much CPU time an event and memory grow from 1 to 5 million events."""
    small, large = result["by_events"][MILLION], result["by_events"][5 * MILLION]
    return large["us_per_event"] / small["us_per_event"], large["peak_mb"] / small["peak_mb"]


def row(title: str, key: str, unit: str, result: dict[str, Any], bar: str = "") -> str:
    ours, theirs = result["rankscope"][key], result["holistic_trace_analysis"][key]
    return f"| {title} | {ours:.4g} {unit} | {theirs:.4g} {unit} | {theirs / ours:.1f} | {bar} |"


def as_markdown(result: dict[str, Any]) -> str:
    per_event, memory = growth(result)
    alike = "All figures are equal" if not result["not_equal"] else f"NOT equal: {', '.join(result['not_equal'])}"
    lines = [
        f"# Kineto traces: rankscope against HolisticTraceAnalysis {result['hta']}",
        f"{result['date']}, {result['cpu']} ({result['cpus']} CPUs), Linux {result['kernel']}, "
        f"Python {result['python']}, {result['rounds']} rounds in turns, medians, load {result['load_before']} before. "
        f"One trace of a million events ({result['file_mb']} MB, made by `benchmarks/kineto_trace.py`): "
        "load, temporal breakdown, overlap, kernel breakdown.",
        "",
        "| | rankscope | HolisticTraceAnalysis | times less | bar |",
        "|---|---:|---:|---:|---:|",
        row("CPU time", "cpu_s", "s", result, f"{BAR_CPU:g}"),
        row("CPU time, best round", "cpu_s_best", "s", result),
        row("wall time", "wall_s", "s", result),
        row("largest resident set", "peak_mb", "MB", result, f"{BAR_MEMORY:g}"),
        "",
        f"{alike}: kernel, idle and compute time, overlap, hidden and exposed communication, copies; and of each "
        "kernel the sum, least, largest, mean and standard deviation.",
        "",
        "| rankscope on | CPU time | an event | largest resident set |",
        "|---|---:|---:|---:|",
        *(
            f"| {size // MILLION} million | {one['cpu_s']} s | {one['us_per_event']} µs | {one['peak_mb']:.0f} MB |"
            for size, one in result["by_events"].items()
        ),
        "",
        f"From 1 to 5 million events: CPU time an event × {per_event:.2f}, memory × {memory:.2f} (bar: {BAR_FLAT:g}).",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the figures; exit 1 when a bar is missed or the results differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/kineto_against_hta.md and .json")
    options = parser.parse_args()
    result = measure(options.rounds, options.rounds)
    print(as_markdown(result), end="")
    if options.save:
        (RESULTS / "kineto_against_hta.md").write_text(as_markdown(result))
        (RESULTS / "kineto_against_hta.json").write_text(json.dumps(result, indent=1) + "\n")
    reached = result["times_less_cpu"] >= BAR_CPU and result["times_less_memory"] >= BAR_MEMORY
    return int(not reached or bool(result["not_equal"]) or max(growth(result)) > BAR_FLAT)


if __name__ == "__main__":
    sys.exit(main())
