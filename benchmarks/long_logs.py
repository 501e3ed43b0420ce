"""How much memory the readers of text need as a log grows: of nvprof, strace, THAPI, unitrace, rocprof and others.

    python benchmarks/long_logs.py [--rows 100000,400000,1500000] [--logs NAME,NAME] [--save]

Each log is written by the maker below, so many rows long, and loaded by `rankscope load` in a process of its own; its
largest resident set is what the kernel says of it. A log is read as a stream if three times the rows need hardly more.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parent, HERE / "results"
sys.path.insert(0, str(HERE))
from startup import cpu_model  # noqa: E402

KERNELS = tuple(f"void gemm<float, int={n}>(float const*, float*, int)" for n in range(40))
Lines = Iterator[str]


# ---------------------------------------------------------------- what the logs say
def nvprof_gpu_trace(rows: int) -> Lines:
    """nvprof --print-gpu-trace: a line for every kernel and copy."""
    yield "==42== NVPROF is profiling process 42, command: python train.py"
    yield "==42== Profiling result:"
    yield (
        "   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput"
        "  SrcMemType  DstMemType           Device   Context    Stream  Name"
    )
    copy = " " * 20 + "-               -         -         -         -  4.0000KB  390.63MB/s    Pageable      Device"
    launch = " " * 14 + "(4 1 1)       (256 1 1)        16        0B        0B         -" + "           -" * 3
    for row in range(rows):
        what, length, name = (
            (copy, "10.000us", "[CUDA memcpy HtoD]")
            if row % 10 == 0
            else (launch, "2.0000us", f"{KERNELS[row % len(KERNELS)]} [{row}]")
        )
        yield f"{_seconds(row):>8}  {length}{what}  Tesla V100 (0)         1         7  {name}"


def _seconds(row: int) -> str:
    return f"{0.3 + row * 2e-5:.5f}s"[:8].rstrip("s.") + "s"


def nvprof_api_trace(rows: int) -> Lines:
    """nvprof --print-api-trace: a line for every call."""
    yield "==42== NVPROF is profiling process 42, command: python train.py"
    yield "==42== Profiling result:"
    yield "   Start  Duration  Name"
    for row in range(rows):
        yield f"{_seconds(row):>8}  7.1230us  {'cudaLaunchKernel' if row % 4 else 'cudaMemcpyAsync'} [{row}]"


def nvprof_csv_trace(rows: int) -> Lines:
    """nvprof --csv --print-gpu-trace."""
    titles = "Start,Duration,Grid X,Grid Y,Grid Z,Size,Throughput,Device,Context,Stream,Name,Correlation_ID"
    yield ",".join(f'"{title}"' for title in titles.split(","))
    yield "s,us,,,,KB,GB/s,,,,,"
    for row in range(rows):
        yield f'{0.3 + row * 2e-5:.6f},2.000000,4,1,1,,,"Tesla V100 (0)","1","7","{KERNELS[row % len(KERNELS)]}",{row}'


def nvprof_output(rows: int) -> Lines:
    """A profile of a program that prints a line for every batch."""
    yield "==42== NVPROF is profiling process 42, command: python train.py"
    for row in range(rows - 1):
        yield f"Epoch: [0][{row}/{rows}] loss {row % 7}.25 images/s 512.5"
    yield "==42== Profiling result:"
    yield "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name"
    yield " GPU activities:  100.00%  3.0000ms         3  1.0000ms  500.00us  1.5000ms  gemm"


SUMMARY_HEAD = "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name"
CELLS = "3.0000ms         3  1.0000ms  500.00us  1.5000ms"


def nvprof_summary(rows: int) -> Lines:
    """One summary with a row for each of very many kernels."""
    yield "==42== NVPROF is profiling process 42, command: python train.py"
    yield "==42== Profiling result:"
    yield SUMMARY_HEAD
    for row in range(rows):
        yield f"{'' if row else ' GPU activities:':16}    0.01%  {CELLS}  kernel_{row}"


def nvprof_ranges(rows: int) -> Lines:
    """NVTX results: below each range the kernels of it."""
    yield "==42== NVPROF is profiling process 42, command: python train.py"
    yield "==42== NVTX result:"
    yield '==42==   Thread "<unnamed>" (id = 7)'
    yield '==42==     Domain "<unnamed>"'
    for row in range(rows):
        if row % 20 == 0:
            yield f'==42==       Range "step {row // 20}"'
            yield SUMMARY_HEAD
            yield f"          Range:  100.00%  {CELLS}  step {row // 20}"
        else:
            yield f"{' GPU activities:' if row % 20 == 1 else '':16}    5.26%  {CELLS}  kernel_{row % 20}"


def nvprof_processes(rows: int) -> Lines:
    """Profiles of many processes, one after the other, of 20 rows each."""
    for row in range(rows):
        pid = 1000 + row // 20
        if row % 20 == 0:
            yield f"=={pid}== NVPROF is profiling process {pid}, command: python train.py"
            yield f"=={pid}== Profiling result:"
            yield SUMMARY_HEAD
        yield f"{'' if row % 20 else ' GPU activities:':16}    5.00%  {CELLS}  kernel_{row % 20}"


def strace_calls(rows: int) -> Lines:
    """strace -f -T -tt."""
    yield '12 10:00:00.000000 execve("/usr/bin/python3", ["python3", "train.py"], 0x7ffe /* 9 vars */) = 0 <0.000212>'
    for row in range(rows - 1):
        at = f"10:{row // 60000 % 60:02}:{row // 1000 % 60:02}.{row % 1000:03}001"
        yield f'12 {at} read(3, "\\177ELF"..., 832) = 832 <0.000004>'


def thapi_events(rows: int) -> Lines:
    """iprof -t: two lines for every call."""
    for row in range(rows // 2):
        at = f"10:{row // 6000000 % 60:02}:{row // 100000 % 60:02}.{row % 100000:05}0"
        head = "- node1 - vpid: 5, vtid: 6 -"
        yield f"{at}100 {head} lttng_ust_ze:zeKernelSetArgumentValue_entry: {{ hKernel: 0x1000, argIndex: 4 }}"
        yield f"{at}900 {head} lttng_ust_ze:zeKernelSetArgumentValue_exit: {{ zeResult: ZE_RESULT_SUCCESS }}"


def thapi_intervals(rows: int) -> Lines:
    """babeltrace_thapi to_interval."""
    for row in range(rows):
        context = f'hostname = "node1", vpid = 5, vtid = 6, ts = {1700000000000000000 + row * 50}, backend = 1'
        yield f'lttng:host: {{ {context} }}, {{ name = "zeEventHostSynchronize", dur = 30, err = false }}'


def unitrace_timeline(rows: int) -> Lines:
    """unitrace -t: a line for every kernel and copy."""
    for row in range(rows):
        times = f"{row * 90} (append) {row * 90 + 10} (submit) {row * 90 + 20} (start) {row * 90 + 70} (end)"
        yield f'Thread 7 Device 99 : "{KERNELS[row % len(KERNELS)]}[SIMD32 {{1; 4; 1}} {{4; 1; 1}}]" [ns] {times}'


def rocprof_kernels(rows: int) -> Lines:
    """rocprofv3 --kernel-trace."""
    yield (
        '"Kind","Agent_Id","Queue_Id","Thread_Id","Dispatch_Id","Kernel_Id","Kernel_Name","Correlation_Id",'
        '"Start_Timestamp","End_Timestamp"'
    )
    for row in range(rows):
        name = KERNELS[row % len(KERNELS)]
        yield f'"KERNEL_DISPATCH","Agent 1",1,69,{row},16,"{name}",{row},{row * 90 + 1000},{row * 90 + 1050}'


def imports(rows: int) -> Lines:
    """python -X importtime of many programs, one after the other."""
    for row in range(rows):
        if row % 1000 == 0:
            yield "import time: self [us] | cumulative | imported package"
        yield f"import time:       200 |        200 | package_{row % 500}"


def operations(rows: int) -> Lines:
    """A table of operations of training steps."""
    yield "dp_rank,stage,rank,step,optype,start_ts,duration,seq_id,mb_id"
    for row in range(rows):
        yield f"0,0,0,{row // 20},forward-compute,{row * 0.01:.2f},0.005,0,{row % 20}"


LOGS: dict[str, Callable[[int], Lines]] = {
    "nvprof GPU trace": nvprof_gpu_trace,
    "nvprof API trace": nvprof_api_trace,
    "nvprof csv trace": nvprof_csv_trace,
    "nvprof among output": nvprof_output,
    "nvprof summary": nvprof_summary,
    "nvprof NVTX ranges": nvprof_ranges,
    "nvprof processes": nvprof_processes,
    "strace": strace_calls,
    "THAPI events": thapi_events,
    "THAPI intervals": thapi_intervals,
    "unitrace timeline": unitrace_timeline,
    "rocprof kernels": rocprof_kernels,
    "importtime": imports,
    "operations": operations,
}


# ---------------------------------------------------------------- what loading them needs
LOAD = """
import resource, sys
from rankscope.cli import main
sys.argv = ["rankscope", "load", sys.argv[1], "--out", sys.argv[2]]
code = main()
sys.stderr.write(" %d" % resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""
TABLES = ("events", "tallies", "range_tallies", "operations")


def write(log: str, rows: int, path: Path) -> None:
    """A log of so many rows."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in LOGS[log](rows))


def peak_bytes(path: Path, run: Path) -> int:
    """The largest resident set of the process that loads the file."""
    command = [sys.executable, "-c", LOAD, str(path), str(run)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{path}: {done.stderr}")
    return int(done.stderr.split()[-1]) * 1024


def arrived(run: Path) -> str:
    """Rows by table."""
    about = json.loads(next(run.glob("loaded/*/about.json")).read_text())
    return ", ".join(f"{about['rows'][table]:,} {table}" for table in TABLES if table in about["rows"])


def measured(log: str, rows: int, folder: Path) -> tuple[int, int, str]:
    """Bytes of the log, bytes of memory, and what came of it."""
    path, run = folder / "log.txt", folder / "run"
    write(log, rows, path)
    return path.stat().st_size, peak_bytes(path, run), arrived(run)


def lines(log: str, sizes: list[int]) -> Iterator[str]:
    """A line of the table for each size."""
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            size, peak, told = measured(log, rows, Path(folder))
        yield f"| {log} | {rows:,} | {size / 1e6:.0f} MB | {peak / 1e6:.0f} MB | {told} |"


HEAD = """# Memory of reading long logs
{date}, {cpu}, Python {python}. `python benchmarks/long_logs.py{arguments}`.
The largest resident set of `rankscope load`, of which some 100 MB are its libraries.

| log | rows | file | memory | in the tables |
|---|---:|---:|---:|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="100000,400000,1500000")
    parser.add_argument("--logs", default=",".join(LOGS))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/long_logs.md")
    options = parser.parse_args()
    arguments = "".join(f" {argument}" for argument in sys.argv[1:])
    about = {"date": time.strftime("%Y-%m-%d"), "cpu": cpu_model(), "python": platform.python_version()}
    text = [HEAD.format(**about, arguments=arguments)]
    print(text[0], flush=True)
    for log in options.logs.split(","):
        for line in lines(log, [int(rows) for rows in options.rows.split(",")]):
            print(line, flush=True)
            text.append(line)
    if options.save:
        (RESULTS / "long_logs.md").write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
