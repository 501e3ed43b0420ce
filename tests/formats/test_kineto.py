"""Kineto traces become events: every number against one worked out by hand or summed another way."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from rankscope.formats import json_stream, kineto
from rankscope.formats.nccl_kernels import nccl_operation
from rankscope.formats.registry import recognised
from rankscope.formats.source import Hints, Source
from rankscope.model.records import BadFile, Reading, Severity
from rankscope.model.tables import Words
from rankscope.store.columns import joined, reading_tables

SAMPLES = Path(__file__).parents[2].parent / "shared/samples"
KINETO = sorted(SAMPLES.glob("kineto/*"))
BASE_NS = 1_719_853_884_000_000_000
INFO = {
    "rank": 3,
    "world_size": 8,
    "nccl_version": "2.21.5",
    "pg_config": [{"pg_name": "7", "pg_desc": "tensor", "pg_size": 2, "ranks": [2, 3]}],
}
NCCL = {
    "Collective name": "allreduce",
    "dtype": "BFloat16",
    "In msg nelems": 1000,
    "Out msg nelems": 1000,
    "Process Group Name": "7",
    "Seq": 41,
}


def span(cat: str, name: str, ts: Any, dur: Any, tid: Any = 5, pid: Any = 77, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def gpu(cat: str, name: str, ts: Any, dur: Any, stream: int = 7, **args: Any) -> dict[str, Any]:
    return span(cat, name, ts, dur, stream, 1, device=1, stream=stream, **args)


EVENTS = [
    span("cpu_op", "aten::add", 1000.25, 10.5),
    span("cuda_runtime", "cudaLaunchKernel", 1002, 3, correlation=9),
    gpu("kernel", "add", 1006.001, 2, correlation=9),
    gpu("kernel", "ncclDevKernel_AllReduce", 1009, 5, 20, correlation=10, **NCCL),
    gpu("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 1020, 1, correlation=11, bytes=4096),
    span("cpu_op", "record_param_comms", 1001, 1, **NCCL),
    span("user_annotation", "ProfilerStep#12", 1000, 100),
    span(
        "user_annotation", "gloo:all_reduce", 1001, 50, **{"Input Dims": [[3, 5], [2]], "Input type": ["float", "int"]}
    ),
    span("python_function", "train.py(3): main", 1000, 100),
    {"ph": "f", "id": 9, "pid": 1, "tid": 7, "ts": 1006.001, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    {"ph": "M", "name": "process_name", "pid": 77, "tid": 0, "ts": 0, "args": {"name": "python3"}},
    {"ph": "M", "name": "process_labels", "pid": 77, "tid": 0, "ts": 0, "args": {"labels": "CPU"}},
]


def trace(events: list[Any], **members: Any) -> bytes:
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A100"}, {"id": 1, "name": "A100"}]}
    return json.dumps({**head, "distributedInfo": INFO, "traceEvents": events, **members}).encode()


def read(content: bytes, **hints: Any) -> list[Reading]:
    return list(kineto.read(Source(Path("t.json"), Hints(**hints), content)))


def rows(readings: list[Reading], *names: str) -> list[tuple[Any, ...]]:
    """The events of all readings, these columns of them."""
    found: list[tuple[Any, ...]] = []
    for reading in readings:
        if reading.event_columns:
            found += zip(*(listed(reading.event_columns[name]) for name in names), strict=True)
    return found


def listed(column: Any) -> list[Any]:
    if isinstance(column, Words):
        return [column.values[code] for code in column.codes]
    return list(column.tolist())


def notes(readings: list[Reading]) -> list[tuple[Severity, str]]:
    return [(note.severity, note.text) for reading in readings for note in reading.notes]


def test_every_event_has_its_layer_and_exact_times() -> None:
    found = rows(read(trace(EVENTS, baseTimeNanoseconds=BASE_NS)), "layer", "name", "start_ns", "end_ns", "thread")
    expected = [
        ("torch", "aten::add", 1_000_250, 1_010_750, 5),
        ("cuda_api", "cudaLaunchKernel", 1_002_000, 1_005_000, 5),
        ("gpu", "add", 1_006_001, 1_008_001, 0),
        ("gpu", "ncclDevKernel_AllReduce", 1_009_000, 1_014_000, 0),
        ("gpu", "Memcpy HtoD (Pinned -> Device)", 1_020_000, 1_021_000, 0),
        ("torch", "record_param_comms", 1_001_000, 1_002_000, 5),
        ("step", "ProfilerStep#12", 1_000_000, 1_100_000, 5),
        ("gloo", "gloo:all_reduce", 1_001_000, 1_051_000, 5),
        ("nccl", "allreduce", 1_009_000, 1_014_000, 0),
    ]
    assert found == [(layer, name, BASE_NS + start, BASE_NS + end, tid) for layer, name, start, end, tid in expected]


def test_streams_correlations_bytes_and_collectives() -> None:
    found = rows(read(trace(EVENTS)), "layer", "group", "correlation", "bytes", "sequence", "dtype")
    assert found == [
        ("torch", "", None, None, None, ""),
        ("cuda_api", "", 9, None, None, ""),
        ("gpu", "1/7", 9, None, None, ""),
        ("gpu", "1/20", 10, None, None, ""),
        ("gpu", "1/7", 11, 4096, None, ""),
        ("torch", "7", None, 2000, 41, "BFloat16"),
        ("step", "", None, None, 12, ""),
        ("gloo", "Gloo", None, 60, None, "float"),
        ("nccl", "7", 10, 2000, 41, "BFloat16"),
    ]


def test_the_store_takes_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(json_stream, "PIECE_BYTES", 1 << 10)
    parts = [reading_tables(4, reading, events=True)["events"] for reading in read(trace(EVENTS * 20))]
    events = joined(parts)
    assert len(parts) > 20 and events.num_rows == 20 * 9
    nccl = events.filter(pc.equal(events["layer"].cast("string"), "nccl"))
    assert nccl.select(["process", "name", "group", "sequence", "bytes", "dtype"]).to_pylist()[0] == {
        "process": 4,
        "name": "allreduce",
        "group": "7",
        "sequence": 41,
        "bytes": 2000,
        "dtype": "BFloat16",
    }


def test_facts_groups_and_notes() -> None:
    readings = read(trace(EVENTS, cuda_runtime_version=12040, baseTimeNanoseconds=BASE_NS))
    facts, [group, unnamed] = readings[0].facts, readings[-1].groups
    assert (facts.rank, facts.world_size, facts.rank_source, facts.pid) == (3, 8, "distributedInfo", 77)
    assert (facts.executable, facts.devices, facts.versions) == ("python3", "2 × A100", "NCCL 2.21.5; CUDA 12.4")
    assert (group.name, group.identity, group.size, group.my_rank) == ("7", "tensor 7", 2, 1)
    assert (unnamed.name, unnamed.identity, unnamed.size) == ("Gloo", "tensor 7, by order", 2)
    assert notes(readings) == [
        (Severity.NOTE, "1 calls of Python functions left out"),
        (Severity.NOTE, "2 of 3 launches of GPU activities have no call in the trace"),
    ]
    assert all(reading.facts is facts and reading.continues == (at > 0) for at, reading in enumerate(readings))


def test_the_users_word_on_the_rank_counts() -> None:
    assert read(trace(EVENTS), rank=5)[0].facts.rank == 5


def test_python_functions_on_request() -> None:
    source = Source(Path("t.json"), content=trace(EVENTS))
    found = rows(list(kineto.read(source, python_functions=True)), "layer", "name")
    assert ("python", "train.py(3): main") in found


@pytest.mark.parametrize("cat, name, layer", [
    ("cuda_runtime", "hipLaunchKernel", "hip_api"),
    ("cuda_driver", "cuLaunchKernelEx", "cuda_api"),
    ("xpu_runtime", "urEnqueueKernelLaunch", "xpu_api"),
    ("mtia_runtime", "launch", "mtia_api"),
    ("cuda_sync", "Stream Sync", "gpu_sync"),
    ("gpu_user_annotation", "forward", "gpu_range"),
    ("overhead", "Unrecognized", "overhead"),
])  # fmt: skip
def test_layers(cat: str, name: str, layer: str) -> None:
    assert rows(read(trace([span(cat, name, 1, 1)])), "layer") == [(layer,)]


def test_nanoseconds_of_large_fractional_times_are_exact() -> None:
    """A double of this size steps by a quarter of a microsecond."""
    content = trace([span("cpu_op", "a", 17, 0)]).replace(
        b'"ts": 17, "dur": 0', b'"ts": 1712195495519689.047, "dur": 63.813'
    )
    [(start_ns, end_ns)] = rows(read(content), "start_ns", "end_ns")
    assert (start_ns, end_ns) == (1_712_195_495_519_689_047, 1_712_195_495_519_752_860)


def test_the_base_time_at_the_end_of_a_compressed_file_is_found() -> None:
    content = gzip.compress(trace([span("cpu_op", "a", 4203669604595.407, 1)], baseTimeNanoseconds=BASE_NS))
    assert rows(read(content), "start_ns") == [(BASE_NS + 4_203_669_604_595_407,)]


def test_a_small_time_without_base_is_told() -> None:
    assert "times are not Unix times" in notes(read(trace([span("cpu_op", "a", 5, 1)])))[0][1]


def test_impossible_times_are_left_out_and_counted() -> None:
    times = [(5, -1), ("x", 1), (None, 1), (10**400, 1), (1e300, 1), (5, [1]), (7, 2)]
    readings = read(trace([span("cpu_op", "a", ts, dur) for ts, dur in times]))
    assert rows(readings, "start_ns", "end_ns") == [(7000, 9000)]
    [warning] = [told for severity, told in notes(readings) if severity is Severity.WARNING]
    assert warning.startswith("6 events left out: they end before they start")


def test_events_far_outside_the_recorded_window_are_told() -> None:
    window = {"ph": "X", "cat": "Trace", "ts": 1e9, "dur": 2e6, "pid": "Spans", "tid": "x", "name": "Profiler (0)"}
    near, far = span("cpu_op", "a", 1e9 + 1, 1), span("cpu_op", "b", 1e9 - 9e6, 1)
    assert not [told for severity, told in notes(read(trace([near, window]))) if severity is Severity.WARNING]
    [warning] = [told for severity, told in notes(read(trace([near, far, window]))) if severity is Severity.WARNING]
    assert warning == "events lie up to 9.000 s before and 0.000 s after what the profiler recorded (2.000 s)"


def test_a_truncated_trace_keeps_its_events_and_says_so() -> None:
    content = trace(EVENTS)
    readings = read(content[: content.index(b'{"ph": "X", "cat": "gpu_memcpy"') + 20])
    assert [name for (name,) in rows(readings, "name")] == [
        "aten::add",
        "cudaLaunchKernel",
        "add",
        "ncclDevKernel_AllReduce",
        "allreduce",
    ]
    [warning] = [told for severity, told in notes(readings) if severity is Severity.WARNING]
    place = content.index(b'{"ph": "X", "cat": "gpu_memcpy"')
    assert (
        warning
        == f"ends early at byte {place}, in the middle of its events (truncated?); 5 events before that are kept"
    )


def test_a_trace_cut_before_its_first_event_is_bad() -> None:
    with pytest.raises(BadFile, match=r"^t.json: ends early at byte"):
        read(trace(EVENTS)[:300])


@pytest.mark.parametrize("indent", [None, 1])
def test_the_list_of_events_alone_is_a_trace_too(indent: int | None) -> None:
    content = json.dumps(EVENTS, indent=indent).encode() + b"\n"
    source = Source(Path("t.json"), Hints(), content)
    known = recognised(source)
    assert known is not None and known.name == "kineto"
    readings = list(kineto.read(source))
    assert rows(readings, "name", "start_ns") == rows(read(trace(EVENTS)), "name", "start_ns")
    assert not [told for severity, told in notes(readings) if severity is Severity.WARNING]
    cut = list(kineto.read(Source(Path("t.json"), Hints(), content[: content.index(b"gpu_memcpy")])))
    assert len(rows(cut, "name")) == 5 and "ends early" in next(
        told for severity, told in notes(cut) if severity is Severity.WARNING
    )


def test_an_empty_trace_is_no_error() -> None:
    assert rows(read(trace([])), "name") == []


def test_blocks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 1 << 16)
    readings = read(trace(EVENTS * 500))
    sizes = [len(reading.event_columns["start_ns"]) for reading in readings if reading.event_columns]
    assert sum(sizes) == 500 * 9 and max(sizes) < 700


@pytest.mark.skipif(not KINETO, reason=f"no samples at {SAMPLES}")
@pytest.mark.parametrize("path", KINETO, ids=lambda path: path.name[:24])
def test_samples_against_another_parser(path: Path) -> None:
    """Counts and exact sums of times by category, from the standard library's json with decimal numbers."""
    source = Source(path)
    known = recognised(source)
    assert known is not None and known.name == "kineto"
    whole = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    expected: Counter[str] = Counter()
    for event in whole["traceEvents"]:
        if event.get("ph") == "X" and event["cat"] != "Trace":
            kind = "gpu" if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset") else "other"
            expected[f"{kind} events"] += 1
            expected[f"{kind} ns"] += int(event["dur"] * 1000)
            expected[f"{kind} start"] += int(event["ts"] * 1000) + whole.get("baseTimeNanoseconds", 0)
            expected["bytes"] += event["args"].get("bytes", 0) if kind == "gpu" else 0
            expected["correlation"] += event["args"].get("correlation", 0)
    readings = list(kineto.read(source))
    found: Counter[str] = Counter()
    for layer, start, end, size, number in rows(readings, "layer", "start_ns", "end_ns", "bytes", "correlation"):
        if layer == "nccl":  # kernels once more
            continue
        kind = "gpu" if layer == "gpu" else "other"
        found += Counter({f"{kind} events": 1, f"{kind} ns": end - start, f"{kind} start": start})
        found["bytes"] += (size or 0) if layer == "gpu" else 0
        found["correlation"] += number or 0
    assert +found == +expected
    info = whole.get("distributedInfo", {})
    assert (readings[0].facts.rank, readings[0].facts.world_size) == (info.get("rank"), info.get("world_size"))
    assert not [told for severity, told in notes(readings) if severity is Severity.WARNING]


@pytest.mark.skipif(not KINETO, reason=f"no samples at {SAMPLES}")
def test_collectives_of_the_samples() -> None:
    """By hand: 10 Gloo all-reduces of 321,271 floats in one; 25 NCCL all-reduces of 10 different sizes in the other."""
    found = rows(list(kineto.read(Source(SAMPLES / "kineto" / KINETO[1].name))), "layer", "bytes")
    assert found.count(("gloo", 4 * 321_271)) >= 1
    path = next(path for path in KINETO if path.name.startswith("ns_resolution"))
    text = gzip.decompress(path.read_bytes()).decode()
    elements = sum(int(part.split(",")[0]) for part in text.split('"In msg nelems": ')[1:])
    told = rows(list(kineto.read(Source(path))), "name", "bytes", "group", "dtype")
    comms = [row for row in told if row[0] == "record_param_comms"]
    width = {"Float": 4, "Long": 8, "Int": 4, "Double": 8, "Byte": 1}
    assert sum(row[1] // width[row[3]] for row in comms if row[3] in width and row[1]) == elements
    assert {row[2] for row in comms if row[3]} == {"0"}


def test_nothing_else_is_taken_for_kineto() -> None:
    others = [b"", b"{}", b'{"traceEvents": []}', b'[{"ph": "X"}]', b'{"schemaVersion": 1, "x": 2}', b"\x00" * 100]
    assert not any(map(kineto.sniff, others))
    seeds = [path for path in SAMPLES.parent.glob("**/*") if path.is_file() and "kineto" not in path.parts]
    assert not [path for path in seeds if path.stat().st_size and kineto.sniff(Source(path).head())]


def test_numbers_of_any_kind_do_no_harm() -> None:
    odd: list[Any] = [10**30, -(10**30), 1.5, True, None, "7", [], {}]
    events = [
        gpu("kernel", "k", 1, 1, **{"correlation": one, "bytes": one, "Collective name": one, "Seq": one})
        for one in odd
    ]
    events += [{**span("kernel", "k", 1, 1), "pid": one, "tid": one} for one in odd]
    found = rows(read(trace(events)), "layer", "correlation", "sequence")
    assert sum(layer == "gpu" for layer, *_ in found) == 2 * len(odd)
    assert np.isfinite([number or 0 for _, number, _ in found]).all()


# ---------------------------------------------------------------- what older versions write, and what sums need
def test_categories_of_old_versions() -> None:
    """As torch 1.8 wrote them; ranges of torch's loop were operators."""
    old = [
        span("Operator", "ProfilerStep#3", 1000, 100),
        span("Operator", "Optimizer.step#SGD.step", 1080, 10),
        span("Operator", "aten::add", 1001, 5),
        span("Runtime", "cudaLaunchKernel", 1002, 3, correlation=9),
        gpu("Kernel", "add", 1006, 2, correlation=9),
        gpu("Memcpy", "Memcpy HtoD (Pageable -> Device)", 1010, 1, bytes=64),
        gpu("Memset", "Memset (Device)", 1012, 1, bytes=32),
    ]
    content = json.dumps({"schemaVersion": 1, "traceEvents": old}).encode()
    assert kineto.sniff(content)
    found = rows(read(content), "layer", "group", "sequence", "user_range", "pageable")
    assert found == [
        ("step", "", 3, False, False),
        ("torch", "", None, True, False),
        ("torch", "", None, False, False),
        ("cuda_api", "", None, False, False),
        ("gpu", "1/7", None, False, False),
        ("gpu", "1/7", None, False, True),
        ("gpu", "1/7", None, False, False),
    ]


@pytest.mark.parametrize(
    ("kernel", "operation", "algorithm"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclAllReduce", "RING LL"),
        ("ncclKernel_ReduceScatter_TREE_LL128_Sum_half(ncclDevComm*)", "ncclReduceScatter", "TREE LL128"),
        ("ncclDevKernel_AllGather_NVLS_SIMPLE(ncclDevKernelArgs)", "ncclAllGather", "NVLS SIMPLE"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "ncclAllReduce", "RING LL"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", "ncclSendRecv", ""),
        ("void gemm<float>(int)", "", ""),
    ],
)
def test_kernels_of_nccl_say_what_they_do(kernel: str, operation: str, algorithm: str) -> None:
    assert nccl_operation(kernel) == (operation, algorithm)


def test_a_kernel_of_nccl_without_metadata_is_a_collective_of_the_only_group() -> None:
    events = [gpu("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 1000, 5, 20, correlation=4)]
    readings = read(trace(events))
    told = rows(readings, "layer", "name", "group", "sequence", "correlation", "kind", "algorithm")
    assert told[1] == ("nccl", "ncclAllReduce", "NCCL", None, 4, "progress", "ncclAllReduce RING LL")
    assert [(one.name, one.identity) for one in readings[-1].groups][1:] == [("NCCL", "tensor 7, by order")]


def test_memory_of_the_caching_allocator() -> None:
    def memory(size: int, allocated: int, reserved: int, kind: int = 1) -> dict[str, Any]:
        told = {"Device Type": kind, "Device Id": 2, "Bytes": size}
        about = {**told, "Total Allocated": allocated, "Total Reserved": reserved}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 77, "tid": 5, "ts": 1, "args": about}

    moments = [memory(100, 100, 500), memory(300, 400, 900), memory(-100, 300, 900), memory(9999, 1, 1, kind=0)]
    [device] = read(trace([*EVENTS, *moments]))[-1].devices
    assert (device.device, device.pool_allocations, device.pool_releases) == (2, 2, 1)
    assert (device.pool_used_bytes, device.pool_used_peak_bytes, device.pool_peak_bytes) == (300, 400, 900)
