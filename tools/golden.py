"""A golden set: every answer to a fixed set of runs, written before a rebuild and compared after it.

    python tools/golden.py runs RUNS             collect the runs: recorded ones of benchmarks/results, other tools'
                                                 files of ../shared where it is there, synthetic ones
    python tools/golden.py write RUNS ANSWERS    every table as JSON and CSV, the report as screen and text, the page's
                                                 data, the layouts of other tools, comparisons of neighbouring runs
    python tools/golden.py compare OLD NEW       which answers differ, and how; exit code 1 if any does
    python tools/golden.py tables OLD NEW        the same of the tables' cells alone: by the columns' names, whatever
                                                 they are called on the screen, numbers to a microsecond or 1 in 10^5

The runs stay as they are between two writes: what differs then is the program's doing.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RANKSCOPE = ROOT / ".venv" / "bin" / "rankscope"
ARCHIVES = ROOT / "benchmarks" / "results" / "h200"
SHARED = ROOT.parent / "shared"
LARGEST_TABLE_ROWS = 500  # of tables that list single events
LAYOUTS = ("mpitrace", "nvprof", "iprof")
SYNTHETIC = {
    "synthetic-8": ["--ranks", "8", "--collectives", "400", "--stragglers", "3"],
    "synthetic-96": ["--ranks", "96", "--collectives", "200", "--stragglers", "17", "--skew-ns", "2000000"],
    "synthetic-holes": ["--ranks", "12", "--collectives", "300", "--killed", "1", "--absent", "1", "--lost-calls", "5"],
}
PAGE_DATA = re.compile(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")
FORMULA = re.compile(r',?\s*"formula": ?"(?:[^"\\]|\\.)*"')  # a sentence of metrics.md, which has its own test
LONGEST_DIFFERENCE = 12  # lines shown of each


def collect(folder: Path) -> int:
    """Unpack, load and synthesize the runs; what is there already stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for archive in sorted(set(ARCHIVES.glob("*.tar.xz")) - set(ARCHIVES.glob("gpu_cost_*"))):
        target = folder / archive.name.removesuffix(".tar.xz")
        if not target.exists():
            with tarfile.open(archive) as packed:
                packed.extractall(target, filter="data")
    for name, source in loadable():
        if not (folder / name).exists():
            run(["load", str(source), "--out", str(folder / name)])
    for name, options in SYNTHETIC.items():
        if not (folder / name).exists():
            command = [sys.executable, str(ROOT / "tools" / "synthetic_run.py"), str(folder / name), *options]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(f"{len(runs_of(folder))} runs in {folder}")
    return 0


def loadable() -> Iterator[tuple[str, Path]]:
    """Other tools' files: each trace by itself, every other folder as one run, and the documents."""
    if not SHARED.exists():
        print("golden: ../shared is not there: other tools' files are left out", file=sys.stderr)
        return
    for folder in sorted((SHARED / "samples").iterdir()):
        inside = sorted(folder.iterdir())
        single = folder.name == "kineto" or any(entry.is_dir() for entry in inside)
        for entry in inside if single else [folder]:
            yield f"loaded-{folder.name}-{entry.name.partition('.')[0]}" if single else f"loaded-{folder.name}", entry
    for document in sorted((SHARED / "seeds").iterdir()):
        yield f"loaded-document-{document.name[:3]}", document


def runs_of(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.rglob("run.json"))


def write(folder: Path, answers: Path) -> int:
    """All answers to all runs; a run that has them already is left out, so that a stopped writing goes on."""
    runs = runs_of(folder)

    def write_one(path: Path) -> str:
        target = answers / "-".join(path.relative_to(folder).parts)
        if not (target / "done").exists():
            target.mkdir(parents=True, exist_ok=True)
            write_answers(path, target)
            (target / "done").touch()
        return target.name

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        for number, name in enumerate(workers.map(write_one, runs), 1):
            print(f"\r{number}/{len(runs)} {name:<60.60}", end="", file=sys.stderr, flush=True)
    for before, after in pairwise(runs):
        if before.parent == after.parent != folder:
            name = "compare-" + "-".join((*before.relative_to(folder).parts, after.name)) + ".json"
            if not (answers / name).exists():
                (answers / name).write_text(output(["compare", str(before), str(after), "--format", "json"]))
    print(file=sys.stderr)
    return 0


def write_answers(path: Path, target: Path) -> None:
    tables = [word for name in table_names() for word in ("--table", name)]
    every = ["report", str(path), "--top", str(LARGEST_TABLE_ROWS), *tables]
    (target / "tables.json").write_text(one_a_line(output([*every, "--format", "json"])))
    (target / "tables.csv").write_text(output([*every, "--format", "csv"]))
    (target / "screen.txt").write_text(output(["report", str(path)]))
    (target / "report.txt").write_text(output(["report", str(path), "--full"]))
    for layout in LAYOUTS:
        (target / f"{layout}.txt").write_text(output(["report", str(path), "--layout", layout]))
    page = target / "page.html"
    (target / "page.txt").write_text(output(["report", str(path), "--html", str(page)]).replace(str(target), ""))
    if page.exists():
        text = page.read_text(encoding="utf-8")
        (target / "page.json").write_text("\n".join(one_a_line(part) for part in PAGE_DATA.findall(text)))
        page.unlink()


def table_names() -> list[str]:
    told = csv.DictReader(io.StringIO(run(["tables", "--format", "csv"]).stdout))
    return [row["name"] for row in told]


def one_a_line(text: str) -> str:
    """JSON with a row a line, so that a difference can be read."""
    return re.sub(r"([\]}]),(?=[\[{\"])", r"\1,\n", text)


def output(arguments: list[str]) -> str:
    """What a user would see: both streams and the exit code."""
    done = run(arguments)
    return f"{done.stdout}{done.stderr}\nexit {done.returncode}\n"


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {"COLUMNS": "120", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"}
    return subprocess.run([str(RANKSCOPE), *arguments], capture_output=True, text=True, check=False, env=environment)


def compare(old: Path, new: Path) -> int:
    """Every file on both sides."""
    names = sorted({str(path.relative_to(side)) for side in (old, new) for path in side.rglob("*") if path.is_file()})
    found = Counter(difference(old / name, new / name, name) for name in names)
    print(f"{len(names)} answers: {', '.join(f'{count} {kind}' for kind, count in found.most_common())}")
    return int(found["differ"] > 0)


def difference(before: Path, after: Path, name: str) -> str:
    was, now = (path.read_text(encoding="utf-8").splitlines() if path.exists() else [] for path in (before, after))
    if was == now and before.exists() == after.exists():
        return "the same"
    if "Traceback (most recent call last):" in was and "Traceback (most recent call last):" in now:
        return "a traceback on both sides" if was[-3:] == now[-3:] else "differ"
    if canonical(was) == canonical(now):
        return "the same but for the order of rows, of which nothing was said, or the last digits of a sum"
    print(f"== {name}")
    lines = [line for line in difflib.unified_diff(was, now, n=0, lineterm="") if not line.startswith(("---", "+++"))]
    for line in lines[:LONGEST_DIFFERENCE]:
        print(f"   {line[:200]}")
    if len(lines) > LONGEST_DIFFERENCE:
        print(f"   … {len(lines) - LONGEST_DIFFERENCE} more lines")
    return "differ"


def canonical(lines: list[str]) -> list[str]:
    """Lines in one order, formulas, brackets and commas of the last in a list left out, numbers to ten digits."""
    rounded = (NUMBER.sub(lambda found: f"{float(found[0]):.10g}", FORMULA.sub("", line)) for line in lines)
    plain = (
        " ".join(line.replace("]", " ").replace("}", " ").replace("[", " ").rstrip(", ").split()) for line in rounded
    )
    return sorted(line for line in plain if line and not line.startswith('"Empty: '))  # why there are no rows


def compare_tables(old: Path, new: Path) -> int:
    """Every cell of every table of every run."""
    counts: Counter[str] = Counter()
    differing: dict[str, list[str]] = defaultdict(list)
    for path in sorted(old.glob("*/tables.json")):
        before, after = tables_in(path), tables_in(new / path.relative_to(old))
        for name in sorted(before.keys() | after.keys()):
            told = cells_differ(before.get(name), after.get(name))
            counts[told.partition(":")[0]] += 1
            if told.startswith("differ"):
                differing[f"{name}{told.removeprefix('differ')}"].append(path.parent.name)
    for what, runs in sorted(differing.items(), key=lambda item: -len(item[1])):
        print(f"{len(runs):4} {what}: {', '.join(runs[:3])}{' …' if len(runs) > 3 else ''}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    return int(bool(differing))


def tables_in(path: Path) -> dict[str, Any]:
    """By name; the file has one document after the other."""
    text, at, found = path.read_text(encoding="utf-8"), 0, {}
    while text[at:].strip().startswith("{"):
        at += len(text[at:]) - len(text[at:].lstrip())
        document, at = json.JSONDecoder().raw_decode(text, at)
        found.update({table["name"]: table for table in document.get("tables", [document])})
    return found


def cells_differ(before: Any, after: Any) -> str:
    if before is None or after is None:
        return "new" if before is None else "gone"
    names = [[column["name"] for column in table["columns"]] for table in (before, after)]
    rows = [
        [dict(zip(own, row, strict=True)) for row in table["rows"]]
        for own, table in zip(names, (before, after), strict=True)
    ]
    common = [name for name in names[0] if name in names[1]]
    if len(rows[0]) != len(rows[1]):
        return "differ: number of rows"
    for sort in (False, True):
        if sort:
            for side in rows:
                side.sort(key=lambda row: str([row[name] for name in common if not isinstance(row[name], float)]))
        bad = [n for n in common if not all(alike(a[n], b[n]) for a, b in zip(*rows, strict=True))]
        if not bad:
            return "the same but for the order of rows" if sort else "the same"
    return f"differ: {', '.join(bad)}"


def alike(before: Any, after: Any) -> bool:
    if isinstance(before, int | float) and isinstance(after, int | float):
        return abs(before - after) <= max(1100.0, 1e-5 * max(abs(before), abs(after)))
    return bool(before == after)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    two = ("old", "new")
    for name, words in (("runs", ("folder",)), ("write", ("folder", "answers")), ("compare", two), ("tables", two)):
        command = commands.add_parser(name)
        for word in words:
            command.add_argument(word, type=Path)
    options = parser.parse_args()
    if options.command == "runs":
        return collect(options.folder)
    if options.command == "write":
        return write(options.folder, options.answers)
    if options.command == "tables":
        return compare_tables(options.old, options.new)
    return compare(options.old, options.new)


if __name__ == "__main__":
    sys.exit(main())
