"""Runs recorded on an H200 in the layouts of nvprof and iprof; read back, they tell the recorded numbers."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.cli.report import run as report
from rankscope.formats import iprof, nvprof
from rankscope.model.records import Figure, Group, Note, RangeTally, RankFacts, Reading, Severity, Tally
from rankscope.output.layouts.nvprof import to_nvprof, to_nvprof_csv
from rankscope.questions.layouts.iprof import iprof_parts
from rankscope.questions.layouts.nvprof import nvprof_processes, nvprof_rows, nvprof_warnings
from rankscope.questions.run.overview import figures
from rankscope.rank_files.read import read_rank_file
from runs.loaded import run_of, text_source

ARCHIVE = ROOT / "tests" / "runs" / "h200_runs.tar.gz"
MS = 1e6


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("h200")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def shown(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert report([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


def recorded(folder: Path, layer: str) -> Counter[str]:
    """Calls by name, straight from the rank files."""
    calls: Counter[str] = Counter()
    for path in folder.glob("ranks/*/*.rank"):
        columns = read_rank_file(path, events=False).tally_columns
        layers, names = columns["layer"], columns["name"]
        for at, count in enumerate(columns["calls"].tolist()):
            if layers.values[layers.codes[at]] == layer:
                calls[names.values[names.codes[at]]] += count
    return calls


def test_nvprof_layout_of_each_rank(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, runs / "ddp", "--layout", "nvprof")
    assert (
        "==1205== Profiling application: /opt/torch/.venv/bin/python3 examples/train_ddp_003.py --batches 16\n" in text
    )
    times = "  96.01%  473.00ms        94  5.0319ms  2.7258ms  37.715ms"
    assert f" GPU activities: {times}  ncclDevKernel_AllReduce_Sum_f32_RING_LL\n" in text
    assert "==1206== NVTX result:\n" in text and '==1205==     Domain "NCCL"\n' in text
    assert "No kernels were profiled" not in text, "unknown is not none"
    assert "==1206== Warning: What was launched inside of NVTX ranges was not recorded.\n" in text


@pytest.mark.parametrize("options", [[], ["--merged"], ["--format", "csv"], ["--format", "csv", "--merged"]])
def test_nvprof_layout_is_read_back(runs: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    text = shown(capsys, runs / "ddp", "--layout", "nvprof", "--names", "mangled", *options)
    tallies = [tally for reading in nvprof.read(text_source(text)) for tally in reading.tallies]
    for layer in ("gpu", "cuda_api", "nvtx"):
        read = Counter[str]()
        for tally in tallies:
            if tally.layer == layer:
                read[tally.name] += tally.calls or 0
        assert read == recorded(runs / "ddp", layer) and len(read) > 5


def test_nvprof_layout_without_nccl_names_each_thread(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, runs / "model-all", "--layout", "nvprof", "--format", "csv")
    assert '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,ms,ms,ms,\n"GPU activities",92.7' in text
    ranges = re.findall(r'Thread "NVTX ranges" \(id = (\d+)\)|Range "(\w+)"', text)
    assert ranges == [("565", ""), ("", "inner"), ("", "outer"), ("566", ""), ("", "inner"), ("", "outer")]


def test_what_is_attributed_stands_with_its_range() -> None:
    def tally(layer: str, name: str, thread: int = 0, group: str = "") -> Tally:
        return Tally(layer, name, 2, 4 * MS, group, thread=thread)

    def ranged(layer: str, name: str, thread: int, within: str) -> RangeTally:
        return RangeTally(layer, name, 2, 4 * MS, thread=thread, within=within)

    given = [tally("nvtx", "step", thread, "app") for thread in (3, 4)] + [
        tally("gpu", "k"),
        tally("cuda_api", "launch"),
    ]
    inside = [ranged("gpu", "k", 0, "app/step"), ranged("cuda_api", "launch", 4, "app/step")]
    inside += [ranged("gpu", "k", 3, "app/still open")]
    notes = [Note("lost 3 records", Severity.WARNING)]
    run = run_of([Reading(RankFacts(rank=0, pid=7), tallies=given, range_tallies=inside, notes=notes)])
    text = to_nvprof(nvprof_processes(run), nvprof_rows(run), nvprof_warnings(run))
    assert text.startswith("==7== Warning: lost 3 records.\n==7== Profiling result:\n")
    result, _, by_range = text.partition("NVTX result:")
    assert result.count("  k\n") == 1, "what is within a range is counted there once more, not here"
    third, fourth = by_range.split("(id = 4)")
    assert third.count("GPU activities:  100.00%  4.0000ms         2") == 2 and 'Range "still open"' in third
    assert "API calls:  100.00%" in fourth and "No kernels were profiled in this range." in fourth
    merged = to_nvprof_csv(nvprof_processes(run, merged=True), nvprof_rows(run, merged=True))
    assert merged.count('"GPU activities",100.000000,4.000000,2,') == 3


def test_nested_ranges_hold_what_is_inside_them() -> None:
    around, path = "app/step", "app/step\x1fNCCL/ncclAllReduce"
    given = [Tally("gpu", "k", 5, 5 * MS), Tally("nvtx", "step", 1, 9 * MS, "app", thread=1)]
    given += [Tally("nvtx", "ncclAllReduce", 1, 4 * MS, "NCCL", thread=1)]
    inside = [
        RangeTally("nvtx", "ncclAllReduce", 1, 4 * MS, "NCCL", thread=1, within=path),
        RangeTally("gpu", "k", 2, 2 * MS, within=path, thread=1),
        RangeTally("gpu", "k", 3, 3 * MS, within=around, thread=1),
    ]
    threads = [Group("loader", "1", "thread", my_rank=4711)]
    run = run_of([Reading(RankFacts(rank=0, pid=7), tallies=given, range_tallies=inside, groups=threads)])
    text = to_nvprof(nvprof_processes(run), nvprof_rows(run))
    assert '==7==   Thread "loader" (id = 4711)\n' in text
    inner, outer = text.partition("NVTX result:")[2].split('Domain "app"')
    assert "GPU activities:  100.00%  2.0000ms         2" in inner and inner.count("Range:") == 1
    assert "GPU activities:  100.00%  5.0000ms         5" in outer


def test_a_process_without_kernels() -> None:
    run = run_of([Reading(RankFacts(rank=0, pid=7), tallies=[Tally("cuda_api", "cuInit", 1, MS)])])
    assert "No kernels were profiled.\n" in to_nvprof(nvprof_processes(run), nvprof_rows(run))


def test_a_run_without_cuda() -> None:
    run = run_of([Reading(RankFacts(rank=0), tallies=[Tally("mpi", "MPI_Barrier", 1, MS)])])
    assert to_nvprof(nvprof_processes(run), nvprof_rows(run)) == "======== Warning: No CUDA application was profiled.\n"


def test_iprof_layout_has_three_parts(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, runs / "ddp", "--layout", "iprof", "--names", "mangled")
    heads = [line for line in text.splitlines() if "Hostnames" in line]
    assert heads == [
        "BACKEND_CUDA | 1 Hostnames | 2 Processes | ",
        "BACKEND_NCCL | 1 Hostnames | 2 Processes | 6 Threads | ",
        "Device profiling | 1 Hostnames | 2 Processes | 1 Devices | ",
        "Explicit memory traffic (BACKEND_CUDA) | 1 Hostnames | 2 Processes | 1 Devices | ",
    ]
    (reading,) = iprof.read(text_source(text))
    calls = Counter({tally.name: tally.calls or 0 for tally in reading.tallies if tally.layer == "gpu"})
    assert calls == recorded(runs / "ddp", "gpu")
    assert "| 996.29MB | 100.00% |  2258 |" in text
    assert "| 1.62s |" not in shown(capsys, runs / "ddp", "--layout", "iprof", "--rank", "1")


def test_native_tables_of_a_recorded_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, runs / "ddp", "--full")
    for title in (
        "GPU time",
        "GPU time over the ranks",
        "GPU idle gaps",
        "GPU copies and memsets",
        "GPU memory",
        "Clocks of the GPU records",
    ):
        assert f"\n{title}\n" in text
    assert "_Z" not in text and "\nFigures\n" not in text
    assert re.search(r"^communication exposed +853 ms", text, re.MULTILINE)
    assert "_ZN2at6native" in shown(capsys, runs / "ddp", "--names", "mangled", "--format", "json")
    assert "void at::native::vectorized_elementwise_kernel<4, " in shown(
        capsys, runs / "ddp", "--names", "full", "--format", "csv"
    )


def test_figures_of_loaded_files_stay() -> None:
    facts = RankFacts(rank=0, tool="handmade")
    assert len(figures(run_of([Reading(facts, figures=[Figure("GPU 1", "time", 3, "ns")])])).rows) == 1


def test_iprof_layout_of_mpi_and_gpu_together() -> None:
    given = [Tally("mpi", "MPI_Allreduce", 4, 8 * MS, thread=thread, bytes=4000) for thread in (0, 1)]
    given += [Tally("gpu", "[CUDA memcpy DtoH]", 2, MS, f"GPU {gpu} stream 7", bytes=10**6) for gpu in (0, 1)]
    given += [Tally("nvtx", "step", 2, MS, "app")]
    inside = [RangeTally("gpu", "[CUDA memcpy DtoH]", 2, MS, "app", bytes=10**6, within="app/step")]
    facts = [RankFacts(rank=rank, host=f"n{rank}") for rank in (0, 1)]
    parts = iprof_parts(run_of([Reading(one, tallies=given, range_tallies=inside) for one in facts]))
    assert [part.title for part in parts] == [
        "BACKEND_MPI | 2 Hostnames | 2 Processes | 4 Threads | ",
        "Device profiling | 2 Hostnames | 2 Processes | 4 Devices | ",
        "Explicit memory traffic (BACKEND_MPI) | 2 Hostnames | 2 Processes | 4 Threads | ",
        "Explicit memory traffic (BACKEND_CUDA) | 2 Hostnames | 2 Processes | 4 Devices | ",
    ]
    assert [part.rows[-1][1:4] for part in parts] == [
        (32 * MS, 1.0, 16),
        (4 * MS, 1.0, 8),
        (16000, 1.0, 16),
        (4 * 10**6, 1.0, 8),
    ]


def test_iprof_layout_has_a_part_for_each_backend() -> None:
    """Calls by layer, bytes by who is named in the copy; devices of all together."""
    works = {"[HIP memcpy HtoD]": 10, "[OpenCL memcpy DtoH]": 20, "zeCommandListAppendMemoryCopy(H2D)": 30, "gemm": 0}
    calls = {"hip_api": "hipLaunchKernel", "opencl": "clFinish", "ze": "zeCommandQueueSynchronize"}
    tallies = [Tally("gpu", name, 1, MS, "GPU 0 stream 1", bytes=size) for name, size in works.items()]
    tallies += [Tally(layer, name, 2, MS) for layer, name in calls.items()]
    parts = {table.name: table for table in iprof_parts(run_of([Reading(RankFacts(rank=0), tallies=tallies)]))}
    backends = ("BACKEND_HIP", "BACKEND_CL", "BACKEND_ZE")
    traffic = [f"Explicit memory traffic ({backend})" for backend in backends]
    assert set(parts) == {*backends, *traffic, "Device profiling"}
    assert [parts[title].rows[-1][1] for title in traffic] == [10, 20, 30]
    assert parts["Device profiling"].rows[-1][3] == 4
