"""What nodes say to each other: who may speak, and messages with their length in front."""

import hashlib
import hmac
import json
import os
import socket
import struct
from typing import Any

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
        raise Broken("not one of us")
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
        raise Broken("a message makes no sense") from None
    if not isinstance(message, dict):
        raise Broken("a message makes no sense")
    return message
