"""The one process per node and job that stays behind: it brings the copy, gives it on, and removes it at the end.

It has left the job's session and holds none of the job's files, so no launcher waits for it. The ranks become the
command as soon as the copy is there; when the last one is gone the keeper removes the copy. Where it is killed too, the
next job on the node finds the leftovers.
"""

import json
import os
import select
import threading
import time
from typing import Any

from rankscope.stage.bringing import Bringing, bring, check_original, receive, sealed
from rankscope.stage.bundle import BadBundle, Header, read_manifest
from rankscope.stage.contact import call, listen
from rankscope.stage.intake import Gone, Intake
from rankscope.stage.locks import Waited
from rankscope.stage.meeting import Meeting, meet, meeting_folder
from rankscope.stage.messages import Broken, hear, say
from rankscope.stage.misses import followed
from rankscope.stage.node import PART, NotUsable, leave, noted, remove, sweep, users
from rankscope.stage.serving import LINGER_S, Service, children
from rankscope.stage.sources import SharedFile, keep_alive
from rankscope.stage.task import Outcome, Task, node_name

ROUND_S, SLOW_ROUND_S = 0.2, 2.0
LATE_S = 5.0  # a rank of this node may come so much later than the last one left
CHILD_S = 60.0  # a node that was told to ask us has so long to do so


class Keeper:
    """One node's part of a job."""

    def __init__(self, task: Task, name: str, outlet: int) -> None:
        self.task = task
        self.name = name  # of the job's files in the folder
        self.outlet = outlet  # the rank that waits reads the outcome here
        self.work = Bringing(task)
        self.service: Service | None = None
        self.meeting: Meeting | None = None
        self.to_come: int | None = None  # children that will ask us; None: not known yet
        self.linger_s = LINGER_S  # how long we wait for them, where it is not known
        self.outcome = Outcome("", "nothing was done")

    def run(self) -> None:
        sweep(self.task.folder)
        self.outcome = self.try_to_bring()
        self.tell()
        self.attend()
        self.leave()

    def try_to_bring(self) -> Outcome:
        """The outcome, whatever happens: the job goes on in place where there is no copy."""
        try:
            return self.bring_alone() if self.task.alone else self.bring_with_others()
        except BadBundle as error:
            reason = f"{self.task.bundle} is refused: {error}"
            if self.service:
                self.service.refusal = str(error)
                self.service.decided.set()
        except (NotUsable, Gone, Broken) as error:
            reason = str(error)
        except Waited as error:
            reason = f"{error.filename}: {error.strerror}"
        except FileNotFoundError as error:
            reason = f"{error.filename}: no such file; make a bundle with rankscope stage ENV --record -- command"
        except OSError as error:
            reason = f"{error.filename or self.task.bundle}: {error.strerror or error}"
        except Exception as error:  # a mistake of ours is no reason to stop a job
            reason = f"{type(error).__name__}: {error}; please report this"
        self.work.arrived.set()
        return Outcome("", reason, {**self.work.report, "ready_ns": self.work.since_ns()})

    def bring_alone(self) -> Outcome:
        return bring(self.work, self.checked_header(), lambda: "", "")

    def checked_header(self) -> Header:
        """The bundle's header, if its manifest is sound and the original is still what was packed."""
        shared = SharedFile(self.task.bundle, self.task.expected)
        try:
            check_original(self.work, read_manifest(shared.header, shared.region()))
        finally:
            shared.close()
        return shared.header

    def bring_with_others(self) -> Outcome:
        """As the first node or as one that is told whom to ask."""
        try:
            self.meeting = self.find_meeting()
        except OSError as error:
            self.work.report["alone_because"] = str(error)
            return self.bring_alone()
        if self.service and self.meeting.first:
            self.service.ranks = self.task.local_ranks or 0
            self.header = self.checked_header()
            self.service.decided.set()
            outcome = bring(self.work, self.header, lambda: "", "")
            if self.work.report["reused"]:
                self.service.intake = self.read_for_others
            return outcome
        return self.bring_as_member(self.meeting)

    def find_meeting(self) -> Meeting:
        listening, contact = listen()
        folder = meeting_folder(self.task.bundle, self.task.meeting_folder)
        token = os.urandom(16).hex()

        def own() -> tuple[str, str, Any]:
            shared = SharedFile(self.task.bundle, self.task.expected)
            shared.close()
            self.header = shared.header
            return self.header.identity, token, contact

        meeting = meet(self.task.bundle, folder, self.task.asking, own)
        self.service = Service(listening, contact, meeting.token, self.work.wait_for_intake)
        return meeting

    def bring_as_member(self, meeting: Meeting) -> Outcome:
        if not meeting.identity.startswith(self.task.expected):
            raise BadBundle(f"it is {meeting.identity[:16]}…, not {self.task.expected[:16]}…")
        header = Header(meeting.identity, 0, 0, "", 0)
        parent: list[str] = []

        def ask() -> str:
            parent.append(self.join(meeting, True))
            return parent[0]

        outcome = bring(self.work, header, ask, meeting.token)
        if not parent:
            self.join(meeting, False)
        return outcome

    def join(self, meeting: Meeting, wants: bool) -> str:
        """Whom to ask for the bundle, "" for the shared file; the call stays open in a thread."""
        assert self.service
        try:
            connection = call(meeting.contact, meeting.token)
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

    def wait_for_end(self, connection: Any) -> None:
        """The first node says how many will come to us when all are there."""
        try:
            self.to_come = int(hear(connection).get("children", 0))
        except (Broken, OSError, ValueError):
            self.linger_s = LATE_S  # it is gone: only those may come whom it has just told of us
        connection.close()

    def read_for_others(self) -> Intake:
        """As the first node with a copy of its own: the bundle is read once somebody asks for it."""
        assert self.service
        with self.service.guard:
            if not self.work.intake:
                shared = SharedFile(self.task.bundle, self.header.identity)
                path = f"{self.task.folder}/{PART}bundle-{self.header.key}-{self.work.user}"
                region = shared.region()
                self.work.intake = Intake(path, shared.head(), self.header, region, read_manifest(self.header, region))
                threading.Thread(target=receive, args=(self.work.intake, shared, "shared", None), daemon=True).start()
        return self.work.intake

    def tell(self) -> None:
        """The rank that waits learns the outcome; a report goes to the folder of the times."""
        self.write_report(False)
        try:
            os.write(self.outlet, self.outcome.line.encode("utf-8", "surrogateescape"))
        except OSError:
            pass  # that rank is gone; others may come
        os.close(self.outlet)

    def write_report(self, ended: bool) -> None:
        """For `--times`: what this node did so far."""
        if not self.task.times:
            return
        report = {
            **self.outcome.report,
            "node": node_name(self.task.folder),
            "staged": bool(self.outcome.copy),
            "reason": self.outcome.reason,
            "ended": ended,
            "first": bool(self.meeting and self.meeting.first),
        }
        path = f"{self.task.times}/node-{node_name(self.task.folder)}.json"
        try:
            os.makedirs(self.task.times, exist_ok=True)
            with open(f"{path}.part", "w", encoding="utf-8") as file:
                json.dump(report, file)
            os.replace(f"{path}.part", path)
        except OSError:
            pass  # a report is no reason to stop

    def attend(self) -> None:
        """Until the job has left this node and no other node needs us."""
        last_seen = time.monotonic()
        expected = self.task.local_ranks if self.task.place.shared else 1
        while True:
            here = [user for user in users(self.outcome.copy, f"{self.task.job}-") if user != self.work.user]
            came = len(noted(self.outcome.copy, f"{self.task.job}-")) - 1
            if here:
                last_seen = time.monotonic()
            all_came = expected is not None and came >= expected
            if all_came and not here:
                self.linger_s = min(self.linger_s, LATE_S)  # the job is over here, so hardly a node is still to come
            serving = self.is_serving()
            if not serving and not here and (all_came or time.monotonic() - last_seen > LATE_S):
                return
            wait_for_one(here, ROUND_S if serving or not here else SLOW_ROUND_S)

    def is_serving(self) -> bool:
        """Whether other nodes may still need us; once not, the bundle itself is removed."""
        service = self.service
        if not service:
            self.end_serving()
            return False
        quiet_s = time.monotonic() - service.last_news
        if self.meeting and self.meeting.first and self.to_come is None:
            ranks = self.task.place.ranks
            if (ranks is not None and service.ranks >= ranks) or quiet_s > self.linger_s:
                self.meeting.end()
                service.close_meeting()
                self.to_come = children(0, len(service.members))
        if self.to_come is None:
            over = quiet_s > self.linger_s
        else:
            over = service.served >= self.to_come or quiet_s > CHILD_S
        if over and not service.streams:
            service.stop()
            self.outcome.report.update(sent_bytes=service.sent_bytes, served_nodes=service.served)
            self.service = None
            self.end_serving()
        return self.service is not None

    def end_serving(self) -> None:
        if self.work.intake:
            self.work.intake.discard()

    def leave(self) -> None:
        """Count what came from the original place, then go; the last user takes the copy away."""
        if not self.outcome.copy:
            self.write_report(True)
            return
        try:
            links = followed(sealed(self.outcome.copy), self.outcome.copy)
        except (OSError, BadBundle):
            links = None
        self.outcome.report["original_files"] = None if links is None else len(links)
        self.outcome.report["original_names"] = (links or [])[:1000]
        if leave(self.task.folder, self.outcome.copy, f"{self.task.job}-", self.work.user):
            for path in (f"{self.name}.done", f"{self.name}.lock", f"{self.task.folder}/build-{self.work.key}"):
                remove(path)
        self.write_report(True)


def wait_for_one(names: list[str], longest_s: float) -> None:
    """Until one of these processes ends, or so long."""
    handles = []
    for name in names:
        try:
            handles.append(os.pidfd_open(int(name.rpartition("-")[2].partition(".")[0])))
        except (OSError, AttributeError, ValueError):
            continue  # an old kernel, or gone already: the time decides
    waiting = select.poll()
    for handle in handles:
        waiting.register(handle, select.POLLIN)
    waiting.poll(longest_s * 1000)
    for handle in handles:
        os.close(handle)
