"""Steps on the device's clock of loaded traces: exact against a plain sweep, and the same whoever wrote the trace."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT
from rankscope.formats import json_stream, nsys
from rankscope.questions.findings.table import findings, findings_of
from rankscope.questions.gpu.activities import kind_of
from rankscope.questions.gpu.device_time import gpu_gaps, gpu_time
from rankscope.questions.gpu.kernels import cuda_api, gpu_copies
from rankscope.questions.gpu.steps import CAUSES, gpu_steps
from rankscope.questions.steps.steps import step_parts, steps
from rankscope.store.run import RunTables
from runs.traced_job import COPY_BYTES, Job, loaded, simulated, to_kineto, to_nsys
from scripts.gpu_step_truth import COMMUNICATION, COMPUTE, COPY, Span, Truth, expected, swept

WRITERS: dict[str, Callable[[Job, Path], Path]] = {"kineto": to_kineto, "nsys": to_nsys}
ARCHIVE = ROOT / "benchmarks" / "results" / "h200" / "gpu_check-2026-11-15.tar.xz"
PARTS = {"compute": "compute_ns", "hidden": "overlapped_ns", "exposed": "exposed_ns", "copy": "copy_ns"} | {
    cause: f"idle_{cause}_ns" for cause in CAUSES
}


def device_steps(run: RunTables) -> list[dict[str, Any]]:
    names = ("number", "begin_ns", "end_ns", "kernels", "copies", "copy_bytes", "pageable_bytes", "sync_calls")
    wanted = (*names, *PARTS.values())
    found = run.query(f"SELECT {', '.join(wanted)} FROM device_steps ORDER BY process, number")
    return [dict(zip(wanted, row, strict=True)) for row in found]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("seed", range(6))
def test_every_part_of_every_step_is_that_of_a_plain_sweep(
    seed: int, writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In small blocks, so that activities, calls and ranges of a step come in several of them, in any order."""
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 20_000)
    monkeypatch.setattr(json_stream, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(nsys, "BATCH_ROWS", 37)
    job = simulated(seed)
    found = device_steps(loaded(tmp_path / "run", WRITERS[writer](job, tmp_path / f"trace.{writer}")))
    wanted = expected(job.truth)
    assert len(found) == len(wanted) == len(job.ends_ns)
    for row, told in zip(found, wanted, strict=True):
        assert (row["begin_ns"], row["end_ns"], row["kernels"]) == (told["begin"], told["end"], told["kernels"])
        assert {name: row[column] for name, column in PARTS.items() if row[column]} == {
            name: value for name, value in told.items() if name in PARTS and value
        }
        assert row["pageable_bytes"] == row["copy_bytes"] == COPY_BYTES * row["copies"]
    assert sum(row["sync_calls"] for row in found) <= len(job.syncs)


def test_kineto_and_nsys_give_the_same_answers(tmp_path: Path) -> None:
    job = simulated(7)
    runs = [loaded(tmp_path / name, write(job, tmp_path / f"trace.{name}")) for name, write in WRITERS.items()]
    for question in (steps, step_parts, gpu_steps, gpu_time, gpu_gaps, cuda_api):
        first, second = (question(run).rows for run in runs)
        assert first == second != []
    copies = [[row[1:] for row in gpu_copies(run).rows] for run in runs]
    assert copies[0] == copies[1] != []
    # both say how they know the steps, and what a trace does not tell
    notes = [[*steps(run).notes, *findings(run).notes] for run in runs]
    assert notes[0] == notes[1]
    assert any("ranges of the optimizer" in note for note in notes[0])
    assert any("A loaded trace does not contain" in note for note in notes[0])
    assert [one.rule for one in findings_of(runs[0])] == [
        "incomplete_coverage",
        *(one.rule for one in findings_of(runs[1])),
    ]


def test_the_devices_time_is_that_of_its_steps_and_gaps(tmp_path: Path) -> None:
    job = simulated(3)
    run = loaded(tmp_path / "run", to_kineto(job, tmp_path / "trace.json"))
    ((span, busy, compute, communication, copying, hidden),) = run.query(
        "SELECT span_ns, busy_ns, compute_ns, communication_ns, copy_ns, hidden_ns FROM devices"
    )
    first, last = (min(one.activity.start_ns for one in job.launches), max(one.activity.end_ns for one in job.launches))
    told = swept(job.truth, first, last)
    assert span == last - first
    assert (compute, hidden, communication) == (told["compute"], told["hidden"], told["exposed"] + told["hidden"])
    assert busy == told["compute"] + told["exposed"] + told["copy"] and copying >= told["copy"]
    assert run.query("SELECT sum(idle_ns) FROM device_gaps") == [(span - busy,)]


def test_a_host_that_runs_ahead_launches_into_its_own_step(tmp_path: Path) -> None:
    """All steps are launched within the time of one: each still has its own kernels, one after the other."""
    job = simulated(1, steps=12)
    delay_ns = 0
    for one in job.launches:  # the device takes 40 times as long as the host thinks
        span = one.activity
        delay_ns += 1_000_000
        one.activity = Span(span.start_ns + delay_ns, span.start_ns + delay_ns + 900_000, COMPUTE, span.launched_ns)
        one.name = "gemm"
    truth = job.truth
    found = device_steps(loaded(tmp_path / "run", to_kineto(job, tmp_path / "trace.json")))
    assert [row["kernels"] for row in found] == [told["kernels"] for told in expected(truth)]
    assert [row["end_ns"] for row in found] == [told["end"] for told in expected(truth)]


def test_without_calls_work_belongs_to_the_step_in_which_it_began(tmp_path: Path) -> None:
    path = to_kineto(simulated(2), tmp_path / "trace.json")
    whole = json.loads(path.read_text())
    whole["traceEvents"] = [one for one in whole["traceEvents"] if one["cat"] != "cuda_runtime"]
    path.write_text(json.dumps(whole))
    run = loaded(tmp_path / "run", path)
    ((steps_found, by_time),) = run.query("SELECT count(*), count(*) FILTER (by_time) FROM device_steps")
    assert steps_found == by_time == 30


# ---------------------------------------------------------------- a training on an H200 under torch.profiler
@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("h200")
    with tarfile.open(ARCHIVE) as packed:
        wanted = [one for one in packed.getmembers() if "ddp-2-profiler-1." in one.name]
        packed.extractall(folder, wanted, filter="data")
    return folder


def truth_of_trace(path: Path) -> Truth:
    """Activities and when they were launched, by the standard library's reader alone."""
    whole = json.loads(gzip.decompress(path.read_bytes()))
    base_ns, events = whole["baseTimeNanoseconds"], [one for one in whole["traceEvents"] if "dur" in one]

    def at_ns(value: float) -> int:
        return base_ns + round(value * 1000)

    calls: dict[int, int] = {}
    for one in events:
        if one["cat"] in ("cuda_runtime", "cuda_driver"):
            number = one["args"]["correlation"]
            calls[number] = min(at_ns(one["ts"]), calls.get(number, 2**62))
    kinds = {"compute": COMPUTE, "communication": COMMUNICATION}
    spans = []
    for one in events:
        if one["cat"] in ("kernel", "gpu_memcpy", "gpu_memset"):
            start_ns = at_ns(one["ts"])
            launched_ns = calls.get(one["args"]["correlation"], start_ns)
            end_ns = start_ns + round(one["dur"] * 1000)
            spans.append(Span(start_ns, end_ns, kinds.get(kind_of(one["name"]), COPY), launched_ns))
    return Truth(spans, [], [], [], [])


def test_an_h200_trace_of_kernels_alone_has_its_64_batches(h200: Path, tmp_path: Path) -> None:
    """The program trains 64 batches of 144 kernels on each rank; its trace has kernels, calls and four passes only."""
    files = sorted(h200.rglob("*.trace.json.gz"))
    run = loaded(tmp_path / "run", *files)
    assert run.query("SELECT rank, steps_from FROM ranks ORDER BY rank") == [(0, "kernels"), (1, "kernels")]
    found = run.query("SELECT process, count(*), max(kernels) FROM device_steps GROUP BY process ORDER BY process")
    assert [(steps_found, kernels) for _, steps_found, kernels in found] == [(63, 144), (63, 144)]
    # the parts of three steps, by looking at every moment
    truth = truth_of_trace(files[0])
    for row in device_steps(run)[20:50:10]:
        told = swept(truth, row["begin_ns"], row["end_ns"])
        assert {name: row[PARTS[name]] for name in ("compute", "hidden", "exposed", "copy")} == {
            name: int(told[name]) for name in ("compute", "hidden", "exposed", "copy")
        }
    # the recorder says of the same job, in other processes: moving data takes 11.7 ms of a step of 16.4 ms, 71 %
    first = next(one for one in findings_of(run) if one.saved_ns is not None)
    assert first.rule == "gpu_communication"
    ((share,),) = run.query("SELECT sum(exposed_ns) / sum(end_ns - begin_ns) FROM device_steps WHERE number > 1")
    assert share == pytest.approx(0.71, abs=0.03)
