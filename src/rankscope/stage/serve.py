"""A node that gives the bundle on to others while it is still getting it.

The first node knows everybody and tells each newcomer whom to ask: the nodes form a tree in which each has at most
FANOUT below it. A newcomer's call to the first node stays open until all are there, so that each node knows how many
it has to serve.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from rankscope.stage.bundle import BadBundle
from rankscope.stage.peers import SILENCE_S, Broken, Contact, answer_greeting, hear, say, send
from rankscope.stage.receive import CHUNK_FOLLOWS, REFUSED, keep_alive
from rankscope.stage.unpack import ChunksGone, Intake

FANOUT = 2
STACK_BYTES = 256 * 1024


class Service:
    """Answers the calls of other nodes in threads of its own."""

    def __init__(self, listening: socket.socket, contact: Contact, token: str, intake: Callable[[], Intake]) -> None:
        self.listening = listening
        self.contact = contact
        self.token = token
        self.intake = intake
        self.guard = threading.Lock()
        self.members: list[str] = [contact.text]  # those in the tree, by arrival
        self.held: list[tuple[int, socket.socket]] = []  # place in the tree, or -1, and the call that stays open
        self.ranks = 0
        self.refusal = ""
        self.decided = threading.Event()  # whether the bundle can be used: newcomers are told only then
        self.streams = 0
        self.served = 0
        self.sent_bytes = 0
        self.last_news = time.monotonic()
        threading.stack_size(STACK_BYTES)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        """One call, from greeting to end; a broken one harms nobody."""
        try:
            connection.settimeout(SILENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer_greeting(connection, self.token)
            message = hear(connection)
            if message.get("ask") == "join":
                self.join(connection, message)
                return
            self.stream(connection)
        except (Broken, ChunksGone, OSError, ValueError):
            pass
        connection.close()

    def join(self, connection: socket.socket, message: dict[str, Any]) -> None:
        """Tell a newcomer whom to ask, and keep its call."""
        self.decided.wait(SILENCE_S / 2)
        refused, place, parent = self.refusal, -1, ""
        with self.guard:
            self.last_news = time.monotonic()
            self.ranks += int(message.get("ranks") or 0)
            if message.get("wants") and not refused:
                place = len(self.members)
                self.members.append(str(message.get("contact")))
                parent = self.members[(place - 1) // FANOUT]
            self.held.append((place, connection))
        keep_alive(connection)
        say(connection, {"refused": refused} if refused else {"parent": parent})

    def close_meeting(self) -> None:
        """Tell everybody how many will come to him, and hang up."""
        with self.guard:
            held, self.held = self.held, []
            size = len(self.members)
        for place, connection in held:
            try:
                connection.settimeout(SILENCE_S)
                say(connection, {"children": children(place, size)})
            except (Broken, OSError):
                pass
            connection.close()

    def stream(self, connection: socket.socket) -> None:
        """The whole bundle, as far as it is here, and the rest as it comes."""
        with self.guard:
            self.streams += 1
        try:
            self.send_bundle(connection, self.found_intake())
        except BadBundle as error:
            send(connection, REFUSED)
            say(connection, {"reason": str(error)})
        finally:
            with self.guard:
                self.streams -= 1
                self.served += 1
                self.last_news = time.monotonic()

    def found_intake(self) -> Intake:
        try:
            return self.intake()
        except ChunksGone:
            if self.refusal:
                raise BadBundle(self.refusal) from None
            raise

    def send_bundle(self, connection: socket.socket, intake: Intake) -> None:
        """Each chunk is read at its place: the position of the file is not ours to move, others write to it."""
        send(connection, CHUNK_FOLLOWS, intake.head, intake.region)
        file = os.dup(intake.file)
        try:
            for number, (size, _) in enumerate(intake.manifest.chunks):
                intake.wait_for(number)
                send(connection, CHUNK_FOLLOWS, os.pread(file, size, intake.starts[number]))
                with self.guard:
                    self.sent_bytes += size
                    self.last_news = time.monotonic()
        finally:
            os.close(file)

    def stop(self) -> None:
        try:
            self.listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass
        self.listening.close()


def children(place: int, size: int) -> int:
    """How many a node at this place of a tree of this size has below it; -1 is no place."""
    first = place * FANOUT + 1
    return max(0, min(first + FANOUT, size) - first) if place >= 0 else 0
