"""`rankscope serve`: the pages of a folder, for this machine and with a token only."""

from __future__ import annotations

import gzip
import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpis import ROOT
from rankscope.api.pages import PageServer
from rankscope.api.runs import NOT_READ
from rankscope.cli.load import run as load
from rankscope.cli.serve import run as serve
from rankscope.rank_file import Part, State
from rankscope.rank_file_writer import RankFileWriter
from runs.small_run import SECOND, mpi_rank, write_run
from runs.step_runs import steps

EVIL = "<script>alert('1')</script>"


def write(folder: Path, **header: object) -> Path:
    made = mpi_rank(0, 1, **header)
    made.tally("MPI_Allreduce", 10, SECOND, bytes=80, size_class=4)
    return write_run(folder, made, expected_ranks=1, command=["python", EVIL])


def mpi_steps() -> RankFileWriter:
    made = mpi_rank(0, 1)
    made.steps(steps([{Part.FORWARD: 20.0, Part.BACKWARD: 30.0}] * 24))
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    write(root / "one")
    write(root / f"two {EVIL.replace('/', '')}")
    write(tmp_path / "outside")
    (root / "latest").symlink_to("one")
    (root / "elsewhere").symlink_to(tmp_path / "outside")
    (root / "no run").mkdir()
    return root


@pytest.fixture
def server(folder: Path) -> Iterator[PageServer]:
    made = PageServer(folder)
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": f"127.0.0.1:{server.server_port}", **headers}.items():
        if value:
            connection.putheader(name, value)
    connection.endheaders()
    reply = connection.getresponse()
    return reply.status, dict(reply.getheaders()), reply.read().decode()


def known(server: PageServer) -> dict[str, str]:
    return {"Cookie": f"rankscope={server.token}"}


def test_the_token_becomes_a_cookie_and_leaves_the_address(server: PageServer) -> None:
    status, headers, _ = ask(server, f"/?token={server.token}")
    assert (status, headers["Location"]) == (303, "/")
    assert headers["Set-Cookie"] == f"rankscope={server.token}; Path=/; HttpOnly; SameSite=Strict"
    assert ask(server, "/", Cookie=headers["Set-Cookie"].partition(";")[0])[0] == 200
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/run/one", "/?token=wrong", "/?token=", "/?token=%ff", "/etc/passwd"])
def test_without_the_token_nothing_is_told(path: str, server: PageServer) -> None:
    for headers in ({}, {"Cookie": "rankscope=wrong"}, {"Cookie": 'rankscope="; ;;=='}):
        status, _, text = ask(server, path, **headers)
        assert status == 403 and "/run/" not in text and "MPI" not in text


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "evil@"])
def test_other_hosts_are_refused(host: str, server: PageServer) -> None:
    assert ask(server, f"/?token={server.token}", Host=host)[0] in (400, 421)
    assert ask(server, "/", **{**known(server), "Host": host})[0] in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1:1", "[::1]:8080", "LOCALHOST:80"])
def test_a_tunnel_may_have_another_port(host: str, server: PageServer) -> None:
    assert ask(server, "/", **{**known(server), "Host": host})[0] == 200


def test_it_listens_on_the_loopback_interface_only(server: PageServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in {str(other) for other in others} - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError):
            socket.create_connection((address, server.server_port), timeout=2)


def test_the_list_has_the_runs_of_the_folder_and_no_links(server: PageServer) -> None:
    _, headers, text = ask(server, "/", **known(server))
    links = re.findall(r'href="(/[^"]*)"', text)
    assert sorted(links) == ["/run/one", "/run/two%20%3Cscript%3Ealert%28%271%27%29%3Cscript%3E"]
    markup = re.sub(r"<script[^>]*>.*?</script>", "", text, flags=re.DOTALL)
    assert "<script" not in markup and "&lt;script&gt;" in text and "Refresh" not in headers
    assert re.search(r'http-equiv="Content-Security-Policy" content="default-src &#x27;none&#x27;; script-src', text)
    assert ask(server, links[0], **known(server))[0] == ask(server, links[1], **known(server))[0] == 200


def test_a_page_is_that_of_the_report(server: PageServer, folder: Path) -> None:
    status, headers, text = ask(server, "/run/one", **known(server))
    assert status == 200 and "MPI_Allreduce" in text and EVIL not in text
    assert "Content-Security-Policy" in text and headers["X-Frame-Options"] == "DENY"
    assert ask(server, "/run/one", "HEAD", **known(server))[2] == ""


@pytest.mark.parametrize(
    "path",
    [
        "/run/..",
        "/run/../outside",
        "/run/%2e%2e%2foutside",
        "/run/..%2foutside",
        "/run/%252e%252e%252foutside",
        "/run/one/../../outside",
        "/run//etc",
        "/run/one/run.json",
        "/run/elsewhere",
        "/run/latest",
        "/run/no run",
        "/run/one%00",
        "/run/",
        "/one",
        "/../../etc/passwd",
        "//127.0.0.1/run/one/..",
    ],
)
def test_nothing_outside_the_folder_can_be_reached(path: str, server: PageServer) -> None:
    status, _, text = ask(server, path.replace(" ", "%20"), **known(server))
    assert status == 404 and "MPI_Allreduce" not in text


@pytest.mark.parametrize("where", ["ranks", "ranks/node0", "ranks/node0/100.rank", "run.json", "loaded"])
def test_a_run_with_a_link_that_leads_out_is_refused(
    where: str, server: PageServer, folder: Path, tmp_path: Path
) -> None:
    target = folder / "one" / where
    if target.exists():
        os.rename(target, tmp_path / "kept")
    target.symlink_to(tmp_path / "outside" / where)
    assert ask(server, "/run/one", **known(server))[0] in (403, 404)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"])
def test_nothing_can_be_changed(method: str, server: PageServer) -> None:
    assert ask(server, "/", method, **known(server))[0] == 501


def test_a_running_job_is_shown_anew(server: PageServer, folder: Path) -> None:
    with open("/proc/self/stat") as file:
        jiffies = int(file.read().rpartition(")")[2].split()[19])
    here = socket.gethostname().encode()
    write(folder / "live", state=State.RUNNING, host=here, pid=os.getpid(), start_jiffies=jiffies, ended_ticks=0)
    _, _, text = ask(server, "/", **known(server))
    assert ">RUNNING<" in text and 'data-refresh="3"' in text
    _, headers, text = ask(server, "/run/live", **known(server))
    assert (
        re.search(r'data-refresh="([5-9]|\d\d+)"', text)
        and "connect-src &#x27;self&#x27;" in text
        and "Refresh" not in headers
    )
    text = ask(server, "/run/one", **known(server))[2]
    assert "data-refresh" not in text and "connect-src" not in text
    status, headers, text = ask(server, "/content/live", **known(server))
    parts = json.loads(text)
    assert status == 200 and headers["Content-Type"].startswith("application/json") and parts["refresh_s"] >= 5
    assert "MPI_Allreduce" in parts["data"] and "<script" not in parts["main"]
    assert json.loads(ask(server, "/content/one", **known(server))[2])["refresh_s"] == 0


def test_a_page_is_packed_for_a_slow_tunnel(server: PageServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", "/run/one", headers={**known(server), "Accept-Encoding": "gzip, br"})
    reply = connection.getresponse()
    raw = reply.read()
    assert reply.headers["Content-Encoding"] == "gzip" and b"MPI_Allreduce" in gzip.decompress(raw)
    assert len(raw) < 100_000


def test_the_list_fills_in_what_runs_say(server: PageServer, folder: Path) -> None:
    """At once without, later with the step, its curve and the first finding; nothing is written for it."""
    write_run(folder / "steps", mpi_steps(), expected_ranks=1, command=["python", "train.py"])
    document = folder.parent / "start_times.md"
    shutil.copy(ROOT / "tests" / "formats" / "fixtures" / "start_times.md", document)
    assert load([str(document), "--out", str(folder / "document")]) == 0
    before = sorted(folder.rglob("*"))
    (folder / "one/ranks/node0/100.rank").write_bytes(b"x")
    parts = {"refresh_s": 1}
    for _ in range(200):
        parts = json.loads(ask(server, "/content/", **known(server))[2])
        if not parts["refresh_s"]:
            break
        time.sleep(0.05)
    entries = dict(re.findall(r'<li id="run-([^"]*)">(.*?)</li>', str(parts["main"])))
    assert "<b>50.0 ms</b> per step" in entries["steps"] and entries["steps"].count(",") >= 20  # points of the curve
    assert ">UNREADABLE<" in entries["one"] and "none of its files could be read" in entries["one"]
    assert ">LOADED<" in entries["document"] and "loaded from" in entries["document"]
    assert NOT_READ not in str(parts["main"]) and sorted(folder.rglob("*")) == before


def test_a_folder_that_goes_is_said(server: PageServer, folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    for path in ("/", "/run/one", "/content/", "/content/one"):
        status, _, text = ask(server, path, **known(server))
        assert status == 503 and "can no longer be read" in text


def test_a_run_that_cannot_be_read_is_said_and_the_server_goes_on(server: PageServer, folder: Path) -> None:
    (folder / "one/ranks/node0/100.rank").write_bytes(b"x")
    status, _, text = ask(server, "/run/one", **known(server))
    assert status == 503 and "none of its files could be read" in text
    assert ask(server, "/", **known(server))[0] == 200


def test_the_command_prints_its_address_and_ends_with_ctrl_c(folder: Path) -> None:
    command = [sys.executable, "-m", "rankscope", "serve", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{32})\n", process.stdout.readline())
    assert found is not None
    connection = http.client.HTTPConnection("127.0.0.1", int(found.group(1)), timeout=60)
    connection.request("GET", "/", headers={"Cookie": f"rankscope={found.group(2)}"})
    assert connection.getresponse().status == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0 and process.stderr is not None and process.stderr.read() == ""


def test_what_cannot_be_served_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert serve([str(tmp_path / "nowhere")]) == 2
    assert serve([str(tmp_path), "--port", "99999"]) == 2
    (tmp_path / "file").touch()
    assert serve([str(tmp_path / "file")]) == 2
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert serve([str(tmp_path), "--port", str(port)]) == 2
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert len(lines) == 4 and all(line.startswith("rankscope: ") for line in lines) and told.out == ""
    assert "not a folder" in lines[2] and f"--port {port}: address already in use: choose another" in lines[3]


def test_an_empty_folder_says_how_to_record(tmp_path: Path) -> None:
    made = PageServer(tmp_path)
    assert "rankscope run" in made.site.answer("/").text
    made.server_close()


def test_an_interrupt_while_the_address_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads the line may be faster than the call that prints it."""

    class Interrupted(io.StringIO):
        def flush(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdout", Interrupted())
    assert serve([str(tmp_path)]) == 0
