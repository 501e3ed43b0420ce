"""Text traces of THAPI, as its own printer and babeltrace2 write them: events, intervals, sums."""

from __future__ import annotations

from formats.foreign_files import readings, warnings
from fuzz.seeds import TEXTS
from rankscope.model.records import Reading

EVENTS = next(text for text in TEXTS if "lttng_ust_cuda:cuLaunchKernel_entry" in text)
INTERVALS = next(text for text in TEXTS if text.startswith("lttng:host:"))
T0 = 10 * 3600 * 10**9


def events(*found: Reading) -> list[tuple[str, str, int, int, int]]:
    rows = []
    for one in found:
        columns = one.event_columns
        for at in range(len(columns["start_ns"]) if columns else 0):
            words = (columns[key].values[columns[key].codes[at]] for key in ("layer", "name"))
            numbers = (int(columns[key][at]) for key in ("start_ns", "end_ns", "thread"))
            rows.append((*words, *numbers))
    return rows


def test_calls_and_what_they_launched() -> None:
    found = readings("thapi", EVENTS)
    assert events(*found) == [
        ("cuda_api", "cuLaunchKernel", T0 + 100, T0 + 200, 6),
        ("mpi", "MPI_Barrier", T0 + 300, T0 + 900, 7),
        ("gpu", "cuLaunchKernel", T0 + 100, T0 + 2600, 6),
        ("ze", "zeInit", T0 + 2000, T0 + 3000, 6),
    ]
    assert (found[0].facts.host, found[0].facts.pid) == ("node1", 5)
    assert warnings(*found) == []


def test_intervals_and_sums() -> None:
    found = readings("thapi", INTERVALS)
    start = 1_700_000_000_000_000_000
    assert events(*found) == [
        ("ze", "zeInit", start, start + 10, 6),
        ("gpu", "gemm", start + 20, start + 50, 6),
        ("opencl", "clFinish", 101, 111, 6),
    ]
    assert [(t.layer, t.name, t.calls, t.total_ns, t.bytes, t.errors) for one in found for t in one.tallies] == [
        ("memory", "cuMemcpyHtoD_v2", 1, None, 400, 0),
        ("opencl", "clFinish", 3, 110.0, None, 1),
    ]


def test_kernels_of_opencl_have_their_own_names_and_failed_calls_are_known() -> None:
    line = "12:00:00.00000{} - h - vpid: 1, vtid: 2 - lttng_ust_opencl{}\n"
    text = line.format("0001", '_arguments:kernel_info: { kernel: 12, function_name: "foo", num_args: 0 }')
    text += line.format("0002", ":clEnqueueNDRangeKernel_entry: { command_queue: 10, kernel: 12, work_dim: 1 }")
    text += line.format("0003", "_profiling:event_profiling: { status: 0, event: 17 }")
    text += line.format("0004", ":clEnqueueNDRangeKernel_exit: { errcode_ret_val: -5, event_val: 1 }")
    told = "{ event: 17, event_command_exec_status: 0, queued_status: 0, queued: 0, submit_status: 0, submit: 0, "
    text += line.format(
        "0005", f"_profiling:event_profiling_results: {told}start_status: 0, start: 5, end_status: 0, end: 15 }}"
    )
    found = readings("thapi", text)
    rows = events(*found)
    assert [row[:2] for row in rows] == [("opencl", "clEnqueueNDRangeKernel"), ("gpu", "foo")]
    assert rows[1][3] - rows[1][2] == 10 and found[0].event_columns["failed"].tolist() == [True, False]


def test_midnight() -> None:
    line = "{} - h - vpid: 1, vtid: 2 - lttng_ust_mpi:MPI_Barrier_{}: {{ }}\n"
    text = line.format("23:59:59.999999999", "entry") + line.format("00:00:00.000000009", "exit")
    (row,) = events(*readings("thapi", text))
    assert row[3] - row[2] == 10


def test_nothing_is_left_out_silently() -> None:
    line = "12:00:00.000000001 - h - vpid: 1, vtid: 2 - lttng_ust_{}\n"
    text = "Trace location: /tmp/x\n" + EVENTS + line.format("ze:zeInit_exit: { zeResult: ZE_RESULT_SUCCESS }")
    text += line.format("ze:zeFini_entry: { }") + line.format("ze_sampling:gpu_energy: { energy: 5 }")
    text += line.format(
        "ze_profiling:event_profiling_results: { hEvent: 0x1, status: ZE_RESULT_SUCCESS, globalStart: 0 }"
    )
    told = [note.text for one in readings("thapi", text) for note in one.notes]
    assert "process 5: 1 calls or ranges had begun but not ended: left out" not in told
    for expected in (
        "1 line not understood: 1",
        "1 line of other events (in no table): 12",
        "process 1: 1 calls or ranges had begun but not ended: left out",
        "process 1: 1 ends of calls without a beginning: left out",
        "process 1: 1 activities of the device have times in ticks of an unknown length: left out",
    ):
        assert expected in told, told


def traced(*events: str) -> str:
    """One process, a line every 10 ns."""
    line = "12:00:00.{:09d} - h - vpid: 1, vtid: 2 - lttng_ust_{}\n"
    return "".join(line.format(10 * number, event) for number, event in enumerate(events))


def lengths(text: str) -> list[tuple[str, str, int]]:
    return [(layer, name, end - start) for layer, name, start, end, _ in events(*readings("thapi", text))]


def moved(text: str) -> list[tuple[str, int | None, int | None]]:
    return [(t.name, t.calls, t.bytes) for one in readings("thapi", text) for t in one.tallies if t.layer == "memory"]


def test_tasks_and_events_of_itt_are_ranges() -> None:
    begin = 'itt:__itt_task_begin: {{domain: 0x0, taskid: __itt_null, name: 0x10, domain__nameA_val: "d", {}}}'
    named = [begin.format(f'name__strA_val: "{name}"') for name in "ab"]
    end = "itt:__itt_task_end: {domain: 0x0}"
    create = 'itt:__itt_event_create: {ittResult: 3, name: 0x0, namelen: 4, name_val: "mark"}'
    start, stop = (f"itt:__itt_event_{what}: {{ittResult: 0, event: 3}}" for what in ("start", "end"))
    found = lengths(traced(*named, end, create, start, start, stop, end))
    # one of ITT's events needs no end: then it is a mark
    assert found == [("nvtx", "d:b", 10), ("nvtx", "mark", 10), ("nvtx", "d:a", 70), ("nvtx", "mark", 0)]
    (found_one,) = readings("thapi", traced(*named, end))
    assert warnings(found_one) == ["file.txt: process 1: 1 calls or ranges had begun but not ended: left out"]


def test_what_calls_move_is_memory_unless_they_failed() -> None:
    copy = "cuda:cuMemcpyHtoD_v2_entry: { dstDevice: 0x7f, srcHost: 0x50, ByteCount: 400 }"
    block = "cuda:cuMemcpy3D_v2_entry: { pCopy: 0x1, pCopy_val: { WidthInBytes: 8, Height: 3, Depth: 2 } }"
    ends = [f"cuda:cuMemcpy{what}_v2_exit: {{ cuResult: CUDA_SUCCESS }}" for what in ("HtoD", "3D")]
    failed = "cuda:cuMemcpyHtoD_v2_exit: { cuResult: CUDA_ERROR_INVALID_VALUE }"
    read = (
        "opencl:clEnqueueReadBuffer_entry: { size: 1024 }",
        "opencl:clEnqueueReadBuffer_exit: { errcode_ret_val: 0 }",
    )
    mapped = "{ endpoint: ompt_scope_%s, optype: ompt_target_data_alloc, bytes: 4 }"
    omp = [f"ompt:ompt_callback_target_data_op_emi: {mapped % of}" for of in ("begin", "end")]
    text = traced(copy, ends[0], copy, ends[0], copy, failed, block, ends[1], *read, *omp)
    assert moved(text) == [
        ("cuMemcpyHtoD_v2", 2, 800),
        ("cuMemcpy3D_v2", 1, 48),
        ("clEnqueueReadBuffer", 1, 1024),
        ("ompt_callback_target_data_op_emi:alloc", 1, 4),
    ]


def test_kernels_of_level_zero_have_names_and_times_where_the_trace_says_how_long_a_tick_is() -> None:
    create = 'ze:zeKernelCreate_entry: { hModule: 0x1, desc: 0x2, desc__pKernelName_val: "gemm" }'
    created = "ze:zeKernelCreate_exit: { zeResult: ZE_RESULT_SUCCESS, phKernel_val: 0x77 }"
    launch = "ze:zeCommandListAppendLaunchKernel_entry: { hCommandList: 0x3, hKernel: 0x77, hSignalEvent: 0x0 }"
    profile = "ze_profiling:event_profiling: { hEvent: 0x9 }"
    launched = "ze:zeCommandListAppendLaunchKernel_exit: { zeResult: ZE_RESULT_SUCCESS }"
    # twice: the list is executed again, and the second time the device's timer of 32 bits begins anew
    timed = [
        f"ze_profiling:event_profiling_results: {{ hEvent: 0x9, globalStart: {start}, globalEnd: {end} }}"
        for start, end in ((5, 15), (2**32 - 10, 10))
    ]
    properties = "{ timerResolution: 80, kernelTimestampValidBits: 32 }"
    timer = f"ze_properties:device: {{ hDevice: 0x5, pDeviceProperties_val: {properties} }}"
    calls = (create, created, launch, profile, launched)
    found = [row for row in lengths(traced(timer, *calls, *timed)) if row[0] == "gpu"]
    assert found == [("gpu", "gemm", 800), ("gpu", "gemm", 1600)]
    without = readings("thapi", traced(*calls, *timed))
    assert warnings(*without) == [
        "file.txt: process 1: 2 activities of the device have times in ticks of an unknown length: left out"
    ]


def test_a_profiling_event_told_after_its_call_and_a_failed_one() -> None:
    call = [f"opencl:clEnqueueReadBuffer_{what}" for what in ("entry: { size: 8 }", "exit: { errcode_ret_val: 0 }")]
    told = "{ event: 17, queued_status: %d, queued: 0, submit_status: 0, submit: 0, start: 0, end: 10 }"
    results = [f"opencl_profiling:event_profiling_results: {told % status}" for status in (0, -58)]
    profile = "opencl_profiling:event_profiling: { status: 0, event: 17 }"
    found = [row for row in lengths(traced(*call, profile, results[0], *call, profile, results[1])) if row[0] == "gpu"]
    assert found == [("gpu", "clEnqueueReadBuffer", 10), ("gpu", "clEnqueueReadBuffer", 0)]
