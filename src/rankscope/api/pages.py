"""Serves the pages of a folder's runs to this machine's browsers: read-only, with a token, and to nobody else."""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from rankscope.api.run import LOGS_UNASKED, NoRun, Run
from rankscope.api.runs import Listed, runs_in, stays_inside
from rankscope.model import Column, Table, Unit, Wrong
from rankscope.output.html import to_html
from rankscope.output.plain_html import POLICY, run_list, said
from rankscope.questions.imports.modules import import_icicle
from rankscope.questions.page import PageOptions, page_of
from rankscope.questions.selection import ALL, Selection

# ---------------------------------------------------------------------------------------------------------------------
# The page about a run: one HTML file that works offline.
UNREAD = f"More than {LOGS_UNASKED} processes: without the logs of collectives. --logs reads them."


def page_text(run: Run, selection: Selection = ALL, kernels: str = "short", logs: bool = False) -> str:
    """The page; the logs of collectives are in it where there are few ranks or they are asked for."""
    events = logs or run.is_small
    store = run.store(events=events)
    run.ranks_shown(selection)
    chosen = Selection(selection.ranks)
    more = {name: partial(_answer, run, name, chosen, kernels) for name in run.default_tables()}
    notes = [] if events else [UNREAD]
    seen = run.screen(chosen, logs=events)
    wanted = PageOptions(chosen, run.kernel_names(kernels), more, notes, seen, import_icicle(store, chosen))
    return to_html(page_of(store, run.folder.resolve().name, wanted))


def _answer(run: Run, name: str, selection: Selection, kernels: str) -> Table:
    """With what was read: a page must not read the logs behind the reader's back."""
    return run.answer_as_read(name, selection, kernels)


# ---------------------------------------------------------------- pages
COOKIE = "rankscope"
OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")  # another name in a request: a page elsewhere that points it here
LEAST_REFRESH_S = 5
REFRESH_TIMES = 5  # as long as making the page takes: most of the time the server is idle
KEPT_PAGES = 8
REQUEST_TIMEOUT_S = 30
COLUMNS = (
    Column("name", Unit.NAME, "Run"),
    Column("started_ns", Unit.NUMBER, "Started"),
    Column("state", Unit.NAME, "State"),
    Column("ranks", Unit.NAME, "Processes"),
    Column("command", Unit.NAME, "Command"),
)
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(slots=True)
class Answer:
    """What is sent back."""

    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)
    own_policy: bool = False  # the page of a run brings its own, which allows its scripts and nothing else


@dataclass(slots=True)
class _Made:
    text: str
    running: bool
    at_s: float
    took_s: float

    @property
    def refresh_s(self) -> int:
        return max(LEAST_REFRESH_S, round(REFRESH_TIMES * self.took_s))


class PageSite:
    """The pages of one folder; a page is made by one thread at a time, as it may need much memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._making = threading.Lock()
        self._pages: dict[str, _Made] = {}

    def answer(self, path: str) -> Answer:
        if path == "/":
            return self._list()
        name = unquote(path.removeprefix("/run/")) if path.startswith("/run/") else ""
        # what was asked for is only ever compared with the names that are there
        chosen = next((one for one in runs_in(self.folder) if one.name == name), None)
        if chosen is None:
            return Answer(404, said("Not here", "There is no such run in this folder."))
        if not stays_inside(chosen.folder, self.folder):
            return Answer(403, said("Refused", "This run holds a link that leads out of the folder."))
        return self._page(chosen)

    def _list(self) -> Answer:
        found = runs_in(self.folder)
        table = Table("runs", f"Runs in {self.folder.name}", COLUMNS, [])
        for one in found:
            expected = f" of {one.expected_ranks}" if one.expected_ranks not in (None, one.files) else ""
            state = "running" if one.running else "ended"
            table.rows.append((one.name, one.started_ns, state, f"{one.files}{expected}", one.command))
        live = any(one.running for one in found)
        return Answer(200, run_list(table), {"Refresh": str(LEAST_REFRESH_S)} if live else {})

    def _page(self, chosen: Listed) -> Answer:
        with self._making:
            made = self._pages.get(chosen.name)
            if made is None or (made.running and time.monotonic() - made.at_s >= LEAST_REFRESH_S):
                try:
                    made = self._make(chosen)
                except (NoRun, Wrong) as problem:
                    return Answer(503, said(chosen.name, str(problem)), {"Refresh": str(LEAST_REFRESH_S)})
        return Answer(200, made.text, {"Refresh": str(made.refresh_s)} if made.running else {}, own_policy=True)

    def _make(self, chosen: Listed) -> _Made:
        begun_s = time.monotonic()
        text = page_text(Run(chosen.folder))
        made = _Made(text, chosen.running, time.monotonic(), time.monotonic() - begun_s)
        self._pages.pop(chosen.name, None)
        self._pages[chosen.name] = made
        while len(self._pages) > KEPT_PAGES:
            del self._pages[next(iter(self._pages))]
        return made


class Handler(BaseHTTPRequestHandler):
    """One request: who asks is settled before what is asked for is looked at."""

    server: PageServer
    timeout = REQUEST_TIMEOUT_S
    server_version, sys_version = "rankscope", ""

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer(), body=False)

    def _answer(self) -> Answer:
        if not self._is_for_us():
            return Answer(421, said("Refused", "This server answers to localhost only."))
        asked = urlsplit(self.path)
        token = parse_qs(asked.query).get("token", [""])[0]
        if token and self._is_token(token):
            cookie = f"{COOKIE}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
            return Answer(303, "", {"Location": "/", "Set-Cookie": cookie})
        if not self._is_token(self._cookie()):
            return Answer(403, said("Refused", "Open the address that rankscope serve printed, with its token."))
        try:
            return self.server.site.answer(asked.path)
        except Exception as problem:  # a run may change or go while it is read; the server must not
            return Answer(500, said("This run could not be shown", f"{type(problem).__name__}: {problem}"))

    def _is_for_us(self) -> bool:
        host = self.headers.get_all("Host") or []
        return len(host) == 1 and _name_of(host[0]) in OWN_NAMES

    def _is_token(self, told: str) -> bool:
        return hmac.compare_digest(told.encode("utf-8", "replace"), self.server.token.encode())

    def _cookie(self) -> str:
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        return found.value if found is not None else ""

    def _send(self, answer: Answer, body: bool = True) -> None:
        raw = answer.text.encode("utf-8", "backslashreplace")
        # the page of a run brings its own, stricter policy
        policy = (
            {} if answer.text.count('http-equiv="Content-Security-Policy"') else {"Content-Security-Policy": POLICY}
        )
        self.send_response(answer.status)
        told = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(raw))}
        for name, value in {**HEADERS, **told, **policy, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a request may hold the token."""


def _name_of(host: str) -> str:
    """The host without the port, which is another one behind a tunnel."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


class PageServer(ThreadingHTTPServer):
    """Bound to the loopback interface, whatever happens."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0, token: str | None = None) -> None:
        self.site, self.token = PageSite(folder), token or secrets.token_urlsafe(24)
        super().__init__(("127.0.0.1", port), Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away is no news."""
