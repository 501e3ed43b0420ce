"""The one process per node and job that stays behind: it brings the copy, gives it on, and removes it at the end.

It has left the job's session and holds none of the job's files, so no launcher waits for it. The ranks become the
command as soon as the copy is there; when the last one is gone the keeper removes the copy. Where it is killed too, the
next job on the node finds the leftovers.
"""

import json
import os
import select
import socket
import threading
import time

from rankscope.stage.bundle import BadBundle, Header, read_manifest
from rankscope.stage.node import PART, NotUsable, Waited, followed, leave, noted, remove, sweep, users
from rankscope.stage.peers import Broken, Contact, Meeting, call, hear, listen, meet, meeting_folder, say
from rankscope.stage.receive import Bringing, SharedFile, bring, check_original, keep_alive, receive_all, sealed
from rankscope.stage.serve import Service, children
from rankscope.stage.task import StageOutcome, StageTask, node_name
from rankscope.stage.unpack import ChunksGone, Intake

# ---------------------------------------------------------------------------------------------------------------------
# A node among the nodes of its job: how it finds them, whom it asks, and how long they need it.
LINGER_S = 30.0  # after the last newcomer, where it is not known how many are to come
LATE_S = 5.0  # the same where the first node is gone, or the job is over here
CHILD_S = 60.0  # a node that was told to ask us has so long to do so


class Company:
    """The other nodes, as this one knows them."""

    def __init__(self, task: StageTask, work: Bringing) -> None:
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

        def own_contact() -> tuple[str, str, Contact]:
            shared = SharedFile(self.task.bundle, self.task.expected)
            shared.close()
            return shared.header.identity, token, contact

        folder = meeting_folder(self.task.bundle, self.task.meeting_folder)
        meeting = meet(self.task.bundle, folder, self.task.asking, own_contact)
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
                threading.Thread(
                    target=receive_all, args=(self.work.intake, shared, "shared", None), daemon=True
                ).start()
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


# ---------------------------------------------------------------- node daemon
ROUND_S, SLOW_ROUND_S = 0.2, 2.0
MOST_NAMES = 1000


class Keeper:
    """One node's part of a job."""

    def __init__(self, task: StageTask, name: str, outlet: int) -> None:
        self.task = task
        self.name = name  # of the job's files in the folder
        self.outlet = outlet  # the rank that waits reads the outcome here
        self.work = Bringing(task)
        self.company: Company | None = None
        self.outcome = StageOutcome("", "nothing was done")

    def run(self) -> None:
        sweep(self.task.folder)
        self.outcome = self.try_to_bring()
        self.tell()
        self.attend()
        self.leave()

    def try_to_bring(self) -> StageOutcome:
        """The outcome, whatever happens: the job goes on in place where there is no copy."""
        refusal = ""
        try:
            return self.bring_alone() if self.task.alone else self.bring_with_others()
        except BadBundle as error:
            refusal = str(error)
            reason = f"{self.task.bundle} is refused: {error}"
        except (NotUsable, ChunksGone, Broken) as error:
            reason = str(error)
        except Waited as error:
            reason = f"{error.filename}: {error.strerror}"
        except FileNotFoundError as error:
            reason = f"{error.filename}: no such file; make a bundle with rankscope stage ENV --record -- command"
        except OSError as error:
            reason = f"{error.filename or self.task.bundle}: {error.strerror or error}"
        except Exception as error:  # a mistake of ours is no reason to stop a job
            reason = f"{type(error).__name__}: {error}; please report this"
        if self.company:
            self.company.decide(refusal)
        self.work.arrived.set()
        return StageOutcome("", reason, {**self.work.report, "ready_ns": self.work.since_ns()})

    def bring_alone(self) -> StageOutcome:
        return bring(self.work, self.checked_header(), lambda: "", "")

    def checked_header(self) -> Header:
        """The bundle's header, if its manifest is sound and the original is still what was packed."""
        shared = SharedFile(self.task.bundle, self.task.expected)
        try:
            check_original(self.work, read_manifest(shared.header, shared.region()))
        finally:
            shared.close()
        return shared.header

    def bring_with_others(self) -> StageOutcome:
        """As the first node or as one that is told whom to ask."""
        try:
            self.company = Company(self.task, self.work)
        except OSError as error:
            self.work.report["alone_because"] = str(error)
            return self.bring_alone()
        if self.company.meeting.first:
            return self.bring_as_first(self.company)
        return self.bring_as_member(self.company)

    def bring_as_first(self, company: Company) -> StageOutcome:
        header = self.checked_header()
        company.decide()
        self.work.make_intake = lambda: company.read_for_others(header)
        return bring(self.work, header, lambda: "", "")

    def bring_as_member(self, company: Company) -> StageOutcome:
        parents: list[str] = []

        def ask() -> str:
            parents.append(company.join(True))
            return parents[0]

        outcome = bring(self.work, Header(company.meeting.identity, 0, 0, "", 0), ask, company.meeting.token)
        if not parents:
            company.join(False)  # the first node counts us all the same, and knows whether the copy can be used
        return outcome

    def tell(self) -> None:
        """The rank that waits learns the outcome; a report goes to the folder of the times."""
        self.write_report(False)
        try:
            os.write(self.outlet, os.fsencode(self.outcome.line))
        except OSError:
            pass  # that rank is gone; others may come
        os.close(self.outlet)

    def write_report(self, ended: bool) -> None:
        """For `--times`: what this node did so far."""
        if not self.task.times:
            return
        service = self.company.service if self.company else None
        report = {
            **self.outcome.report,
            "node": node_name(self.task.folder),
            "staged": bool(self.outcome.copy),
            "reason": self.outcome.reason,
            "ended": ended,
            "first": bool(self.company and self.company.meeting.first),
            "sent_bytes": service.sent_bytes if service else 0,
            "served_nodes": service.served if service else 0,
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
        """Until the job has left this node and no other node needs us; the bundle itself is removed before."""
        last_seen = time.monotonic()
        expected = self.task.local_ranks if self.task.place.shared else 1
        while True:
            here = [user for user in users(self.outcome.copy, f"{self.task.job}-") if user != self.work.user]
            came = len(noted(self.outcome.copy, f"{self.task.job}-")) - 1
            if here:
                last_seen = time.monotonic()
            all_came = expected is not None and came >= expected
            over_here = not self.outcome.copy or (all_came and not here)
            serving = self.company is not None and self.company.needs_us(over_here)
            if not serving:
                self.drop_bundle()
            if not serving and not here and (all_came or time.monotonic() - last_seen > LATE_S):
                return
            wait_for_one(here, ROUND_S if serving or not here else SLOW_ROUND_S)

    def drop_bundle(self) -> None:
        if self.work.intake:
            self.work.intake.discard()

    def leave(self) -> None:
        """Count what came from the original place, then go; the last user takes the copy away."""
        if self.outcome.copy:
            self.count_misses()
            if leave(self.task.folder, self.outcome.copy, f"{self.task.job}-", self.work.user):
                remove(f"{self.task.folder}/build-{self.work.key}")
        if self.outcome.copy or not self.task.place.shared:  # ranks that come late are to read why there is no copy
            for path in (f"{self.name}.done", f"{self.name}.lock"):
                remove(path)
        self.write_report(True)

    def count_misses(self) -> None:
        try:
            links = followed(sealed(self.outcome.copy), self.outcome.copy)
        except (OSError, BadBundle):
            links = None
        self.outcome.report["original_files"] = None if links is None else len(links)
        self.outcome.report["original_names"] = (links or [])[:MOST_NAMES]


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
