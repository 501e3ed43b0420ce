"""Serves the pages of a folder's runs to this machine's browsers: read-only, with a token, and to nobody else."""

from __future__ import annotations

import gzip
import hmac
import json
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
from rankscope.api.runs import NOT_READ, Listed, Summary, kept_summary, runs_in, stays_inside, summarise
from rankscope.model.tables import Table, Wrong
from rankscope.output.html import content, list_content, run_list, said, to_html
from rankscope.pictures import Page, RunLine
from rankscope.questions.imports.modules import import_icicle
from rankscope.questions.page import PageOptions, page_of
from rankscope.questions.selection import ALL, Selection

# ---------------------------------------------------------------------------------------------------------------------
# The page about a run: one HTML file that works offline.
UNREAD = f"More than {LOGS_UNASKED} processes: collective logs were not read. --logs reads them."


def page_text(run: Run, selection: Selection = ALL, kernels: str = "short", logs: bool = False) -> str:
    """The page; the logs of collectives are in it where there are few ranks or they are asked for."""
    return to_html(_page(run, selection, kernels, logs))


def _page(run: Run, selection: Selection = ALL, kernels: str = "short", logs: bool = False) -> Page:
    events = logs or run.is_small
    store = run.store(events=events)
    run.ranks_shown(selection)
    chosen = Selection(selection.ranks)
    more = {name: partial(_answer, run, name, chosen, kernels) for name in run.default_tables()}
    notes = [] if events else [UNREAD]
    screen = run.screen(chosen, logs=events)
    wanted = PageOptions(chosen, run.kernel_names(kernels), more, notes, screen, import_icicle(store, chosen))
    return page_of(store, run.folder.resolve().name, wanted)


def _answer(run: Run, name: str, selection: Selection, kernels: str) -> Table:
    """With what was read: a page must not read the logs behind the reader's back."""
    return run.answer_as_read(name, selection, kernels)


# ---------------------------------------------------------------- pages
COOKIE = "rankscope"
OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")  # another name in a request: a page elsewhere that points it here
LEAST_REFRESH_S = 5
REFRESH_TIMES = 5  # as long as making the page takes: most of the time the server is idle
KEPT_PAGES = 8
LEAST_PACKED = 4096  # bytes: pages may come through a slow tunnel
REQUEST_TIMEOUT_S = 30
LIST_REFRESH_S = 3
SUMMARY_TIMES = 20  # as long as it takes: how rarely what the list says of a running job is worked out anew
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
    kind: str = "text/html"


@dataclass(slots=True)
class _Made:
    text: str
    parts: dict[str, str]  # of a running job: what differs from moment to moment
    running: bool
    at_s: float
    refresh_s: int  # 0: it stays as it is


class PageSite:
    """The pages of one folder; runs are read by one thread at a time, as one may need much memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reading = threading.Lock()
        self._pages: dict[str, _Made] = {}
        self._lines = _Summaries(self._reading)

    def answer(self, path: str) -> Answer:
        """`/` is the list, `/run/NAME` a page, `/content/…` what is new of either."""
        try:
            runs = runs_in(self.folder)
        except OSError:
            return Answer(503, said("The folder is gone", f"{self.folder} can no longer be read."))
        if path in ("/", "/content/"):
            return self._list(runs, path != "/")
        kind, _, name = path.removeprefix("/").partition("/")
        # what was asked for is only ever compared with the names that are there
        chosen = next((run for run in runs if run.name == unquote(name)), None) if kind in ("run", "content") else None
        if chosen is None:
            return Answer(404, said("Not found", "There is no such run in this folder."))
        if not stays_inside(chosen.folder, self.folder):
            return Answer(403, said("Refused", "This run contains a link that points outside the folder."))
        return self._page(chosen, kind == "content")

    def _list(self, runs: list[Listed], only_parts: bool) -> Answer:
        inside = [run for run in runs if stays_inside(run.folder, self.folder)]
        lines = self._lines.of(inside)
        refused = [
            _line(run, None, "refused: it contains a link that points outside the folder")
            for run in runs
            if run not in inside
        ]
        name = self.folder.resolve().name
        refresh_s = LIST_REFRESH_S if any(run.running for run in runs) or self._lines.at_work else 0
        if only_parts:
            return _as_json(list_content(name, [*lines, *refused]), refresh_s)
        return Answer(200, run_list(name, [*lines, *refused], refresh_s))

    def _page(self, chosen: Listed, only_parts: bool) -> Answer:
        with self._reading:
            cached = self._pages.get(chosen.name)
            if cached is None or (cached.running and time.monotonic() - cached.at_s >= LEAST_REFRESH_S):
                try:
                    cached = self._make(chosen)
                except (NoRun, Wrong) as problem:
                    return Answer(503, said(chosen.name, str(problem)), {"Refresh": str(LEAST_REFRESH_S)})
        if only_parts:
            return _as_json(cached.parts or content(_page(Run(chosen.folder))), cached.refresh_s)
        return Answer(200, cached.text)

    def _make(self, chosen: Listed) -> _Made:
        begun_s = time.monotonic()
        page = _page(Run(chosen.folder))
        took_s = time.monotonic() - begun_s
        refresh_s = max(LEAST_REFRESH_S, round(REFRESH_TIMES * took_s)) if chosen.running else 0
        before = self._pages.pop(chosen.name, None)
        parts = content(page) if chosen.running or before else {}
        cached = _Made(to_html(page, refresh_s), parts, chosen.running, time.monotonic(), refresh_s)
        self._pages[chosen.name] = cached
        while len(self._pages) > KEPT_PAGES:
            del self._pages[next(iter(self._pages))]
        return cached


def _as_json(parts: dict[str, str], refresh_s: int) -> Answer:
    return Answer(200, json.dumps({**parts, "refresh_s": refresh_s}), kind="application/json")


class _Summaries:
    """What the list says of each run: read in the background, one run after the other, and nothing is written."""

    def __init__(self, reading: threading.Lock) -> None:
        self._reading = reading
        self._changing = threading.Lock()
        self._known: dict[Path, tuple[Summary, bool, float]] = {}  # whether it ran then, and until when that will do
        self._wanted: list[Listed] = []
        self.at_work = False

    def of(self, runs: list[Listed]) -> list[RunLine]:
        """At once, by what is known; the rest is there when the list is asked for again."""
        lines = []
        with self._changing:
            self._wanted = [run for run in runs if self._is_due(run)]
            if self._wanted and not self.at_work:
                self.at_work = True
                threading.Thread(target=self._work, daemon=True).start()
            for run in runs:
                known = self._known.get(run.folder)
                lines.append(_line(run, known[0] if known else None))
        return lines

    def _is_due(self, run: Listed) -> bool:
        known = self._known.get(run.folder)
        return known is None or known[1] != run.running or (run.running and time.monotonic() > known[2])

    def _work(self) -> None:
        while True:
            with self._changing:
                if not self._wanted:
                    self.at_work = False
                    return
                run = self._wanted.pop(0)
            begun_s = time.monotonic()
            summary = self._read(run)
            until_s = time.monotonic() + max(LEAST_REFRESH_S, SUMMARY_TIMES * (time.monotonic() - begun_s))
            with self._changing:
                self._known[run.folder] = (summary, run.running, until_s)

    def _read(self, run: Listed) -> Summary:
        with self._reading:
            try:
                return (None if run.running else kept_summary(run.folder)) or summarise(run.folder, keep=False)
            except Exception as problem:  # a run may change or go while it is read
                return Summary("", 0, None, str(problem))


def _line(run: Listed, summary: Summary | None, finding: str = NOT_READ) -> RunLine:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_ns / 1e9))
    recorded = bool(run.files)
    state = "running" if run.running else "ended" if recorded else "loaded"
    if summary is None:
        expected = f" of {run.expected_ranks}" if run.expected_ranks not in (None, run.files) else ""
        facts = [f"{run.files}{expected} process{'es' * (run.files != 1)}"] if recorded else []
        return RunLine(run.name, run.command, state, when, facts, finding=finding)
    details = (when, summary.facts, summary.step_ns, summary.curve, summary.finding)
    title = summary.command or run.command
    return RunLine(run.name, title if title != run.name else "", state if summary.facts else "unreadable", *details)


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
        url = urlsplit(self.path)
        token = parse_qs(url.query).get("token", [""])[0]
        if token and self._is_token(token):
            cookie = f"{COOKIE}={self.server.token}; Path=/; HttpOnly; SameSite=Strict"
            return Answer(303, "", {"Location": "/", "Set-Cookie": cookie})
        if not self._is_token(self._cookie()):
            return Answer(403, said("Refused", "Open the address that rankscope serve printed, with its token."))
        try:
            return self.server.site.answer(url.path)
        except Exception as problem:  # a run may change or go while it is read; the server must not
            return Answer(500, said("This run could not be shown", f"{type(problem).__name__}: {problem}"))

    def _is_for_us(self) -> bool:
        host = self.headers.get_all("Host") or []
        return len(host) == 1 and _name_of(host[0]) in OWN_NAMES

    def _is_token(self, candidate: str) -> bool:
        return hmac.compare_digest(candidate.encode("utf-8", "replace"), self.server.token.encode())

    def _cookie(self) -> str:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        return cookie.value if cookie is not None else ""

    def _send(self, answer: Answer, body: bool = True) -> None:
        raw = answer.text.encode("utf-8", "backslashreplace")
        headers = {"Content-Type": f"{answer.kind}; charset=utf-8", "Vary": "Accept-Encoding"}
        if "gzip" in self.headers.get("Accept-Encoding", "") and len(raw) >= LEAST_PACKED:
            raw, headers["Content-Encoding"] = gzip.compress(raw, 4), "gzip"
        headers["Content-Length"] = str(len(raw))
        self.send_response(answer.status)
        for name, value in {**HEADERS, **headers, **answer.headers}.items():
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
