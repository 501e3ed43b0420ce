"""Rank 0 and rank 1 send each other large and small messages, and one of them comes late: late_messages.py MS TIMES."""

import sys
import time

from mpi4py import MPI

comm, late, times = MPI.COMM_WORLD, float(sys.argv[1]) / 1000, int(sys.argv[2])
LARGE = 1 << 22  # no MPI puts so much aside: the send waits for the receive
buffer = bytearray(LARGE)


def meet(sender_late, receiver_late, size, nonblocking=False):
    comm.Barrier()
    tag = 1 if sender_late else 2
    if comm.rank == 0:
        time.sleep(late * sender_late)
        comm.Send(buffer[:size], 1, tag)
    elif comm.rank == 1 and nonblocking:
        request = comm.Irecv(buffer, 0, tag)
        time.sleep(late / 2)  # computes meanwhile
        request.Wait()
    elif comm.rank == 1:
        time.sleep(late * receiver_late)
        comm.Recv(buffer, 0, tag)


for _ in range(times):
    meet(1, 0, 8)
for _ in range(times):
    meet(0, 1, LARGE)
for _ in range(times):
    meet(0, 1, 8)
for _ in range(times):
    meet(1, 0, 8, nonblocking=True)
