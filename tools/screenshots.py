"""Makes the pictures of docs/pictures: pages of a real demo run and of a recorded GPU run, opened in Chromium."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from readme_output import demo_run

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
GPU_RUNS = ROOT / "tests" / "unit" / "h200_runs.tar.gz"
ASK = ROOT / "tests" / "browser" / "ask.mjs"
MOST_BYTES = 300_000  # of all pictures
WIDTH = 1000
# picture: the page, the part of it (none: its top), dark or light
SHOTS: dict[str, tuple[str, str, bool]] = {
    "page": ("demo", "", False),
    "steps": ("demo", "#steps figure", False),
    "wait_map": ("demo", "#wait_map figure", False),
    "waiting": ("demo", "#waiting figure", False),
    "communication": ("demo", "#communication figure", False),
    "gpu": ("gpu", "#gpu figure", True),
    "gpu_time": ("gpu", "#gpu_time figure", True),
}
FILLED = "[...document.querySelectorAll('.rows, .picture')].every((one) => one.children.length)"


def gpu_run(folder: Path) -> Path:
    """Two ranks of DistributedDataParallel on one H200."""
    with tarfile.open(GPU_RUNS) as packed:
        packed.extractall(folder, filter="data")
    return folder / "ddp"


def page_of(run: Path, folder: Path, name: str) -> Path:
    page = folder / f"{name}.html"
    command = [sys.executable, "-m", "rankscope", "report", str(run), "--html", str(page)]
    subprocess.run(command, check=True)
    return page


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="a recorded run of the demo (default: run make demo)")
    options = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runs = {"demo": options.run or demo_run(folder), "gpu": gpu_run(folder)}
        pages = {name: page_of(run, folder, name) for name, run in runs.items()}
        take([question(pages, name) for name in SHOTS])
    size = sum(path.stat().st_size for path in PICTURES.glob("*.png"))
    print(f"{len(SHOTS)} pictures in {PICTURES.relative_to(ROOT)}, {size / 1000:.0f} kB")
    return 0 if size <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
