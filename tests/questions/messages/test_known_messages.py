"""Messages of real programs that are known exactly: every pair is found, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpis import Mpi
from programs import jobs
from rankscope.questions.collectives.waiting import wait_matrix
from rankscope.questions.messages import matched_messages
from rankscope.questions.messages.matching import NO_PARTNER, ends_left_out
from rankscope.questions.messages.messages import message_coverage, messages
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run

Pair = tuple[int, int, int, int]  # sender and receiver, each with its number among all that its rank has posted


def recorded(
    mpi: Mpi, folder: Path, ranks: int, seed: int, rounds: int, **settings: str
) -> tuple[RunTables, set[Pair]]:
    told = folder / "told"
    told.mkdir()
    program = (mpi.python, jobs.PROGRAMS / "known_messages.py", str(told), str(seed), str(rounds))
    done = jobs.run(mpi, ranks, folder / "run", *program, **settings)
    assert done.code == 0, done.err
    pairs = set()
    for path in told.glob("*.json"):
        for sender, sent, received, _ in json.loads(path.read_text()):
            pairs.add((sender, sent, int(path.stem), received))
    return open_run(folder / "run", read_rank_file), pairs


def found(run: RunTables) -> set[Pair]:
    known = matched_messages(run)
    columns = (known.sender, known.send_posted, known.receiver, known.recv_posted)
    return set(zip(*(column.tolist() for column in columns), strict=True))


def test_every_pair_is_found_and_no_other(mpi: Mpi, tmp_path: Path) -> None:
    run, pairs = recorded(mpi, tmp_path, ranks=3, seed=1, rounds=8)
    assert found(run) == pairs and len(pairs) > 50
    assert set(ends_left_out(run)) == set()


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "seed"), [(2, 2), (3, 3), (4, 4), (5, 5), (4, 6)])
def test_every_pair_of_longer_jobs_is_found_and_no_other(mpi: Mpi, tmp_path: Path, ranks: int, seed: int) -> None:
    run, pairs = recorded(mpi, tmp_path, ranks, seed, rounds=40)
    assert found(run) == pairs
    assert set(ends_left_out(run)) == set()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_what_is_overwritten_is_counted_and_spoils_no_pair(mpi: Mpi, tmp_path: Path, seed: int) -> None:
    """With room for 64 messages the newest ones are still known by their number, whatever went before."""
    run, pairs = recorded(mpi, tmp_path, 3, seed, 40, RANKSCOPE_LOG_RECORDS="64")
    ends, known = dict(run.query("SELECT kind, count(*) FROM message_ends GROUP BY kind")), matched_messages(run)
    assert 20 < len(known) < len(pairs)
    assert found(run) <= pairs
    left = ends_left_out(run)
    assert {why for _, why in left} <= {NO_PARTNER}
    for kind in ("send", "receive"):
        assert ends[kind] == len(known) + sum(count for (one, _), count in left.items() if one == kind)
    assert np.all(known.wait_ns >= 0) and np.all(known.transfer_ns >= 0) and np.all(known.send_wait_ns >= 0)


TIMES, CLOSE_NS = 6, 5_000_000
LATE = (0, 3), (1,)  # the kinds of meeting in which the sender is late, and in which the receiver is


def late_messages(openmpi: Mpi, folder: Path, late_ms: int) -> tuple[Any, Any]:
    """By the program's own notes, median wait of each kind of meeting: of the receiver and of the sender."""
    folder.mkdir()
    program = (openmpi.python, jobs.PROGRAMS / "late_messages.py", str(folder), str(late_ms), str(TIMES))
    done = jobs.run(openmpi, 2, folder / "run", *program)
    assert done.code == 0, done.err
    noted = (np.array(json.loads((folder / f"{rank}.json").read_text())).T for rank in (0, 1))
    (sent, send_begin, send_end), (posted, recv_begin, recv_end) = noted
    wait = np.clip(sent - recv_begin, 0, recv_end - recv_begin)
    send_wait = np.where(send_end < posted, 0, np.clip(posted - send_begin, 0, send_end - send_begin))
    return np.median(wait.reshape(4, TIMES), axis=1), np.median(send_wait.reshape(4, TIMES), axis=1)


def test_late_senders_and_late_receivers_are_told_apart(openmpi: Mpi, tmp_path: Path) -> None:
    """As the program's own notes have it, of each kind of meeting: the sender late, the receiver late, …"""
    for late_ms in (30, 120, 480):  # where others take the CPUs, the one that should be early is late, too
        folder = tmp_path / str(late_ms)
        expected = late_messages(openmpi, folder, late_ms)
        if all(
            by_kind[kind] > late_ms / 4 * 1e6 for by_kind, late in zip(expected, LATE, strict=True) for kind in late
        ):
            break
    else:
        pytest.fail("the meetings were never as they were meant")
    run = open_run(folder / "run", read_rank_file)
    known = matched_messages(run)
    assert len(known) == 4 * TIMES and known.bytes.reshape(4, TIMES)[1].tolist() == [1 << 22] * TIMES
    for found, by_kind in zip((known.wait_ns, known.send_wait_ns), expected, strict=True):
        assert np.median(found.reshape(4, TIMES), axis=1) == pytest.approx(by_kind, abs=CLOSE_NS)
    assert np.all(known.wait_ns + known.transfer_ns == known.recv_blocked_ns)
    ((sender, receiver, count, size, told_wait, told_send_wait, *_, late_one),) = messages(run).rows
    assert (sender, receiver, count, size) == (0, 1, 4 * TIMES, TIMES * ((1 << 22) + 24))
    assert (told_wait, told_send_wait) == (known.wait_ns.sum(), known.send_wait_ns.sum()) and late_one == "sender"
    matrix = wait_matrix(run).rows
    assert matrix[1][1] >= told_wait and matrix[0][2] >= told_send_wait
    assert message_coverage(run).rows == [("matched", 4 * TIMES, 4 * TIMES, 1.0)]
