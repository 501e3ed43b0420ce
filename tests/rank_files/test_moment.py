"""Where a rank is, from its rank file: the newest collectives, sums, steps, and nothing but BadFile from damage."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from rankscope.model.records import BadFile
from rankscope.rank_file import COLLECTIVE, STEP, CollectiveFlag, GroupKind, Kind, LayerNumber, State
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files.facts import Here
from rankscope.rank_files.live import LiveFile, read_moment

NOW = 5_000_000_000_000
HERE = Here(host="here", now_ns=lambda: NOW)


def written(folder: Path, records: int = 10, capacity: int = 16) -> Path:
    """A rank elsewhere that has entered so many collectives, the last one still under way."""
    file = RankFileWriter(rank=3, world_size=4, pid=77, host=b"elsewhere", phase=5)
    file.set(loaded={"ticks": 0, "monotonic_ns": 0, "realtime_ns": NOW - 1_000_000})
    world = file.group("MPI_COMM_WORLD", identity=1, size=4, my_rank=3, collectives=records)
    file.tally("MPI_Allreduce", 9, 900, group=world)
    file.tally("MPI_Iallreduce", 2, 5000, group=world, kind=Kind.PROGRESS)
    file.tally("kernel", 7, 7000, layer=LayerNumber.GPU)
    rows = np.zeros(records, COLLECTIVE)
    rows["enter_ticks"] = np.arange(records) * 1000
    rows["end_ticks"] = rows["enter_ticks"] + 100
    rows["end_ticks"][-1] = 0
    rows["sequence"], rows["group"], rows["root"] = np.arange(1, records + 1), world, -1
    rows["name"], rows["bytes"] = file.string("MPI_Allreduce"), 8
    rows["flags"][0] = CollectiveFlag.NONBLOCKING
    file.collectives(rows, capacity)
    steps = np.zeros(5, STEP)
    steps["number"], steps["part_ticks"][:, 2], steps["part_ticks"][:, 3] = np.arange(1, 6), 30.0, 70.0
    steps["blocked_ticks"][:, 3] = 20.0
    file.steps(steps, capacity=4)
    return file.write(folder / "77.rank")


def test_what_a_file_tells(tmp_path: Path) -> None:
    moment = read_moment(written(tmp_path), HERE)
    assert (moment.facts.rank, moment.facts.phase, moment.read_ns) == (3, "steady", NOW)
    assert (moment.groups[0].identity, moment.groups[0].collectives) == (f"{1:016x}", 10)
    last = moment.entered[-1]
    assert (last.sequence, last.name, last.end_ns, last.group) == (10, "MPI_Allreduce", None, f"{1:016x}")
    assert last.start_ns == NOW - 1_000_000 + 9000
    assert moment.calls == 18
    assert moment.communication_ns == 900 + (NOW - last.start_ns)
    assert (moment.steps, moment.step_ns) == (5, 100.0)
    assert moment.step_shares["backward"] == pytest.approx(0.7)
    assert moment.step_shares["blocked"] == pytest.approx(0.2)
    assert moment.state == ""


@pytest.mark.parametrize("records", [1, 3, 15, 16, 17, 31, 32, 33, 50])
@pytest.mark.parametrize("newest", [1, 4, 15, 16, 100])
def test_the_newest_of_the_ring(records: int, newest: int, tmp_path: Path) -> None:
    path = written(tmp_path, records)
    everything = read_moment(path, HERE).entered
    assert len(everything) == min(records, 16)
    assert read_moment(path, HERE, newest).entered == everything[-newest:]


def test_groups_of_torch_keep_their_kind(tmp_path: Path) -> None:
    file = RankFileWriter(rank=0)
    file.group("default_pg", identity=5, size=2, kind=GroupKind.PROCESS_GROUP)
    assert read_moment(file.write(tmp_path / "1.rank"), HERE).groups[0].kind == "process_group"


def test_damage_is_a_bad_file_or_other_numbers(tmp_path: Path) -> None:
    raw, path, chance = written(tmp_path).read_bytes(), tmp_path / "damaged.rank", random.Random(4)
    refused = 0
    for _ in range(400):
        damaged = bytearray(raw)
        for _ in range(chance.randrange(1, 8)):
            place = chance.randrange(len(damaged))
            damaged[place : place + 4] = chance.randbytes(4)
        path.write_bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))])
        for newest in (None, 5):
            try:
                read_moment(path, HERE, newest)
            except BadFile as problem:
                refused += 1
                assert "\n" not in str(problem)
    assert 0 < refused < 800


def test_a_file_looked_at_again_tells_what_a_new_look_does(tmp_path: Path) -> None:
    """It grows, its ring of steps turns over, names and groups come, it ends, and another process takes its place."""
    path = tmp_path / "77.rank"
    kept = LiveFile(path, {})
    for records, steps, groups, state, pid in [
        (3, 0, 1, State.RUNNING, 77),
        (3, 2, 1, State.RUNNING, 77),
        (40, 5, 1, State.RUNNING, 77),
        (41, 90, 3, State.RUNNING, 77),
        (41, 91, 3, State.RUNNING, 77),
        (200, 400, 3, State.EXITED, 77),
        (200, 400, 3, State.EXITED, 77),
        (2, 1, 1, State.RUNNING, 78),
    ]:
        _grown(path, records, steps, groups, state, pid)
        fresh = read_moment(path, HERE, 8)
        assert kept.moment(HERE, 8) == fresh
        assert (fresh.facts.pid, fresh.steps, len(fresh.groups)) == (pid, steps or None, groups)
    with pytest.raises(BadFile):
        path.unlink()
        kept.moment(HERE, 8)


def _grown(path: Path, records: int, steps: int, groups: int, state: State, pid: int) -> None:
    file = RankFileWriter(rank=3, world_size=4, pid=pid, host=b"elsewhere", phase=5, state=state)
    file.set(loaded={"ticks": 0, "monotonic_ns": 0, "realtime_ns": NOW - 1_000_000})
    first = file.group("MPI_COMM_WORLD", identity=1, size=4, my_rank=3, collectives=records)
    for number in range(1, groups):
        file.group(f"group {number}", identity=number + 1, size=2, my_rank=0)
    file.tally("MPI_Allreduce", records, 9 * records, group=first)
    rows = np.zeros(records, COLLECTIVE)
    rows["enter_ticks"], rows["sequence"] = np.arange(records) * 1000, np.arange(1, records + 1)
    rows["end_ticks"] = rows["enter_ticks"] + 100
    rows["group"], rows["name"] = first, file.string("MPI_Allreduce")
    file.collectives(rows, 16)
    if steps:
        made = np.zeros(steps, STEP)
        made["number"], made["part_ticks"][:, 2] = np.arange(1, steps + 1), np.arange(1, steps + 1)
        file.steps(made, capacity=80)
    file.write(path)


def test_the_calls_that_threads_are_in(tmp_path: Path) -> None:
    """Peers: 2 of the world; none named; any; and a word that names a string that is not there."""
    file = RankFileWriter(rank=3, world_size=4, pid=77, host=b"elsewhere")
    file.set(loaded={"ticks": 0, "monotonic_ns": 0, "realtime_ns": NOW - 1_000_000})
    world, name = file.group("MPI_COMM_WORLD", identity=1, size=4, my_rank=3), file.string("MPI_Recv")
    for slot, (group, peer, string) in enumerate(
        [(world, 2, name), (0, -(2**31), name), (world, -2, name), (9, 1, 99)]
    ):
        call = string | group << 16 | (peer % 2**32) << 32
        file.thread(slot, 100 + slot, call=call, call_ticks=1000 * slot)
    file.thread(4, 104)
    moment = read_moment(file.write(tmp_path / "77.rank"), HERE)
    found = moment.calling
    assert moment.communication_ns == 3_000_000 - 3_000  # as long as each has been in it
    assert [(one.name, one.peer, one.thread) for one in found] == [
        ("MPI_Recv", 2, 0),
        ("MPI_Recv", None, 1),
        ("MPI_Recv", -1, 2),
    ]
    assert [one.since_ns - (NOW - 1_000_000) for one in found] == [0, 1000, 2000]
    assert [one.group for one in found] == [f"{1:016x}", "", f"{1:016x}"]
