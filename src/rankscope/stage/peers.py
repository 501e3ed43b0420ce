"""How the nodes of a job find each other: the first one leaves a claim beside the bundle, the others read it.

The claim is a symbolic link that leads nowhere, made in one step: its text is whole or not there. It holds the
bundle's identity, the job's token and how the first node is reached, in a folder that only its owner can read.
"""

import fcntl
import hashlib
import hmac
import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

from rankscope.record.place import cleaned
from rankscope.record.rendezvous import Claimant, generations, is_same_job, make

# ---------------------------------------------------------------------------------------------------------------------
# What nodes say to each other: who may speak, and messages with their length in front.
NONCE_BYTES = 16
PROOF_BYTES = 32
LARGEST_MESSAGE_BYTES = 1024**2
HELLO = b"rankscope-stage1"


class Broken(Exception):
    """The other side went away, is not of this job, or talks nonsense."""


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes."""
    block = bytearray(size)
    view = memoryview(block)
    while view:
        try:
            got = connection.recv_into(view)
        except OSError as error:
            raise Broken(f"nothing came: {error}") from None
        if not got:
            raise Broken("the connection was closed")
        view = view[got:]
    return bytes(block)


def send(connection: socket.socket, *blocks: bytes) -> None:
    try:
        for block in blocks:
            connection.sendall(block)
    except OSError as error:
        raise Broken(f"cannot send: {error}") from None


def proof(token: str, role: bytes, first: bytes, second: bytes) -> bytes:
    """Shows that one knows the token without saying it."""
    return hmac.new(token.encode(), role + first + second, hashlib.sha256).digest()


def greet(connection: socket.socket, token: str) -> None:
    """As the one who calls: prove that we are of the job, and demand the same."""
    mine = os.urandom(NONCE_BYTES)
    send(connection, HELLO + mine)
    theirs = receive(connection, NONCE_BYTES)
    send(connection, proof(token, b"caller", mine, theirs))
    if not hmac.compare_digest(receive(connection, PROOF_BYTES), proof(token, b"called", mine, theirs)):
        raise Broken("it does not know the job's token")


def answer_greeting(connection: socket.socket, token: str) -> None:
    """As the one who is called: nothing is said to somebody who does not know the token."""
    opening = receive(connection, len(HELLO) + NONCE_BYTES)
    if not opening.startswith(HELLO):
        raise Broken("not part of this job")
    theirs, mine = opening[len(HELLO) :], os.urandom(NONCE_BYTES)
    send(connection, mine)
    shown = receive(connection, PROOF_BYTES)
    if not hmac.compare_digest(shown, proof(token, b"caller", theirs, mine)):
        raise Broken("it does not know the job's token")
    send(connection, proof(token, b"called", theirs, mine))


def say(connection: socket.socket, message: dict[str, Any]) -> None:
    text = json.dumps(message).encode()
    send(connection, struct.pack("!I", len(text)), text)


def hear(connection: socket.socket) -> dict[str, Any]:
    size = int(struct.unpack("!I", receive(connection, 4))[0])
    if size > LARGEST_MESSAGE_BYTES:
        raise Broken("a message is too long")
    try:
        message = json.loads(receive(connection, size))
    except ValueError:
        raise Broken("a message is malformed") from None
    if not isinstance(message, dict):
        raise Broken("a message is malformed")
    return message


# ---------------------------------------------------------------------------------------------------------------------
# How a node is reached: the addresses of its network interfaces, and a port.
SIOCGIFADDR, SIOCGIFFLAGS = 0x8915, 0x8913
UP, LOOPBACK = 0x1, 0x8
CONNECT_S = 3.0
SILENCE_S = 20.0  # from a peer that is connected: after that it is given up
BACKLOG = 1024


class Contact:
    """Addresses, the likeliest first, and the port."""

    def __init__(self, addresses: list[str], port: int) -> None:
        self.addresses = addresses
        self.port = port

    @property
    def text(self) -> str:
        return f"{self.port},{','.join(self.addresses)}"


def contact_from(text: str) -> Contact:
    port, *addresses = text.split(",")
    return Contact(addresses, int(port))


def listen() -> tuple[socket.socket, Contact]:
    """A socket that other nodes can call, and how."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.bind(("", 0))
    listening.listen(BACKLOG)
    return listening, Contact(addresses(), listening.getsockname()[1])


def addresses() -> list[str]:
    """This node's addresses; the interface that RANKSCOPE_STAGE_INTERFACE names comes first, loopback only alone."""
    wanted = os.environ.get("RANKSCOPE_STAGE_INTERFACE", "")
    interfaces: list[tuple[bool, bool, int, str]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                flags = struct.unpack("H", fcntl.ioctl(asking, SIOCGIFFLAGS, request)[16:18])[0]
                address = socket.inet_ntoa(fcntl.ioctl(asking, SIOCGIFADDR, request)[20:24])
            except OSError:
                continue  # an interface without an IPv4 address
            if flags & UP:
                interfaces.append((name != wanted, bool(flags & LOOPBACK), len(interfaces), address))
    elsewhere = [row for row in interfaces if not row[1]]
    return [address for *_, address in sorted(elsewhere or interfaces)]


def call(contact: Contact, token: str) -> socket.socket:
    """A connection by the first address at which somebody of the job answers.

    Not everybody who answers is: addresses of virtual bridges are the same on every node.
    """
    last: Exception = OSError("it has no address")
    for address in contact.addresses:
        try:
            connection = socket.create_connection((address, contact.port), CONNECT_S)
        except OSError as error:
            last = error
            continue
        try:
            connection.settimeout(SILENCE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            greet(connection, token)
            return connection
        except (Broken, OSError) as error:
            connection.close()
            last = error
    raise Broken(str(last))


# ---------------------------------------------------------------- peers
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


def meet(bundle: str, folder: str, asking: Claimant, own_contact: Callable[[], tuple[str, str, Contact]]) -> Meeting:
    """The meeting of our job; `own` (identity, token, contact) is asked only where no claim is there yet."""
    try:
        os.makedirs(folder, 0o700)
    except FileExistsError:
        pass
    status = os.lstat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & 0o170077 != 0o040000:
        raise PermissionError(f"{folder} is not private to you")
    base = f"{folder}/{cleaned(asking.key)}-{zlib.crc32(os.fsencode(os.path.abspath(bundle))):08x}"
    for path in generations(base):
        claim = claim_at(path)
        if not claim:
            identity, token, contact = own_contact()
            text = f"{identity} {token} {contact.text}"
            if make(path, f"{time.time_ns()}|{asking.host}|{asking.identity}|{text}"):
                return Meeting(path, text, True)
            claim = claim_at(path)
        if is_same_job(claim, asking):
            return Meeting(path, claim.split("|", 3)[3], False)
    raise OSError(f"{folder} is full of other jobs' claims")


def is_old(claim: str) -> bool:
    made_ns = claim.partition("|")[0]
    return made_ns.isdigit() and time.time_ns() - int(made_ns) > OLD_NS


def claim_at(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""
