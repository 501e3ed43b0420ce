"""Where a node takes the bundle from: the shared file, or a node that has it."""

import os
import socket

from rankscope.stage.bundle import (
    HEADER_BYTES,
    BadBundle,
    Header,
    check_lengths,
    open_bundle,
    read_exactly,
    read_header,
)
from rankscope.stage.contact import Contact, call
from rankscope.stage.intake import Gone
from rankscope.stage.messages import Broken, hear, receive, say

CHUNK_FOLLOWS, REFUSED = b"C", b"R"


class SharedFile:
    """The bundle on the shared file system."""

    def __init__(self, path: str, expected: str = "") -> None:
        self.file, self.header = open_bundle(path)
        if not self.header.identity.startswith(expected):
            os.close(self.file)
            raise BadBundle(f"it is {self.header.key}…, not {expected[:16]}…")

    def head(self) -> bytes:
        return read_exactly(self.file, HEADER_BYTES, 0)

    def region(self) -> bytes:
        """The manifest with what is around it."""
        return read_exactly(self.file, self.header.manifest_bytes, self.header.manifest_at)

    def chunk(self, number: int, at: int, size: int) -> bytes:
        return read_exactly(self.file, size, at)

    def close(self) -> None:
        os.close(self.file)


class Peer:
    """A node that has the bundle or is just getting it."""

    def __init__(self, contact: Contact, token: str, expected: str) -> None:
        try:
            self.connection = call(contact, token)
            say(self.connection, {"ask": "bytes"})
            self.start(expected)
        except (OSError, Broken) as error:
            raise Gone(f"a peer does not answer ({error})") from None

    def start(self, expected: str) -> None:
        self.expect_more()
        self.header_bytes = receive(self.connection, HEADER_BYTES)
        try:
            self.header: Header = read_header(self.header_bytes)
            check_lengths(self.header)
        except BadBundle as error:
            raise Broken(f"what it sends is no bundle: {error}") from None
        if self.header.identity != expected:
            raise Broken("it has another bundle")
        self.region_bytes = receive(self.connection, self.header.manifest_bytes)

    def head(self) -> bytes:
        return self.header_bytes

    def region(self) -> bytes:
        return self.region_bytes

    def expect_more(self) -> None:
        """A byte comes before each chunk, so that a bundle that was found bad is not asked for again by every node."""
        if receive(self.connection, 1) == REFUSED:
            raise BadBundle(str(hear(self.connection).get("reason", "")))

    def chunk(self, number: int, at: int, size: int) -> bytes:
        try:
            self.expect_more()
            return receive(self.connection, size)
        except Broken as error:
            raise Gone(f"a peer went away ({error})") from None

    def close(self) -> None:
        self.connection.close()


def keep_alive(connection: socket.socket) -> None:
    """A connection on which nothing is said still notices that the other node is gone."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
