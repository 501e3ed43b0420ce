"""Which ends of messages are held up by the other end: by all of their size, or by what happened to them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np

from rankscope.questions.messages import Messages
from rankscope.questions.whatif.message_calls import _by_both

MS = 1_000_000


def test_an_end_let_go_as_soon_as_the_other_came_was_held_up_by_it() -> None:
    """Four messages of a size: the sender comes to its wait at 30 ms, the receiver stands since 2; two end sooner.

    So half of them say that messages of this size move only while both ends are in the library: too few for all.
    """
    count = np.ones(4, np.int64)
    came, released = 30 * MS, np.array([31, 31, 9, 10]) * MS
    messages = SimpleNamespace(
        bytes=count << 20,
        send_begin_ns=count * MS,
        send_end_ns=count * (came + MS),
        send_blocked_ns=count * MS,
        recv_begin_ns=count * MS,
        recv_end_ns=released,
        recv_blocked_ns=released - 2 * MS,
        error_ns=np.zeros(4),
    )
    assert _by_both(cast(Messages, messages), "send", "recv").tolist() == [True, True, False, False]
