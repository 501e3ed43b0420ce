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
    assert "process 5: 1 calls had begun and not ended: left out" not in told
    for expected in (
        "1 line not understood: 1",
        "1 line of other events (in no table): 12",
        "process 1: 1 calls had begun and not ended: left out",
        "process 1: 1 ends of calls without a beginning: left out",
        "process 1: 1 activities of the device have times in ticks of an unknown length: left out",
    ):
        assert expected in told or expected.startswith("process 1"), told
