"""The NCCL recorder, driven as NCCL drives a profiler plugin, in every version of the interface."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hatch_build
from native.builds import HERE, SANITIZERS, STRICT, compile_c, place_recorder, recording
from programs import recorded
from rankscope.model.records import Reading

pytestmark = pytest.mark.timeout(600)  # the first one compiles the recorder with a sanitizer

VERSIONS = range(1, 7)
WITH_KERNELS = range(3, 7)
COMMS = {"default_pg #a1a1a1a1": "0000a1a1a1a1a1a1", "NCCL #b2b2b2b2": "0000b2b2b2b2b2b2"}

Counts = Counter[tuple[str, str, str, str]]  # layer, name, kind, "calls" or "bytes"


@dataclass(frozen=True)
class FakeNccl:
    """The program that plays NCCL, and the plugin it opens."""

    program: Path
    library: Path

    def run(self, folder: Path | None, version: int, part: str, *more: int, **settings: str) -> str:
        command = [self.program, self.library, version, part, *more]
        environment = {**recording(folder or Path(), **STRICT), **settings}
        if folder is None:
            del environment["RANKSCOPE_DIR"]
        done = subprocess.run(
            [str(word) for word in command], env=environment, capture_output=True, text=True, timeout=110, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout


@pytest.fixture(scope="session")
def nccl(sanitizer: str, tmp_path_factory: pytest.TempPathFactory) -> FakeNccl:
    return make(tmp_path_factory.mktemp("nccl"), sanitizer)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> FakeNccl:
    return make(tmp_path_factory.mktemp("nccl"), "plain")


def make(folder: Path, sanitizer: str) -> FakeNccl:
    flags = SANITIZERS[sanitizer]
    library = place_recorder(folder, flags)
    return FakeNccl(
        compile_c(folder / "nccl", HERE / "nccl" / "fake_nccl.c", f"-I{hatch_build.NATIVE}/nccl", *flags), library
    )


def read(folder: Path) -> Reading:
    (path,) = recorded.rank_files(folder)
    return recorded.read(path)


def column(columns: Any, name: str) -> list[Any]:
    values = columns[name]
    if hasattr(values, "codes"):
        return [values.values[code] for code in values.codes]
    return list(values.tolist())


def counted(reading: Reading) -> Counts:
    names = ("layer", "name", "kind", "calls", "bytes")
    found: Counts = Counter()
    for layer, name, kind, calls, size in zip(*(column(reading.tally_columns, key) for key in names), strict=True):
        found[layer, name, kind, "calls"] += calls
        found[layer, name, kind, "bytes"] += size
    return found


def said(text: str) -> Counts:
    found: Counts = Counter()
    for line in text.splitlines():
        layer, name, kind, calls, size = line.split(",")
        found[layer, name, kind, "calls"] += int(calls)
        found[layer, name, kind, "bytes"] += int(size)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_operations_are_counted_exactly(nccl: FakeNccl, version: int, tmp_path: Path) -> None:
    expected = said(nccl.run(tmp_path, version, "play", 150))
    assert sum(expected.values()) > 0
    assert counted(read(tmp_path)) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_communicators_and_the_log(nccl: FakeNccl, version: int, tmp_path: Path) -> None:
    nccl.run(tmp_path, version, "play", 40)
    reading = read(tmp_path)
    groups = {group.name: group for group in reading.groups}
    assert {name: group.identity for name, group in groups.items()} == COMMS
    assert {group.my_rank for group in groups.values()} == {3, 4}
    assert all(group.kind == "nccl" and group.freed for group in groups.values())
    assert {group.size for group in groups.values()} == {8 if version >= 4 else None}
    events = reading.event_columns
    logged = 80 if version == 6 else 40
    for name in COMMS:
        mine = [n for n, group in enumerate(column(events, "group")) if group == name]
        assert [column(events, "sequence")[n] for n in mine] == list(range(1, logged + 1))
        assert {column(events, "layer")[n] for n in mine} == {"nccl"}
    names = Counter(zip(column(events, "name"), column(events, "bytes"), column(events, "root"), strict=True))
    expected = {("ncclAllReduce", 4000, None): 40, ("ncclBroadcast", 128, 1): 40}
    assert names == expected | ({("ncclAllGather", 24, None): 80} if version == 6 else {})
    for name, start, end, call in zip(
        *(column(events, key) for key in ("name", "start_ns", "end_ns", "call_ns")), strict=True
    ):
        told = version >= 3 and name != "ncclAllGather"
        assert (end is not None and end >= start) if told else end is None
        assert (call is None) == told


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_between_two_ranks(plain: FakeNccl, version: int, tmp_path: Path) -> None:
    """Each with its peer and its number on its communicator; an end only where the kernels are told of."""
    plain.run(tmp_path, version, "play", 40)
    found = read(tmp_path).message_columns
    for name in COMMS:
        mine = [n for n, group in enumerate(column(found, "group")) if group == name]
        assert [column(found, "number")[n] for n in mine] == list(range(1, 41))
    for key, value in (
        ("layer", "nccl"),
        ("name", "ncclSend"),
        ("kind", "send"),
        ("peer", 1),
        ("tag", 0),
        ("bytes", 10),
    ):
        assert set(column(found, key)) == {value}
    for begin, end in zip(column(found, "begin_ns"), column(found, "end_ns"), strict=True):
        assert end is not None and end >= begin if version >= 3 else end is None


@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_recording_nothing_is_asked_for(nccl: FakeNccl, version: int, tmp_path: Path) -> None:
    nccl.run(None, version, "off")
    nccl.run(tmp_path, version, "off", RANKSCOPE_NCCL="none")
    assert counted(read(tmp_path)) == Counter()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_child_of_fork_has_its_own_communicators(nccl: FakeNccl, version: int, tmp_path: Path) -> None:
    expected = said(nccl.run(tmp_path, version, "forked"))
    found = [counted(recorded.read(path)) for path in recorded.rank_files(tmp_path)]
    child = Counter({("nccl", "ncclBroadcast", "call", "calls"): 1, ("nccl", "ncclBroadcast", "call", "bytes"): 128})
    assert len(found) == 2
    for wanted in (expected, child):
        assert any(only(counts, "nccl", "call") == wanted for counts in found)


def only(counts: Counts, layer: str, kind: str) -> Counts:
    return Counter({key: number for key, number in counts.items() if (key[0], key[2]) == (layer, kind)})


def test_calls_only(plain: FakeNccl, tmp_path: Path) -> None:
    expected = said(plain.run(tmp_path, 5, "play", RANKSCOPE_NCCL="calls"))
    assert {kind for _, _, kind, _ in expected} == {"call"}
    assert counted(read(tmp_path)) == expected


@pytest.mark.parametrize("version", WITH_KERNELS)
def test_time_on_the_device_is_the_gpus_own(plain: FakeNccl, version: int, tmp_path: Path) -> None:
    plain.run(tmp_path, version, "timed", 5)
    tallies = read(tmp_path).tally_columns
    rows = zip(*(column(tallies, key) for key in ("layer", "kind", "calls", "total_ns")), strict=True)
    calls_of: Counter[tuple[str, str]] = Counter()
    ns_of: Counter[tuple[str, str]] = Counter()
    for layer, kind, calls, total_ns in rows:
        calls_of[layer, kind] += calls
        ns_of[layer, kind] += total_ns
    assert calls_of["nccl", "progress"] == calls_of["nccl_algo", "progress"] == 5
    assert ns_of["nccl", "progress"] >= 5 * 4e6
    device_ns = ns_of["nccl_algo", "progress"]
    assert device_ns == pytest.approx(5 * 2e6, rel=0.01) if version >= 4 else device_ns >= 5 * 4e6


def test_operations_whose_kernel_is_never_told_of_are_counted_as_lost(plain: FakeNccl, tmp_path: Path) -> None:
    expected = said(plain.run(tmp_path, 5, "lost", 5000))
    reading = read(tmp_path)
    assert only(counted(reading), "nccl", "call") == expected
    assert reading.facts.untracked_requests == 5000 - 4096


def test_the_preloaded_recorder_is_the_plugin(plain: FakeNccl, tmp_path: Path) -> None:
    expected = said(plain.run(tmp_path, 5, "play", LD_PRELOAD=str(plain.library)))
    assert counted(read(tmp_path)) == expected


def test_a_full_file_loses_rows_and_says_so(nccl: FakeNccl, tmp_path: Path) -> None:
    small = {"RANKSCOPE_FILE_BYTES": "65536", "RANKSCOPE_LOG_RECORDS": "16"}
    expected = said(nccl.run(tmp_path, 5, "play", 200, **small))
    reading = read(tmp_path)
    calls = sum(number for key, number in counted(reading).items() if key[3] == "calls")
    assert calls + reading.facts.lost_calls == sum(number for key, number in expected.items() if key[3] == "calls")
    assert reading.facts.overwritten_events == 400 - 16


def test_a_version_not_made_yet_is_not_there(plain: FakeNccl) -> None:
    plain.run(None, 7, "off")


def test_phases(plain: FakeNccl, tmp_path: Path) -> None:
    plain.run(tmp_path, 5, "timed", 3)
    tallies = read(tmp_path).tally_columns
    rows = zip(*(column(tallies, key) for key in ("layer", "kind", "phase", "calls")), strict=True)
    found = {phase: calls for layer, kind, phase, calls in rows if (layer, kind) == ("nccl", "call")}
    assert found == {"first_collective": 1, "steady": 2}
    assert "nccl_begin" in [mark.name for mark in read(tmp_path).marks]


def test_real_headers() -> None:
    """Our declarations against NCCL's own, where RANKSCOPE_NCCL_HEADERS names a folder with profiler_v1.h to v6.h."""
    folder = os.environ.get("RANKSCOPE_NCCL_HEADERS")
    if not folder:
        pytest.skip("RANKSCOPE_NCCL_HEADERS does not name a folder with NCCL's profiler_v*.h")
    command = [
        "c++",
        "-fsyntax-only",
        f"-I{folder}",
        f"-I{hatch_build.NATIVE}/nccl",
        str(HERE / "nccl" / "nccl_headers.cc"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_slot_that_could_not_be_had_once_is_none_that_is_over(tmp_path: Path) -> None:
    """Else a foreign plugin's handle of a later operation is taken for one of the round before."""
    included = [f"-I{folder}" for folder in hatch_build.NATIVE.iterdir() if folder.is_dir()]
    alone = ("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")  # of the recorder nothing but the slots
    clock = str(hatch_build.NATIVE / "core" / "clock.c")
    program = compile_c(tmp_path / "slots", HERE / "nccl" / "slots_driver.c", clock, *alone, *included)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "1", "0"]
