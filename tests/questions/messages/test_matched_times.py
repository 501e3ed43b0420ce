"""Wait and transfer of matched messages whose times are given."""

from __future__ import annotations

import numpy as np

from rankscope.model.tables import Words
from rankscope.questions.messages import Messages


def messages(*rows: tuple[int, int, float, float, float, float, int, int]) -> Messages:
    """Blocking: sender, receiver, begin and end of the send and of the receive, and as which record each was posted."""
    columns = np.array(rows, float).T
    sender, receiver, send_posted, recv_posted = (columns[at].astype(np.int64) for at in (0, 1, 6, 7))
    send_begin, send_end, recv_begin, recv_end = columns[2:6].astype(np.int64)
    zero = np.zeros(len(rows), np.int64)
    times = (send_begin, send_end, recv_begin, recv_end, send_end - send_begin, recv_end - recv_begin)
    about = (Words(zero, ["world"]), zero, zero + 8)
    return Messages(sender, receiver, *about, *times, send_posted, recv_posted, zero, zero, zero.astype(float))


def test_a_receive_of_sendrecv_is_not_the_wait_of_its_send() -> None:
    """Rank 1 stands in MPI_Sendrecv from 0 to 100: what it receives is there at 10, whom it sends to comes at 90."""
    found = messages((0, 1, 10, 12, 0, 100, 1, 5), (1, 2, 0, 100, 90, 101, 5, 1))
    assert found.wait_ns.tolist() == [10, 0] and found.send_wait_ns.tolist() == [0, 90]
    assert found.transfer_ns.tolist() == [10, 11]  # not 90


def test_of_two_calls_each_has_its_own_time() -> None:
    """The same with a receive, and then a send, of their own."""
    found = messages((0, 1, 10, 12, 0, 20, 1, 5), (1, 2, 20, 100, 90, 101, 6, 1))
    assert found.transfer_ns.tolist() == [10, 11] and found.send_wait_ns.tolist() == [0, 70]
