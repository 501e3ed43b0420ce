"""How fast the timeline of a page opens and moves in a browser, of a run with a million events and with ten.

python benchmarks/timeline.py [EVENTS ...] [--ranks 64] [--looks 5] [--nice -10] [--save]

Runs are made by trace_law.py: kernels, copies, collectives and nested ranges in rank files with a trace.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT, RESULT = HERE.parent, HERE / "results" / "timeline.md"
sys.path.insert(0, str(HERE))

from startup import cpu_model  # noqa: E402
from trace_law import laws, write_run  # noqa: E402

UNPACKED = "document.querySelector('#timeline .picture')?.dataset.unpacked === 'yes'"
FILLED = "[...document.querySelectorAll('.rows, .picture')].every((one) => one.children.length)"
NEAR = "document.querySelector('#timeline').scrollIntoView({ behavior: 'instant' })"
SINCE_START = "performance.now()"
# as many frames as two seconds have, each at another place; what a frame costs the page itself, and how long it lasts
MOVE = """(async () => {
    const canvas = document.querySelector('#timeline canvas');
    document.querySelectorAll('#timeline .view')[%d].click();
    canvas.focus({ preventScroll: true });
    if (%d) canvas.dispatchEvent(new KeyboardEvent('keydown', { key: '+' })); // all of it could not be moved
    const frames = [];
    window.scripts = [];
    const begin = performance.now();
    let before = begin, turn = 0;
    while (performance.now() - begin < 2000) {
        const back = (turn++ %% 4) >= 2;
        canvas.dispatchEvent(new KeyboardEvent('keydown', { key: back ? 'ArrowLeft' : 'ArrowRight', bubbles: true }));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        frames.push(performance.now() - before);
        before = performance.now();
    }
    window.scripts.sort((one, other) => one - other);
    return [1000 * frames.length / (before - begin), window.scripts[Math.floor(window.scripts.length / 2)]];
})()"""
# how long each drawing takes in the page's own scripts
SPY = """
    const ask = window.requestAnimationFrame;
    window.requestAnimationFrame = (act) => ask((time) => {
        const begin = performance.now();
        act(time);
        if (performance.now() - begin > 0.5) window.scripts?.push(performance.now() - begin);
    });"""


def make_page(run: Path, page: Path) -> float:
    command = [sys.executable, "-m", "rankscope", "report", str(run), "--html", str(page)]
    begin = time.monotonic()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def look(page: Path, nice: int) -> dict[str, Any]:
    """When the timeline is there, and frames a second while one moves through a stretch and through half of the run."""
    browser = os.environ.get("RANKSCOPE_BROWSER_ENV") or str(ROOT / ".envs" / "browser")
    told = [
        {"do": "evaluate", "code": code} for code in (NEAR, SINCE_START, MOVE % (1, 1), MOVE % (0, 0), MOVE % (1, 1))
    ]
    waits = [{"do": "wait", "code": code} for code in (UNPACKED, FILLED)]
    steps = [told[0], waits[0], told[1], waits[1], *told[2:]]
    asked = json.dumps({"page": str(page), "steps": steps, "width": 1440, "height": 900, "before": SPY})
    command = ["nice", "-n", str(nice), "node", str(ROOT / "tests" / "browser" / "ask.mjs"), browser]
    found = subprocess.run(command, input=asked + "\n", capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(found.stdout)
    assert not answer["errors"], answer["errors"]
    return answer


def row(folder: Path, events: int, options: argparse.Namespace) -> str:
    """Medians of several looks, each in a browser of its own."""
    written = write_run(folder / f"run-{events}", laws(events, options.ranks), ranks=options.ranks)
    page = folder / f"{events}.html"
    made_s = make_page(folder / f"run-{events}", page)
    looks = [look(page, options.nice) for _ in range(options.looks)]
    paint_ms = median(one["paint_ms"] for one in looks)
    open_ms = median(one["answers"][2] for one in looks)
    cells = [f"{options.ranks}", f"{written:,}", f"{made_s:.1f}", f"{page.stat().st_size / 1e6:.2f}"]
    cells += [f"{paint_ms:.0f}", f"{open_ms:.0f}"]
    for at in (5, 6):
        fps, script_ms = (median(one["answers"][at][part] for one in looks) for part in (0, 1))
        slowest, fastest = (pick(one["answers"][at][0] for one in looks) for pick in (min, max))
        cells.append(f"{fps:.0f} ({slowest:.0f} to {fastest:.0f}; {script_ms:.0f} ms)")
    return f"| {' | '.join(cells)} |"


COLUMNS = ("ranks", "events", "made in, s", "page, MB", "first paint, ms", "timeline drawn, ms")
FRAMES = ("frames/s in a stretch", "frames/s, half of the run")
HEAD = f"| {' | '.join((*COLUMNS, *FRAMES))} |\n|{'---:|' * 8}"
ABOUT = """# The timeline of a page
{date}, {cpu}, {cores} cores, load {load:.1f}, Chromium without a GPU at nice {nice}, 1440 × 900,
`benchmarks/timeline.py --save`, medians of {looks} looks. Kernels, copies, collectives and nested ranges of
`benchmarks/trace_law.py`, in rank files with a trace.

{table}

*timeline drawn*: since the page was opened, all of it unpacked and on the screen. *frames/s*: while arrow keys move
through it, each frame drawn anew; in brackets the slowest and the fastest look, and what the page's own
scripts take of a frame. *in a stretch*: in
the middle of the run, event by event; *half of the run*: blocks of neighbours. A round of moving before is not
counted: one frame in it may take the software rasteriser seconds, without a script of the page running.
More events make the page no larger: they are thinned by level when it is written.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", nargs="*", type=float, default=[1e6, 1e7])
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--looks", type=int, default=5)
    parser.add_argument("--nice", type=int, default=0, help="of the browser: below 0 where others use the machine")
    parser.add_argument("--save", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = "\n".join([HEAD, *(row(Path(folder), int(events), asked) for events in asked.events)])
    print(table)
    if asked.save:
        told = {"date": date.today(), "cpu": cpu_model(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
        told |= {"nice": asked.nice, "looks": asked.looks}
        RESULT.write_text(ABOUT.format(table=table, **told), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
