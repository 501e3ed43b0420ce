"""How a node is reached: the addresses of its network interfaces, and a port."""

import fcntl
import os
import socket
import struct

from rankscope.stage.messages import Broken, greet

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
    found: list[tuple[bool, bool, int, str]] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                flags = struct.unpack("H", fcntl.ioctl(asking, SIOCGIFFLAGS, request)[16:18])[0]
                address = socket.inet_ntoa(fcntl.ioctl(asking, SIOCGIFADDR, request)[20:24])
            except OSError:
                continue  # an interface without an IPv4 address
            if flags & UP:
                found.append((name != wanted, bool(flags & LOOPBACK), len(found), address))
    elsewhere = [row for row in found if not row[1]]
    return [address for *_, address in sorted(elsewhere or found)]


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
