"""A node among the nodes of its job: how it finds them, whom it asks, and how long they need it."""

import os
import socket
import threading
import time

from rankscope.stage.bundle import BadBundle, Header, read_manifest
from rankscope.stage.contact import Contact, call, listen
from rankscope.stage.intake import Intake
from rankscope.stage.messages import Broken, hear, say
from rankscope.stage.node import PART
from rankscope.stage.peers import Meeting, meet, meeting_folder
from rankscope.stage.receive import Bringing, receive
from rankscope.stage.serve import Service, children
from rankscope.stage.sources import SharedFile, keep_alive
from rankscope.stage.task import Task

LINGER_S = 30.0  # after the last newcomer, where it is not known how many are to come
LATE_S = 5.0  # the same where the first node is gone, or the job is over here
CHILD_S = 60.0  # a node that was told to ask us has so long to do so


class Company:
    """The other nodes, as this one knows them."""

    def __init__(self, task: Task, work: Bringing) -> None:
        self.task = task
        self.work = work
        listening, contact = listen()
        self.meeting = self.find_meeting(contact)
        self.service = Service(listening, contact, self.meeting.token, work.wait_for_intake)
        self.service.ranks = task.local_ranks or 0
        self.to_come: int | None = None  # nodes that will ask us; None: not known yet
        self.linger_s = LINGER_S
        self.open = True

    def find_meeting(self, contact: Contact) -> Meeting:
        """The bundle's header is read only where nobody has left a claim yet."""
        token = os.urandom(16).hex()

        def own() -> tuple[str, str, Contact]:
            shared = SharedFile(self.task.bundle, self.task.expected)
            shared.close()
            return shared.header.identity, token, contact

        folder = meeting_folder(self.task.bundle, self.task.meeting_folder)
        meeting = meet(self.task.bundle, folder, self.task.asking, own)
        if not meeting.identity.startswith(self.task.expected):
            raise BadBundle(f"it is {meeting.identity[:16]}…, not {self.task.expected[:16]}…")
        return meeting

    def decide(self, refusal: str = "") -> None:
        """Newcomers are told from now on, and what."""
        self.service.refusal = self.service.refusal or refusal
        self.service.decided.set()

    def join(self, wants: bool) -> str:
        """Whom to ask for the bundle, "" for the shared file; the call to the first node stays open in a thread."""
        try:
            connection = call(self.meeting.contact, self.meeting.token)
            ranks, contact = self.task.local_ranks, self.service.contact.text
            say(connection, {"ask": "join", "wants": wants, "ranks": ranks, "contact": contact})
            reply = hear(connection)
        except (OSError, Broken) as error:
            self.work.report["alone_because"] = f"the first node does not answer ({error})"
            self.to_come = 0  # nobody was told of us
            return ""
        if reply.get("refused"):
            self.to_come = 0
            raise BadBundle(str(reply["refused"]))
        keep_alive(connection)
        threading.Thread(target=self.wait_for_end, args=(connection,), daemon=True).start()
        return str(reply.get("parent", ""))

    def wait_for_end(self, connection: socket.socket) -> None:
        """The first node says how many will come to us when all are there."""
        try:
            self.to_come = int(hear(connection).get("children", 0))
        except (Broken, OSError, ValueError):
            self.linger_s = LATE_S  # it is gone: only those may come whom it has just told of us
        connection.close()

    def read_for_others(self, header: Header) -> Intake:
        """As the first node with a copy of its own: the bundle is read once somebody asks for it."""
        with self.service.guard:
            if not self.work.intake:
                shared = SharedFile(self.task.bundle, header.identity)
                path = f"{self.task.folder}/{PART}bundle-{header.key}-{self.work.user}"
                region = shared.region()
                self.work.intake = Intake(path, shared.head(), header, region, read_manifest(header, region))
                threading.Thread(target=receive, args=(self.work.intake, shared, "shared", None), daemon=True).start()
        return self.work.intake

    def needs_us(self, over_here: bool) -> bool:
        """Whether other nodes may still need us; asked again and again."""
        if not self.open:
            return False
        if over_here:
            self.linger_s = min(self.linger_s, LATE_S)  # hardly a node is still to come
        quiet_s = time.monotonic() - self.service.last_news
        if self.meeting.first and self.to_come is None and self.all_are_here(quiet_s):
            self.meeting.end()
            self.service.close_meeting()
            self.to_come = children(0, len(self.service.members))
        if self.to_come is None:
            over = quiet_s > self.linger_s
        else:
            over = self.service.served >= self.to_come or quiet_s > (LATE_S if over_here else CHILD_S)
        if over and not self.service.streams:
            self.open = False
            self.service.stop()
        return self.open

    def all_are_here(self, quiet_s: float) -> bool:
        ranks = self.task.place.ranks
        return (ranks is not None and self.service.ranks >= ranks) or quiet_s > self.linger_s
