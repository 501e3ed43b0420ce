"""Programs that take turns, and the report of what recording cost: a bar that is missed is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mpis import ROOT

WORKER = """
import json, sys
print(json.dumps({"ready": sys.argv[1]}), flush=True)
for number, line in enumerate(sys.stdin):
    if line.strip() != "go" or (sys.argv[1] == "dies" and number == 2):
        break
    print(json.dumps({"wall_us": 2.0, "cpu_us": 1.0, "process_us": 1.0}), flush=True)
if sys.argv[1] != "dies":
    print(json.dumps({"mode": sys.argv[1], "stop_s": 0.0}), flush=True)
"""


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


def took_turns(folder: Path, *modes: str) -> tuple[int, list[dict[str, object]]]:
    (folder / "worker.py").write_text(WORKER)
    command = [sys.executable, str(ROOT / "scripts/gpu_turns.py"), "--worker", str(folder / "worker.py")]
    command += ["--modes", *modes, "--rounds", "5", "--runs", str(folder / "runs"), "--out", str(folder / "out.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_turns_of_every_mode_in_every_round(tmp_path: Path) -> None:
    code, lines = took_turns(tmp_path, "bare", "bare-again", "sync")
    rounds = [line["turns"] for line in lines if "turns" in line]
    assert code == 0 and len(rounds) == 5
    assert all(set(turns) == {"bare", "bare-again", "sync"} for turns in rounds)  # type: ignore[call-overload]
    assert [line["ended"]["exit"] for line in lines if "ended" in line] == [0, 0, 0]  # type: ignore[index]
    assert list((tmp_path / "runs/sync/ranks").glob("*/*.rank")), "this mode was recorded"


def test_rounds_before_a_program_died_are_kept(tmp_path: Path) -> None:
    code, lines = took_turns(tmp_path, "bare", "dies")
    assert code == 1
    assert sum("turns" in line for line in lines) == 2
    assert sum("ended" in line for line in lines) == 2


def cost(tmp_path: Path, sync: float, drift: float = 1.0) -> int:
    """Rounds whose speed drifts: only ratios within a round count."""
    import gpu_cost_report

    lines = []
    for number in range(20):
        base = 8.0 * drift**number
        times = {"bare": base * 0.99, "bare-again": base * 1.01, "sync": base * sync, "all": base * 1.4}
        turns = {mode: {"wall_us": us, "cpu_us": us, "process_us": us} for mode, us in times.items()}
        lines.append(json.dumps({"set": 1, "round": number, "turns": turns}))
    (tmp_path / "launches.jsonl").write_text("\n".join(lines))
    return gpu_cost_report.report(tmp_path)


def test_bars(tmp_path: Path) -> None:
    assert cost(tmp_path, 1.14) == 0
    assert cost(tmp_path, 1.14, drift=1.1) == 0
    assert cost(tmp_path, 1.16) == 1


def test_no_round_is_no_success(tmp_path: Path) -> None:
    import gpu_cost_report

    (tmp_path / "launches.jsonl").write_text('{"set": 1, "ended": {"mode": "bare", "exit": 1}}\n')
    assert gpu_cost_report.report(tmp_path) == 1
