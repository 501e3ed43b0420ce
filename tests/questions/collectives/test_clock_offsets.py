"""Clocks of simulated hosts, whose true time is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.questions.collectives.clock_offsets import Clocks, clock_offsets
from rankscope.questions.collectives.clocks import clocks
from rankscope.questions.collectives.matching import CollectiveLog, Matched
from rankscope.questions.collectives.wait_and_transfer import Split, collectives_of, split
from rankscope.rank_files.read import read_rank_file
from rankscope.store.run import RunTables, open_run
from runs.simulated import MICRO, Skew, Truth, train, write
from runs.small_run import MILLI, SECOND, START

OPERATIONS = {"MPI_Allreduce": 1, "MPI_Barrier": 0, "MPI_Bcast": 8, "MPI_Reduce": 9}


def log_of(truth: Truth, skew: Skew, members: list[int] | None = None) -> CollectiveLog:
    """The matched log that those ranks would leave, without going through files."""
    ranks = truth.enter_ns.shape[1]
    log = CollectiveLog(list(range(ranks)), [f"node{host}" for host in skew.host_of], list(range(ranks)), START)
    log.groups.append(matched(truth, skew, members or list(range(ranks))))
    return log


def matched(truth: Truth, skew: Skew, members: list[int]) -> Matched:
    count = len(truth.names)
    local = {
        what: np.stack([skew.local(rank, times[:, rank]).astype(float) for rank in members], axis=1)
        for what, times in (("enter_ns", truth.enter_ns), ("end_ns", truth.end_ns))
    }
    return Matched(
        "world", "mpi", np.array(members), np.arange(1, count + 1),
        np.array([OPERATIONS[name] for name in truth.names]), np.asarray(truth.root), np.zeros(count, bool),
        np.zeros(count, int), np.zeros(count, int), **local,
        bytes=np.repeat(np.asarray(truth.bytes, float)[:, None], len(members), axis=1),
    )  # fmt: skip


def residuals(clocks: Clocks, truth: Truth, skew: Skew) -> list[tuple[float, float]]:
    """Of each host but the reference: the largest residual and the largest error bar over the span."""
    found = []
    for host, clock in enumerate(clocks.clocks[1:], 1):
        true = truth.enter_ns[:, skew.host_of.index(host)]
        moved, error = clock.to_reference(skew.local(skew.host_of.index(host), true).astype(float))
        away = np.abs(moved - (true + skew.offset_ns[0]))
        found.append((float(away.max()), float(error[int(np.argmax(away))])))
    return found


def any_case(seed: int) -> tuple[Truth, Skew]:
    """2 to 6 hosts of 1 to 4 ranks, ±2 s, ±50 ppm, a rank that is always late or none, short or long transfers."""
    random = np.random.default_rng(seed)
    hosts, each = int(random.integers(2, 7)), int(random.integers(1, 5))
    late = {int(random.integers(0, hosts * each)): random.uniform(0, 5) * MILLI} if random.random() < 0.6 else {}
    mixed = ("MPI_Allreduce", "MPI_Barrier", "MPI_Bcast", "MPI_Reduce")
    truth = train(
        random, hosts * each, int(random.choice([10, 50, 200, 1000])),
        jitter=float(random.choice([0.01, 0.1, 0.3])), transfer_ns=float(random.choice([20, 100, 1000, 5000])) * MICRO,
        late=late, names=mixed if random.random() < 0.3 else mixed[:1], lopsided=float(random.choice([0, 0.1, 0.5])),
        compute_ns=float(random.choice([1, 20])) * MILLI,
    )  # fmt: skip
    host_of = [rank // each for rank in range(hosts * each)]
    offsets = [0.0, *np.round(random.uniform(-2, 2, hosts - 1) * SECOND)]
    return truth, Skew(host_of, offsets, [0.0, *random.uniform(-50e-6, 50e-6, hosts - 1)])


def total(splits: list[Split]) -> tuple[float, float, float]:
    return tuple(
        float(sum(getattr(one, name).sum() for one in splits)) for name in ("wait_ns", "transfer_ns", "error_ns")
    )  # type: ignore[return-value]


def test_residuals_are_small_or_covered_and_the_split_is_that_of_true_clocks() -> None:
    found, off = [], []
    for seed in range(300):
        truth, skew = any_case(seed)
        log = log_of(truth, skew)
        estimated = clock_offsets(log)
        found += residuals(estimated, truth, skew)
        true_log = log_of(truth, Skew([0] * len(skew.host_of), [0.0], [0.0]))
        wait_ns, moved_ns, error_ns = total([split(log, estimated, log.groups[0])])
        true_wait, true_moved, none = total([split(true_log, clock_offsets(true_log), true_log.groups[0])])
        assert none == 0 and abs(wait_ns - true_wait) <= error_ns + 1
        off.append((abs(wait_ns / true_wait - 1), abs(moved_ns / true_moved - 1), error_ns / true_wait))
    assert len(found) > 700
    good = [residual < 50 * MICRO or residual <= error for residual, error in found]
    assert sum(good) >= 0.99 * len(good)
    assert np.mean([wait < 0.1 for wait, _, _ in off]) >= 0.9 and np.mean([moved < 0.1 for _, moved, _ in off]) >= 0.97
    # those that are not hold a clock error larger than the effect: they are reported as inconclusive
    told = [wait for wait, _, error in off if error < 1]
    assert len(told) > 180 and np.mean([wait < 0.1 for wait in told]) >= 0.99


def test_a_host_that_is_always_late_is_known_by_leaving_together() -> None:
    random = np.random.default_rng(7)
    truth = train(random, 4, 300, jitter=0.01, transfer_ns=30 * MICRO, late={3: 8 * MILLI})
    skew = Skew([0, 1, 2, 3], [0, 1e9, -1e9, 2e9], [0, 4e-5, -2e-5, 5e-5])
    log = log_of(truth, skew)
    estimated = clock_offsets(log)
    (part,) = estimated.clocks[3].parts
    assert part.together and part.bound_ns > 3 * MILLI > 100 * MICRO > part.error_ns
    assert max(residual for residual, _ in residuals(estimated, truth, skew)) < 50 * MICRO


def test_what_all_wait_for_moves_data_equally_long_on_any_clocks() -> None:
    """Whatever the clocks show: the last rank to arrive waits for nobody, and its stay is read on one clock."""
    for seed in range(60):
        truth, skew = any_case(seed)
        if set(truth.names) != {"MPI_Allreduce"}:
            continue
        log = log_of(truth, skew)
        found = split(log, clock_offsets(log), log.groups[0])
        assert found.moving_ns.sum() == pytest.approx(
            len(skew.host_of) * (truth.end_ns - truth.enter_ns).min(axis=1).sum(), rel=1e-3
        )
        assert found.transfer_ns + found.wait_ns + found.leaving_ns == pytest.approx(found.stay_ns)
        assert min(found.transfer_ns.min(), found.wait_ns.min(), found.leaving_ns.min()) >= -1e-6


def test_a_root_that_is_late_in_every_broadcast_is_where_the_bounds_pile_up() -> None:
    """Nothing is proven from the other side: the middle of the room would be 4 ms off."""
    random = np.random.default_rng(21)
    late = train(random, 3, 200, jitter=0.05, transfer_ns=30 * MICRO, late={2: 8 * MILLI}, names=("MPI_Bcast",))
    late.root[:] = 2
    root_enters = late.enter_ns[:, 2:]
    arrives = root_enters + 25 * MICRO + random.exponential(5 * MICRO, (200, 2))
    late.end_ns[:, :2] = np.maximum(late.enter_ns[:, :2], arrives)
    late.end_ns[:, 2] = late.enter_ns[:, 2] + 5 * MICRO
    late.names[0], late.root[0] = "MPI_Barrier", -1
    late.end_ns[0] = late.enter_ns[0].max() + 30 * MICRO
    skew = Skew([0, 0, 1], [0, 1e9], [0, 4e-5])
    estimated = clock_offsets(log_of(late, skew))
    (part,) = estimated.clocks[1].parts
    assert not part.together and part.bound_ns > MILLI
    ((residual, error),) = residuals(estimated, late, skew)
    assert residual < 50 * MICRO and residual <= error


def test_a_jump_is_found_and_corrected() -> None:
    random = np.random.default_rng(8)
    truth = train(random, 4, 600, jitter=0.2)
    when = float(truth.enter_ns[350].max())
    skew = Skew([0, 0, 1, 1], [0, 1e9], [0, 3e-5], jumps={1: (when, 40 * MILLI)})
    estimated = clock_offsets(log_of(truth, skew))
    assert len(estimated.clocks[1].parts) == 2
    away = [residual for residual, _ in residuals(estimated, truth, skew)]
    # the collective across the jump may be on either side
    true = truth.enter_ns[:, 2]
    moved, error = estimated.clocks[1].to_reference(skew.local(2, true).astype(float))
    assert np.mean(np.abs(moved - true) <= np.maximum(error, 50 * MICRO)) > 0.99 and away


def test_a_few_damaged_records_are_left_out() -> None:
    random = np.random.default_rng(9)
    truth = train(random, 4, 500, jitter=0.2)
    skew = Skew([0, 0, 1, 1], [0, -1e9], [0, 3e-5])
    log = log_of(truth, skew)
    log.groups[0].enter_ns[[50, 200], [2, 1]] += 3 * SECOND
    log.groups[0].end_ns[300, 3] -= 5 * SECOND
    log.groups[0].enter_ns[301, 0] = -1.7e18
    estimated = clock_offsets(log)
    (part,) = estimated.clocks[1].parts
    assert 3 <= part.dropped <= 4 and max(residual for residual, _ in residuals(estimated, truth, skew)) < 100 * MICRO


def test_hosts_of_one_name_with_clocks_of_their_own_are_told_apart(tmp_path: Path) -> None:
    truth = train(np.random.default_rng(10), 3, 200, jitter=0.2)
    skew = Skew([0, 1, 2], [0, 1e9, -1e9], [0, 0, 0])
    log = log_of(truth, skew)
    log.hosts = ["localhost"] * 3
    estimated = clock_offsets(log)
    assert estimated.split_hosts == ["localhost"] and len(estimated.clocks) == 3
    assert max(residual for residual, _ in residuals(estimated, truth, skew)) < 100 * MICRO


def test_hosts_without_a_group_in_common_are_compared_through_a_third() -> None:
    truth = train(np.random.default_rng(11), 3, 300, jitter=0.2)
    skew = Skew([0, 1, 2], [0, 1e9, -1e9], [0, 3e-5, -3e-5])
    log = log_of(truth, skew, [0, 1])
    log.groups.append(matched(truth, skew, [1, 2]))
    estimated = clock_offsets(log)
    assert estimated.clocks[2].compared_with is estimated.clocks[1]
    assert all(away < 50 * MICRO or away <= error for away, error in residuals(estimated, truth, skew))


def test_a_host_that_shares_nothing_is_unknown_and_makes_no_verdict() -> None:
    truth = train(np.random.default_rng(12), 4, 50)
    skew = Skew([0, 0, 1, 1], [0, 1e9], [0, 0])
    log = log_of(truth, skew, [0, 1])
    log.groups.append(matched(truth, skew, [2, 3]))
    estimated = clock_offsets(log)
    assert [clock.known for clock in estimated.clocks] == [True, False]
    within = split(log, estimated, log.groups[1])
    assert within.error_ns.sum() == 0 and within.sure.all()  # two ranks of one clock need no other


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_through_files_with_a_ring_that_went_round(seed: int, tmp_path: Path) -> None:
    truth, skew = any_case(seed)
    known = collectives_of(opened := run_of(tmp_path, truth, skew, capacity=64))
    count = min(64, len(truth.names))
    assert known.log.collectives == count
    kept = Truth(truth.enter_ns[-count:], truth.end_ns[-count:], truth.names[-count:], 0, 0)
    shifted = Skew(skew.host_of, [one - (known.log.base_ns - START) for one in skew.offset_ns], skew.drift)
    for residual, error in residuals(known.clocks, kept, shifted):
        assert residual < 50 * MICRO or residual <= error
    table = clocks(opened)
    assert [row[0] for row in table.rows] == [f"node{host}" for host in sorted(set(skew.host_of))]
    middle = (truth.enter_ns[-count:].max() + truth.enter_ns[-count:].min()) / 2
    for host, row in enumerate(table.rows[1:], 1):
        true_offset = skew.offset_ns[host] + skew.drift[host] * middle
        assert abs(float(str(row[2])) - true_offset) <= max(50 * MICRO, float(str(row[3]))) + 100e-6 * 10 * MILLI


def run_of(folder: Path, truth: Truth, skew: Skew, **more: Any) -> RunTables:
    return open_run(write(folder / "run", truth, skew, **more), read_rank_file)
