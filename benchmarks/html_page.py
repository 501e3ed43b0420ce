"""How large the page of a run is, how long it takes to make, and how it does in a browser.

python benchmarks/html_page.py [RANKS ...]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from browser.large_run import write_large_run  # noqa: E402

STEPS = {64: 2000, 512: 200, 6000: 60}
FILLED = "[...document.querySelectorAll('.rows, .picture')].every((one) => one.children.length)"
SINCE_START = {"do": "evaluate", "code": "performance.now()"}


def make_page(run: Path, page: Path) -> float:
    command = [sys.executable, "-m", "rankscope", "report", str(run), "--html", str(page), "--logs"]
    begin = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def look(page: Path) -> dict[str, Any]:
    """First paint, when all is filled in, and frames while the page is scrolled from its top to its end."""
    browser = os.environ.get("RANKSCOPE_BROWSER_ENV") or str(ROOT / ".envs" / "browser")
    steps = [{"do": "wait", "code": FILLED}, SINCE_START, {"do": "scroll"}]
    asked = json.dumps({"page": str(page), "steps": steps}) + "\n"
    command = ["node", str(ROOT / "tests" / "browser" / "ask.mjs"), browser]
    told = json.loads(subprocess.run(command, input=asked, stdout=subprocess.PIPE, text=True, check=True).stdout)
    assert not told["errors"] and not told["console"], told
    return {"paint_ms": told["paint_ms"], "filled_ms": told["answers"][1], **told["answers"][2]}


def main() -> None:
    print(
        "| ranks | steps | made in, s | most memory, GB | page, MB | first paint, ms | all drawn, ms | frame, mean ms |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for ranks in [int(text) for text in sys.argv[1:]] or list(STEPS):
        with tempfile.TemporaryDirectory() as folder:
            steps = STEPS.get(ranks, 100)
            run, page = write_large_run(Path(folder) / "run", ranks, steps), Path(folder) / "page.html"
            took_s, size = make_page(run, page), page.stat().st_size
            most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
            seen = look(page)
        numbers = f"{seen['paint_ms']:.0f} | {seen['filled_ms']:.0f} | {seen['mean_ms']:.1f}"
        print(f"| {ranks:,} | {steps:,} | {took_s:.1f} | {most:.1f} | {size / 1e6:.2f} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
