"""Rank 0 sends to rank 1 and one of them comes late; both note their calls: late_messages.py FOLDER MS TIMES."""

import json
import sys
import time

from mpi4py import MPI

comm, late, times = MPI.COMM_WORLD, float(sys.argv[2]) / 1000, int(sys.argv[3])
LARGE = 1 << 22  # no MPI puts so much aside: the send waits for the receive
buffer = bytearray(LARGE)
noted = []  # of each message: posted, begin and end of the call that ended it, in ns of Unix time


def note(call, posted=None):
    begin = time.time_ns()
    call()
    noted.append((posted or begin, begin, time.time_ns()))


def meet(sender_late, receiver_late, size, nonblocking=False):
    comm.Barrier()
    if comm.rank == 0:
        time.sleep(late * sender_late)
        note(lambda: comm.Send(memoryview(buffer)[:size], 1, size % 100))
    elif comm.rank == 1 and nonblocking:
        posted = time.time_ns()
        request = comm.Irecv(buffer, 0, size % 100)
        time.sleep(late / 2)  # computes meanwhile
        note(request.Wait, posted)
    elif comm.rank == 1:
        time.sleep(late * receiver_late)
        note(lambda: comm.Recv(buffer, 0, size % 100))


for kind in ((1, 0, 8), (0, 1, LARGE), (0, 1, 8), (1, 0, 8, True)):
    for _ in range(times):
        meet(*kind)
with open(f"{sys.argv[1]}/{comm.rank}.json", "w") as out:
    json.dump(noted, out)
