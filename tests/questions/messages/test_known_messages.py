"""Messages of real programs that are known exactly: every pair is found, and no other."""

from __future__ import annotations

import json
from pathlib import Path

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


LATE_MS, TIMES = 30, 6


def test_late_senders_and_late_receivers_are_told_apart(openmpi: Mpi, tmp_path: Path) -> None:
    program = (openmpi.python, jobs.PROGRAMS / "late_messages.py", str(LATE_MS), str(TIMES))
    done = jobs.run(openmpi, 2, tmp_path / "run", *program)
    assert done.code == 0, done.err
    run = open_run(tmp_path / "run", read_rank_file)
    known = matched_messages(run)
    parts = np.split(np.arange(len(known)), 4)
    late_sender, late_receiver, put_aside, half_hidden = (
        tuple(float(np.median(column[part])) / 1e6 for column in (known.wait_ns, known.send_wait_ns)) for part in parts
    )
    assert len(known) == 4 * TIMES and known.bytes[parts[1]].tolist() == [1 << 22] * TIMES
    assert 0.8 * LATE_MS < late_sender[0] < 2 * LATE_MS and late_sender[1] < 0.2 * LATE_MS
    assert 0.8 * LATE_MS < late_receiver[1] < 2 * LATE_MS and late_receiver[0] < 0.2 * LATE_MS
    assert max(put_aside) < 0.2 * LATE_MS  # 8 bytes are sent before anybody wants them
    assert 0.3 * LATE_MS < half_hidden[0] < 0.8 * LATE_MS  # the receiver computed for half of it
    assert np.all(known.wait_ns + known.transfer_ns == known.recv_blocked_ns)
    ((sender, receiver, count, size, wait, send_wait, *_, late),) = messages(run).rows
    assert (sender, receiver, count, size) == (0, 1, 4 * TIMES, TIMES * ((1 << 22) + 24))
    assert wait == known.wait_ns.sum() and send_wait == known.send_wait_ns.sum() and late == "sender"
    barriers = wait_matrix(run).rows
    assert barriers[1][1] >= wait and barriers[0][2] >= send_wait
    assert message_coverage(run).rows == [("matched", 4 * TIMES, 4 * TIMES, 1.0)]
