"""Frameworks on torch: are steps, parts, collectives and groups found, is an injected problem, and what does it cost?

    python benchmarks/frameworks.py --out benchmarks/results/frameworks.md

Each training runs bare and recorded by turns, and recorded with each problem put into it. Every job that is done
is a line beside --out (.jsonl), so that a stopped benchmark goes on where it was; --only, --limit-s choose a part of
it. --again forgets the lines of the cells that are chosen. --cost N: instead of these, N pairs of a bare and a recorded
job of more steps, which tell what recording costs where nothing else runs; and N more in which the C library keeps
the memory that is freed, because where it gives it back, which hangs on what lies above it on the heap, it costs page
faults, in some runs none and in others a thousand a step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src")]
PROGRAMS = Path(__file__).resolve().parent / "framework_programs"
WARMUP = 10  # steps that are not compared
COST_STEPS = 300  # of the jobs that are timed
LIMIT_S = 150
MACHINE = "oversubscribed"  # true wherever other programs use the machine: the next finding is of the training
PARTS = ("data", "zero_grad", "forward", "backward", "optimizer", "communication", "checkpoint", "compute", "other")


@dataclass(frozen=True)
class Cell:
    """One training, what may be put into it, and which rule is to find that."""

    name: str
    title: str
    program: str
    kind: str
    problems: tuple[tuple[str, str], ...] = (("late_rank", "straggler"),)
    ranks: int = 2
    steps: int = 60
    accumulate: int = 1
    launcher: str = "torchrun"
    before: tuple[str, ...] = ()  # options of the launcher
    groups: tuple[str, ...] = ()  # names that are to be in the tables
    attempts: int = 1
    parts: tuple[str, ...] = ("data", "forward", "backward", "optimizer")


LATE, LOADER = ("late_rank", "straggler"), ("slow_loader", "data_bound")
SLOW_STAGE = ("slow_stage", "slow_pipeline_part straggler")  # of its one rank
TORCH = "torch_training.py"
CELLS = [
    Cell("accelerate", "Accelerate", "accelerate_training.py", "ddp", (LATE, LOADER)),
    Cell("accelerate_accumulate", "Accelerate, 4 micro-batches", "accelerate_training.py", "ddp", accumulate=4),
    Cell("lightning", "Lightning", "lightning_training.py", "ddp", (LATE, LOADER), launcher="python"),
    Cell("lightning_accumulate", "Lightning, 4 micro-batches", "lightning_training.py", "ddp", launcher="python",
         accumulate=4),
    Cell("zero1", "DeepSpeed, ZeRO 1", "deepspeed_training.py", "zero1", (LATE, LOADER)),
    Cell("zero2", "DeepSpeed, ZeRO 2", "deepspeed_training.py", "zero2"),
    Cell("zero3", "DeepSpeed, ZeRO 3", "deepspeed_training.py", "zero3"),
    Cell("zero2_accumulate", "DeepSpeed, ZeRO 2, 4 micro-batches", "deepspeed_training.py", "zero2", accumulate=4),
    Cell("fsdp2", "FSDP2", TORCH, "fsdp2", groups=("dp",)),
    Cell("tp", "tensor parallel (DTensor)", TORCH, "tp", groups=("tp",)),
    Cell("pipeline", "pipelining, GPipe", TORCH, "pipeline", (SLOW_STAGE,), groups=("pp",)),
    Cell("pipeline_1f1b", "pipelining, 1F1B", TORCH, "pipeline_1f1b", (SLOW_STAGE,),
         groups=("pp",)),
    Cell("compiled", "torch.compile", TORCH, "compiled", (("shapes", "recompiling"),)),
    Cell("elastic", "elastic restart", TORCH, "elastic", before=("--max-restarts=1",), attempts=2),
    Cell("ray", "Ray actors", "ray_training.py", "actors", launcher="python"),
    Cell("ddp", "DDP", TORCH, "ddp", (LATE, LOADER)),
    Cell("accumulate", "DDP, 4 micro-batches", TORCH, "ddp", accumulate=4),
    Cell("scaler", "DDP, GradScaler", TORCH, "scaler"),
    Cell("fsdp1", "FSDP1", TORCH, "fsdp1"),
    Cell("mesh_2d", "FSDP2 × tensor parallel", TORCH, "mesh_2d", ranks=4, groups=("dp", "tp")),
]  # fmt: skip


def main() -> None:
    options = parse()
    kept = options.out.with_suffix(".jsonl")
    chosen = [cell for cell in CELLS if not options.only or cell.name in options.only]
    if options.again:
        names = {cell.name for cell in chosen}
        rows = [row for row in read(kept)
                if row["cell"] not in names or (row["what"] in TIMED) != bool(options.cost)]  # fmt: skip
        kept.write_text("".join(json.dumps(row) + "\n" for row in rows))
    until = time.monotonic() + options.limit_s
    prepare(options)
    for cell, what, turn in [] if options.table else planned(chosen, options):
        done = any((row["cell"], row["what"], row["turn"]) == (cell.name, what, turn) for row in read(kept))
        if not done and time.monotonic() < until:
            row = run(cell, what, turn, options)
            print(json.dumps(row), flush=True)
            with kept.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row) + "\n")
    written = "\n".join(document(read(kept), options)) + "\n"
    options.out.write_text(written + by_hand(options.out), encoding="utf-8")


BY_HAND = "\n## What the cost is made of\n"


def by_hand(path: Path) -> str:
    """The end of the document, which says what other measurements have found."""
    _, heading, text = path.read_text(encoding="utf-8").partition(BY_HAND) if path.exists() else ("", "", "")
    return heading + text


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], metavar="CELL", help=", ".join(cell.name for cell in CELLS))
    parser.add_argument("--pairs", type=int, default=3, help="of a bare and a recorded job")
    parser.add_argument("--problems", type=int, default=1, help="recorded jobs with each problem")
    parser.add_argument("--cost", type=int, default=0, metavar="N", help="only N pairs of longer jobs, for the cost")
    parser.add_argument("--limit-s", type=float, default=1e9, help="begin no job later than this")
    parser.add_argument("--again", action="store_true", help="forget what is known of the chosen cells")
    parser.add_argument("--table", action="store_true", help="only write the table anew")
    parser.add_argument("--keep", type=Path, help="keep the recorded runs in this folder")
    parser.add_argument("--env", type=Path, default=ROOT / ".envs" / "frameworks", help="environment with them all")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "frameworks.md")
    return parser.parse_args()


def prepare(options: argparse.Namespace) -> None:
    """The observer is compiled before the first job: that would see torch from Python only."""
    python = str(options.env.absolute() / "bin" / "python")
    words = [sys.executable, "-m", "rankscope", "doctor", "--prepare", "--python", python]
    subprocess.run(words, check=False, stdout=subprocess.DEVNULL)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def jobs_of(cell: Cell, pairs: int, problems: int) -> list[tuple[str, int]]:
    """Problems first: they are what a reader looks for; bare and recorded by turns, whichever first."""
    made = [(problem, turn) for turn in range(problems) for problem, _ in cell.problems]
    for turn in range(pairs):
        made += [("recorded", turn), ("bare", turn)] if turn % 2 == 0 else [("bare", turn), ("recorded", turn)]
    return made


LONG = {"bare": "bare, long", "recorded": "recorded, long"}
KEPT = {what: f"{long}, heap kept" for what, long in LONG.items()}
TIMED = (*LONG.values(), *KEPT.values())
HEAP_KEPT = {"MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_MMAP_THRESHOLD_": str(2**25)}  # more the latter cannot be


def planned(cells: list[Cell], options: argparse.Namespace) -> list[tuple[Cell, str, int]]:
    """One cell after the other; pairs for the cost by turns, so that each cell has about as many."""
    if not options.cost:
        return [(cell, *job) for cell in cells for job in jobs_of(cell, options.pairs, options.problems)]
    jobs = [(cell, what, turn) for cell in cells for what, turn in jobs_of(cell, options.cost, 0)]
    made = [(cell, names[what], turn) for names in (LONG, KEPT) for cell, what, turn in jobs]
    return sorted(made, key=lambda job: job[2])


# ---------------------------------------------------------------- one job
def run(cell: Cell, what: str, turn: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "truth").mkdir()
        begun = time.monotonic()
        words = command(cell, what, folder, options)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE_")},
            "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "100000", "DS_ACCELERATOR": "cpu",
            "PATH": f"{options.env.absolute() / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(PROGRAMS),
            **(HEAP_KEPT if what in KEPT.values() else {}),
        }  # fmt: skip
        try:
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_S, cwd=folder)
            exit_code, output, errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            exit_code, output, errors = -1, _text(late.stdout), _text(late.stderr)
        row: dict[str, Any] = {"cell": cell.name, "what": what, "turn": turn, "exit": exit_code}
        row |= {"day": time.strftime("%d %B %Y")}
        row |= {"lines": sorted(line for line in output.splitlines() if "steps, loss" in line or "losses" in line)}
        row |= {"seconds": round(time.monotonic() - begun, 1), "load": round(os.getloadavg()[0], 1)}
        warned = [line for line in errors.splitlines() if line.startswith("rankscope")]
        row |= {"warned": warned} if warned else {}
        known = [json.loads(path.read_text()) for path in sorted((folder / "truth").glob("[0-9]*.json"))]
        row |= truth_of(known)
        if exit_code:
            row["errors"] = errors[-1500:]
        if what not in ("bare", *TIMED) and (folder / "run").exists():
            try:
                row |= seen_of(folder / "run")
            except Exception as problem:
                row["unread"] = f"{type(problem).__name__}: {problem}"[:500]
            if options.keep:
                shutil.copytree(
                    folder / "run", options.keep / f"{cell.name}-{what}-{turn}", symlinks=True, dirs_exist_ok=True
                )
        return row


def _text(output: Any) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def command(cell: Cell, what: str, folder: Path, options: argparse.Namespace) -> list[str]:
    python = str(options.env.absolute() / "bin" / "python")
    steps = COST_STEPS if what in TIMED else cell.steps
    program = [str(PROGRAMS / cell.program), cell.kind, f"--steps={steps}", f"--accumulate={cell.accumulate}"]
    program += [f"--truth={folder / 'truth'}"]
    if what not in ("bare", "recorded", *TIMED):
        program.append(f"--problem={what}")
    is_bare = what in ("bare", LONG["bare"], KEPT["bare"])
    record = [] if is_bare else [sys.executable, "-m", "rankscope", "run", "--out", str(folder / "run")]
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={cell.ranks}", *cell.before]
    return [*record, *(torchrun if cell.launcher == "torchrun" else [python]), *program]


def truth_of(known: list[dict[str, Any]]) -> dict[str, Any]:
    """The ranks together; the time of a step is the median of the steady ones."""
    if not known:
        return {}
    lengths = [b - a for one in known for a, b in pairwise(one["ended_s"][WARMUP:])]
    cpu = [one["cpu_s"][-1] - one["cpu_s"][WARMUP] for one in known if len(one["cpu_s"]) > WARMUP]
    faults = [b - a for one in known for a, b in pairwise(one["faults"][WARMUP:])]
    return {
        "true_steps": sum(one["steps"] for one in known),
        "true_collectives": dict(sum((Counter(one["collectives"]) for one in known), Counter())),
        "true_messages": sum(sum(one["messages"].values()) for one in known),
        "true_groups": sorted({name for one in known for name in one["groups"]}),
        "step_ms": round(1e3 * median(lengths), 3) if lengths else None,
        "loop_cpu_s": round(sum(cpu), 4),
        "step_faults": round(mean(faults), 1) if faults else None,
    }


# ---------------------------------------------------------------- what rankscope says
STEPS = "SELECT rank, count(*) FROM steps JOIN ranks USING (process) WHERE role = 'rank' GROUP BY rank"
FLAGS = """
    SELECT sum(skipped::INT)::BIGINT, sum(accumulated::INT)::BIGINT, sum(backwards)::BIGINT
    FROM steps JOIN ranks USING (process) WHERE role = 'rank'"""
COLLECTIVES = """
    SELECT name, sum(calls)::BIGINT FROM tallies JOIN ranks USING (process)
    WHERE role = 'rank' AND layer = 'gloo' AND kind = 'progress' GROUP BY name"""
MESSAGES = """
    SELECT count(*) FROM message_ends JOIN ranks USING (process)
    WHERE role = 'rank' AND bytes > 1000"""  # of tensors: a pipeline sends their shapes first
GROUPS = """
    SELECT DISTINCT groups.name FROM groups JOIN ranks USING (process)
    WHERE role = 'rank' AND kind = 'process_group' AND collectives > 0"""


def seen_of(folder: Path) -> dict[str, Any]:
    import rankscope

    run = rankscope.open(folder)
    parts = ", ".join(f"sum({part}_ns)::DOUBLE" for part in PARTS)
    sums = run.query(f"SELECT {parts} FROM steps JOIN ranks USING (process) WHERE role = 'rank' AND NOT warmup").rows
    whole = sum(value or 0 for value in sums[0]) or 1.0
    findings = run.table("findings")
    found = [dict(zip(findings.columns, row, strict=True)) for row in findings.rows]
    kinds = run.table("parallel_groups")
    return {
        "steps": sum(count for _, count in run.query(STEPS).rows),
        "ranks": [rank for (rank,) in run.query("SELECT rank FROM ranks WHERE role = 'rank' ORDER BY rank").rows],
        "flags": dict(zip(("skipped", "accumulated", "backwards"), run.query(FLAGS).rows[0], strict=True)),
        "parts": {part: round((value or 0) / whole, 4) for part, value in zip(PARTS, sums[0], strict=True)},
        "collectives": dict(run.query(COLLECTIVES).rows),
        "messages": sum(value or 0 for (value,) in run.query(MESSAGES).rows),
        "groups": [name for (name,) in run.query(GROUPS).rows],
        "kinds": sorted({f"{row[0]} of {row[1]}" for row in kinds.rows}),
        "attempts": len({row[0] for row in run.table("attempts").rows}) or 1,
        "programs": [[row[0], row[3], row[4], row[7]] for row in run.table("programs").rows][:6],
        "findings": [[one["rule"], one["finding"]] for one in found][:5],
    }


# ---------------------------------------------------------------- the document
def document(rows: list[dict[str, Any]], options: argparse.Namespace) -> list[str]:
    timed = [row for row in rows if row["what"] in TIMED]
    days = " and ".join(dict.fromkeys(row["day"] for row in rows if row not in timed))
    lines = [
        "# Frameworks",
        f"`benchmarks/frameworks.py --pairs {options.pairs}`, {days}: {os.cpu_count()}-core "
        f"{platform.machine()} VM, Linux {platform.release().rpartition('.')[0]}, which other programs used, too "
        f"({load_of([row for row in rows if row not in timed])}); {versions(options)}.",
        "",
        "Two ranks over Gloo (four for the 2-D mesh) and small models, with steps of about 20 ms where the CPUs "
        "are free. Steps are counted by the program, collectives by torch's flight recorder, messages of pipelines by "
        "their micro-batches; all ranks and runs together. *Parts*: without those under 0.5 %. *Put in*: rank 1 "
        "sleeps for 40 ms in the forward pass of each step (late rank), all loaders sleep for 40 ms a batch (slow "
        "loader), rank 1 sleeps for 10 ms in the forward pass of each of 4 micro-batches (slow stage), the batch grows "
        "by a row every 8 steps (shapes). That other programs use the CPUs is a finding, too; it is left out here. "
        "*Output*: lines and exit code as bare, in all runs.",
        "",
        "| training | steps found / true | collectives and messages found / true | parts (% of a step) | groups | "
        "put in → first finding | output |",
        "|---|---:|---:|---|---|---|---|",
    ]
    notes = []
    for cell in CELLS:
        mine = [row for row in rows if row["cell"] == cell.name and row not in timed]
        if mine:
            line, told = line_of(cell, mine)
            lines.append(line)
            notes += told
    return [*lines, *(["", "## What falls short", *notes] if notes else []), *cost_lines(timed)]


def cost_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Of jobs that ran alone: what they tell is only as good as the machine was quiet."""
    if not rows:
        return []
    days = " and ".join(dict.fromkeys(row["day"] for row in rows))
    loads = [row["load"] for row in rows]
    lines = [
        *("", "## Cost"),
        f"`benchmarks/frameworks.py --cost`, {days}, with nothing else on the machine (load {min(loads):.1f} to "
        f"{max(loads):.1f}, of which 2 are the jobs' own): pairs of a bare and a recorded job of {COST_STEPS} steps, "
        "whichever first by turns. Recorded ÷ bare of each pair: median, and the least and the most, of the median "
        "steady step and of the CPU time of the steady steps. *Page faults*: of a rank's steady step, mean of each "
        "job; nearly all are of memory that the C library gave back to the system and takes again. *Heap kept*: pairs "
        f"in which it keeps it ({', '.join(f'`{name}={value}`' for name, value in HEAP_KEPT.items())}).",
        "",
        "| training | pairs | bare step, ms | step, recorded ÷ bare | CPU, recorded ÷ bare | page faults, bare | "
        "recorded | CPU, recorded ÷ bare, heap kept | output |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for cell in CELLS:
        mine, kept = (
            [row | {"what": what} for row in rows for what, name in names.items()
             if (row["cell"], row["what"]) == (cell.name, name)]
            for names in (LONG, KEPT)
        )  # fmt: skip
        bare = [row["step_ms"] for row in mine if row["what"] == "bare" and row.get("step_ms")]
        if bare:
            told = f"{ratios(mine, 'step_ms')} | {ratios(mine, 'loop_cpu_s')} | {faults_of(mine, 'bare')} | "
            told += f"{faults_of(mine, 'recorded')} | {ratios(kept, 'loop_cpu_s')} | {same(mine + kept)}"
            lines.append(f"| {cell.title} | {len(bare)} | {median(bare):.2f} | {told} |")
    return lines


def faults_of(rows: list[dict[str, Any]], what: str) -> str:
    """The mean of the jobs, and the least and the most."""
    found = [row["step_faults"] for row in rows if row["what"] == what and row.get("step_faults") is not None]
    return f"{mean(found):.0f} ({min(found):.0f}–{max(found):.0f})" if found else "–"


def line_of(cell: Cell, rows: list[dict[str, Any]]) -> tuple[str, list[str]]:
    recorded = [row for row in rows if row["what"] == "recorded"]
    seen = [row for row in rows if row["what"] != "bare" and "steps" in row]
    notes = []
    steps = f"{sum(row['steps'] for row in seen)} / {sum(row['true_steps'] for row in seen)}"
    found = sum(sum(row["collectives"].values()) + row["messages"] for row in seen)
    true = sum(sum(row["true_collectives"].values()) + row["true_messages"] for row in seen)
    parts = {part: 100 * median(row["parts"][part] for row in recorded or seen) for part in PARTS} if seen else {}
    shown = ", ".join(f"{part} {share:.0f}" for part, share in parts.items() if share >= 0.5)
    if missing := [part for part in cell.parts if parts.get(part, 0) <= 0]:
        notes.append(f"- {cell.title}: no {', '.join(missing)}")
    names = sorted({name for row in seen for name in row["groups"]})
    kinds = sorted({kind for row in recorded for kind in row["kinds"]})
    first = []
    for problem, rule in cell.problems:
        tops = [top_of(one) for one in seen if one["what"] == problem]
        right = [top for top in tops if top[0] in rule.split()]
        if tops:
            told = f"{problem.replace('_', ' ')} → {(right or tops)[0][1]}"
            first.append(f"{told} ({len(right)} of {len(tops)} runs)")
        wrong = [top for top in tops if top not in right]
        notes += [f"- {cell.title}: {problem}: first is `{top[0]}`, not `{rule.split()[0]}`" for top in wrong]
    if cell.attempts > 1:
        first.append(f"attempts seen: {sorted({row['attempts'] for row in seen})}")
    for row in seen:
        if row["steps"] != row["true_steps"]:
            notes.append(f"- {cell.title}, {row['what']}: {row['steps']} steps of {row['true_steps']}")
    text = f"| {cell.title} | {steps} | {found} / {true} | {shown} | {', '.join(names)}: {', '.join(kinds)} | "
    return text + f"{'; '.join(first)} | {same(rows)} |", notes


def top_of(row: dict[str, Any]) -> list[str]:
    """The first finding of the training itself."""
    return next((one for one in row["findings"] if one[0] != MACHINE), ["none", "none"])


def ratios(rows: list[dict[str, Any]], what: str) -> str:
    by_turn = {(row["what"], row["turn"]): row.get(what) for row in rows}
    turns = sorted({row["turn"] for row in rows if row["what"] == "recorded"})
    found = [
        by_turn["recorded", turn] / by_turn["bare", turn]
        for turn in turns
        if by_turn.get(("recorded", turn)) and by_turn.get(("bare", turn))
    ]
    if not found:
        return "–"
    return f"{median(found):.3f} ({min(found):.3f}–{max(found):.3f})"


def same(rows: list[dict[str, Any]]) -> str:
    told = {what: {json.dumps([row["exit"], row["lines"]]) for row in rows if row["what"] == what}
            for what in ("bare", "recorded")}  # fmt: skip
    warned = any(row.get("warned") for row in rows)
    if not told["bare"] or not told["recorded"]:
        return "–"
    return ("as bare" if told["bare"] == told["recorded"] else "DIFFERS") + (", a warning" if warned else "")


def load_of(rows: list[dict[str, Any]]) -> str:
    loads = [row["load"] for row in rows]
    return f"load average {min(loads):.0f} to {max(loads):.0f}: steps are many times as long as alone" if loads else ""


def versions(options: argparse.Namespace) -> str:
    asked = (
        "from importlib.metadata import version as v\n"
        "print(', '.join(f'{n} {v(n)}' for n in ('torch', 'lightning', 'accelerate', 'deepspeed', 'ray')))"
    )
    python = str(options.env.absolute() / "bin" / "python")
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "torch 2.13.0"


if __name__ == "__main__":
    main()
