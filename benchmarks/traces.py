"""Events of traces a CPU second: overlap, idle, kernel and range breakdown, from a million to a billion events.

    python benchmarks/traces.py [--sizes 1e6,1e7,1e8] [--rounds N] [--hta PYTHON] [--skip-hta] [--work FOLDER] [--save]

Traces are made by trace_law.py; each turn is a new process that opens the run and asks for the tables gpu_time,
gpu_idle, kernels and ranges. CPU time is user and system time of the whole process tree, start-up included. Three
ways: from rank files as the recorder leaves them, from loaded files (Parquet, with correlations: which call launched
what), and from columns that are in memory already (CPU time of the analysis alone). All of them must find what the law
says.

HolisticTraceAnalysis reads Kineto's JSON only, so it is held against rankscope on the same made-up Kineto trace, in
turns, with the four breakdowns of its own; both read the file.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parent, HERE / "results"
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(ROOT / "src"))
from kineto_against_hta import hta_python, measured, traces  # noqa: E402
from startup import cpu_model  # noqa: E402
from trace_answers import answers  # noqa: E402
from trace_law import Law, laws, ranks_for, write_run  # noqa: E402

BAR = 3_000_000  # events a CPU second
MOST_VERIFIED = 20_000_000  # events whose law is worked out again: kernels, gaps and ranges name by name
MOST_DISTINCT = 100_000_000  # events that are written; more are links to these files
IN_MEMORY_EVENTS = 10_000_000
TABLES = ("gpu_time", "gpu_idle", "kernels", "ranges")

OURS = """
import json, sys
import rankscope
run = rankscope.open(sys.argv[1])
told = {name: run.table(name, names="mangled").rows for name in sys.argv[2].split(",")}
time, idle, kernels, ranges = told.values()
print(json.dumps({
    "devices": {row[0]: [row[2], row[3], row[6], row[8], row[9], row[10]] for row in time},
    "gaps": [sum(row[3] for row in idle), sum(row[4] for row in idle)],
    "kernels": {row[1]: list(row[2:4]) for row in kernels},
    "ranges": {row[0]: list(row[3:6]) for row in ranges},
}))
"""
IN_MEMORY = """
import json, sys, time
from pathlib import Path
from rankscope.questions.events.tables import trace_tables
from rankscope.rank_files.events import trace_events
ranks = [list(trace_events(path)) for path in sorted(Path(sys.argv[1]).glob("ranks/*/*.rank"))]
begun = time.process_time()
for blocks in ranks:
    trace_tables(blocks)
print(json.dumps({"cpu_s": time.process_time() - begun}))
"""
OURS_KINETO = """
import json, sys
from pathlib import Path
from rankscope.questions.events.tables import trace_tables
from rankscope.formats.registry import recognised
from rankscope.formats.source import Source
source = Source(Path(sys.argv[1]))
made = trace_tables(reading.event_columns for reading in recognised(source).read(source))
print(json.dumps({"busy_us": made["device_sums"]["busy_ns"][0] / 1000, "ranges": len(made["range_sums"]["name"])}))
"""
THEIRS_KINETO = """
import json, logging, sys
from pathlib import Path
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
path = Path(sys.argv[1])
analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent), include_last_profiler_step=True)
[time] = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
analysis.get_comm_comp_overlap(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
analysis.get_idle_time_breakdown(visualize=False)
ranges = analysis.get_gpu_user_annotation_breakdown(use_gpu_annotation=False, visualize=False)
busy_us = float(time["kernel_time(us)"]) - float(time["idle_time(us)"])
print(json.dumps({"busy_us": busy_us, "ranges": 0 if ranges is None else len(ranges)}))
"""


def make(folder: Path, events: int, form: str) -> list[Law]:
    """The run of that size, written by as many processes as there are CPUs; a very large one links to a smaller one.

    Linked files tell of ranks once more, so tables leave them out, but all are read and summed up like the others.
    """
    target, copies = folder / f"{form}-{events}", events // MOST_DISTINCT
    if copies > 1:
        found = make(folder, MOST_DISTINCT, form)
        _link(folder / f"{form}-{MOST_DISTINCT}", target, copies)
        return found * copies
    found = laws(events, ranks_for(events))
    if not (target / "made").exists():
        with ProcessPoolExecutor() as pool:
            list(pool.map(partial(_make_one, target, len(found), form), found))
        (target / "made").touch()
    return found


def _link(source: Path, target: Path, copies: int) -> None:
    for path in sorted(source.rglob("*")):
        if path.is_file():
            kind, *below = path.relative_to(source).parts
            for copy in range(copies if below else 1):
                linked = target / kind / f"{below[0]}.{copy}" / Path(*below[1:]) if below else target / kind
                linked.parent.mkdir(parents=True, exist_ok=True)
                if not linked.exists():
                    os.link(path, linked)


def _make_one(target: Path, ranks: int, form: str, law: Law) -> None:
    write_run(target, [law], form, ranks)


def verified(answer: dict[str, Any], found: list[Law]) -> bool:
    """Whether the tables say what the law says; of very many events what their devices did."""
    if sum(law.events for law in found) > MOST_VERIFIED:
        few = found[:2]
        return all(answer["devices"][str(law.rank)] == list(answers([law]).devices[law.rank]) for law in few)
    law = answers(found)
    gaps = [sum(map(len, law.gaps.values())), sum(int(one.sum()) for one in law.gaps.values())]
    return bool(
        answer["devices"] == {str(rank): list(told) for rank, told in law.devices.items()}
        and answer["gaps"] == gaps
        and answer["kernels"] == {name: [one.calls, one.total_ns] for name, one in law.names.items()}
        and answer["ranges"] == {name: [one.calls, one.total_ns, law.own_ns[name]] for name, one in law.ranges.items()}
    )


def one_size(folder: Path, size: int, rounds: int, forms: tuple[str, ...]) -> list[dict[str, Any]]:
    """The figures of one size: each form, in turns."""
    turns: dict[str, list[dict[str, Any]]] = {form: [] for form in forms}
    events, disk = {}, {}
    for form in turns:
        found = make(folder, size, form)
        events[form] = sum(law.events for law in found)
        disk[form] = sum(path.stat().st_size for path in (folder / f"{form}-{size}").rglob("*") if path.is_file())
    for _ in range(rounds):
        for form in turns:
            turns[form].append(_turn(folder, size, form, found))
    made = []
    for form, told in turns.items():
        cpu_s = statistics.median(turn["cpu_s"] for turn in told)
        made.append(
            {
                "form": form,
                "events": events[form],
                "ranks": len(found),
                "rounds": rounds,
                "bytes_an_event": disk[form] / events[form],
                "cpu_s": cpu_s,
                "wall_s": statistics.median(turn["wall_s"] for turn in told),
                "peak_mb": statistics.median(turn["peak_mb"] for turn in told),
                "rate": events[form] / cpu_s,
                "equal": all(turn["equal"] for turn in told),
            }
        )
    return made


def _turn(folder: Path, size: int, form: str, found: list[Law]) -> dict[str, Any]:
    turn = measured([sys.executable, "-c", OURS, str(folder / f"{form}-{size}"), ",".join(TABLES)])
    turn["equal"] = verified(turn["answer"], found)
    print(
        f"{size:,} {form}: {turn['cpu_s']:.2f} s CPU, {turn['wall_s']:.2f} s, {turn['peak_mb']:.0f} MB", file=sys.stderr
    )
    return turn


def against_hta(folder: Path, python: str, rounds: int, sizes: list[int]) -> list[dict[str, Any]]:
    """Both on the same Kineto traces, in turns."""
    made = []
    for size, path in traces(folder, sizes).items():
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(measured([sys.executable, "-c", OURS_KINETO, str(path)]))
            theirs.append(measured([python, "-c", THEIRS_KINETO, str(path)]))
            print(f"{size:,}: {ours[-1]['cpu_s']:.2f} s, HTA {theirs[-1]['cpu_s']:.2f} s", file=sys.stderr)
        equal = abs(ours[0]["answer"]["busy_us"] / theirs[0]["answer"]["busy_us"] - 1) < 1e-6
        figures = {
            f"{who}_{key}": statistics.median(turn[key] for turn in turns)
            for who, turns in (("ours", ours), ("theirs", theirs))
            for key in ("cpu_s", "peak_mb")
        }
        made.append({"events": size, "equal": equal, **figures})
    return made


def in_memory(folder: Path, size: int, rounds: int) -> float:
    """Events a CPU second of the analysis alone."""
    found = make(folder, size, "rank")
    turns = [measured([sys.executable, "-c", IN_MEMORY, str(folder / f"rank-{size}")]) for _ in range(rounds)]
    return sum(law.events for law in found) / statistics.median(turn["answer"]["cpu_s"] for turn in turns)


def as_markdown(result: dict[str, Any]) -> str:
    rows, hta, load = result["rows"], result["hta"], result["load"]
    names = {"rank": "rank files", "parquet": "loaded, Parquet"}
    most = max(row["rounds"] for row in rows)
    alike = "all tables are what the law says" if all(row["equal"] for row in rows) else "NOT ALL TABLES ARE RIGHT"
    lines = [
        "# Events of traces a CPU second",
        f"{time.strftime('%Y-%m-%d')}, {cpu_model()} ({os.cpu_count()} CPUs, 2-core x86-64 virtual machine), Linux "
        f"{platform.release()}, Python {platform.python_version()}, load {load:.2f} before. "
        f"`python benchmarks/traces.py`; medians of up to {most} rounds; {alike}.",
        "",
        "Overlap, idle, kernel and range breakdown (tables gpu_time, gpu_idle, kernels, ranges) in one process, CPU "
        f"time of all its threads and its start-up included. Of more than {MOST_DISTINCT:.0e} events the files are "
        "links to others of the same run, read and summed up one by one all the same. Above 2e7 events the law is "
        "worked out for the devices of two ranks only.",
        "",
        "| events | ranks | from | bytes an event | CPU time | wall time | largest resident set "
        f"| events a CPU s (bar {BAR:,}) |",
        "|---:|---:|---|---:|---:|---:|---:|---:|",
        *(
            f"| {row['events']:,} | {row['ranks']} | {names[row['form']]} | {row['bytes_an_event']:.1f} "
            f"| {row['cpu_s']:.2f} s | {row['wall_s']:.2f} s | {row['peak_mb']:.0f} MB "
            f"| {row['rate'] / 1e6:.2f} million |"
            for row in rows
        ),
        "",
        *alone_lines(result),
        *growth(rows),
        "",
    ]
    if hta:
        lines += hta_lines(hta)
    return "\n".join(lines)


def alone_lines(result: dict[str, Any]) -> list[str]:
    if result["in_memory"] is None:
        return []
    events, rate = result["in_memory"]
    told = (
        f"From columns in memory ({events:,} events, the analysis alone): {rate / 1e6:.2f} million events a CPU second."
    )
    return [told, ""]


def growth(rows: list[dict[str, Any]]) -> list[str]:
    made = []
    for form in ("rank", "parquet"):
        costs = [(row["events"], row["cpu_s"] / row["events"] * 1e9) for row in rows if row["form"] == form]
        told = ", ".join(f"{cost:.0f} ns at {events:.0e}" for events, cost in costs)
        if costs:
            made.append(f"- CPU time an event, {'rank files' if form == 'rank' else 'Parquet'}: {told}.")
    return made


def hta_lines(hta: list[dict[str, Any]]) -> list[str]:
    return [
        "## HolisticTraceAnalysis",
        "Both read the same Kineto JSON (`benchmarks/kineto_trace.py`) and break down time, overlap, kernels, idle "
        "time and annotations, in turns.",
        "",
        "| events | rankscope | events a CPU s | HolisticTraceAnalysis | events a CPU s | times less CPU | memory, MB "
        "| busy time |",
        "|---:|---:|---:|---:|---:|---:|---:|---|",
        *(
            f"| {row['events']:,} | {row['ours_cpu_s']:.2f} s | {row['events'] / row['ours_cpu_s']:,.0f} "
            f"| {row['theirs_cpu_s']:.1f} s | {row['events'] / row['theirs_cpu_s']:,.0f} "
            f"| {row['theirs_cpu_s'] / row['ours_cpu_s']:.0f} "
            f"| {row['ours_peak_mb']:.0f} and {row['theirs_peak_mb']:.0f} "
            f"| {'equal' if row['equal'] else 'NOT equal'} |"
            for row in hta
        ),
        "",
        "dftracer's analyser (dftracer-analyzer 0.0.9) installs in a minute, but it does another job: it reads "
        "dftracer's own traces of I/O calls and says where I/O takes time; it knows no GPU activities or overlap.",
        "",
    ]


def save(result: dict[str, Any], wanted: bool) -> None:
    if wanted:
        (RESULTS / "traces.md").write_text(as_markdown(result))
        (RESULTS / "traces.json").write_text(json.dumps(result, indent=1) + "\n")


def main() -> int:
    """Print the figures; exit 1 when a bar is missed or a table is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1e6,1e7,1e8", help="1e8:rank, 1e8:parquet: one form only; '': those saved")
    parser.add_argument("--hta-sizes", default="3e5,1e6")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--hta", help="a Python that has HolisticTraceAnalysis (default: .envs/hta, made where missing)"
    )
    parser.add_argument("--skip-hta", action="store_true")
    parser.add_argument("--work", type=Path, default=ROOT / "build/benchmark")
    parser.add_argument("--keep", action="store_true", help="leave the made-up traces there")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/traces.md and .json")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"rows": [], "hta": [], "in_memory": None, "load": os.getloadavg()[0]}
    if not options.sizes:
        result = json.loads((RESULTS / "traces.json").read_text())
    for asked in filter(None, options.sizes.split(",")):
        size, _, form = asked.partition(":")
        events, forms = int(float(size)), (form,) if form else ("rank", "parquet")
        rounds = options.rounds if events < MOST_DISTINCT else 1
        result["rows"] += one_size(options.work, events, rounds, forms)
        save(result, options.save)  # what comes later may fail
    if options.sizes:
        result["in_memory"] = IN_MEMORY_EVENTS, in_memory(options.work, IN_MEMORY_EVENTS, options.rounds)
        save(result, options.save)
    if not options.skip_hta:
        sizes = [int(float(size)) for size in options.hta_sizes.split(",")]
        python = options.hta or hta_python()
        fresh = against_hta(options.work, python, min(2, options.rounds), sizes)
        result["hta"] = [row for row in result["hta"] if row["events"] not in sizes] + fresh
        save(result, options.save)
    print(as_markdown(result), end="")
    if not options.keep:
        for path in (path for form in ("rank", "parquet") for path in options.work.glob(f"{form}-*")):
            shutil.rmtree(path, ignore_errors=True)
    rows = result["rows"]
    reached = all(row["rate"] >= BAR for row in rows if row["events"] > 5e7)  # start-up is no event
    return int(not reached or not all(row["equal"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
