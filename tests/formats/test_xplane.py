"""Profiles of XLA: one made by hand, and one that JAX writes here, against its own JSON."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from formats.foreign_files import readings, warnings
from formats.test_thapi import events
from fuzz.seeds import xplane
from mpis import ROOT
from rankscope.api.load import summed
from rankscope.formats import xplane as xplane_reader
from rankscope.formats.protobuf import Damaged, fields, varint
from rankscope.formats.source import Source

START = 1_700_000_000 * 10**9


def test_planes_lines_and_events() -> None:
    found = readings("xplane", xplane())
    assert events(*found) == [
        ("gpu", "gemm_fusion", START + 1005, START + 1045, 0),
        ("gpu", "[CUDA memcpy HtoD]", START + 1060, START + 1070, 0),
        ("gpu_range", "gemm_fusion", START + 1005, START + 1045, 0),
        ("step", "train#3", START + 1000, START + 1090, 42),
        ("cuda_api", "cuLaunchKernel", START + 1001, START + 1004, 42),
        ("jax", "forward", START + 1002, START + 1003, 42),
    ]
    assert (found[0].facts.host, found[0].facts.devices) == ("node1", "GPU 0")
    assert warnings(*found) == []


def test_sums_are_those_of_a_recorded_run() -> None:
    made = [one for _, one in summed(("xplane", one) for one in readings("xplane", xplane()))]
    told = {(t.layer, t.name): (t.calls, t.total_ns, t.bytes) for one in made for t in one.tallies}
    assert told == {
        ("gpu", "gemm_fusion"): (1, 40, None),
        ("gpu", "[CUDA memcpy HtoD]"): (1, 10, 64),
        ("cuda_api", "cuLaunchKernel"): (1, 3, None),
        ("jax", "forward"): (1, 1, None),
    }
    (device,) = [one for reading in made for one in reading.devices]
    assert (device.busy_ns, device.compute_ns, device.copy_ns) == (50, 40, 10)


def test_a_file_cut_short_says_so() -> None:
    whole = xplane()
    found = readings("xplane", whole[:-40])
    assert any("damaged" in text for text in warnings(*found)) and events(*found)


def test_the_wire_format() -> None:
    assert varint(b"\xac\x02", 0) == (300, 2)
    assert list(fields(b"\x08\x96\x01\x12\x02hi\x1d\x01\x00\x00\x00")) == [(1, 150), (2, b"hi"), (3, 1)]
    for bad in (b"\x08", b"\x12\x05hi", b"\x0b\x00", b"\x80" * 11):
        try:
            list(fields(bad))
        except Damaged:
            continue
        raise AssertionError(bad)


PROFILED = """
import sys, jax, jax.numpy as jnp
@jax.jit
def step(w, x):
    return w - 0.01 * jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)
w, x = jnp.ones((64, 64)), jnp.ones((32, 64))
jax.profiler.start_trace(sys.argv[1])
for i in range(5):
    with jax.profiler.StepTraceAnnotation("train", step_num=i):
        w = step(w, x)
        w.block_until_ready()
jax.profiler.stop_trace()
"""


@pytest.mark.slow
def test_a_profile_that_jax_writes_has_the_events_of_its_own_json(tmp_path: Path) -> None:
    """JAX writes the same profile as JSON, too: equal names, as often, as long."""
    python = Path(os.environ.get("RANKSCOPE_JAX_PYTHON", ROOT / ".envs" / "jax" / "bin" / "python"))
    if not python.exists():
        pytest.skip("no Python with jax: RANKSCOPE_JAX_PYTHON does not name one, and .envs/jax is not there")
    subprocess.run([python, "-c", PROFILED, tmp_path], check=True, capture_output=True, timeout=200)
    (profile,), (told,) = (list(tmp_path.rglob(pattern)) for pattern in ("*.xplane.pb", "*.trace.json.gz"))
    with gzip.open(told) as file:
        spans = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]
    expected, expected_us = Counter(one["name"] for one in spans), Counter[str]()
    for one in spans:
        expected_us[one["name"]] += one["dur"]
    found, found_ns = Counter[str](), Counter[str]()
    for layer, name, start, end, _ in events(*xplane_reader.read(Source(profile))):
        name = f"${name}" if layer == "python" else name.partition("#")[0] if layer == "step" else name
        found[name] += 1
        found_ns[name] += end - start
    assert found == expected and sum(found.values()) > 100
    assert all(abs(found_ns[name] - us * 1000) <= 2 * expected[name] + us for name, us in expected_us.items())
