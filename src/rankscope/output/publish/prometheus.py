"""Prometheus: values as its text format, served for scrapes or written for a node exporter's text collector."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rankscope.model.metrics import Histogram, Point, Snapshot, Undelivered, Unusable
from rankscope.output.prometheus import CONTENT_TYPE, label, number, text
from rankscope.whole_file import write_whole

PATHS = ("/metrics", "/")


def exposition(now: Snapshot) -> str:
    """One moment of a job: the body of a scrape."""
    by_name: dict[str, list[Point]] = {}
    for point in now.points:
        by_name.setdefault(point.metric.prometheus_name, []).append(point)
    lines: list[str] = []
    for name, points in by_name.items():
        metric = points[0].metric
        lines += [f"# HELP {name} {text(metric.about)}", f"# TYPE {name} {metric.kind.value}"]
        for point in points:
            lines += _samples(name, point, now.run)
    return "\n".join([*lines, ""])


def _samples(name: str, point: Point, run: str) -> list[str]:
    labels = [f'run="{label(run)}"']
    labels += [f'{key}="{label(word)}"' for key, word in zip(point.metric.attributes, point.words, strict=True)]
    joined_labels = ",".join(labels)
    if not isinstance(point.value, Histogram):
        return [f"{name}{{{joined_labels}}} {number(point.value)}"]
    lines, so_far = [], 0
    for bound, count in zip([*map(number, point.value.bounds), "+Inf"], point.value.counts, strict=True):
        so_far += count
        lines.append(f'{name}_bucket{{{joined_labels},le="{bound}"}} {so_far}')
    return [
        *lines,
        f"{name}_sum{{{joined_labels}}} {number(point.value.total)}",
        f"{name}_count{{{joined_labels}}} {so_far}",
    ]


class TextFile:
    """A file that is always whole, for a node exporter's text collector."""

    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path
        if not path.resolve().parent.is_dir():
            raise Unusable(f"{path}: no such folder")

    def send(self, now: Snapshot) -> None:
        try:
            write_whole(self._path, [exposition(now).encode()])
        except OSError as problem:
            raise Undelivered(f"cannot be written: {(problem.strerror or str(problem)).lower()}") from None

    def finish(self, last: Snapshot, history: Callable[[], list[Snapshot]]) -> None:
        self.send(last)


class Scrapes(ThreadingHTTPServer):
    """Answers scrapes with the newest values, on one address alone. It is read-only."""

    daemon_threads = True

    def __init__(self, address: str, port: int) -> None:
        self.body = b""
        try:
            super().__init__((address, port), _Answers)
        except (OSError, OverflowError) as problem:
            why = getattr(problem, "strerror", None) or "ports go from 0 to 65535"
            raise Unusable(f"--prometheus {address}:{port}: {why.lower()}: choose another") from None
        self.name = f"http://{address}:{self.server_address[1]}/metrics"
        threading.Thread(target=self.serve_forever, name="scrapes", daemon=True).start()

    def send(self, now: Snapshot) -> None:
        self.body = exposition(now).encode()

    def finish(self, last: Snapshot, history: Callable[[], list[Snapshot]]) -> None:
        self.send(last)


class _Answers(BaseHTTPRequestHandler):
    server: Scrapes

    def do_GET(self) -> None:
        is_metrics = self.path.partition("?")[0] in PATHS
        body = self.server.body if is_metrics else b"metrics are at /metrics\n"
        self.send_response(404 if not is_metrics else 200 if body else 503)  # 503: the first look is not over
        self.send_header("Content-Type", CONTENT_TYPE if is_metrics else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Scrapes are no news."""
