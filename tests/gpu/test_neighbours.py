"""gpu_neighbours.sh without a GPU: its plugin hands every operation to one of two, its reader sees what differs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import hatch_build
from mpis import ROOT
from native.builds import HERE, compile_c, place_recorder, recording

OPERATIONS = 30
COLLECTIVES = 2 * 20  # of two communicators: every third operation is a send


@pytest.mark.parametrize("version", [4, 5, 6])
@pytest.mark.parametrize("side", [0, 1])
def test_one_of_two_plugins_gets_an_operation(version: int, side: int, tmp_path: Path) -> None:
    flags = (f"-I{hatch_build.NATIVE}/nccl", f"-DVERSION={version}", "-fPIC", "-shared")
    for name in ("alone", "theirs"):
        compile_c(tmp_path / f"{name}.so", HERE / "nccl" / "foreign_plugin.c", *flags)
    source = ROOT / "scripts" / "gpu_programs" / "alternating_plugin.c"
    compile_c(tmp_path / "alternating.so", source, *flags, f"-DFIRST_SIDE={side}")
    program = compile_c(tmp_path / "scripted", HERE / "nccl" / "scripted_nccl.c", flags[0], "-rdynamic")
    place_recorder(tmp_path, ())
    (tmp_path / "run").mkdir()
    settings = {
        **recording(tmp_path / "run"),
        "LD_PRELOAD": str(tmp_path / "librankscope.so"),
        "NCCL_PROFILER_PLUGIN": str(tmp_path / "alternating.so"),
        "ALTERNATING_ALONE": str(tmp_path / "alone.so"),
        "ALTERNATING_BEHIND": str(tmp_path / "librankscope.so"),
        "RANKSCOPE_NCCL_PROFILER_PLUGIN": str(tmp_path / "theirs.so"),
        "FOREIGN_OUT": str(tmp_path / "counts"),
    }
    done = subprocess.run([program, str(version), str(OPERATIONS)], env=settings, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = (tmp_path / "counts").read_text().splitlines()
    assert sum(line.startswith("version") for line in lines) == 2  # both were opened and closed
    assert [line for line in lines if line.startswith("start 1 ")] == [f"start 1 of 16: {COLLECTIVES}"]
    from native.nccl.test_nccl_neighbour import calls

    assert calls(tmp_path / "run")["ncclAllReduce"] == COLLECTIVES * side


def brought_back(folder: Path) -> None:
    """Jobs without a recorded one, whose rank files are read by other tests."""
    for job in ("theirs-1", "theirs-2", "theirs-all", "both-1", "both-2", "both-all"):
        for rank in (0, 1):
            (folder / f"counts.{job}.{rank}").write_text(f"version 5\nstart 1 of 16: 40\nstate 9: {rank}{len(job)}\n")
    taken_us = {"us": [10.0, 10.2, 9.9] * 20, "behind_us": [10.1, 10.3, 10.0] * 20}
    taken_us |= {"plugin_ns": [100, 120, 90] * 20, "behind_plugin_ns": [200, 220, 190] * 20}
    turns = [{"round": number} for number in range(3)] + [{"round": -1, "by": ""}, {"round": -2, "by": "calls"}]
    (folder / "turns.jsonl").write_text(
        "".join(json.dumps({**turn, "jobs": {"alternating": taken_us}}) + "\n" for turn in turns)
    )
    crashed = {"rank": {"exit": -11}, "exit": 1}
    (folder / "ends.json").write_text(json.dumps({"crash-theirs": crashed, "crash-both": crashed}))
    for who in ("bare", "both"):
        (folder / f"profiler.{who}").write_text("profile 0\nprofile 1\nmm 3\n")


WRONG = {
    "counts.both-2.1": lambda text: text.replace("40", "39"),
    "turns.jsonl": lambda text: text.replace("200", "310").replace("220", "310"),
    "ends.json": lambda text: text.replace('"exit": 1}}', '"exit": 0}}'),  # the last one
    "profiler.both": lambda text: text.replace("3", "2"),
}


@pytest.mark.parametrize("changed", ["", *WRONG])
def test_what_differs_is_seen(
    changed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import gpu_neighbours_verify

    brought_back(tmp_path)
    if changed:
        path = tmp_path / changed
        path.write_text(WRONG[changed](path.read_text()))
    assert gpu_neighbours_verify.verify(tmp_path) == bool(changed)
    assert capsys.readouterr().out.count("BAD") == bool(changed)
