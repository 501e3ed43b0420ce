"""Makes the pictures of docs/pictures and the numbers of docs/questions: of demo, GPU and synthetic runs.

python tools/screenshots.py                          all of them, and the numbers
python tools/screenshots.py --only compare,gpu       some pictures
python tools/screenshots.py --first-screens FOLDER   of every kind of run, wide and narrow, light and dark: to look at
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from readme_output import demo_run
from synthetic_law import Law
from synthetic_run import write_run

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
PROBLEMS = ROOT / "benchmarks" / "results" / "h200" / "gpu_problems-2026-11-16.tar.xz"
SLOWED = ROOT / "benchmarks" / "results" / "h200" / "gpu_matrix_slow_parallel-2026-11-15.tar.xz"
GPU_RUNS = ROOT / "tests" / "runs" / "h200_runs.tar.gz"
ASK = ROOT / "tests" / "browser" / "ask.mjs"
QUESTIONS = ROOT / "docs" / "questions"
ANSWER = re.compile(r"(<!-- answer: (\w+) (\w+) -->\n```text\n).*?(```\n<!-- /answer -->)", re.DOTALL)
MOST_LINES = 14  # of an answer
MOST_BYTES = 650_000  # of all pictures
WIDTH = 1000
# picture: the page, the part of it (none: its top), dark or light
SHOTS: dict[str, tuple[str, str, bool]] = {
    "page": ("demo", "", False),
    "differing": ("many", "#differing", False),
    "start": ("demo", "#start figure", False),
    "imports": ("demo", "#imports figure", False),
    "steps": ("demo", "#steps figure", False),
    "timeline": ("demo", "#timeline figure", False),
    "wait_map": ("demo", "#wait_map figure", False),
    "waiting": ("demo", "#waiting figure", False),
    "communication": ("demo", "#communication figure", False),
    "gpu_steps": ("starved", "#gpu_steps figure", True),
    "gpu": ("gpu", "#gpu figure", True),
    "gpu_time": ("gpu", "#gpu_time figure", True),
    "memory": ("demo", "#memory figure", False),
    "balance": ("demo", "#balance figure", False),
    "overhead": ("demo", "#overhead figure", False),
    "compare": ("slowed", "", False),
}
WINDOWS = {"wide": (1440, 900), "narrow": (390, 844)}
FILLED = "[...document.querySelectorAll('.rows, .picture')].every((one) => one.children.length)"


def gpu_run(folder: Path) -> Path:
    """Two ranks of DistributedDataParallel on one H200."""
    with tarfile.open(GPU_RUNS) as packed:
        packed.extractall(folder, filter="data")
    return folder / "ddp"


def starved_run(folder: Path) -> Path:
    """A training on the H200 whose data loader takes 20 ms a batch."""
    with tarfile.open(PROBLEMS) as packed:
        packed.extractall(folder, filter="data")
    return folder / "problems" / "data"


def many_run(folder: Path) -> Path:
    """1,536 ranks of which rank 77 comes last to most collectives (docs/inside/synthetic.md)."""
    return write_run(folder / "many", Law(ranks=1536, collectives=300, stragglers=(77,), straggler_share=0.9))


def slowed_pair(folder: Path) -> Path:
    """The folder of two runs of DistributedDataParallel on the H200, in one of which rank 1 takes 20 ms more a step."""
    with tarfile.open(SLOWED) as packed:
        packed.extractall(folder / "slowed", filter="data")
    return folder / "slowed" / "runs"


MAKE = {"gpu": gpu_run, "starved": starved_run, "many": many_run, "slowed": slowed_pair}


def page_of(run: Path, folder: Path, name: str) -> Path:
    page = folder / f"{name}.html"
    if name == "slowed":
        sides = [f"before={run}/ddp-nobody-slow", f"after={run}/ddp-slow-1"]
        subprocess.run([sys.executable, "-m", "rankscope", "compare", *sides, "--html", str(page)], check=True)
        return page
    command = [sys.executable, "-m", "rankscope", "report", str(run), "--html", str(page)]
    subprocess.run(command, check=True)
    return page


def study_page(folder: Path) -> Path:
    """The page of a real study: how starting a job of mpi4py grows from 1 to 4 ranks."""
    python = str(ROOT / ".envs" / "openmpi" / "bin" / "python")
    asked = ["startup", "--only", "backend=mpi4py", "--scale", "1,2,4", "--repeat", "1", "--python", python]
    done = subprocess.run([sys.executable, "-m", "rankscope", "study", *asked, "--out", str(folder / "startup")])
    if done.returncode:
        raise SystemExit(f"the study ended with {done.returncode}")
    return folder / "startup" / "startup.html"


def question(pages: dict[str, Path], name: str) -> dict[str, Any]:
    page, selector, dark = SHOTS[name]
    shot = {"do": "screenshot", "path": str(PICTURES / f"{name}.png"), "selector": selector}
    steps = [{"do": "wait", "code": FILLED}, shot]
    return {"page": str(pages[page]), "width": WIDTH, "height": 640, "dark": dark, "steps": steps}


def take(questions: list[dict[str, Any]]) -> None:
    """Asks the browser of the tests for all pictures."""
    browser = os.environ.get("RANKSCOPE_BROWSER_ENV") or str(ROOT / ".envs" / "browser")
    lines = "".join(json.dumps(one) + "\n" for one in questions)
    done = subprocess.run(["node", str(ASK), browser], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    for line in done.stdout.splitlines():
        told = json.loads(line)
        if told["errors"] or told["console"]:
            raise SystemExit(f"a page complained: {told['errors'] or told['console']}")


def answer(runs: dict[str, Path], run: str, table: str) -> str:
    """The table as the command prints it, its first lines."""
    command = [sys.executable, "-m", "rankscope", "report", str(runs[run]), "--table", table]
    wide = {**os.environ, "COLUMNS": "110"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=wide)
    lines = done.stdout.rstrip().splitlines()
    left = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"… {left} more lines"] if left > 0 else [])]) + "\n"


def fill(page: Path, runs: dict[str, Path]) -> None:
    text = page.read_text(encoding="utf-8")
    made = ANSWER.sub(lambda found: f"{found[1]}{answer(runs, found[2], found[3])}{found[4]}", text)
    page.write_text(made, encoding="utf-8")


def first_screens(into: Path) -> int:
    """The first screen of every kind of run that tests/output/screens.py knows."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from output.screens import runs as kinds  # type: ignore[import-not-found]

    into.mkdir(parents=True, exist_ok=True)
    asked = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runs = {kind: run for kind, run in kinds(folder) if kind != "study"}  # that one's cells make no page
        pages = {kind: page_of(run, folder, kind) for kind, run in runs.items()}
        pages |= {"compare": page_of(slowed_pair(folder), folder, "slowed"), "study": study_page(folder)}
        for kind, page in pages.items():
            for window, (width, height) in WINDOWS.items():
                for theme in ("light", "dark"):
                    shot = {"do": "screenshot", "path": str(into / f"{kind}-{window}-{theme}.png")}
                    steps = [{"do": "wait", "code": FILLED}, shot]
                    size = {"width": width, "height": height, "dark": theme == "dark"}
                    asked.append({"page": str(page), **size, "steps": steps})
        take(asked)
    print(f"{len(asked)} pictures in {into}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="a recorded run of the demo (default: run make demo)")
    parser.add_argument("--only", metavar="NAME,…", help="these pictures only, and no numbers")
    parser.add_argument("--first-screens", type=Path, metavar="FOLDER", help="of every kind of run, into this folder")
    options = parser.parse_args()
    if options.first_screens:
        return first_screens(options.first_screens)
    PICTURES.mkdir(exist_ok=True)
    wanted = options.only.split(",") if options.only else list(SHOTS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runs = {SHOTS[name][0]: Path() for name in wanted}
        for name in runs:
            runs[name] = MAKE[name](folder) if name != "demo" else options.run or demo_run(folder)
        pages = {name: page_of(run, folder, name) for name, run in runs.items()}
        take([question(pages, name) for name in wanted])
        for page in sorted(QUESTIONS.glob("*.md")) if not options.only else ():
            fill(page, runs)
    size = sum(path.stat().st_size for path in PICTURES.glob("*.png"))
    print(f"{len(wanted)} pictures in {PICTURES.relative_to(ROOT)}, {size / 1000:.0f} kB in all")
    return 0 if size <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
