"""Runs all built-in studies one after the other, with the Pythons of .envs, and says what each took and left.

Exit code: 0 where every study has its document and no cell failed; cells for which something is not installed are shown
and do not count as failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rankscope.studies.builtin import STUDIES

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ("openmpi", "mpich", "torch", "horovod", "oneccl", "packages")  # the first that has a package is used
FINE = {"done", "not here"}


@dataclass
class Finished:
    name: str
    folder: Path
    seconds: float

    @property
    def documents(self) -> list[Path]:
        return [path for form in ("md", "html") if (path := self.folder / f"{self.name}.{form}").exists()]

    @property
    def states(self) -> Counter[str]:
        told = [json.loads(path.read_text(encoding="utf-8")) for path in self.folder.glob("cells/*/cell.json")]
        return Counter(str(one["state"]) for one in told)

    @property
    def fine(self) -> bool:
        return len(self.documents) == 2 and set(self.states) <= FINE and self.states["done"] > 0

    @property
    def line(self) -> str:
        cells = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items())) or "no cell"
        where = os.path.relpath(self.documents[0]) if self.documents else "no document"
        return f"{self.name:10} {self.seconds / 60:5.1f} min  {cells}: {where}"


def finished(name: str, scale: str, parent: Path, words: list[str]) -> Finished:
    folder = parent / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    command = [sys.executable, "-m", "rankscope", "study", name, "--scale", scale, "--out", str(folder), *words]
    print(f"[study] {name}", file=sys.stderr, flush=True)
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return Finished(name, folder, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", default="1,2,4,8", help="numbers of ranks (default: 1,2,4,8)")
    parser.add_argument("--out", type=Path, default=Path("rankscope-studies"), help="where their folders are made")
    parser.add_argument("studies", nargs="*", help=f"which (default: {', '.join(STUDIES)})")
    options = parser.parse_args()
    unknown = [name for name in options.studies if name not in STUDIES]
    if unknown:
        parser.error(f"{unknown[0]}: choose of {', '.join(STUDIES)}")
    pythons = [ROOT / ".envs" / name / "bin" / "python" for name in ENVIRONMENTS]
    words = [word for path in pythons if path.exists() for word in ("--python", str(path))]
    parent = Path(options.out).absolute()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # and so the study that runs
    done = [finished(name, options.scale, parent, words) for name in options.studies or STUDIES]
    print("\n".join(one.line for one in done))
    print(f"{'together':10} {sum(one.seconds for one in done) / 60:5.1f} min")
    return 0 if all(one.fine for one in done) else 1


if __name__ == "__main__":
    sys.exit(main())
