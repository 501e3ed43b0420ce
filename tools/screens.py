"""Writes the first screens of runs of every kind anew, in tests/output/screens: look at what differs."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from output.screens import KEPT, WIDTHS, kept, runs, shown  # type: ignore[import-not-found]

    KEPT.mkdir(exist_ok=True)
    for path in KEPT.glob("*.txt"):
        path.unlink()
    with tempfile.TemporaryDirectory() as folder:
        for kind, run in runs(Path(folder)):
            for width in WIDTHS:
                kept(kind, width).write_text(shown(run, width), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
