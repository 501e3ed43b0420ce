"""A node that others ask, and others that do not answer, lie, or go away."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope.record.place import Place
from rankscope.record.rendezvous import claimant
from rankscope.stage.bundle import HEADER_BYTES, BadBundle, Header, open_bundle, read_header, read_manifest
from rankscope.stage.node import open_folder
from rankscope.stage.peers import Broken, Contact, answer_greeting, call, hear, listen, say, send
from rankscope.stage.receive import CHUNK_FOLLOWS, Bringing, NodePeer, SharedFile, bring
from rankscope.stage.serve import FANOUT, Service, children
from rankscope.stage.task import StageTask
from rankscope.stage.unpack import Intake, starts
from stage.jobs import Environment
from stage.test_kill import is_whole, large  # noqa: F401  # a fixture

TOKEN = "a" * 32


def working(bundle: Path, place: Path) -> Bringing:
    task = StageTask(str(bundle), open_folder(str(place)), claimant(Place()), Place())
    task.job, task.check = "job", "none"
    return Bringing(task)


def header_of(bundle: Path) -> Header:
    return read_header(bundle.read_bytes()[:HEADER_BYTES])


@contextmanager
def peer(answer: Callable[[socket.socket], None]) -> Iterator[Contact]:
    """A node that knows the token and answers each call like this."""
    listening, contact = listen()

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            try:
                answer_greeting(connection, TOKEN)
                hear(connection)
                answer(connection)
            except Broken:
                pass
            connection.close()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield contact
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def sent(bundle: Path, chunks: int, harm: int = -1) -> Callable[[socket.socket], None]:
    """Sends so many chunks of the bundle and hangs up; the chunk number `harm` with one bit changed."""
    content, header = bundle.read_bytes(), header_of(bundle)
    region = content[header.manifest_at :]
    manifest = read_manifest(header, region)

    def answer(connection: socket.socket) -> None:
        send(connection, CHUNK_FOLLOWS, content[:HEADER_BYTES], region)
        for number, at in enumerate(starts(manifest)[:chunks]):
            stored = bytearray(content[at : at + manifest.chunks[number][0]])
            if number == harm:
                stored[100] ^= 1
            send(connection, CHUNK_FOLLOWS, bytes(stored))

    return answer


@pytest.mark.parametrize(("chunks", "harm"), [(0, -1), (2, -1), (99, 3), (99, 0)])
def test_what_a_peer_does_not_give_comes_from_the_shared_file(
    large: Environment,  # noqa: F811
    tmp_path: Path,
    chunks: int,
    harm: int,
) -> None:
    """A peer that goes away, or whose bytes are not those that were packed, is given up; its good chunks are used."""
    work = working(large.bundle, tmp_path)
    with peer(sent(large.bundle, chunks, harm)) as contact:
        outcome = bring(work, header_of(large.bundle), lambda: contact.text, TOKEN)
    good = min(chunks, harm) if harm >= 0 else chunks
    assert outcome.copy and is_whole(Path(outcome.copy))
    assert outcome.report["peer_bytes"] == good * 4 * 1024**2
    assert outcome.report["shared_bytes"] and len(outcome.report["gave_up"]) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [b"", b"R", b"nonsense" * 1000])
def test_a_peer_that_makes_no_sense(environment: Environment, tmp_path: Path, answer: bytes) -> None:
    work = working(environment.bundle, tmp_path)
    with peer(lambda connection: send(connection, answer)) as contact:
        outcome = bring(work, header_of(environment.bundle), lambda: contact.text, TOKEN)
    assert outcome.copy and outcome.report["peer_bytes"] == 0


def test_a_peer_that_is_not_there(environment: Environment, tmp_path: Path) -> None:
    listening, contact = listen()
    listening.close()
    outcome = bring(working(environment.bundle, tmp_path), header_of(environment.bundle), lambda: contact.text, TOKEN)
    assert outcome.copy and outcome.report["source"] == "shared"
    assert "does not answer" in str(outcome.report["gave_up"])


def test_a_peer_with_another_bundle(environment: Environment, large: Environment, tmp_path: Path) -> None:  # noqa: F811
    with peer(sent(large.bundle, 99)) as contact:
        work = working(environment.bundle, tmp_path)
        outcome = bring(work, header_of(environment.bundle), lambda: contact.text, TOKEN)
    assert outcome.copy and outcome.report["source"] == "shared"


@contextmanager
def service(bundle: Path, place: Path, own: socket.socket | None = None) -> Iterator[Service]:
    """A node that has the bundle."""
    shared = SharedFile(str(bundle))
    region = shared.region()
    manifest = read_manifest(shared.header, region)
    intake = Intake(str(place / "part"), shared.head(), shared.header, region, manifest)
    intake.take_all(shared, "shared", None)
    listening, contact = listen()
    if own:
        listening.close()
    serving = Service(own or listening, contact, TOKEN, lambda: intake)
    serving.decided.set()
    try:
        yield serving
    finally:
        serving.stop()
        intake.discard()
        shared.close()


def test_who_does_not_know_the_token_hears_nothing(environment: Environment, tmp_path: Path) -> None:
    with service(environment.bundle, tmp_path) as serving:
        with pytest.raises(Broken):
            call(serving.contact, "b" * 32)
        assert serving.sent_bytes == 0
        for nonsense in (b"", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(100)):
            address = (serving.contact.addresses[0], serving.contact.port)
            with socket.create_connection(address) as stranger:
                stranger.sendall(nonsense)
        good = NodePeer(serving.contact, TOKEN, header_of(environment.bundle).identity)
        assert good.head() == environment.bundle.read_bytes()[:HEADER_BYTES]
        good.close()


def test_who_is_called_must_know_the_token_too(environment: Environment) -> None:
    listening, contact = listen()

    def pretend() -> None:
        connection, _ = listening.accept()
        connection.recv(100)
        connection.sendall(bytes(16))
        connection.recv(100)
        connection.sendall(bytes(32))

    threading.Thread(target=pretend, daemon=True).start()
    with pytest.raises(Broken, match="token"):
        call(contact, TOKEN)
    listening.close()


def test_somebody_else_at_the_first_address(environment: Environment, tmp_path: Path) -> None:
    """As on nodes whose virtual bridges have equal addresses: the next address is tried."""
    stranger = socket.create_server(("127.0.0.2", 0))
    port = stranger.getsockname()[1]
    threading.Thread(target=lambda: stranger.accept()[0].sendall(bytes(100)), daemon=True).start()
    with service(environment.bundle, tmp_path, socket.create_server(("127.0.0.3", port))):
        found = NodePeer(Contact(["127.0.0.2", "127.0.0.3"], port), TOKEN, header_of(environment.bundle).identity)
        assert found.head() == environment.bundle.read_bytes()[:HEADER_BYTES]
        found.close()
    stranger.close()


def test_newcomers_form_a_tree(environment: Environment, tmp_path: Path) -> None:
    """Nobody has more than FANOUT to serve, and each learns how many in the end."""
    with service(environment.bundle, tmp_path) as serving:
        calls, parents = [], []
        for number in range(1, 12):
            connection = call(serving.contact, TOKEN)
            say(connection, {"ask": "join", "wants": True, "ranks": 3, "contact": f"{number},10.0.0.{number}"})
            parents.append(hear(connection)["parent"])
            calls.append(connection)
        assert parents[:2] == [serving.contact.text] * 2
        assert all(parents.count(parent) <= FANOUT for parent in parents)
        assert serving.ranks == 33
        serving.close_meeting()
        told = [hear(connection)["children"] for connection in calls]
        own = [f"{number},10.0.0.{number}" for number in range(1, 12)]
        assert told == [parents.count(contact) for contact in own]
        assert children(0, 12) == 2 and children(-1, 12) == 0


def test_a_refusal_is_passed_on(environment: Environment, tmp_path: Path) -> None:
    with service(environment.bundle, tmp_path) as serving:
        serving.intake = refuse
        with pytest.raises(BadBundle, match="no good"):
            NodePeer(serving.contact, TOKEN, header_of(environment.bundle).identity)


def refuse() -> Intake:
    raise BadBundle("no good")


def test_open_bundle_is_the_same_everywhere(environment: Environment) -> None:
    import os

    file, header = open_bundle(str(environment.bundle))
    os.close(file)
    assert header.identity == header_of(environment.bundle).identity


def test_giving_on_while_receiving_harms_neither(
    large: Environment,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Threads that send and the one that receives share the file, and with it its position, which none may use."""
    shared = SharedFile(str(large.bundle))
    region = shared.region()
    intake = Intake(str(tmp_path / "part"), shared.head(), shared.header, region, read_manifest(shared.header, region))
    listening, contact = listen()
    service = Service(listening, contact, TOKEN, lambda: intake)
    received: list[bytes] = []

    def take() -> None:
        source = NodePeer(contact, TOKEN, shared.header.identity)
        sizes = [size for size, _ in intake.manifest.chunks]
        received.append(b"".join(source.chunk(at, intake.starts[at], size) for at, size in enumerate(sizes)))

    takers = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        taker.start()
    intake.take_all(shared, "shared", None)
    for taker in takers:
        taker.join(30)
    service.stop()
    payload = large.bundle.read_bytes()[HEADER_BYTES : shared.header.manifest_at]
    assert os.pread(intake.file, len(payload), HEADER_BYTES) == payload
    assert received == [payload] * 4
    assert os.lseek(intake.file, 0, os.SEEK_CUR) == 0
    intake.discard()
