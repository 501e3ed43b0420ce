"""The point-to-point messages in a rank file: every send and receive, with its number among those of its envelope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rankscope import rank_file
from rankscope.model.records import PHASES
from rankscope.model.tables import Words
from rankscope.rank_file import ChunkKind, MessageFlag, Rows
from rankscope.rank_files.chunks import RankFile, copy_rows
from rankscope.rank_files.clock import Clock

KINDS = ("send", "receive")
# Why the number of a message is not known: it is counted and matched with nothing.
SURE = ""
OPEN = "a failed call, or a wildcard receive that is not complete, may have taken its place"
THREADS = "sent or received by several threads, whose order is not known"
OVERWRITTEN = "too many envelopes were overwritten to keep count of each"
LOST = "the messages of a thread did not fit"
PAUSED = "recording was paused in the process"
DOUBTS = (SURE, OPEN, THREADS, OVERWRITTEN, LOST, PAUSED)
MOST_LOOKED_AT = 64  # open places that are looked at one by one; of more the first of a group counts for all
READ_TRIES = 5
ANY = np.iinfo(np.int32).min
LOST_ROW = np.dtype([(name, "i8") for name in ("side", "peer", "tag", "thread", "messages")])  # side: group and kind


def message_columns(
    file: RankFile, clock: Clock, strings: Sequence[str], labels: Sequence[str], layers: Sequence[str]
) -> dict[str, Any]:
    """The ends of messages that the rings of one process hold, as columns of MessageEnd."""
    rows, lost = _settled(file)
    if not len(rows["number"]):
        return {}
    rows = _apart(_kept(rows, len(strings), len(labels)))
    flags = rows["flags"]
    receives, nonblocking = (flags & MessageFlag.RECEIVE) != 0, (flags & MessageFlag.NONBLOCKING) != 0
    number, doubt = _numbers(rows, lost, file.header)
    return {
        "layer": Words(rows["layer"].astype(np.int32), layers),
        "name": Words(rows["name"].astype(np.int32), strings),
        "kind": Words(receives.astype(np.int32), KINDS),
        "group": Words(rows["group"].astype(np.int32), labels),
        "peer": np.ma.masked_array(rows["peer"].astype(np.int64), rows["peer"] < 0),
        "tag": np.ma.masked_array(rows["tag"].astype(np.int64), rows["tag"] < 0),
        "number": np.ma.masked_array(number, doubt != 0),
        "doubt": Words(doubt, DOUBTS),
        "begin_ns": clock.unix_ns(rows["begin_ticks"]),
        "end_ns": np.ma.masked_array(clock.unix_ns(rows["end_ticks"]), rows["end_ticks"] == 0),
        "waited_ns": np.ma.masked_array((rows["waited_ticks"] * clock.ns_per_tick).astype(np.int64), ~nonblocking),
        "bytes": np.minimum(rows["bytes"], np.uint64(2**63 - 1)).astype(np.int64),
        "phase": Words(rows["phase"].astype(np.int32), PHASES),
        "thread": rows["thread"].astype(np.int32),
        "posted": rows["number"],
    }


def overwritten_messages(file: RankFile) -> int:
    """Records that have made room for newer ones."""
    numbers = [part.rows["number"] for part in file.parts(ChunkKind.MESSAGES)]
    return sum(max(0, int(ring.max(initial=0)) - int(np.count_nonzero(ring))) for ring in numbers) % 2**63


def _settled(file: RankFile) -> tuple[dict[str, Any], Rows]:
    """The rings and what was overwritten in them, of one moment: in a running process both go on."""
    for _ in range(READ_TRIES):
        before = _overwritten(file)
        rows = _ring_rows(file)
        after = _overwritten(file)
        if np.array_equal(before, after):
            break
    return rows, after


def _ring_rows(file: RankFile) -> dict[str, Any]:
    """All records, with the thread and the place in the order of posting of each."""
    rows, threads, places = [np.zeros(0, rank_file.MESSAGE)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for part in file.parts(ChunkKind.MESSAGES):
        ring, unsettled = copy_rows(part.rows, "number", zero_is_busy=True)
        numbers = (ring["number"] & np.uint64(2**62 - 1)).astype(np.int64)
        settled = ~unsettled & (numbers > 0) & ((numbers - 1) % max(1, len(ring)) == np.arange(len(ring)))
        rows.append(ring[settled])
        places.append(numbers[settled])
        threads.append(np.full(int(settled.sum()), part.thread, np.int64))
    joined = np.concatenate(rows)
    columns = {name: joined[name] for name in rank_file.MESSAGE.names or () if name != "number"}
    return {**columns, "thread": np.concatenate(threads), "number": np.concatenate(places)}


def _overwritten(file: RankFile) -> Rows:
    """Messages of each envelope that are in a ring no longer, with the thread's slot."""
    lost = [np.zeros(0, LOST_ROW)]
    for part in file.parts(ChunkKind.OVERWRITTEN):
        used = part.rows[part.rows["key"] != 0]
        rows = np.zeros(len(used), LOST_ROW)
        for name in ("peer", "tag", "messages"):
            rows[name] = used[name]
        key = used["key"].astype(np.int64)
        rows["side"] = (key >> 16 & 0xFFFF) << 1 | (key >> 56 & 1)
        rows["thread"] = part.thread
        lost.append(rows)
    return np.concatenate(lost)


def _kept(rows: dict[str, Any], strings: int, groups: int) -> dict[str, Any]:
    """Without what was cancelled, and what a damaged file names."""
    good = (rows["flags"] & MessageFlag.CANCELLED) == 0
    good &= (rows["name"] < strings) & (rows["group"] < groups) & (rows["phase"] < len(PHASES))
    good &= rows["layer"] <= max(rank_file.LayerNumber)
    return {name: values[good] for name, values in rows.items()}


def _apart(rows: dict[str, Any]) -> dict[str, Any]:
    """A send and a receive of each combined call, either of which may be none."""
    combined = (rows["flags"] & MessageFlag.COMBINED) != 0
    sends = ~combined | (rows["peer"] >= 0)
    receives = np.flatnonzero(combined & (rows["source"] >= 0))
    second = {name: values[receives] for name, values in rows.items()}
    second |= {"peer": second["source"], "tag": second["source_tag"], "bytes": second["waited_ticks"]}
    second["flags"] = second["flags"] | np.uint8(MessageFlag.RECEIVE)
    return {name: np.concatenate([values[sends], second[name]]) for name, values in rows.items()}


def _doubt_of_all(header: Any) -> int:
    if header["paused_calls"]:
        return DOUBTS.index(PAUSED)
    return DOUBTS.index(LOST) if header["lost_messages"] else 0


def _numbers(rows: dict[str, Any], lost: Rows, header: Any) -> tuple[Any, Any]:
    """The number of each in its envelope, and why it is not known."""
    doubt = np.full(len(rows["number"]), _doubt_of_all(header), np.int32)
    receives = (rows["flags"] & MessageFlag.RECEIVE).astype(np.int64)
    untold = (rows["end_ticks"] == 0) & (receives != 0) & ((rows["peer"] < 0) | (rows["tag"] < 0))
    is_open = untold | ((rows["flags"] & MessageFlag.FAILED) != 0)
    side = rows["group"].astype(np.int64) << 1 | receives
    _mark_open(rows, side, is_open, doubt)
    numbers = np.zeros(len(doubt), np.int64)
    envelope, envelopes = _envelopes(rows, side, lost)
    counted = envelope[: len(doubt)]
    order = np.lexsort((rows["number"], rows["thread"], counted))
    order = order[~is_open[order]]
    first = np.diff(counted[order], prepend=-1) != 0
    begins = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0)) if len(order) else order
    numbers[order] = np.arange(len(order)) - begins + 1
    gone = np.bincount(envelope[len(doubt) :], lost["messages"], envelopes).astype(np.int64)
    numbers += gone[counted]
    threads = np.concatenate([rows["thread"], lost["thread"]])
    lowest, highest = np.full(envelopes, 2**40), np.full(envelopes, -1)
    np.minimum.at(lowest, envelope, threads)
    np.maximum.at(highest, envelope, threads)
    doubt[(doubt == 0) & (lowest != highest)[counted]] = DOUBTS.index(THREADS)
    has_row = np.bincount(envelope[len(doubt) :], minlength=envelopes) > 0
    _mark_overwritten(side, lost, has_row[counted], int(header["lost_envelopes"]), doubt)
    return numbers, doubt


def _envelopes(rows: dict[str, Any], side: Any, lost: Rows) -> tuple[Any, int]:
    """A number for each envelope, of the records and then of what was overwritten."""
    sides, peers, tags = (
        np.concatenate([ours.astype(np.int64), theirs.astype(np.int64)])
        for ours, theirs in ((side, lost["side"]), (rows["peer"], lost["peer"]), (rows["tag"], lost["tag"]))
    )
    _, pair = np.unique((sides << 32) + (peers + 2**31), return_inverse=True)
    _, envelope = np.unique((pair.astype(np.int64) << 32) + (tags + 2**31), return_inverse=True)
    return envelope, int(envelope.max(initial=-1)) + 1


def _mark_open(rows: dict[str, Any], side: Any, is_open: Any, doubt: Any) -> None:
    """From an open place on, nobody knows the numbers of what could have been there; nor those of other threads."""
    places = np.flatnonzero(is_open)
    if len(places) > MOST_LOOKED_AT:
        doubt[(doubt == 0) & np.isin(side, side[places])] = DOUBTS.index(OPEN)
        return
    for at in places.tolist():
        peer, tag = rows["peer"][at], rows["tag"][at]
        could_be_there = (side == side[at]) & ((rows["peer"] == peer) | (peer < 0)) & ((rows["tag"] == tag) | (tag < 0))
        later = (rows["thread"] != rows["thread"][at]) | (rows["number"] >= rows["number"][at])
        doubt[(doubt == 0) & could_be_there & later] = DOUBTS.index(OPEN)


def _mark_overwritten(side: Any, lost: Rows, has_row: Any, lost_envelopes: int, doubt: Any) -> None:
    """Where overwritten ones were of an unknown envelope, or there was no row to count them in."""
    sides, any_envelope = lost["side"], (lost["peer"] == ANY) & (lost["tag"] == ANY)
    for side_number in np.unique(sides[any_envelope]).tolist():
        if lost["messages"][any_envelope & (sides == side_number)].sum() > 0:
            doubt[(doubt == 0) & (side == side_number)] = DOUBTS.index(OPEN)
    if lost_envelopes:
        doubt[(doubt == 0) & ~has_row] = DOUBTS.index(OVERWRITTEN)
