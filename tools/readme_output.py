"""Puts the report of a real demo run into README.md: runs `make demo`, or takes a run that is there already."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from markers import fenced, filled

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}


def demo_run(folder: Path) -> Path:
    """Runs the demo into a folder of its own, so that nothing of an older run can be shown."""
    run = folder / "demo"
    subprocess.run(["make", "-C", ROOT, "demo", f"DEMO_RUN={run}"], check=True)
    return run


def report(run: Path) -> list[str]:
    command = [str(ROOT / ".venv" / "bin" / "rankscope"), "report", str(run)]
    done = subprocess.run(command, env={**os.environ, **PLAIN}, stdout=subprocess.PIPE, text=True, check=True)
    return [line.rstrip() for line in done.stdout.replace(str(run), "rankscope-runs/demo").splitlines()]


def shown(lines: list[str], limit: int) -> str:
    left = len(lines) - limit
    return "\n".join(lines[:limit]) + (f"\n… {left} more lines" if left > 0 else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="a recorded run (default: run make demo)")
    parser.add_argument("--lines", type=int, default=60, help="how much of the report to show")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = report(options.run or demo_run(Path(folder)))
    if not lines:
        raise SystemExit("the report is empty: README.md is left as it was")
    page = README.read_text(encoding="utf-8")
    README.write_text(filled(page, "demo-output", fenced(shown(lines, options.lines))), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
