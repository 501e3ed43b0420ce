"""Who sends to whom, who comes late, and what is missing in the log of messages?"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope.model.tables import Column, Table, Tables, Unit
from rankscope.questions.messages.matching import Messages, ends_left_out, message_blocks
from rankscope.questions.selection import ALL, Selection, arranged
from rankscope.questions.wording import ranges

MESSAGES_COLUMNS = (
    Column("sender", Unit.NAME, "From", "rank that sends; the pair with the longest wait comes first"),
    Column("receiver", Unit.NAME, "To", "rank that receives"),
    Column("messages", Unit.COUNT, "Messages", "matched messages between the two"),
    Column("bytes", Unit.BYTES, "Bytes", "sum of the bytes received"),
    Column(
        "wait_ns",
        Unit.NS,
        "Receiver's wait",
        "late senders: sum of the time that the receiver stood in its call before the send was posted, at most its time"
        " in the call; of a nonblocking receive only the call that completed it counts",
    ),
    Column(
        "send_wait_ns",
        Unit.NS,
        "Sender's wait",
        "late receivers: the same of the sender before the receive was posted; 0 of a send that ended before that,"
        " because its data were put aside",
    ),
    Column(
        "transfer_ns",
        Unit.NS,
        "Transfer",
        "sum of the receiver's time in the calls that ended its receives − `wait_ns`, or − the wait of the send in the "
        "same MPI_Sendrecv where that is longer",
    ),
    Column("late_sends", Unit.COUNT, "Late sends", "messages with `wait_ns` > 0 and more than the clocks' error"),
    Column("late_receives", Unit.COUNT, "Late receives", "messages with `send_wait_ns` > 0, likewise"),
    Column("error_ns", Unit.NS, "Clock uncertainty", "how much of either wait, more or less, may be the clocks' error"),
    Column(
        "late",
        Unit.NAME,
        "Late",
        "sender, receiver: who makes the other wait, if the wait is longer than the other's and than the clocks' error",
    ),
)
SUMS = ("messages", "bytes", "wait_ns", "send_wait_ns", "transfer_ns", "late_sends", "late_receives", "error_ns")


def messages(tables: Tables, selection: Selection = ALL) -> Table:
    """Point-to-point messages by sender and receiver, matched: wait for late senders and receivers, and transfer."""
    table = Table("messages", "Messages between ranks", MESSAGES_COLUMNS, [])
    sums: dict[tuple[int, int], Any] = {}
    for block in message_blocks(tables):
        for pair, added in _pairs(block):
            sums[pair] = sums[pair] + added if pair in sums else added
    wanted = selection.ranks
    rows = [
        _row(sender, receiver, dict(zip(SUMS, pair_sums.tolist(), strict=True)))
        for (sender, receiver), pair_sums in sums.items()
        if wanted is None or sender in wanted or receiver in wanted
    ]
    rows.sort(key=lambda row: (-row[4] - row[5], row[0], row[1]))
    table.rows += rows
    table.notes += _comment(rows)
    return arranged(table, selection)


def _pairs(block: Messages) -> list[tuple[tuple[int, int], Any]]:
    pairs, at = np.unique(np.stack([block.sender, block.receiver]), axis=1, return_inverse=True)
    at = at.reshape(-1)  # numpy 2.0 gives it another shape
    error = np.where(np.isfinite(block.error_ns), block.error_ns, np.maximum(block.wait_ns, block.send_wait_ns))
    columns = (
        np.ones(len(block)),
        block.bytes,
        block.wait_ns,
        block.send_wait_ns,
        block.transfer_ns,
        (block.wait_ns > 0) & (block.wait_ns > error),
        (block.send_wait_ns > 0) & (block.send_wait_ns > error),
        np.minimum(error, np.maximum(block.recv_blocked_ns, block.send_blocked_ns)),
    )
    sums = np.stack([np.bincount(at, column, pairs.shape[1]) for column in columns], axis=1)
    return [
        ((int(sender), int(receiver)), pair_sums) for (sender, receiver), pair_sums in zip(pairs.T, sums, strict=True)
    ]


def _row(sender: int, receiver: int, sums: dict[str, float]) -> tuple[Any, ...]:
    wait, send_wait, error = sums["wait_ns"], sums["send_wait_ns"], sums["error_ns"]
    late = "sender" if wait > send_wait else "receiver" if send_wait > wait else ""
    counts = [int(sums[name]) for name in ("messages", "bytes")]
    late_ones = [int(sums[name]) for name in ("late_sends", "late_receives")]
    late = late if max(wait, send_wait) > error else ""
    return (sender, receiver, *counts, wait, send_wait, sums["transfer_ns"], *late_ones, error, late)


def _comment(rows: list[tuple[Any, ...]]) -> list[str]:
    """The rank that makes the others wait longest in messages, if that is most of it."""
    caused: dict[int, float] = {}
    for sender, receiver, _, _, wait, send_wait, *_ in rows:
        caused[sender] = caused.get(sender, 0.0) + wait
        caused[receiver] = caused.get(receiver, 0.0) + send_wait
    total = sum(caused.values())
    if len(caused) < 2 or not total:
        return []
    rank, most = max(caused.items(), key=lambda item: item[1])
    if most < total / 2:
        return []
    share = 100 * most / total
    return [f"Most of the wait in messages is for rank {ranges([rank])}: {most / 1e9:.3g} s, {share:.0f} % of it."]


# ---------------------------------------------------------------- which messages are known?
COVERAGE_COLUMNS = (
    Column("what", Unit.NAME, "Messages", "matched, or why not; each end is counted on its own"),
    Column("sends", Unit.COUNT, "Sends", "sends in the logs of messages"),
    Column("receives", Unit.COUNT, "Receives", "receives in the logs of messages"),
    Column("share", Unit.SHARE, "Share", "`sends` + `receives` ÷ the sum of both over all rows"),
)
MATCHED = "matched"
OVERWRITTEN_SQL = """
    SELECT rank, overwritten_messages FROM ranks WHERE role = 'rank' AND overwritten_messages > 0 ORDER BY rank"""


def message_coverage(tables: Tables, selection: Selection = ALL) -> Table:
    """Sends and receives that were matched, and those that were not, by reason."""
    table = Table("message_coverage", "Messages matched", COVERAGE_COLUMNS, [])
    matched = sum(len(block) for block in message_blocks(tables))
    left_out = ends_left_out(tables)
    ends = {MATCHED: (matched, matched)} if matched else {}
    for why in sorted({why for _, why in left_out}):
        ends[why] = (left_out["send", why], left_out["receive", why])
    total = sum(map(sum, ends.values()))
    table.rows = [(what, *counts, sum(counts) / total) for what, counts in ends.items()]
    gone = tables.query(OVERWRITTEN_SQL)
    if gone:
        count, who = sum(row[1] for row in gone), ranges([row[0] for row in gone])
        table.notes.append(
            f"Only the newest are known of rank {who}: {count} sends and receives were overwritten (raise --log)."
        )
    return arranged(table, selection)
