"""What is in a rank file comes out of it, in nanoseconds; what is damaged is refused by name and place."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.model.records import BadFile, Reading, Severity
from rankscope.rank_file import (
    CHUNK,
    COLLECTIVE,
    HEADER,
    CollectiveFlag,
    Flag,
    RankSource,
    State,
    TickSource,
    size_class,
)
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.facts import Here
from rankscope.rank_files.read import read_rank_file

SECOND = 1_000_000_000
START = 1_800_000_000 * SECOND


def writer(**header: Any) -> RankFileWriter:
    """A process that was loaded at tick 1,000 with a clock of 2 ticks a nanosecond and lived 3 seconds."""
    facts = {
        "anchor": {"ticks": 1_000 + 6 * SECOND, "monotonic_ns": 50 + 3 * SECOND, "realtime_ns": START + 3 * SECOND},
        "threads": 4,
        "user_ns": 2 * SECOND,
        "max_rss_bytes": 1 << 20,
        "major_faults": 9,
    }
    standard: dict[str, Any] = {
        "host": b"node7",
        "pid": 4242,
        "rank": 3,
        "world_size": 8,
        "rank_source": RankSource.OPENMPI,
        "tick_source": TickSource.TSC,
        "loaded": {"ticks": 1_000, "monotonic_ns": 50, "realtime_ns": START},
        "started_realtime_ns": START - SECOND,
        "facts": facts,
        "command": b"python\0my train.py\0",
    }
    return RankFileWriter(**{**standard, **header})


def read(made: RankFileWriter, folder: Path, **options: Any) -> Reading:
    return read_rank_file(made.write(folder / "ranks/node7/4242.rank"), **options)


def test_facts_are_in_nanoseconds_of_the_tick_clock(tmp_path: Path) -> None:
    made = writer(state=State.EXITED, exit_code=5, ended_ticks=1_000 + 4 * SECOND, call_cost_milliticks=40_000)
    made.set(flags=Flag.MPI_STARTED | Flag.MPI_FINALIZED, mpi_started_ticks=1_000 + SECOND, setup_ticks=500)
    made.set(mpi_finalized_ticks=1_000 + 3 * SECOND)
    facts = read(made, tmp_path).facts
    assert (facts.host, facts.pid, facts.rank, facts.world_size, facts.rank_source) == (
        "node7", 4242, 3, 8, "Open MPI",
    )  # fmt: skip
    assert facts.command == "python 'my train.py'"
    assert facts.started_ns == START - SECOND
    assert facts.ended_ns == START + 2 * SECOND  # 4e9 ticks at 0.5 ns
    assert facts.elapsed_ns == 3 * SECOND
    assert facts.mpi_elapsed_ns == SECOND  # 2e9 ticks
    assert (facts.ending, facts.exit_code, facts.finalized) == ("exited", 5, True)
    assert (facts.setup_ns, facts.call_cost_ns) == (250, 20.0)
    assert (facts.threads, facts.user_ns, facts.max_rss_bytes, facts.major_faults) == (4, 2 * SECOND, 1 << 20, 9)


def test_tallies_come_as_columns(tmp_path: Path) -> None:
    made = writer()
    world = made.group("MPI_COMM_WORLD", identity=77, size=8, my_rank=3)
    made.tally("MPI_Allreduce", 4, 4000, group=world, bytes=32, size_class=4, phase=5, thread=2)
    made.tally("MPI_Irecv", 1, 10, bytes=100, size_class=8, kind=1, errors=1)
    columns = read(made, tmp_path).tally_columns
    assert [columns["name"].values[code] for code in columns["name"].codes] == ["MPI_Allreduce", "MPI_Irecv"]
    assert [columns["group"].values[code] for code in columns["group"].codes] == ["MPI_COMM_WORLD", ""]
    assert [columns["kind"].values[code] for code in columns["kind"].codes] == ["call", "progress"]
    assert [columns["phase"].values[code] for code in columns["phase"].codes] == ["steady", "start"]
    assert columns["total_ns"].tolist() == [2000.0, 5.0]
    assert columns["min_ns"].tolist() == [500.0, 5.0]
    assert columns["sum_squares_ns2"].tolist() == [4 * 500.0**2, 25.0]
    assert columns["calls"].tolist() == [4, 1] and columns["errors"].tolist() == [0, 1]
    assert columns["thread"].tolist() == [2, 0]


def test_the_ring_gives_the_newest_records_in_order(tmp_path: Path) -> None:
    made = writer()
    records = np.zeros(10, COLLECTIVE)
    records["name"] = made.string("MPI_Allreduce")
    records["enter_ticks"] = 1_000 + 2 * np.arange(10)
    records["end_ticks"] = records["enter_ticks"] + 6
    records["sequence"] = np.arange(1, 11)
    records["root"] = -1
    records["end_ticks"][9] = 0  # still in it
    records["flags"][8] = CollectiveFlag.NONBLOCKING
    records["call_ticks"][8] = 4
    made.collectives(records, capacity=4)
    reading = read(made, tmp_path)
    events = reading.event_columns
    assert reading.facts.overwritten_events == 6
    assert events["sequence"].tolist() == [7, 8, 9, 10]
    assert events["start_ns"].tolist() == [START + 6, START + 7, START + 8, START + 9]
    assert events["end_ns"].tolist() == [START + 9, START + 10, START + 11, None]
    assert events["call_ns"].tolist() == [None, None, 2, None]
    assert events["root"].tolist() == [None] * 4


def test_a_record_in_the_wrong_slot_is_not_believed(tmp_path: Path) -> None:
    made = writer()
    made.collectives(np.zeros(3, COLLECTIVE), capacity=4)
    made._log["number"][1] = 7  # belongs to slot 2
    made._log["number"][2] = 0  # being set up
    assert len(read(made, tmp_path).event_columns["start_ns"]) == 1


def test_claims_go_on_after_32_bits(tmp_path: Path) -> None:
    made = writer()
    made.collectives(np.zeros(4, COLLECTIVE), capacity=4)
    made.set(log_written=2**32 + 2)  # claims 2^32 - 1, 2^32, 2^32 + 1, 2^32 + 2 would be in slots 2, 3, 0, 1
    made._log["number"] = [1, 2, 2**32 - 1, 0]
    made._log["sequence"] = [11, 12, 9, 10]
    reading = read(made, tmp_path)
    assert reading.event_columns["sequence"].tolist() == [9, 11, 12]
    assert reading.facts.overwritten_events == 2**32 - 2


def test_groups_have_the_same_name_on_every_rank(tmp_path: Path) -> None:
    made = writer()
    made.group("MPI_COMM_WORLD", identity=1, size=8)
    made.group("rows", identity=0xABCDEF0012345678, size=2, flags=2, freed_ticks=1)
    made.group("", identity=0x9, kind=2)
    groups = read(made, tmp_path).groups
    assert [group.name for group in groups] == ["MPI_COMM_WORLD", "rows #12345678", "window #00000009"]
    assert [(group.guessed, group.freed, group.size) for group in groups][1] == (True, True, 2)


def test_peers_are_summed_over_threads(tmp_path: Path) -> None:
    made = writer()
    made.peers([(1, 2, 20), (5, 1, 7)], thread=0)
    made.peers([(1, 3, 30)], thread=1)
    assert [(p.world_rank, p.calls, p.bytes) for p in read(made, tmp_path).peers] == [(1, 5, 50), (5, 1, 7)]


def test_notes_tell_what_was_not_seen(tmp_path: Path) -> None:
    made = writer(flags=Flag.SINGLETON | Flag.MPI_STARTED, launcher_world_size=4, world_size=4)
    made.group("MPI_COMM_WORLD", size=1)
    made.unwrapped("MPIX_New")
    notes = read(made, tmp_path).notes
    assert [note.text for note in notes] == [
        "not intercepted: MPIX_New",
        "the launcher announced 4 ranks, MPI_COMM_WORLD has 1: wrong mpirun for this MPI library?",
    ]
    assert [note.severity for note in notes] == [Severity.NOTE, Severity.WARNING]


def test_a_process_that_never_updated_its_clock_has_no_times(tmp_path: Path) -> None:
    made = writer(facts={"anchor": {"ticks": 1_000, "monotonic_ns": 50, "realtime_ns": START}})
    made.tally("MPI_Send", 2, 999)
    reading = read(made, tmp_path)
    assert reading.tally_columns["calls"].tolist() == [2]
    assert reading.tally_columns["total_ns"].tolist() == [0.0]
    assert "clock" in reading.notes[0].text


@pytest.mark.parametrize(
    ("header", "host", "now_s", "expected"),
    [
        ({"state": State.EXITED}, "node7", 0, ("exited", 0)),
        ({"state": State.EXITED, "flags": Flag.MPI_ABORTED, "exit_code": 3}, "node7", 0, ("aborted", 3)),
        ({"state": State.SIGNALLED, "end_signal": 9}, "node7", 0, ("signalled", None)),
        ({"state": State.SIGNALLED, "flags": Flag.MPI_ABORTED, "abort_code": 6}, "node7", 0, ("aborted", 6)),
        ({"state": State.REPLACED}, "node7", 0, ("replaced", None)),
        ({"state": State.RUNNING}, "node7", 0, ("vanished", None)),
        ({"state": State.RUNNING, "flags": Flag.MPI_ABORTED, "abort_code": 6}, "node7", 0, ("aborted", 6)),
        ({"state": State.RUNNING}, "login1", 12, ("running", None)),
        ({"state": State.RUNNING}, "login1", 14, ("unknown", None)),
        ({"state": 99}, "node7", 0, ("unknown", None)),
    ],
)
def test_how_it_ended(header: Any, host: str, now_s: int, expected: Any, tmp_path: Path) -> None:
    here = Here(host=host, proc=tmp_path / "proc", now_ns=lambda: START + now_s * SECOND)
    facts = read(writer(**header), tmp_path, here=here).facts
    assert (facts.ending, facts.exit_code) == expected


@pytest.mark.parametrize(
    ("state", "jiffies", "expected"), [("S", 555, "running"), ("Z", 555, "vanished"), ("R", 556, "vanished")]
)
def test_a_running_process_is_known_by_its_start_time(state: str, jiffies: int, expected: str, tmp_path: Path) -> None:
    stat = tmp_path / "proc/4242/stat"
    stat.parent.mkdir(parents=True)
    stat.write_text(f"4242 (a) b)) {state} " + " ".join(["0"] * 18) + f" {jiffies} 0\n")
    here = Here(host="node7", proc=tmp_path / "proc")
    assert read(writer(start_jiffies=555), tmp_path, here=here).facts.ending == expected


def test_this_very_process_is_running(tmp_path: Path) -> None:
    stat = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()
    made = writer(pid=os.getpid(), start_jiffies=int(stat[19]), host=os.uname().nodename.encode())
    assert read(made, tmp_path).facts.ending == "running"


def rich_file() -> bytes:
    made = writer()
    world = made.group("MPI_COMM_WORLD", identity=1, size=8)
    for size in (0, 1, 8, 4096):
        made.tally("MPI_Allreduce", 3, 300, group=world, bytes=3 * size, size_class=size_class(size))
    records = np.zeros(20, COLLECTIVE)
    records["name"] = made.string("MPI_Allreduce")
    made.collectives(records, capacity=16)
    made.peers([(1, 2, 3)])
    made.thread(0, 4242, "main")
    made.unwrapped("MPIX_New")
    return made.to_bytes()


def patched(raw: bytes, offset: int, value: int, size: int = 4) -> bytes:
    return raw[:offset] + value.to_bytes(size, "little") + raw[offset + size :]


def header_offset(name: str) -> int:
    members = HEADER.fields
    assert members is not None
    return int(members[name][1])


STRINGS = 4096  # the first chunk


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[:100], "100 bytes are too few"),
        (lambda raw: b"", "0 bytes are too few"),
        (lambda raw: raw[:9000], "ends at byte 9000"),
        (lambda raw: b"RANKSCPF" + raw[8:], "not a rank file"),
        (lambda raw: patched(raw, 8, 2), "format version 2"),
        (lambda raw: patched(raw, 12, 0x04030201), "other byte order"),
        (lambda raw: patched(raw, 12, 7), "byte order mark 0x7"),
        (lambda raw: patched(raw, header_offset("page_bytes"), 0), "pages of 0 bytes"),
        (lambda raw: patched(raw, header_offset("used_bytes"), 1 << 60, 8), "more than the"),
        (lambda raw: patched(raw, header_offset("header_bytes"), 5), "5 bytes of header"),
        (lambda raw: patched(raw, STRINGS + 8, 0), "chunk at byte 4096: 0 bytes do not add up"),
        (lambda raw: patched(raw, STRINGS + 8, 1 << 30), "do not add up"),
        (lambda raw: patched(raw, STRINGS + 16, 5000), "5000 bytes do not fit"),
        (lambda raw: patched(raw, STRINGS + 20, 9), "first id 9"),
        (lambda raw: patched(raw, STRINGS + CHUNK.itemsize, 1 << 31), "string at byte 4160"),
        (lambda raw: patched(raw, 2 * 4096 + 12, 63), "rows of 63 bytes, 64 expected"),
        (lambda raw: patched(raw, 2 * 4096 + 16, 10_000), "10000 rows do not fit"),
        (lambda raw: patched(raw, 3 * 4096 + CHUNK.itemsize, 60_000, 2), "string id 60000"),
        (lambda raw: patched(raw, 3 * 4096 + CHUNK.itemsize + 2, 300, 2), "group id 300"),
        (lambda raw: patched(raw, header_offset("log_capacity"), 1 << 40, 8), "a log of"),
    ],
)
def test_damage_is_named_in_one_line(damage: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "9.rank"
    path.write_bytes(damage(rich_file()))
    with pytest.raises(BadFile) as caught:
        read_rank_file(path)
    assert message in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_bad_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none.rank", tmp_path):
        with pytest.raises(BadFile, match="cannot be read"):
            read_rank_file(path)


def test_thousands_of_mutations_give_a_reading_or_bad_file(tmp_path: Path) -> None:
    """Half of the mutations hit the first 64 bytes of a page, where the numbers that matter are."""
    chance, original, path = random.Random(4), rich_file(), tmp_path / "1.rank"
    refused = 0
    for _ in range(3000):
        raw = bytearray(original)
        for _ in range(chance.randint(1, 4)):
            page = chance.randrange(len(raw) // 4096) * 4096
            at = page + chance.randrange(chance.choice((64, 2264, 4096)))
            raw[at] = chance.choice((0, 1, 127, 255, chance.randrange(256)))
        path.write_bytes(raw[: chance.choice((len(raw),) * 9 + (chance.randrange(len(raw)),))])
        try:
            read_rank_file(path)
        except BadFile:
            refused += 1
    assert 100 < refused < 2900


@pytest.mark.parametrize(
    ("size", "expected"),
    [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (8, 4), (9, 5), (512, 10), (513, 11), (1 << 40, 41)],
)
def test_size_classes(size: int, expected: int) -> None:
    assert size_class(size) == expected
