"""Sends and receives of a rank file: which of its envelope each is, and where nobody can know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankscope.rank_file import MESSAGE, LayerNumber, MessageFlag
from rankscope.rank_file_writer import RankFileWriter
from rankscope.rank_files import messages
from rankscope.rank_files.read import read_rank_file

SEND, RECEIVE = MessageFlag(0), MessageFlag.RECEIVE
Row = dict[str, Any]


def message(peer: int, tag: int = 0, flags: MessageFlag = SEND, **fields: Any) -> Row:
    return {"peer": peer, "tag": tag, "flags": flags, "begin_ticks": 1, "end_ticks": 2, "bytes": 8, **fields}


def written(tmp_path: Path, *rings: list[Row], capacity: int | None = None, **header: Any) -> dict[str, list[Any]]:
    """The ends as they are read, column by column; None where they are masked."""
    file = RankFileWriter(**header)
    group = file.group("MPI_COMM_WORLD", identity=1, size=4)
    for thread, ring in enumerate(rings):
        rows = np.zeros(len(ring), MESSAGE)
        for at, row in enumerate(ring):
            for name, value in {
                "group": group,
                "layer": LayerNumber.MPI,
                "name": file.string("MPI_Send"),
                **row,
            }.items():
                rows[name][at] = value
        file.messages(rows, thread, capacity)
    columns = read_rank_file(file.write(tmp_path / "1.rank")).message_columns
    made = {}
    for name, values in columns.items():
        plain = [values.values[code] for code in values.codes] if hasattr(values, "codes") else values.tolist()
        made[name] = plain
    return made


def test_messages_are_numbered_by_envelope(tmp_path: Path) -> None:
    ring = [message(1), message(1, tag=5), message(2), message(1), message(1, 0, RECEIVE), message(1)]
    found = written(tmp_path, ring)
    assert found["number"] == [1, 1, 1, 2, 1, 3]
    assert found["kind"] == ["send"] * 4 + ["receive", "send"]
    assert set(found["doubt"]) == {""} and found["posted"] == [1, 2, 3, 4, 5, 6]
    assert found["layer"] == ["mpi"] * 6 and found["group"] == ["MPI_COMM_WORLD"] * 6


def test_those_that_are_left_keep_their_numbers(tmp_path: Path) -> None:
    ring = [message(at % 3, tag=at % 2) for at in range(100)]
    found = written(tmp_path, ring, capacity=7)
    whole = written(tmp_path, ring)
    names = ("peer", "tag", "number", "posted")
    kept = sorted(zip(*(found[name] for name in names), strict=True), key=lambda row: row[-1])
    assert kept == list(zip(*(whole[name] for name in names), strict=True))[-7:]


def test_a_combined_call_is_a_send_and_a_receive(tmp_path: Path) -> None:
    both = message(1, 5, MessageFlag.COMBINED, source=3, source_tag=6, waited_ticks=77)
    alone = message(-2, 0, MessageFlag.COMBINED, source=3, source_tag=6, waited_ticks=78)  # MPI_PROC_NULL
    found = written(tmp_path, [both, alone])
    rows = zip(*(found[name] for name in ("kind", "peer", "tag", "bytes", "number", "waited_ns")), strict=True)
    assert list(rows) == [
        ("send", 1, 5, 8, 1, None), ("receive", 3, 6, 77, 1, None), ("receive", 3, 6, 78, 2, None),
    ]  # fmt: skip


def test_cancelled_ones_count_for_nothing(tmp_path: Path) -> None:
    found = written(tmp_path, [message(1, 0, RECEIVE | MessageFlag.CANCELLED), message(1, 0, RECEIVE)])
    assert found["number"] == [1]


@pytest.mark.parametrize(
    "first", [message(1, -1, RECEIVE, end_ticks=0), message(1, 3, RECEIVE | MessageFlag.FAILED)], ids=["open", "failed"]
)
def test_what_may_have_taken_a_message_puts_those_behind_it_in_doubt(tmp_path: Path, first: Row) -> None:
    """Those before it, those of other senders and tags, and sends are not concerned."""
    ring = [message(1, 3, RECEIVE), first, message(1, 3, RECEIVE), message(2, 3, RECEIVE), message(1, 3)]
    found = written(tmp_path, ring)
    assert found["number"] == [1, None, None, 1, 1]
    assert found["doubt"] == ["", messages.OPEN, messages.OPEN, "", ""]


def test_two_threads_on_one_envelope(tmp_path: Path) -> None:
    found = written(tmp_path, [message(1), message(2)], [message(1), message(3)])
    assert found["number"] == [None, 1, None, 1]
    assert found["doubt"] == [messages.THREADS, "", messages.THREADS, ""]


@pytest.mark.parametrize(
    ("counter", "doubt"),
    [("paused_calls", messages.PAUSED), ("lost_messages", messages.LOST), ("lost_envelopes", messages.OVERWRITTEN)],
)
def test_what_was_not_recorded_puts_all_in_doubt(tmp_path: Path, counter: str, doubt: str) -> None:
    found = written(tmp_path, [message(1), message(2)], **{counter: 1})
    assert found["doubt"] == [doubt, doubt]


def test_a_file_without_messages_has_none(tmp_path: Path) -> None:
    assert written(tmp_path) == {}
