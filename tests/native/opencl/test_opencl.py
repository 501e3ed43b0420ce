"""OpenCL on PoCL: every call, kernel, copy and byte, device time as the program's own events have it, and unseen."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from native.opencl.opencl_runs import OpenCl, Recorded, find_opencl, make_program, run, variables_of_run
from programs import recorded

pytestmark = pytest.mark.timeout(600)
SEEDS = range(3)
# A program nobody here wrote: the demo of pyopencl's documentation, checked by itself.
DEMO = """
import numpy as np, pyopencl as cl
a, b = (np.random.default_rng(i).random(50000).astype(np.float32) for i in (1, 2))
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
flags = cl.mem_flags
a_g, b_g = (cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x) for x in (a, b))
source = "kernel void sum(global const float *a, global const float *b, global float *c)"
source += "{ int i = get_global_id(0); c[i] = a[i] + b[i]; }"
program = cl.Program(context, source).build()
c_g = cl.Buffer(context, flags.WRITE_ONLY, a.nbytes)
for _ in range(5):
    program.sum(queue, a.shape, None, a_g, b_g, c_g)
c = np.empty_like(a)
cl.enqueue_copy(queue, c, c_g)
print(np.abs(c - (a + b)).max(), queue.properties, c_g.reference_count)
"""


@pytest.fixture(scope="module")
def opencl() -> OpenCl:
    return find_opencl()


@pytest.fixture(scope="module")
def program(opencl: OpenCl, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_program(tmp_path_factory.mktemp("opencl"))
    run(made, opencl, None, "profiled", 1, 5)  # compiles the kernel
    return made


def check(told: object, found: Recorded) -> None:
    assert found.calls == told.calls  # type: ignore[attr-defined]
    assert found.counts() == {name: sums[:2] for name, sums in told.works.items()}  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", SEEDS)
def test_device_time_is_that_of_the_programs_own_events(
    program: Path, opencl: OpenCl, tmp_path: Path, seed: int
) -> None:
    told = run(program, opencl, tmp_path, "profiled", seed, 80)
    found = Recorded(tmp_path)
    check(told, found)
    assert found.works == told.works  # to the nanosecond: both ask the driver
    assert (found.runtime()["launched"], found.runtime()["untimed"]) == (80, 0)


@pytest.mark.parametrize("what", ["hidden", "unordered", "threads"])
def test_queues_without_profiling(program: Path, opencl: OpenCl, tmp_path: Path, what: str) -> None:
    """The program checks by itself that it sees no profiling."""
    told = run(program, opencl, tmp_path, what, 11, 60)
    found = Recorded(tmp_path)
    check(told, found)
    assert all(ns > 0 for _, _, ns in found.works.values())
    assert len(found.threads) >= (4 if what == "threads" else 1)


def test_errors_gates_and_references(program: Path, opencl: OpenCl, tmp_path: Path) -> None:
    bare, told = run(program, opencl, None, "odd"), run(program, opencl, tmp_path, "odd")
    assert told.rest == bare.rest
    assert told.calls["clCreateKernel"] == (2, 1)
    check(told, Recorded(tmp_path))


def test_memory_is_held_until_the_driver_destroys_it(program: Path, opencl: OpenCl, tmp_path: Path) -> None:
    run(program, opencl, tmp_path, "memory")
    found = Recorded(tmp_path)
    (device,) = found.reading.devices
    assert (device.current_bytes, device.peak_bytes) == (1500, 1500 + 4096)
    assert (device.allocations, device.releases) == (4, 2)
    assert found.runtime()["shared_peak_bytes"] == 4096


def test_work_that_is_never_done_does_not_keep_the_end_waiting(program: Path, opencl: OpenCl, tmp_path: Path) -> None:
    told = run(program, opencl, tmp_path, "exit", code=5)
    found = Recorded(tmp_path)
    assert found.calls == told.calls
    assert (found.works, found.runtime()["launched"], found.runtime()["timed"]) == ({}, 1, 0)


def test_killed(program: Path, opencl: OpenCl, tmp_path: Path) -> None:
    told = run(program, opencl, tmp_path, "kill", 3, 40, code=-signal.SIGKILL)
    found = Recorded(tmp_path)
    assert found.calls == told.calls
    assert all(
        sums[0] <= told.works[name][0] for name, sums in found.works.items()
    )  # our own thread may be at the last


def test_a_child_of_a_fork(program: Path, opencl: OpenCl, tmp_path: Path) -> None:
    told = run(program, opencl, tmp_path, "fork", 3, 40)
    assert told.rest["child"] == "7"
    check(told, Recorded(tmp_path))


def test_it_can_be_switched_off(program: Path, opencl: OpenCl, tmp_path: Path) -> None:
    run(program, opencl, tmp_path, "profiled", 1, 5, RANKSCOPE_OPENCL="0")
    assert not recorded.rank_files(tmp_path)


def test_devices_are_told_by_name_and_driver(program: Path, opencl: OpenCl, tmp_path: Path) -> None:
    run(program, opencl, tmp_path, "profiled", 1, 20)
    found = Recorded(tmp_path)
    (name,) = found.gpu_names()
    assert name.startswith(("pthread", "cpu"))
    words = found.file.strings()
    assert "Portable Computing Language" in words[int(found.runtime()["library"])]
    assert "OpenCL 3.0" in words[int(found.runtime()["version"])]


def test_pyopencl_sees_what_it_sees_bare(opencl: OpenCl, tmp_path: Path) -> None:
    outputs = []
    for folder in (None, tmp_path / "run"):
        (tmp_path / "run").mkdir(exist_ok=True)
        environment = variables_of_run(tmp_path / "run", opencl, tmp_path / "cache")
        if folder is None:
            del environment["LD_PRELOAD"], environment["OPENCL_LAYERS"], environment["RANKSCOPE_DIR"]
        done = subprocess.run(
            [str(opencl.python), "-c", DEMO], env=environment, capture_output=True, text=True, check=True
        )
        outputs.append((done.stdout, done.stderr))
    assert outputs[0] == outputs[1]
    found = Recorded(tmp_path / "run")
    assert found.works["sum"][0] == 5
    assert found.works["[OpenCL memcpy DtoH]"][:2] == (1, 200000)
