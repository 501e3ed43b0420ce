"""iprof's tally tables: kept figure by figure, checked, and printed again."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from rankscope.formats.iprof import read, sniff
from rankscope.formats.source import Source
from rankscope.model.records import Reading
from rankscope.output.layouts.iprof import to_iprof
from rankscope.questions.gpu.kernels import gpu_ranks
from rankscope.questions.layouts.iprof import iprof_parts
from runs.loaded import SHARED, run_of, warnings_of

SAMPLE = SHARED / "samples/iprof/aurora_24ranks.txt"
here = pytest.mark.skipif(not SAMPLE.exists(), reason="the shared samples are not on this machine")
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 6 * 10**10, "B": 1, "kB": 10**3, "MB": 10**6}
UNITS |= {"GB": 10**9, "TB": 10**12}

TEXT = """\
BACKEND_CUDA | 2 Hostnames | 2 Processes | 3 Threads |

          Name |    Time | Time(%) | Calls | Average |     Min |     Max | Error |
cudaMemcpyAsync |   3.00s |  75.00% |    12 | 300.00ms | 100.00ms |   1.00s |     2 |
     cudaMalloc |   1.00s |  25.00% |     4 | 250.00ms |  10.00us | 600.00ms |     0 |
      cudaFree2 |         |         |     3 |          |          |          |     3 |
          Total |   4.00s | 100.00% |    19 |                                       5 |

Device profiling | 1 Hostnames | 1 Processes | 1 Threads | 1 Devices | 1 Subdevices |

 Name |   Time | Time(%) | Calls | Average |    Min |     Max |
gemm | a |   1.50ms | 100.00% |     3 | 500.00us | 400ns | 900.00us |
Total | 1.50ms | 100.00% |     3 |

Explicit memory traffic (BACKEND_CUDA) | 1 Hostnames | 1 Processes | 1 Threads |

           Name |   Byte | Byte(%) | Calls | Average | Min |    Max |
cudaMemcpyAsync | 1.20MB | 100.00% |    12 | 100.00kB |  8B | 1.00MB |
          Total | 1.20MB | 100.00% |    12 |
"""


def read_text(text: str) -> list[Reading]:
    return list(read(Source(Path("iprof.txt"), content=text.encode())))


def number(text: str) -> Decimal:
    found = re.fullmatch(r"([\d.]+)([a-zA-Z]+)", text)
    assert found is not None
    return Decimal(found[1]) * UNITS[found[2]]


@here
def test_the_sample_comes_out_as_it_went_in() -> None:
    readings = list(read(Source(SAMPLE)))
    assert to_iprof(iprof_parts(run_of(readings))).rstrip("\n") == SAMPLE.read_text().rstrip("\n")
    assert warnings_of(readings) == []


@here
def test_every_row_of_the_sample_against_the_text() -> None:
    """Calls exactly, totals within a half of their last digit, least and most as printed."""
    (reading,) = read(Source(SAMPLE))
    rows = [line.split(" | ") for line in SAMPLE.read_text().splitlines() if re.search(r"\d+% \|", line)]
    rows = [row for row in rows if row[0].strip() != "Total"]
    assert len(rows) == len(reading.tallies) == 226
    least = {(f.series, f.name): f.value for f in reading.figures if f.statistic == "min"}
    for row, tally in zip(rows, reading.tallies, strict=True):
        name, total, _, calls, _, low, high = (cell.strip() for cell in row[:7])
        assert (tally.name, tally.calls) == (name, int(calls))
        value = tally.bytes if tally.layer == "memory" else tally.total_ns
        unit = re.sub(r"[\d.]", "", total)
        assert abs(Decimal(value or 0) - number(total)) <= UNITS[unit] * Decimal("0.005")
        if tally.layer == "memory":
            assert least[tally.group, name] == float(number(low))
        else:
            assert (tally.min_ns, tally.max_ns) == (float(number(low)), float(number(high)))


@here
def test_sums_of_the_sample_by_another_way() -> None:
    """Calls by layer from the lines of totals; hosts, processes, threads and devices from the header lines."""
    (reading,) = read(Source(SAMPLE))
    calls = {"mpi": 481378, "ze": 2198427, "gpu": 428097, "memory": 369947 + 198242}
    assert {layer: sum(t.calls for t in reading.tallies if t.layer == layer) for layer in calls} == calls
    counts = {(f.series, f.name): f.value for f in reading.figures if f.unit == "count"}
    assert counts["BACKEND_ZE", "threads"] == 32 and counts["BACKEND_MPI", "hostnames"] == 2
    assert counts["Device profiling", "subdevices"] == 24 and len(counts) == 3 * 4 + 5


def test_errors_bars_in_names_and_layers() -> None:
    (reading,) = read_text(TEXT)
    rows = [(t.layer, t.name, t.calls, t.errors, t.total_ns, t.bytes) for t in reading.tallies]
    assert rows == [
        ("cuda_api", "cudaMemcpyAsync", 12, 2, 3e9, None),
        ("cuda_api", "cudaMalloc", 4, 0, 1e9, None),
        ("cuda_api", "cudaFree2", 3, 3, 0, None),
        ("gpu", "gemm | a", 3, 0, 1.5e6, None),
        ("memory", "cudaMemcpyAsync", 12, 0, 0, 1_200_000),
    ]
    assert warnings_of([reading]) == []
    assert [note.text for note in reading.notes if "different numbers of hosts" in note.text]
    again = to_iprof(iprof_parts(run_of([reading])))
    assert again.split() == TEXT.split()


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("|     4 | 250.00ms", "|     4 | 350.00ms", 5, "4 calls of 350.00ms do not make 1.00s"),
        ("25.00%", "29.00%", 1, "add up to 104.00 %"),
        ("|    19 |", "|    20 |", 7, "the calls add up to 19, the total says 20"),
        ("Total |   4.00s", "Total |   5.00s", 7, "the rows add up to 4000000000 ns, the total says 5.00s"),
        ("10.00us | 600.00ms", "10.00us | 60.00ms", 5, "the average 250.00ms is not between"),
        ("   1.00s |  25", "   1.00x |  25", 5, "cannot be read"),
        ("          Total | 1.20MB | 100.00% |    12 |", "", 15, "breaks off"),
    ],
)
def test_what_is_off_is_told_with_its_line(old: str, new: str, line: int, said: str) -> None:
    assert old in TEXT
    notes = warnings_of(read_text(TEXT.replace(old, new)))
    assert any(said in note.text and note.where == f"iprof.txt:{line}" for note in notes), notes


def test_one_reading_for_each_process_where_the_tables_are_by_process() -> None:
    text = TEXT.replace("2 Hostnames | 2 Processes | 3 Threads", "Hostname: x1 | Process: 12 | Thread: 34")
    text += text[: text.index("Device")].replace("Hostname: x1 | Process: 12", "Hostname: x1 | Process: 13")
    readings = read_text(text)
    assert [(r.facts.host, r.facts.pid) for r in readings] == [("x1", 12), ("", None), ("x1", 13)]
    assert {r.facts.job for r in readings} == {""}
    assert readings[0].tallies[0].thread == 34


OTHER_HEADINGS = """\
API calls | 1 Hostnames | 1 Processes | 1 Threads

                Name |     Time | Time(%) | Calls | Average |     Min |     Max | Failed |
cuMemcpyDtoHAsync_v2 |   6.00us |  75.00% |     2 |  3.00us |  1.00us |  5.00us |      0 |
    zeModuleGetThing |   2.00us |  25.00% |     2 |  1.00us |   500ns |  1.50us |      1 |
               Total |   8.00us | 100.00% |     4 |                                     1 |

Device profiling | 1 Hostnames | 1 Processes | 1 Threads | 1 Device pointers

                Name |    Time | Time(%) | Calls | Average |     Min |     Max |
       a_kernel_here | 30.00ms |  75.00% |     1 | 30.00ms | 30.00ms | 30.00ms |
cuMemcpyDtoHAsync_v2 |  8.00ms |  20.00% |     2 |  4.00ms |  1.00ms |  7.00ms |
zeCommandListAppendMemoryFill |  2.00ms |   5.00% |     1 |  2.00ms |  2.00ms |  2.00ms |
               Total | 40.00ms | 100.00% |     4 |

Explicit memory traffic | 1 Hostnames | 1 Processes | 1 Threads

                Name |  Byte | Byte(%) | Calls | Average |   Min |   Max |
cuMemcpyDtoHAsync_v2 | 8.00B | 100.00% |     2 |   4.00B | 4.00B | 4.00B |
               Total | 8.00B | 100.00% |     2 |
"""


def test_the_headings_of_other_versions() -> None:
    (reading,) = read_text(OTHER_HEADINGS)
    rows = [(t.layer, t.name, t.calls, t.errors, t.total_ns, t.bytes) for t in reading.tallies]
    assert rows == [
        ("cuda_api", "cuMemcpyDtoHAsync_v2", 2, 0, 6e3, None),
        ("ze", "zeModuleGetThing", 2, 1, 2e3, None),
        ("gpu", "a_kernel_here", 1, 0, 30e6, None),
        ("gpu", "cuMemcpyDtoHAsync_v2", 2, 0, 8e6, None),
        ("gpu", "zeCommandListAppendMemoryFill", 1, 0, 2e6, None),
        ("memory", "cuMemcpyDtoHAsync_v2", 2, 0, 0, 8),
    ]
    assert warnings_of([reading]) == []
    assert {(f.series, f.name): f.value for f in reading.figures}["Device profiling", "devices"] == 1


def test_copies_on_the_device_are_no_computing() -> None:
    reading = read_text(OTHER_HEADINGS)[0]
    reading.facts.rank = 0
    table = gpu_ranks(run_of([reading]))
    row = dict(zip((column.name for column in table.columns), table.rows[0], strict=True))
    assert (row["compute_ns"], row["copy_ns"], row["communication_ns"]) == (30e6, 10e6, 0)


def test_a_table_under_another_heading_is_kept_and_told_of() -> None:
    """As one without any, and never left out."""
    text = OTHER_HEADINGS.replace("API calls | 1", "Interposed calls | 1")
    told = warnings_of(read_text(text))
    assert [(note.where, "unknown heading" in note.text) for note in told] == [("iprof.txt:1", True)]
    bare = OTHER_HEADINGS[OTHER_HEADINGS.index("                Name") :]
    assert len(read_text(bare)[0].tallies) == 6
    assert [note.where for note in warnings_of(read_text(bare))] == ["iprof.txt:1"]


def test_two_profiles_in_a_file_are_two_jobs() -> None:
    assert [(r.facts.job, len(r.tallies)) for r in read_text(TEXT + TEXT)] == [("", 5), ("2", 5)]


JSON = {
    "units": {"time": "ns", "size": "bytes"},
    "host": {"1": {"data": {"MPI_Send": {"time": 30, "call": 3, "min": 5, "max": 20}, "Total": {"time": 30}}},
             "0": {"data": {"cuInit": {"time": 7, "call": 2, "min": 2**64 - 1, "max": 0, "error": 2}}}},
    "device": {"data": {"gemm": {"time": 9, "call": 1, "min": 9, "max": 9}}},
    "traffic": {"1": {"data": {"MPI_Send": {"time": 4096, "call": 3, "min": 8, "max": 4000}}}},
}  # fmt: skip


def test_json() -> None:
    text = json.dumps(JSON)
    assert sniff(text.encode())
    (reading,) = read_text(text)
    rows = [(t.layer, t.name, t.calls, t.total_ns, t.min_ns, t.bytes, t.errors) for t in reading.tallies]
    assert rows == [
        ("mpi", "MPI_Send", 3, 30, 5, None, 0),
        ("cuda_api", "cuInit", 2, 7, None, None, 2),
        ("gpu", "gemm", 1, 9, 9, None, 0),
        ("memory", "MPI_Send", 3, 0, None, 4096, 0),
    ]
    by_process = {"host": {"0": [{"data": {"zeInit": {"time": 1, "call": 1, "min": 1, "max": 1}}, "Hostname": "n1",
                                  "Process": 5, "Thread": 6}]}}  # fmt: skip
    (reading,) = read_text(json.dumps(by_process))
    assert (reading.facts.host, reading.facts.pid, reading.tallies[0].thread) == ("n1", 5, 6)


@pytest.mark.parametrize(
    "text",
    ['{"host": {"0": {"data": {"f": {"time": 1, "call": 1.5, "min": 1, "max": 1}}}}}', '{"host":{"call":', '{"host":'
     + '[{"call":1},' * 5000, '{"host": 3, "call": 2}', TEXT[:60]],
)  # fmt: skip
def test_bad_files_are_told(text: str) -> None:
    from rankscope.model.records import BadFile

    with pytest.raises(BadFile, match=r"iprof\.txt"):
        read_text(text)
