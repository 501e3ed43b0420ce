"""What the recorder counted is what the program did: every function, every size, every rank, every MPI."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mpis import Mpi, find_mpi
from programs import jobs, recorded
from programs.recorded import Collective, Counts, Key
from rankscope.model.records import Reading

# How often a test must be repeated before it says yes is up to the MPI.
UP_TO_THE_MPI = {"MPI_Win_test"}
# mpi4py asks these for its own purposes, as often as it likes.
ENQUIRIES = (
    "MPI_Comm_rank",
    "MPI_Comm_size",
    "MPI_Comm_remote_size",
    "MPI_Comm_test_inter",
    "MPI_Comm_get_",
    "MPI_Type_",
)
FORMS = {"plain": ("-DNO_LARGE_COUNTS",), "all": ()}


@dataclass
class Rank:
    """One rank: what it says it did, and what was recorded."""

    did: dict[str, Any]
    reading: Reading

    @property
    def expected(self) -> dict[Key, Counts]:
        return {(name, kind, size): (calls, total, bad) for name, kind, size, calls, total, bad in self.did["rows"]}


def ranks_of(run: Path, results: Path, count: int) -> list[Rank]:
    found = []
    for rank in range(count):
        did = json.loads((results / f"counts.{rank}.json").read_text())
        found.append(Rank(did, recorded.read(recorded.file_of(run, did["pid"]))))
    return found


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="session", params=["plain", "all"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session", params=[pytest.param(2, marks=pytest.mark.slow), 3, 4])
def ranks(request: pytest.FixtureRequest, mpi: Mpi, form: str, built: Path) -> list[Rank]:
    """every_call, run once on each MPI and world size."""
    folder = built / f"{mpi.name}-{form}-{request.param}"
    folder.mkdir()
    program = jobs.build_with_mpi(mpi, built, "every_call", *FORMS[form])
    job = jobs.run(mpi, request.param, folder / "run", program, folder)
    assert (job.code, job.err) == (0, "")
    assert sorted(job.out.splitlines()) == [f"rank {i} of {request.param} done" for i in range(request.param)]
    return ranks_of(folder / "run", folder, request.param)


def test_every_function_has_its_calls_and_bytes(ranks: list[Rank]) -> None:
    for rank in ranks:
        assert different(rank.expected, recorded.counts_of(rank.reading)) == {}


def different(expected: dict[Key, Counts], found: dict[Key, Counts]) -> dict[Key, tuple[Counts | None, Counts | None]]:
    """The rows that are not equal, as (expected, found); MPI_Pcontrol only switches."""
    keys = {key for key in expected.keys() | found.keys() if key[0] != "MPI_Pcontrol"}
    return {key: (expected.get(key), found.get(key)) for key in sorted(keys) if expected.get(key) != found.get(key)}


def test_nothing_was_lost(ranks: list[Rank]) -> None:
    for rank in ranks:
        facts = rank.reading.facts
        lost = (
            facts.lost_calls,
            facts.overwritten_events,
            facts.untracked_requests,
            facts.torn_rows,
            facts.lost_strings,
        )
        assert lost == (0, 0, 0, 0, 0)
        assert (facts.rank, facts.world_size, facts.finalized) == (rank.did["rank"], rank.did["size"], True)


def test_rows_are_consistent(ranks: list[Rank]) -> None:
    for rank in ranks:
        for row in recorded.rows_of(rank.reading):
            assert row.min_ns * row.calls <= row.total_ns * 1.000001
            assert row.total_ns <= row.max_ns * row.calls * 1.000001
            assert in_class(row.bytes, row.calls, row.size_class)


def in_class(size: int, calls: int, size_class: int) -> bool:
    if size_class < 2:
        return size == calls * size_class
    return calls * 2 ** (size_class - 2) < size <= calls * 2 ** (size_class - 1)


def test_log_has_every_collective_in_order(ranks: list[Rank]) -> None:
    for rank in ranks:
        expected = [(name, size, root) for _, name, size, root in rank.did["log"]]
        found = [(entry.name, entry.bytes, entry.root) for entry in recorded.log_of(rank.reading)]
        assert found == expected


def test_log_names_one_group_per_communicator(ranks: list[Rank]) -> None:
    for rank in ranks:
        labels = [label for label, *_ in rank.did["log"]]
        groups = [entry.group for entry in recorded.log_of(rank.reading)]
        pairs = set(zip(labels, groups, strict=True))
        assert len(pairs) == len(set(labels)) == len(set(groups))


def test_sequences_count_up_without_gaps(ranks: list[Rank]) -> None:
    for rank in ranks:
        for entries in by_group(rank).values():
            expected = list(range(1, len(entries) + 1))
            assert skip_paused([entry.sequence for entry in entries]) == expected


def by_group(rank: Rank) -> dict[int, list[Collective]]:
    groups: dict[int, list[Collective]] = defaultdict(list)
    for entry in recorded.log_of(rank.reading):
        groups[entry.group].append(entry)
    return groups


def skip_paused(sequences: list[int]) -> list[int]:
    """Closes the gap of the two collectives made while recording was paused, which still count on their group."""
    gap = next((i for i, (a, b) in enumerate(itertools.pairwise(sequences), 1) if b == a + 3), None)
    return sequences if gap is None else sequences[:gap] + [number - 2 for number in sequences[gap:]]


def test_ranks_agree_on_groups_and_sequences(ranks: list[Rank]) -> None:
    """Every member of a group logged the same function under the same number."""
    seen: dict[tuple[str, int], list[str]] = defaultdict(list)
    members: dict[str, int] = {}
    for rank in ranks:
        for (label, *_), entry in zip(rank.did["log"], recorded.log_of(rank.reading), strict=True):
            group = recorded.group_of(rank.reading, entry.group)
            seen[group.identity, entry.sequence].append(entry.name)
            members[group.identity] = len(ranks) if label.startswith("inter") else group.size or 0
    for (identity, sequence), names in seen.items():
        assert names == [names[0]] * members[identity], (identity, sequence)


def test_groups_know_their_place(ranks: list[Rank]) -> None:
    places: dict[str, set[int | None]] = defaultdict(set)
    sizes: dict[str, int | None] = {}
    for rank in ranks:
        for group in rank.reading.groups:
            if group.kind == "communicator" and group.name != "MPI_COMM_SELF" and not group.guessed:
                places[group.identity].add(group.my_rank)
                sizes[group.identity] = group.size
    assert all(sizes[identity] == len(found) for identity, found in places.items()), (sizes, places)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_all_mpis_give_the_same_numbers(count: int, built: Path) -> None:
    """The same program, the same recorder: calls and bytes do not depend on the MPI."""
    found = {}
    for name in ("openmpi", "mpich", "impi"):
        folder = built / f"same-{name}-{count}"
        folder.mkdir()
        mpi = find_mpi(name)
        program = jobs.build_with_mpi(mpi, built, "every_call", *FORMS["plain"])
        job = jobs.run(mpi, count, folder / "run", program, folder)
        assert job.code == 0, job.err
        found[name] = [without_retries(recorded.counts_of(r.reading)) for r in ranks_of(folder / "run", folder, count)]
    assert found["openmpi"] == found["mpich"]
    assert found["openmpi"] == found["impi"]


def without_retries(counts: dict[Key, Counts]) -> dict[Key, Counts]:
    return {key: value for key, value in counts.items() if key[0] not in UP_TO_THE_MPI}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_mpi4py_is_counted_as_written_down(mpi: Mpi, count: int, tmp_path: Path) -> None:
    job = jobs.run(mpi, count, tmp_path / "run", mpi.python, jobs.PROGRAMS / "every_call_mpi4py.py", tmp_path)
    assert job.code == 0, job.err
    for rank in ranks_of(tmp_path / "run", tmp_path, count):
        found = {key: counts for key, counts in folded(rank.reading).items() if not key[0].startswith(ENQUIRIES)}
        assert different(rank.expected, found) == {}


def folded(reading: Reading) -> dict[Key, Counts]:
    """The counts with MPI_X_c added to MPI_X: which of the two mpi4py calls is up to the library it finds."""
    sums: dict[Key, list[int]] = defaultdict(lambda: [0, 0, 0])
    for (name, kind, size_class), counts in recorded.counts_of(reading).items():
        total = sums[name.removesuffix("_c"), kind, size_class]
        for i, value in enumerate(counts):
            total[i] += value
    return {key: (calls, size, errors) for key, (calls, size, errors) in sums.items()}
