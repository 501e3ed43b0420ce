"""Text of unitrace: what it prints of host calls and devices; real files by independent sums."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from formats.foreign_files import readings, shared, warnings
from fuzz.seeds import TEXTS
from rankscope.api.load import summed
from rankscope.formats.source import Source
from rankscope.formats.unitrace import read, sniff
from rankscope.model.records import Reading

TEXT = next(text for text in TEXTS if text.startswith("=== API Timing"))


def tallies(*found: Reading) -> set[tuple[str, str, int | None, float | None, int | None]]:
    return {(t.layer, t.name, t.calls, t.total_ns, t.bytes) for one in found for t in one.tallies}


def test_tables_and_timeline() -> None:
    (reading,) = readings("unitrace", TEXT)
    assert tallies(reading) == {
        ("ze", "zeModuleCreate", 1, 2000, None),
        ("ze", "zeEventHostSynchronize", 2, 1000, None),
        ("gpu", "gemm(float*, int)", 2, 600, None),
        ("gpu", "zeCommandListAppendMemoryCopy(M2D)", 1, 200, 4096),
    }
    names = reading.event_columns["name"]
    assert [names.values[code] for code in names.codes] == ["gemm(float*, int)", "zeCommandListAppendMemoryCopy(M2D)"]
    assert reading.event_columns["end_ns"].tolist() == [500, 800]
    assert {(one.name, one.value) for one in reading.figures} >= {("SIMD", 32.0), ("execution time", 9000.0)}
    assert warnings(reading) == []


def test_every_line_is_in_a_table_or_counted() -> None:
    damaged = TEXT.replace("zeModuleCreate,            1,", "zeModuleCreate,            one,")
    (reading,) = readings("unitrace", f"the job says hello\n{damaged}")
    told = [(note.text, note.where) for note in reading.notes]
    assert ("1 line of tables cannot be read: 10", "file.txt:10") in told
    assert ("1 line not understood: 1", "file.txt:1") in told
    assert any("3000 ns is printed, but the rows add up to 1000 ns" in text for text, _ in told)


def test_a_backend_of_opencl_has_its_own_layer() -> None:
    (reading,) = readings(
        "unitrace", TEXT.replace("== L0 Backend ==", "== CL GPU Backend ==").replace("for L0", "for CL GPU")
    )
    assert {(t.layer, t.group) for t in reading.tallies} == {("opencl", "CL GPU"), ("gpu", "")}


def test_submission_times_stand_for_device_times_that_are_missing() -> None:
    text = """=== Kernel Submission Summary ===

== L0 Backend ==

   Kernel,   Calls,   Append (ns),   Append (%),   Submit (ns),   Submit (%),   Execute (ns),  Execute (%)
   "gemm",       4,           100,    50.000000,           200,    25.000000,            400,   100.000000
"""
    (reading,) = readings("unitrace", text)
    assert tallies(reading) == {("gpu", "gemm", 4, 400, None)}
    assert {(f.series, f.name, f.value) for f in reading.figures} == {
        ("gemm", "append time", 100),
        ("gemm", "submit time", 200),
    }


@pytest.mark.parametrize("name", ["dpc_gemm.h.txt", "dpc_gemm.d.txt"])
def test_real_tables_by_a_sum_of_their_own_text(name: str) -> None:
    path = shared(f"samples/unitrace/{name}")
    rows = re.findall(r", +(\d+), +(\d+), +\d+\.\d+, +\d+, +\d+, +\d+$", path.read_text(), re.M)
    found = list(read(Source(path)))
    assert len(rows) == sum(len(one.tallies) for one in found) > 2
    assert sum(int(calls) for calls, _ in rows) == sum(t.calls or 0 for one in found for t in one.tallies)
    assert sum(int(ns) for _, ns in rows) == sum(t.total_ns or 0 for one in found for t in one.tallies)
    assert warnings(*found) == [] and not any("not understood" in note.text for one in found for note in one.notes)


def test_a_real_timeline_by_a_sum_of_its_own_text() -> None:
    path = shared("samples/unitrace/dpc_gemm.t.txt")
    expected: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        if line.startswith("Thread"):
            name = "gemm" if "GEMM" in line else line.split('"')[1].partition("[")[0]
            start, end = (int(re.search(rf"(\d+) \({word}\)", line)[1]) for word in ("start", "end"))  # type: ignore[index]
            expected[name] += end - start
            sizes[name] += int(line.partition("[")[2].partition("]")[0]) if name != "gemm" else 0
    found = [one for _, one in summed(("unitrace", one) for one in read(Source(path)))]
    told = {"gemm" if "GEMM" in t.name else t.name: t for one in found for t in one.tallies if t.layer == "gpu"}
    assert {name: int(t.total_ns or 0) for name, t in told.items()} == dict(expected) and len(told) == 3
    assert (
        told["zeCommandListAppendMemoryCopy(M2D)"].bytes == sizes["zeCommandListAppendMemoryCopy(M2D)"] == 12 * 4194304
    )
    (device,) = [one for reading in found for one in reading.devices]
    assert (device.activities, device.compute_ns, device.copy_ns) == (
        20,
        expected["gemm"],
        expected["zeCommandListAppendMemoryCopy(M2D)"] + expected["zeCommandListAppendMemoryCopy(D2M)"],
    )


def test_other_text_is_none() -> None:
    assert not sniff(b"Thread 1 says hello\n=== Summary ===\n")
    assert not sniff(Path(__file__).read_bytes()[:300])
