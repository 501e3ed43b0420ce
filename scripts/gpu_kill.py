"""gpu_kill.py FOLDER [KILLS]: recorded trainings, each killed by SIGKILL at a moment of its own; what each had done.

Leaves FOLDER/killed-N (the run), FOLDER/killed-N.steps (step and time, 16 bytes each) and FOLDER/kills.jsonl.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

START_S, FIRST_S, LAST_S = 90, 4.0, 11.0


def main() -> int:
    folder, kills = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    folder.mkdir(parents=True, exist_ok=True)
    program = str(Path(__file__).parent / "gpu_train.py")
    moments = random.Random(4)
    processes = []
    for number in range(kills):
        run, steps = folder / f"killed-{number}", folder / f"killed-{number}.steps"
        record = [sys.executable, "-m", "rankscope", "run", "--quiet", "--out", str(run)]
        processes.append((number, steps, subprocess.Popen([*record, sys.executable, program, str(steps)])))
    until = time.monotonic() + START_S
    while time.monotonic() < until and not all(is_training(steps) for _, steps, _ in processes):
        time.sleep(0.2)
    plan = sorted((moments.uniform(FIRST_S, LAST_S), one) for one in processes)
    began = time.monotonic()
    with (folder / "kills.jsonl").open("w") as out:
        for after_s, (number, _, process) in plan:
            time.sleep(max(0.0, began + after_s - time.monotonic()))
            process.send_signal(signal.SIGKILL)
            killed_ns = time.time_ns()
            told = {"number": number, "pid": process.pid, "killed_ns": killed_ns, "exit": process.wait()}
            out.write(json.dumps({**told, "after_s": after_s}) + "\n")
            out.flush()
    return 0


def is_training(steps: Path) -> bool:
    return steps.exists() and steps.stat().st_size >= 160


if __name__ == "__main__":
    sys.exit(main())
