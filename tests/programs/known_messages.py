"""Sends messages of every kind, in a random order, and writes down who got which: known_messages.py FOLDER SEED ROUNDS.

Every message carries who sent it and how many sends and receives that rank had posted by then, so the pairs are known
whatever the MPI does.
"""

import json
import random
import struct
import sys

from mpi4py import MPI

BYTES = 16
comms = [MPI.COMM_WORLD, MPI.COMM_WORLD.Dup()]
me, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
comms.append(MPI.COMM_WORLD.Split(me % 2, size - me))  # others, and in the other order
posted = 0  # sends and receives so far
received = []  # of each receive: sender, its number, own number, tag
finish = []  # what is to be done at the end of a round


def post():
    global posted
    posted += 1
    return posted


def payload():
    return bytearray(struct.pack("<qq", me, post()))


def expect():
    """A place in the order of posting, and a buffer."""
    return post(), bytearray(BYTES)


def got(place, buffer, tag):
    received.append([*struct.unpack("<qq", buffer), place, tag])


def later(request, buffer=None, place=None, tag=None):
    finish.append((request, buffer, place, tag))


def send(rng, comm, to, tag):
    kind = rng.choice(["Send", "Isend", "Issend", "Ssend", "Bsend", "persistent", "Isend", "Rsend"])
    buffer = payload()
    if kind in ("Send", "Ssend", "Bsend", "Rsend"):
        getattr(comm, kind)(buffer, to, tag)
    elif kind == "persistent":
        request = comm.Send_init(buffer, to, tag)
        request.Start()
        later(request, buffer)
    else:
        later(getattr(comm, kind)(buffer, to, tag), buffer)


def receive_later(rng, comm, source, tag):
    place, buffer = expect()
    if rng.random() < 0.3:
        request = comm.Recv_init(buffer, source, tag)
        request.Start()
        later(request, buffer, place, tag)
    else:
        later(comm.Irecv(buffer, source, tag), buffer, place, tag)


def receive(rng, comm, source, tag):
    """Blocking; with wildcards what comes may be another message than the one that was meant."""
    kind, status = rng.choice(["Recv", "ignored", "probe", "mprobe", "improbe", "imrecv"]), MPI.Status()
    if kind in ("mprobe", "improbe", "imrecv"):
        place, buffer = expect()
        message = None if kind == "improbe" else comm.Mprobe(source, tag, status)
        while message is None:
            message = comm.Improbe(source, tag, status)
        if kind == "imrecv":
            later(message.Irecv(buffer), buffer, place, status.tag)
        else:
            message.Recv(buffer)
            got(place, buffer, status.tag)
        return
    if kind == "probe":
        comm.Probe(source, tag, status)
        source, tag = status.source, status.tag
    place, buffer = expect()
    comm.Recv(buffer, source, tag, None if kind == "ignored" else status)
    got(place, buffer, None if kind == "ignored" else status.tag)


def complete(rng):
    """All that is under way, in any order and by any call of the family."""
    rng.shuffle(finish)
    while finish:
        some, finish[:] = finish[:3], finish[3:]
        requests = [request for request, *_ in some]
        kind = rng.choice(["Wait", "Waitall", "Test", "Waitany", "Waitsome"])
        if kind == "Waitall":
            MPI.Request.Waitall(requests)
        elif kind == "Wait":
            for request in requests:
                request.Wait()
        elif kind == "Test":
            for request in requests:
                while not request.Test():
                    pass
        elif kind == "Waitany":
            for _ in requests:
                MPI.Request.Waitany(requests)
        else:
            left = len(requests)
            while left:
                left -= len(MPI.Request.Waitsome(requests) or [])
        for (_, buffer, place, tag), done in zip(some, requests, strict=True):
            if place is not None:
                got(place, buffer, tag)
            if done != MPI.REQUEST_NULL:
                done.Free()


def round_of(rng, own, number):
    """Posted receives first, so that synchronous and ready sends find them; then sends; then blocking receives."""
    comm, wildcards, blocking = comms[rng.randrange(3)], rng.random() < 0.5, number % 2
    plan = [(rng.randrange(size), rng.randrange(size), rng.randrange(3)) for _ in range(rng.randrange(1, 12))]
    plan = [(source, to, tag) for source, to, tag in plan if source < comm.size and to < comm.size]
    mine = [(source, tag) for source, to, tag in plan if to == comm.rank]
    for source, tag in mine if not blocking else ():
        receive_later(own, comm, MPI.ANY_SOURCE if wildcards else source, tag)
    MPI.COMM_WORLD.Barrier()
    for source, to, tag in plan:
        if source == comm.rank and blocking:
            buffer = payload()
            later(comm.Isend(buffer, to, tag), buffer)
        elif source == comm.rank:
            send(own, comm, to, tag)
    for source, tag in mine if blocking else ():
        receive(own, comm, *((MPI.ANY_SOURCE, MPI.ANY_TAG) if wildcards else (source, tag)))
    complete(own)
    MPI.COMM_WORLD.Barrier()


def ring(comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    own, place, buffer = payload(), posted, bytearray(BYTES)  # posted together
    comm.Sendrecv(own, right, 5, buffer, left, 5)
    got(place, buffer, 5)
    buffer, place = payload(), posted
    comm.Sendrecv_replace(buffer, right, 6, MPI.ANY_SOURCE, 6)
    got(place, buffer, 6)
    comm.Send(b"nothing", MPI.PROC_NULL, 1)
    comm.Recv(bytearray(8), MPI.PROC_NULL, 1)
    post()
    comm.Irecv(bytearray(8), MPI.PROC_NULL, 1).Wait()
    post()
    request = comm.Irecv(bytearray(8), left, 99)  # nobody sends that
    request.Cancel()
    request.Wait()


def main():
    folder, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    MPI.Attach_buffer(bytearray(1 << 20))
    common, own = random.Random(seed), random.Random(seed * 1000 + me)
    for number in range(rounds):
        round_of(common, own, number)
        ring(comms[number % 3])
    with open(f"{folder}/{me}.json", "w") as out:
        json.dump(received, out)
    MPI.Detach_buffer()


main()
