"""gpu_verify.py ARCHIVE: what gpu_check.sh brought back, held against what its programs say; a line for every check.

Exit code 1 where a check does not hold, or where there was nothing to check.
"""

from __future__ import annotations

import json
import statistics
import struct
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from gpu_checks import Checks
from gpu_compare_profiler import compare
from gpu_rows import process_of, processes_of
from gpu_verify_model import check_matmul, check_model

MOST_LOST_S = 1.0  # a flush every 0.3 s, and CUPTI holds a buffer while an activity in it runs
MOST_FILE_BYTES = 4_000_000
APART_S = 55


def told_by(work: Path, name: str) -> list[dict[str, Any]]:
    """The lines of json that a program printed, or wrote."""
    path = work / name
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{")]


def check_parts(checks: Checks, work: Path) -> None:
    """What the script itself said of its parts: one that failed or had no time left is no success."""
    path = work / "parts.txt"
    for line in path.read_text().splitlines() if path.exists() else ():
        checks.that(" exit 0 " in f"{line} ", f"part {line}")


def check_known(checks: Checks, work: Path) -> None:
    without = told_by(work, "model-base.out")
    base = process_of(work / "model-base", without[0]["pid"]) if without else None
    for api in ("sync", "all", "none"):
        if not (work / f"model-{api}.out").exists():
            continue
        checks.note(f"--- the model program, --cuda-api {api}")
        for told in told_by(work, f"model-{api}.out")[:1] or [None]:
            if told is None:
                checks.that(False, f"it did not finish: {(work / f'model-{api}.err').read_text()[-300:]}")
            else:
                check_model(checks, process_of(work / f"model-{api}", told["pid"]), told, api, base)
    for told in told_by(work, "matmul.out")[:1]:
        checks.note("--- matrix multiplications of torch")
        check_matmul(checks, process_of(work / "matmul", told["pid"]), told)


def check_ddp(checks: Checks, work: Path) -> None:
    for ranks in (1, 2):
        runs = sorted(work.glob(f"ddp-{ranks}-[0-9]"))
        if runs:
            checks.note(f"--- DDP of {ranks} ranks beside torch.profiler")
            repeats = [(run, work / f"ddp-{ranks}-profiler-{run.name[-1]}.json") for run in runs]
            compare(checks, f"{ranks} ranks", repeats)


def check_kills(checks: Checks, work: Path) -> None:
    """A step is in the program's file once the GPU has done it."""
    kills = told_by(work, "kills.jsonl")
    lost_s, lost_shares = [], []
    for told in kills:
        number = told["number"]
        steps = list(struct.iter_unpack("=QQ", (work / f"killed-{number}.steps").read_bytes()[: 1 << 24]))
        process = process_of(work / f"killed-{number}", told["pid"])
        kept = sum(row.calls for row in process.counted("gpu") if row.name == "train_step")
        done = steps[-1][0]
        since = steps[max(0, kept - 1)][1] if kept < done else told["killed_ns"]
        lost_s.append(max(0.0, (told["killed_ns"] - since) / 1e9))
        lost_shares.append((done - kept) / done)
        behind_s = process.steps_behind_s()
        if behind_s is not None:  # of the program that waits for the GPU in each step
            checks.under(f"kill {number}: s of steps on the GPU lost", behind_s, MOST_LOST_S)
        checks.that(kept <= done + 1, f"kill {number}: {kept} steps in the file, {done} done")
        checks.under(f"kill {number}: s lost (of {(steps[-1][1] - steps[0][1]) / 1e9:.1f} s)", lost_s[-1], MOST_LOST_S)
    if kills:
        lost = f"lost {min(lost_s):.2f} to {max(lost_s):.2f} s, median {statistics.median(lost_s):.2f} s"
        checks.note(f"{len(kills)} kills: {lost}; median share of steps {statistics.median(lost_shares):.3f}")


def check_size(checks: Checks, work: Path) -> None:
    if not (work / "size.out").exists():
        return
    told = told_by(work, "size.out")
    if not told or told[-1]["used_bytes"] is None:
        checks.that(False, "the program of 2,000 kernels said nothing of its file")
        return
    last = told[-1]
    process = process_of(work / "size", last["pid"])
    rows = [row for row in process.counted("gpu") if row.name.startswith("size_kernel_")]
    checks.equal("different kernels", len({row.name for row in rows}), 2000)
    checks.equal("launches", sum(row.calls for row in rows), last["launches"])
    checks.equal("lost calls", process.facts.lost_calls, 0)
    checks.under("bytes of the rank file in use", max(one["used_bytes"] for one in told), MOST_FILE_BYTES)
    earlier = [one for one in told if last["s"] - one["s"] >= APART_S]
    if not earlier:
        checks.skip(f"it ran for {last['s']} s only: growth is not told")
        return
    first = earlier[-1]
    text = f"{first['used_bytes']} bytes after {first['s']} s and {first['launches']} launches"
    text += f", {last['used_bytes']} after {last['s']} s and {last['launches']}"
    checks.that(first["used_bytes"] == last["used_bytes"], f"the file does not grow: {text}")


def check_aside(checks: Checks, work: Path) -> None:
    if not (work / "aside.out").exists():
        return
    checks.equal(
        "torch.profiler in a recorded process: it said", (work / "aside.out").read_text().split()[-1:], ["done"]
    )
    notes = [note for process in processes_of(work / "aside") for note in process.notes]
    checks.that(any("another client" in note for note in notes), f"the recorder made room and says so: {notes}")


def verify(work: Path) -> int:
    checks = Checks()
    check_parts(checks, work)
    check_known(checks, work)
    check_ddp(checks, work)
    for title, check in (("kill -9", check_kills), ("size", check_size), ("torch.profiler", check_aside)):
        checks.note(f"--- {title}")
        check(checks, work)
    return checks.end()


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        with tarfile.open(sys.argv[1]) as archive:
            archive.extractall(name, filter="data")
        return verify(Path(name))


if __name__ == "__main__":
    sys.exit(main())
