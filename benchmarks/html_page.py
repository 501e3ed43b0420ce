"""How large the page of a run is, how long it takes to make, and how it does in a browser: medians of several looks.

python benchmarks/html_page.py [RANKS ...]
python benchmarks/html_page.py --pages PAGE [PAGE ...]     pages that are there, looked at in turn
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.large_run import write_large_run  # noqa: E402

STEPS = {64: 2000, 512: 200, 6000: 60}
FILLED = "[...document.querySelectorAll('.rows, .picture')].every((one) => one.children.length)"
ROUNDS = 9
SINCE_START = {"do": "evaluate", "code": "performance.now()"}


def make_page(run: Path, page: Path) -> float:
    command = [sys.executable, "-m", "rankscope", "report", str(run), "--html", str(page), "--logs"]
    begin = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def look(page: Path) -> tuple[dict[str, float], dict[str, float]]:
    """In a browser just started, and in a second tab of it: first paint, when all is filled in, frames."""
    browser = os.environ.get("RANKSCOPE_BROWSER_ENV") or str(ROOT / ".envs" / "browser")
    steps = [{"do": "wait", "code": FILLED}, SINCE_START, {"do": "scroll"}]
    asked = json.dumps({"page": str(page), "width": 1440, "height": 900, "steps": steps}) + "\n"
    command = ["node", str(ROOT / "tests" / "browser" / "ask.mjs"), browser]
    done = subprocess.run(command, input=2 * asked, stdout=subprocess.PIPE, text=True, check=True)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    return _figures(first), _figures(second)


def _figures(told: dict[str, Any]) -> dict[str, float]:
    assert not told["errors"] and not told["console"], told
    return {"paint_ms": told["paint_ms"], "filled_ms": told["answers"][1], **told["answers"][2]}


def looks(pages: Sequence[Path], rounds: int = ROUNDS) -> list[dict[str, float]]:
    """Of each page the medians over the rounds, in which all of them are looked at in turn."""
    seen: list[list[tuple[dict[str, float], dict[str, float]]]] = [[] for _ in pages]
    for _ in range(rounds):
        for page, found in zip(pages, seen, strict=True):
            found.append(look(page))
    return [
        {
            "paint_ms": median(first["paint_ms"] for first, _ in found),
            "again_ms": median(second["paint_ms"] for _, second in found),
            **{name: median(second[name] for _, second in found) for name in ("filled_ms", "mean_ms")},
        }
        for found in seen
    ]


def told(seen: dict[str, float]) -> str:
    return f"{seen['paint_ms']:.0f} | {seen['again_ms']:.0f} | {seen['filled_ms']:.0f} | {seen['mean_ms']:.1f} |"


HEADS = "first paint, ms | in a second tab, ms | all drawn, ms | frame, mean ms |"


def of_pages(pages: Sequence[Path]) -> None:
    print(f"| page | MB | {HEADS}\n|---|---:|---:|---:|---:|---:|")
    for page, seen in zip(pages, looks(pages), strict=True):
        print(f"| {page.name} | {page.stat().st_size / 1e6:.2f} | {told(seen)}")


def main() -> None:
    if sys.argv[1:2] == ["--pages"]:
        return of_pages([Path(text).resolve() for text in sys.argv[2:]])
    print(f"| ranks | steps | made in, s | most memory, GB | page, MB | {HEADS}")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for ranks in [int(text) for text in sys.argv[1:]] or list(STEPS):
        with tempfile.TemporaryDirectory() as folder:
            steps = STEPS.get(ranks, 100)
            run, page = write_large_run(Path(folder) / "run", ranks, steps), Path(folder) / "page.html"
            took_s, size = make_page(run, page), page.stat().st_size
            most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
            (seen,) = looks([page])
        print(f"| {ranks:,} | {steps:,} | {took_s:.1f} | {most:.1f} | {size / 1e6:.2f} | {told(seen)}", flush=True)
    return None


if __name__ == "__main__":
    main()
