"""How the nodes of a job find each other: the first one leaves a claim beside the bundle, the others read it.

The claim is a symbolic link that leads nowhere, made in one step: its text is whole or not there. It holds the
bundle's identity, the job's token and how the first node is reached, in a folder that only its owner can read.
"""

import os
import time
import zlib
from collections.abc import Callable

from rankscope.record.place import cleaned
from rankscope.record.rendezvous import Claimant, generations, is_same_job, make
from rankscope.stage.contact import Contact, contact_from

OLD_NS = 24 * 3600 * 10**9


class Meeting:
    """What the claim says, and whether this node has made it."""

    def __init__(self, path: str, text: str, first: bool) -> None:
        self.path = path
        self.first = first
        self.identity, self.token, contact = text.split(" ")
        self.contact: Contact = contact_from(contact)

    def end(self) -> None:
        """Nobody is to come any more."""
        if not self.first:
            return
        folder = os.path.dirname(self.path)
        try:
            os.unlink(self.path)
            for name in os.listdir(folder):
                if is_old(claim_at(f"{folder}/{name}")):  # of a job whose first node was killed
                    os.unlink(f"{folder}/{name}")
            os.rmdir(folder)
        except OSError:
            pass  # gone, or other jobs meet there


def meeting_folder(bundle: str, given: str) -> str:
    """Where the claim is left: as told, beside the bundle, or where that cannot be written to, in the home folder."""
    name = f".rankscope-meet-{os.geteuid()}"
    if given:
        return f"{os.path.abspath(given)}/{name}"
    beside = os.path.dirname(os.path.abspath(bundle))
    if os.access(beside, os.W_OK):
        return f"{beside}/{name}"
    return f"{os.path.expanduser('~')}/.cache/rankscope/{name}"


def meet(bundle: str, folder: str, asking: Claimant, own: Callable[[], tuple[str, str, Contact]]) -> Meeting:
    """The meeting of our job; `own` (identity, token, contact) is asked only where no claim is there yet."""
    try:
        os.makedirs(folder, 0o700)
    except FileExistsError:
        pass
    status = os.lstat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & 0o170077 != 0o040000:
        raise PermissionError(f"{folder} is not a folder of yours alone")
    base = f"{folder}/{cleaned(asking.key)}-{zlib.crc32(os.fsencode(os.path.abspath(bundle))):08x}"
    for path in generations(base):
        found = claim_at(path)
        if not found:
            identity, token, contact = own()
            text = f"{identity} {token} {contact.text}"
            if make(path, f"{time.time_ns()}|{asking.host}|{asking.identity}|{text}"):
                return Meeting(path, text, True)
            found = claim_at(path)
        if is_same_job(found, asking):
            return Meeting(path, found.split("|", 3)[3], False)
    raise OSError(f"{folder} is full of other jobs' claims")


def is_old(claim: str) -> bool:
    made_ns = claim.partition("|")[0]
    return made_ns.isdigit() and time.time_ns() - int(made_ns) > OLD_NS


def claim_at(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""
