"""Traces that others wrote fill the tables of a recorded run; counts and sums against ones of the test's own."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rankscope import open as open_run
from rankscope.api.run import Layout, Selection
from rankscope.questions.registry import QUESTIONS
from runs.loaded import SHARED, shared_file
from runs.traced_job import loaded

SAMPLES = sorted(path for kind in ("kineto", "nsys", "horovod") for path in SHARED.glob(f"samples/{kind}/*"))


def table(run: Any, name: str) -> list[dict[str, Any]]:
    found = run.table(name)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name[:24])
def test_every_question_about_a_trace_has_an_answer(path: Path, tmp_path: Path) -> None:
    """And "nothing found" comes with what no rule could look for."""
    loaded(tmp_path / "run", path)
    run = open_run(tmp_path / "run")
    for name in QUESTIONS:
        for row in run.table(name).rows:
            assert all(not (isinstance(cell, float) and cell != cell) for cell in row), (name, row)
    found = run.table("findings")
    assert any(note.startswith("Not checked") for note in found.notes)
    for row in table(run, "gpu_steps"):
        parts = ("compute_ns", "exposed_ns", "copy_ns", "idle_ns")
        assert sum(row[part] for part in parts) == pytest.approx(row["step_ns"], rel=1e-6)
    for row in table(run, "gpu_time"):
        assert row["busy_ns"] + row["idle_ns"] == row["span_ns"]


def test_an_nsys_export_of_copies(tmp_path: Path) -> None:
    path = shared_file("samples/nsys/h100_2gpu_1s.sqlite")
    loaded(tmp_path / "run", path)
    run = open_run(tmp_path / "run")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        ((calls, inside_ns),) = file.execute('SELECT count(*), sum("end" - start) FROM CUPTI_ACTIVITY_KIND_RUNTIME')
        copies = dict(file.execute("SELECT copyKind, sum(bytes) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1"))
        ((kernels,),) = file.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert (sum(row["calls"] for row in table(run, "cuda_api")), calls) == (calls, 5796)
    assert sum(row["total_ns"] for row in table(run, "cuda_api")) == inside_ns
    told = {row["name"]: row["bytes"] for row in table(run, "gpu_copies")}
    assert told["[CUDA memcpy Host-to-Device]"] == copies[1] > 50e9
    assert sum(row["calls"] for row in table(run, "gpu") if not row["name"].startswith("[")) == kernels == 3442
    # 97 % of the GPUs' time: not "nothing found"
    assert "The GPUs only copy" in str(table(run, "findings")[0]["finding"])
    text = run.layout(Layout("nvprof"), Selection())
    assert "No CUDA application" not in text and "[CUDA memcpy Host-to-Device]" in text and "cudaMemcpyAsync" in text


def test_a_trace_of_a_cpu_shows_its_collectives(tmp_path: Path) -> None:
    path = shared_file("samples/kineto/cpu_only_*")
    loaded(tmp_path / "run", path)
    run = open_run(tmp_path / "run")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    lengths = [round(one["dur"] * 1000) for one in events if one["name"] == "gloo:all_reduce"]
    [row] = [one for one in table(run, "tallies") if one["layer"] == "gloo"]
    assert (row["calls"], row["total_ns"]) == (len(lengths), pytest.approx(sum(lengths), abs=len(lengths)))
    notes = " ".join(run.table("findings").notes)
    assert "exposed communication of Gloo" in notes and "ranks waiting for a CPU" in notes
    assert run.table("gpu_steps").rows == [] and run.table("gpu_time").rows == []


def test_steps_of_kernels_are_those_of_the_profiler(tmp_path: Path) -> None:
    """The sample has both: without ProfilerStep# and ranges its kernels tell the same number of steps and kernels."""
    path = shared_file("samples/kineto/ns_resolution_*")
    whole = json.loads(gzip.decompress(path.read_bytes()))
    loaded(tmp_path / "told", path)
    kept = [one for one in whole["traceEvents"] if one.get("cat") in ("kernel", "gpu_memcpy", "cuda_runtime")]
    (tmp_path / "kernels.json").write_text(json.dumps({**whole, "traceEvents": kept}))
    loaded(tmp_path / "guessed", tmp_path / "kernels.json")
    runs = [open_run(tmp_path / name) for name in ("told", "guessed")]
    told, guessed = (table(run, "gpu_steps")[0] for run in runs)
    assert (told["steps"], told["kernels"]) == (5, 870) and guessed["kernels"] == 870
    assert guessed["steps"] >= 4
    assert guessed["compute_ns"] == pytest.approx(told["compute_ns"], rel=0.03)
    assert any("a guess" in note for note in runs[1].table("steps").notes)
