"""The calls in which a rank posts messages and stands for them, and whom each of them waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rankscope.questions.collectives.wait_and_transfer import Collectives
from rankscope.questions.messages import Messages

Array = Any  # of numpy
TELLING_NS = 1_000_000  # by which one end comes later than both were posted: less may be chance
BY_BOTH = 0.8  # of such messages
AT_ONCE_NS = 3 * TELLING_NS  # after the other has come: such an end was held up by it, whatever others of its size do
MOST_BYTES = np.iinfo(np.int64).max  # none is so large


@dataclass(slots=True)
class Calls:
    """C calls that post or end messages: a blocking one does both, one for several requests ends all of them at once.

    Each end that a call waits for is one of M pairs of calls: it cannot return before the other has been entered.
    """

    place: Array  # C: of the rank
    enter: Array  # C: since Log.base_ns
    leave: Array  # C: NaN where it ends nothing
    waits: Array  # M: the calls that wait
    awaited: Array  # M: and the calls, of another rank, that they wait for
    step: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # C: -1 where in none
    round: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # C: how many before it in the step end some
    which: Array = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )  # C: and how many since then only post; -1: it ends

    def ready(self, used: Array) -> Array:
        """C: from when on a call waits for nobody, by the pairs that are used."""
        times = self.enter.copy()
        np.maximum.at(times, self.waits[used], self.enter[self.awaited[used]])
        return times


def calls_of(messages: Messages, known: Collectives) -> Calls:
    """All calls of a run that have to do with messages."""
    place = np.full(max(known.log.ranks) + 1, -1)
    place[list(known.log.ranks)] = np.arange(len(known.log.ranks))
    base = known.log.base_ns
    ends = (
        (messages.sender, messages.send_begin_ns, messages.send_end_ns, messages.send_blocked_ns),
        (messages.receiver, messages.recv_begin_ns, messages.recv_end_ns, messages.recv_blocked_ns),
    )
    posted = [(place[rank], begin - base) for rank, begin, _, _ in ends]
    ended = [(place[rank], end - base - blocked) for rank, _, end, blocked in ends]
    both = np.concatenate([np.stack(arrays) for arrays in (*posted, *ended)], axis=1)
    calls, at = np.unique(both, axis=1, return_inverse=True)
    send_post, recv_post, send_call, recv_call = at.reshape(4, -1)
    leave = np.full(calls.shape[1], np.nan)
    for call, (_, _, end, _) in zip((send_call, recv_call), ends, strict=True):
        np.fmax.at(leave, call, (end - base).astype(np.float64))
    # what is too large to be put aside is moved while both ends are in the library, or by one of them for both
    large, by_receiver, by_sender = (
        _too_large(messages),
        _by_both(messages, "recv", "send"),
        _by_both(messages, "send", "recv"),
    )
    held = np.flatnonzero(large | by_receiver)
    send_awaits = np.where(by_receiver, recv_call, recv_post)[held]
    recv_awaits = np.where(by_sender, send_call, send_post)
    waits, awaited = np.concatenate([recv_call, send_call[held]]), np.concatenate([recv_awaits, send_awaits])
    return Calls(calls[0], calls[1].astype(np.float64), leave, waits, awaited)


def _too_large(messages: Messages) -> Array:
    """Sends that last until the receive is posted: longer than any that was seen to be put aside, if any lasts.

    What a library does with a size it does whenever such a message is sent: one that found its receiver there would
    have waited for it, too.
    """
    large = messages.bytes > _largest_aside(messages)
    stands = messages.send_end_ns - messages.send_blocked_ns
    lasts = (stands < messages.recv_begin_ns) & (messages.recv_begin_ns <= messages.send_end_ns)
    return large & (messages.bytes >= np.min(messages.bytes, where=large & lasts, initial=MOST_BYTES))


def _largest_aside(messages: Messages) -> int:
    aside = messages.send_end_ns < messages.recv_begin_ns - np.where(
        np.isfinite(messages.error_ns), messages.error_ns, np.inf
    )
    return int(np.max(messages.bytes, where=aside, initial=-1))


def _by_both(messages: Messages, late: str, held: str) -> Array:
    """Of which messages one end, held up in its call, is let go only when the other, posted before, comes to its call.

    By size: from the least on of which, as of all larger ones, nearly all that tell it say so; of other sizes those
    that are let go as soon as the other comes.
    """
    held_end, late_end = getattr(messages, f"{held}_end_ns"), getattr(messages, f"{late}_end_ns")
    came, stood = late_end - getattr(messages, f"{late}_blocked_ns"), held_end - getattr(messages, f"{held}_blocked_ns")
    telling = came - np.maximum(stood, getattr(messages, f"{late}_begin_ns")) > TELLING_NS
    telling &= messages.bytes > _largest_aside(messages)
    sizes, of_size = np.unique(messages.bytes[telling], return_inverse=True)
    share = np.bincount(of_size, (held_end >= came)[telling]) / np.maximum(np.bincount(of_size), 1)
    says_so = np.logical_and.accumulate((share >= BY_BOTH)[::-1])[::-1]
    at_once = telling & (held_end >= came) & (held_end - came < AT_ONCE_NS)
    return at_once | (messages.bytes >= np.min(sizes, where=says_so, initial=MOST_BYTES))


def number_calls(of: Calls, steps: int) -> None:
    """What makes calls of different ranks the same: which wait of the step it is, or which posting before that wait.

    Ranks at the edge post less than others and still wait as often.
    """
    order = np.lexsort((of.enter, of.step, of.place))
    new = np.diff(of.place[order] * (steps + 1) + of.step[order], prepend=-2) != 0
    ends = np.isfinite(of.leave[order])
    before = np.cumsum(ends) - ends  # how many of all end some
    first = np.flatnonzero(new)[np.cumsum(new) - 1]
    after_end = np.concatenate([[True], ends[:-1]]) | new
    since = np.arange(len(order)) - np.flatnonzero(after_end)[np.cumsum(after_end) - 1]
    of.round, of.which = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    of.round[order] = before - before[first]
    of.which[order] = np.where(ends, -1, since)
