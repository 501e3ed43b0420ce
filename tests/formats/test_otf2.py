"""OTF2 traces, written here by OTF2's own library and read through it."""

from __future__ import annotations

import json
from importlib import import_module, util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from formats.test_thapi import events
from rankscope.api.load import summed
from rankscope.formats import otf2, otf2_events
from rankscope.formats.source import Source
from rankscope.model.records import BadFile


@pytest.fixture
def anchor(tmp_path: Path) -> Path:
    """Two ranks: a function around an all-reduce of 8 bytes, and a kernel on a stream; nanoseconds."""
    if util.find_spec("otf2") is None:
        pytest.skip("the package otf2 is missing: pip install otf2")
    library: Any = import_module("otf2")
    enums: Any = import_module("otf2.enums")
    with library.writer.open(str(tmp_path / "trace"), timer_resolution=10**9) as trace:
        node = trace.definitions.system_tree_node("node1")
        function = trace.definitions.region("main", paradigm=enums.Paradigm.COMPILER)
        reduce = trace.definitions.region("MPI_Allreduce", paradigm=enums.Paradigm.MPI)
        kernel = trace.definitions.region("gemm", paradigm=enums.Paradigm.CUDA)
        for rank in range(2):
            group = trace.definitions.location_group(f"MPI Rank {rank}", system_tree_parent=node)
            thread = trace.event_writer("Master thread", group=group)
            stream = trace.event_writer("CUDA[0:7]", group=group, type=enums.LocationType.ACCELERATOR_STREAM)
            for at, region in ((1000 + rank, function), (1010, reduce)):
                thread.enter(at, region)
            for at, region in ((1060, reduce), (1100, function)):
                thread.leave(at, region)
            stream.enter(1020, kernel)
            stream.leave(1050, kernel)
    return tmp_path / "trace" / "traces.otf2"


def test_calls_functions_and_kernels_of_each_rank(anchor: Path) -> None:
    source = Source(anchor)
    assert otf2.sniff(source.head())
    found = list(otf2.read(source))
    assert [(one.facts.rank, one.facts.host) for one in found] == [(0, "node1"), (1, "node1")]
    lengths = {(layer, name): end - start for layer, name, start, end, _ in events(found[0])}
    assert lengths == {("mpi", "MPI_Allreduce"): 50, ("host", "main"): 100, ("gpu", "gemm"): 30}
    made = [one for _, one in summed(("otf2", one) for one in found)]
    told = {(t.layer, t.name): (t.calls, t.total_ns) for one in made[:2] for t in one.tallies}
    assert told["host", "main"][1] in (99, 100) and told["gpu", "gemm"] == (1, 30)


def test_what_the_library_refuses_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.otf2"
    path.write_bytes(b"\x03BOTF2\x00\x03\x02\x03" + bytes(100))
    with pytest.raises(BadFile, match=r"OTF2's (?:own )?library") as told:
        list(otf2.read(Source(path)))
    assert "\n" not in str(told.value)


def test_a_trace_that_does_not_say_when_it_began(capsys: pytest.CaptureFixture[str]) -> None:
    """As Score-P before 8 writes it: OTF2's number for what is not known."""
    clock = SimpleNamespace(timer_resolution=10**9, global_offset=7, realtime_timestamp=2**64 - 1)
    trace = SimpleNamespace(definitions=SimpleNamespace(clock_properties=clock, locations=[], regions=[]))
    otf2_events.define(trace)
    told = capsys.readouterr().out
    assert json.loads(told) == ["clock", 10**9, 7, 0]
    found = otf2.Otf2Trace(Source(Path("traces.otf2")))
    lines = [["location", 0, "thread", "CPU_THREAD", 0, "MPI Rank 1", "h"], ["region", 3, "MPI_Send", "MPI"]]
    for line in (told, *map(json.dumps, [*lines, ["E", 0, 107, 3], ["B", 0, 64], ["L", 0, 117, 3]])):
        found.take(line)
    (reading,) = found.readings()
    assert events(reading) == [("mpi", "MPI_Send", 100, 110, 0)] and reading.facts.rank == 1
    assert [note.text for note in reading.notes] == ["times are not Unix times: the trace does not say when it began"]


def test_calls_outside_of_any_clock_are_said() -> None:
    found = otf2.Otf2Trace(Source(Path("traces.otf2")))
    lines = [["clock", 1, 0, 2**63], ["location", 0, "thread", "CPU_THREAD", 0, "p", "h"]]
    for line in [*lines, ["E", 0, 1, 3], ["L", 0, 2, 3]]:
        found.take(json.dumps(line))
    with pytest.raises(BadFile, match="1 calls are outside every clock's range"):
        list(found.readings())
