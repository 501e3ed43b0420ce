"""darshan-parser's text."""

from __future__ import annotations

import pytest

from formats.foreign_files import readings, warnings
from rankscope.model.records import BadFile

HEADER = """\
# darshan log version: 3.41
# compression method: ZLIB
# exe: /home/user/train.py --epochs 3
# uid: 1000
# jobid: 42
# start_time: 1700000000
# start_time_asci: Tue Nov 14 22:13:20 2023
# end_time: 1700000010
# nprocs: 2
# run time: 10.5000
#<module>\t<rank>\t<record id>\t<counter>\t<value>\t<file name>\t<mount pt>\t<fs type>
"""


def line(module: str, rank: int, counter: str, value: object, record: int = 9) -> str:
    return f"{module}\t{rank}\t{record}\t{counter}\t{value}\t/data/x.bin\t/data\tlustre\n"


BODY = (
    line("POSIX", 0, "POSIX_OPENS", 3)
    + line("POSIX", 0, "POSIX_READS", 10)
    + line("POSIX", 0, "POSIX_BYTES_READ", 4096)
    + line("POSIX", 0, "POSIX_F_READ_TIME", "0.250000")
    + line("POSIX", 0, "POSIX_F_META_TIME", "0.010000")
    + line("POSIX", 0, "POSIX_FASTEST_RANK", 1)
    + line("POSIX", 0, "POSIX_OPENS", 2, record=10)
    + line("POSIX", 1, "POSIX_STATS", 7)
    + line("POSIX", 1, "POSIX_WRITES", -1)
    + line("MPI-IO", -1, "MPIIO_COLL_WRITES", 4)
    + line("MPI-IO", -1, "MPIIO_INDEP_WRITES", 1)
    + line("MPI-IO", -1, "MPIIO_BYTES_WRITTEN", 100)
)


def test_counters() -> None:
    shared, first, second = readings("darshan", HEADER + BODY)
    rows = {(t.group, t.name): (t.calls, t.total_ns, t.bytes) for t in first.tallies}
    assert rows == {
        ("POSIX", "open"): (5, 0, None),
        ("POSIX", "read"): (10, 250_000_000, 4096),
        ("POSIX", "metadata"): (0, 10_000_000, None),
    }
    assert [(t.name, t.calls) for t in second.tallies] == [("stat", 7)]
    assert [(t.group, t.name, t.calls, t.bytes) for t in shared.tallies] == [("MPI-IO", "write", 5, 100)]
    assert (first.facts.rank, first.facts.world_size, first.facts.elapsed_ns) == (0, 2, 10_500_000_000)
    assert first.facts.command == "/home/user/train.py --epochs 3"
    assert first.facts.started_ns == 1_700_000_000 * 10**9
    assert warnings(shared, first, second) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (line("POSIX", 5, "POSIX_OPENS", 1), "rank 5 of a job of 2 processes"),
        (line("POSIX", 0, "POSIX_BYTES_READ", 4096), "POSIX: 4096 bytes but no read"),
        (line("POSIX", 0, "POSIX_F_READ_TIME", 99999.0), "POSIX: 99999 s of read in a job of 10.5 s"),
    ],
)
def test_what_cannot_be(body: str, said: str) -> None:
    assert warnings(*readings("darshan", HEADER + body)) == [f"file.txt: {said}"]


@pytest.mark.parametrize("value", ["x", "nan", "1.5", "9" * 39])
def test_what_is_no_count(value: str) -> None:
    with pytest.raises(BadFile, match=r"file\.txt:12: POSIX_OPENS"):
        readings("darshan", HEADER + line("POSIX", 0, "POSIX_OPENS", value))
