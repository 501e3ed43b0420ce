"""CSV files of rocprofv3 and rocprof, and databases of rocpd: kernels, copies, calls, ranges, sums."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from formats.foreign_files import readings, warnings
from formats.test_thapi import events
from fuzz.seeds import ROCPD, RPD, TEXTS
from rankscope.api.load import summed
from rankscope.formats import rocpd
from rankscope.formats.source import Source
from rankscope.model.records import Reading, Tally

KERNELS = next(text for text in TEXTS if text.startswith('"Kind","Agent_Id"'))
CALLS = next(text for text in TEXTS if text.startswith('"Domain","Function"'))
STATS = next(text for text in TEXTS if text.startswith('"Name","Calls","TotalDurationNs"'))


def tallies(name: str, found: list[Reading]) -> dict[tuple[str, str, str], Tally]:
    """With what their events sum up to, as loading has it."""
    made = [one for _, one in summed((name, one) for one in found)]
    return {(t.layer, t.name, t.group): t for one in made for t in one.tallies}


def test_kernels() -> None:
    found = readings("rocprof", KERNELS)
    assert [row[2:4] for row in events(*found)] == [(1000, 1500), (1600, 1700)]
    told = tallies("rocprof", found)
    first = told["gpu", "add(float*, int)", "GPU 1 stream 1"]
    assert (first.calls, first.total_ns) == (1, 500) and len(told) == 2


def test_calls_ranges_and_what_lies_below_hip() -> None:
    found = readings("rocprof", CALLS)
    assert found[0].facts.pid == 238
    told = tallies("rocprof", found)
    assert {key[:2]: t.total_ns for key, t in told.items()} == {
        ("hip_api", "hipMalloc"): 100,
        ("hsa", "hsa_agent_get_info"): 10,
        ("nvtx", "step"): 310,
    }


def test_copies_have_directions_and_devices() -> None:
    text = """"Kind","Direction","Source_Agent_Id","Destination_Agent_Id","Start_Timestamp","End_Timestamp"
"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",0,1,100,300
"MEMORY_COPY","MEMORY_COPY_DEVICE_TO_HOST",2,0,400,450
"""
    told = tallies("rocprof", readings("rocprof", text))
    assert {key: t.total_ns for key, t in told.items()} == {
        ("gpu", "[HIP memcpy HtoD]", "GPU 1 stream ?"): 200,
        ("gpu", "[HIP memcpy DtoH]", "GPU 2 stream ?"): 50,
    }


def test_summaries_are_checked() -> None:
    (reading,) = readings("rocprof", STATS)
    assert [(t.layer, t.name, t.calls, t.total_ns) for t in reading.tallies] == [
        ("hip_api", "hipMalloc", 2, 300),
        ("hip_api", "hipFree", 1, 100),
    ]
    assert warnings(reading) == []
    (reading,) = readings("rocprof", STATS.replace('"hipFree",1,100,', '"hipFree",1,900,'))
    assert any("is not" in text for text in warnings(reading))


def test_sums_of_domains_are_no_calls() -> None:
    text = STATS + '"KERNEL_DISPATCH",5,400,80.0,50.0,1,2,0\n'
    (reading,) = readings("rocprof", text)
    assert len(reading.tallies) == 2 and [f.series for f in reading.figures] == ["KERNEL_DISPATCH"]


def test_counters_are_summed_by_kernel() -> None:
    text = """"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Kernel_Name","Counter_Name","Counter_Value"
1,1,1,1,"add",SQ_WAVES,16384
2,2,1,1,"add",SQ_WAVES,100
"""
    (reading,) = readings("rocprof", text)
    assert [(f.series, f.name, f.value) for f in reading.figures] == [("add", "SQ_WAVES", 16484.0)]


def test_the_rocprof_before() -> None:
    text = """"Index","KernelName","gpu-id","queue-id","queue-index","pid","tid","grd","BeginNs","EndNs","DurationNs"
0,"add(float*) [clone .kd]",2,0,0,77,77,1024,1000,1300,300
"""
    found = readings("rocprof", text)
    assert found[0].facts.pid == 77 and events(*found) == [("gpu", "add(float*) [clone .kd]", 1000, 1300, 77)]


def test_rows_that_cannot_be_read_are_counted_with_their_lines() -> None:
    found = readings(
        "rocprof", KERNELS + '"KERNEL_DISPATCH",1,2\n"KERNEL_DISPATCH","Agent 1",1,69,1,16,"add",5,x,1500\n'
    )
    assert [text for text in warnings(*found) if "cannot be read" in text] == [
        "file.txt:4: 2 lines cannot be read: 4, 5"
    ]


@pytest.fixture
def database(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(request.param)
    connection.close()
    return path


@pytest.mark.parametrize("database", [ROCPD], indirect=True)
def test_rocpd(database: Path) -> None:
    source = Source(database)
    assert rocpd.sniff(source.head())
    found = list(rocpd.read(source))
    facts = found[0].facts
    assert (facts.pid, facts.host, facts.command, facts.devices) == (4711, "node1", "./a.out", "2 × gfx942")
    told = tallies("rocpd", found)
    assert {key: (t.calls, t.total_ns, t.bytes) for key, t in told.items()} == {
        ("gpu", "add(float*)", "GPU 1 stream 2"): (1, 300, None),
        ("gpu", "[HIP memcpy HtoD]", "GPU 1 stream ?"): (1, 50, 4096),
        ("hip_api", "hipLaunchKernel", ""): (1, 30, None),
        ("nvtx", "step", ""): (1, 850, None),
    }
    links = {
        int(one)
        for reading in found
        if reading.event_columns
        for one in reading.event_columns["correlation"].compressed()
    }
    assert 77 in links  # of the kernel and of the call that launched it


@pytest.mark.parametrize("database", [ROCPD], indirect=True)
def test_schema_4_has_times_and_tracks_in_tables_of_their_own(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.executescript("""
            DROP TABLE rocpd_kernel_dispatch_00ab12;
            CREATE TABLE rocpd_timestamp_00ab12 (id INTEGER, value BIGINT, track_id INTEGER);
            INSERT INTO rocpd_timestamp_00ab12 VALUES (1, 200, 1), (2, 500, 1);
            CREATE TABLE rocpd_track_00ab12 (id INTEGER, nid INTEGER, pid INTEGER, tid INTEGER,
                agent_id INTEGER, queue_id INTEGER);
            INSERT INTO rocpd_track_00ab12 VALUES (1, 1, 1, 3, 5, 2);
            CREATE TABLE rocpd_kernel_dispatch_00ab12 (id INTEGER, track_id INTEGER, kernel_id INTEGER,
                start_id INTEGER, end_id INTEGER, event_id INTEGER);
            INSERT INTO rocpd_kernel_dispatch_00ab12 VALUES (1, 1, 9, 1, 2, 2);
        """)
    connection.close()
    told = tallies("rocpd", list(rocpd.read(Source(database))))
    assert told["gpu", "add(float*)", "GPU 1 stream 2"].total_ns == 300


@pytest.mark.parametrize("database", [ROCPD], indirect=True)
def test_schema_4_1_has_categories_in_a_table_of_their_own_and_rows_of_no_table_are_counted(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.executescript("""
            CREATE TABLE rocpd_info_category_00ab12 (id INTEGER, guid TEXT, name TEXT);
            INSERT INTO rocpd_info_category_00ab12 VALUES (1, '', 'HIP_RUNTIME_API'), (2, '', 'MARKER_CORE_API');
            UPDATE rocpd_event_00ab12 SET category_id = 1;
            UPDATE rocpd_string_00ab12 SET string = 'launch' WHERE string = 'hipLaunchKernel';
            CREATE TABLE rocpd_sample_00ab12 (id INTEGER, track_id INTEGER, timestamp BIGINT);
            INSERT INTO rocpd_sample_00ab12 VALUES (1, 1, 5), (2, 1, 6);
        """)
    connection.close()
    found = list(rocpd.read(Source(database)))
    assert tallies("rocpd", found)["hip_api", "launch", ""].calls == 1  # by its category, not by its name
    assert "rocpd_sample: 2 rows, not in any table" in [note.text for one in found for note in one.notes]


@pytest.mark.parametrize("database", [RPD], indirect=True)
def test_rocm_profile_data(database: Path) -> None:
    told = tallies("rocpd", list(rocpd.read(Source(database))))
    assert {key: (t.calls, t.total_ns) for key, t in told.items()} == {
        ("gpu", "add(float*)", "GPU 3 stream 0"): (1, 100),
        ("gpu", "CopyHostToDevice", "GPU 3 stream 1"): (1, 20),
        ("hip_api", "hipLaunchKernel", ""): (2, 80),
    }
