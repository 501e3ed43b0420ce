"""Prometheus, receivers of OTLP, MLflow and Weights & Biases themselves get what `rankscope publish` promises."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpis import ROOT, find_mpi
from output.publish.known_run import LATE, LATE_S, PARTS_S, STEP_S, STEPS, known_run
from questions.live.jobs import end_family
from questions.live.test_hang_mpi import started

HERE = Path(__file__).parent
DEADLINE_S = 120
QUIET = {"OTEL_SDK_DISABLED": "", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
ENVIRONMENT = ROOT / ".envs" / "publish"
PYTHON = ENVIRONMENT / "bin" / "python"
PROMETHEUS = ROOT / ".envs" / "prometheus" / "usr" / "bin" / "prometheus"
ALERTS, BOARD = (ROOT / "examples" / "grafana" / name for name in ("alerts.yml", "rankscope.json"))
with_libraries = pytest.mark.skipif(
    not (ENVIRONMENT / ".ready").exists(), reason=".envs/publish is missing: run make env-publish"
)
with_prometheus = pytest.mark.skipif(
    not PROMETHEUS.exists(), reason=".envs/prometheus is missing: run make env-publish"
)
pytestmark = pytest.mark.slow


def find_rotel() -> Path | None:
    """The collector in rotel's wheel."""
    return next(ENVIRONMENT.glob("lib/python*/site-packages/rotel/rotel-agent"), None)


def publishing(*options: str | Path, python: Path = PYTHON) -> list[str]:
    return [str(python), "-m", "rankscope", "publish", *map(str, options)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": "/nonexistent", **QUIET}


def published(*options: str | Path) -> subprocess.CompletedProcess[str]:
    words = publishing(*options)
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)


@contextlib.contextmanager
def going(argv: list[str], folder: Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A program with its output in a file, that ends with the test."""
    with (folder / f"{Path(argv[0]).name}.log").open("a") as log:
        job: subprocess.Popen[str] = subprocess.Popen(
            argv, env=environment(), stdout=log, stderr=log, text=True, cwd=folder, **more
        )
        try:
            yield job
        finally:
            end_family(job)


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def until(ask: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first answer that is something."""
    deadline = time.monotonic() + deadline_s
    while True:
        with contextlib.suppress(OSError, ValueError):
            if found := ask():
                return found
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.2)


# ---------------------------------------------------------------- Prometheus
class Server:
    """A Prometheus of its own that scrapes one port every second."""

    def __init__(self, folder: Path, target: int) -> None:
        self.port = free_port()
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(ALERTS)],
            "scrape_configs": [{"job_name": "training", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.argv = [
            *(str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"),
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def ask(self, path: str, **query: str) -> Any:
        words = f"?{urllib.parse.urlencode(query)}" if query else ""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}{words}", timeout=30) as answer:
            told = json.load(answer)
        assert told["status"] == "success", told
        return told["data"]

    def firing(self) -> list[str]:
        """Alerts, without those that still wait."""
        alerts = self.ask("alerts")["alerts"]
        return [one["labels"]["alertname"] for one in alerts if one["state"] == "firing"]

    def value(self, query: str) -> float | None:
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None


@with_prometheus
def test_prometheus_scrapes_a_run_and_the_dashboard_asks_it(tmp_path: Path) -> None:
    port = free_port()
    server = Server(tmp_path, port)
    words = publishing(
        *(known_run(tmp_path / "march"), "--prometheus", str(port), "--linger", "600", "--per-rank"),
        python=Path(sys.executable),
    )
    with going(words, tmp_path), going(server.argv, tmp_path):
        forward = until(lambda: server.value('rankscope_step_part_seconds{part="forward",run="march"}'), "a value")
        assert forward == pytest.approx(PARTS_S["forward"])
        assert server.value("rankscope_steps_total") == STEPS
        assert server.value("rankscope_straggler_rank") == LATE
        assert server.value("rankscope_communication_wait_ratio") == pytest.approx(LATE_S / STEP_S / 2)
        assert server.value('rankscope_rank_steps_total{rank="1"}') == STEPS
        quantile = "histogram_quantile(0.5, rankscope_step_duration_seconds_bucket)"
        assert 0.005 < (server.value(quantile) or 0) <= 0.01
        [target] = server.ask("targets")["activeTargets"]
        assert target["health"] == "up" and target["lastError"] == ""
        kinds = {name: told[0]["type"] for name, told in server.ask("metadata").items()}
        assert kinds["rankscope_steps_total"] == "counter"
        assert kinds["rankscope_step_duration_seconds"] == "histogram"
        # every question of the dashboard is one that Prometheus understands, and most have an answer here
        asked = [target["expr"] for panel in json.loads(BOARD.read_text())["panels"] for target in panel["targets"]]
        answered = [server.value(expr.replace("$run", "march")) is not None for expr in asked]
        assert sum(answered) >= len(asked) // 2
        [rules] = until(lambda: server.ask("rules")["groups"], "the rules")
        assert len(rules["rules"]) == 6 and all(rule["health"] in ("ok", "unknown") for rule in rules["rules"])


@with_prometheus
def test_prometheus_follows_a_running_job_and_its_alert_fires(tmp_path: Path) -> None:
    port = free_port()
    server = Server(tmp_path, port)
    with started(find_mpi("openmpi"), "slow", tmp_path) as job:
        words = publishing(
            tmp_path / "run", "--prometheus", str(port), "--every", "1", "--linger", "60", python=Path(sys.executable)
        )
        with going(words, tmp_path), going(server.argv, tmp_path):
            until(lambda: server.value("rankscope_straggler_rank") == 2, "the straggler")
            assert server.value('rankscope_ranks{state="running"}') == 4
            assert until(lambda: server.value("rate(rankscope_collectives_total[1m])"), "a rate") > 0
            end_family(job)
            until(lambda: server.value('rankscope_ranks{state="failed"}') == 4, "the end")
            until(lambda: "TrainingRanksFailed" in server.firing(), "the alert")


# ---------------------------------------------------------------- OpenTelemetry
@contextlib.contextmanager
def receiving(how: str, port: int, folder: Path) -> Iterator[Path]:
    out = folder / "received.jsonl"
    words = [str(PYTHON), str(HERE / "otlp_receiver.py"), how, str(port), str(out)]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
            yield out
        finally:
            receiver.kill()


def received(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The last of each metric, by its attributes."""
    told = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert all(one["attributes"].pop("run") for one in told)
    return {(one["name"], ",".join(one["attributes"].values())): one for one in told}


@with_libraries
@pytest.mark.parametrize("how", ["http", "grpc"])
def test_a_receiver_of_otlp_gets_every_value(how: str, tmp_path: Path) -> None:
    port = free_port()
    with receiving(how, port, tmp_path) as out:
        done = published(known_run(tmp_path / "march"), "--otlp", f"{how}://127.0.0.1:{port}", "--per-rank")
        assert done.returncode == 0 and done.stderr == "", done.stderr
        found = until(lambda: received(out), "values")
    as_promised(found)


def as_promised(found: dict[tuple[str, str], dict[str, Any]]) -> None:
    cumulative = 2
    for part, seconds in PARTS_S.items():
        told = found["rankscope.step.part", part]
        assert told["value"] == pytest.approx(seconds) and (told["unit"], told["kind"]) == ("s", "gauge")
    steps = found["rankscope.steps", ""]
    assert (steps["value"], steps["kind"], steps["monotonic"], steps["temporality"]) == (STEPS, "sum", True, cumulative)
    assert 0 < steps["start_ns"] <= steps["at_ns"]
    lengths = found["rankscope.step.duration", ""]
    assert (lengths["count"], lengths["kind"], lengths["temporality"]) == (2 * STEPS, "histogram", cumulative)
    assert lengths["sum"] == pytest.approx(2 * STEPS * STEP_S)
    assert sum(lengths["counts"]) == 2 * STEPS and len(lengths["counts"]) == len(lengths["bounds"]) + 1
    assert found["rankscope.straggler.rank", ""]["value"] == LATE
    assert found["rankscope.rank.steps", f"{LATE},node0"]["value"] == STEPS
    resource = lengths["resource"]
    assert resource["service.name"] == "rankscope" and resource["rankscope.run"] == "march"
    assert lengths["scope"] == "rankscope"


@with_libraries
def test_a_receiver_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    with started(find_mpi("openmpi"), "slow", tmp_path) as job:
        words = publishing(tmp_path / "run", "--otlp", f"http://127.0.0.1:{port}", "--every", "1")
        with subprocess.Popen(words, env=environment(), stderr=subprocess.PIPE, text=True) as publisher:
            assert publisher.stderr is not None
            first = publisher.stderr.readline()
            assert first == f"rankscope: OTLP http://127.0.0.1:{port}: connection refused; trying again\n"
            with receiving("http", port, tmp_path) as out:
                found = until(lambda: received(out), "values")
                assert found["rankscope.ranks", "running"]["value"] == 4
                assert "delivered again, after" in publisher.stderr.readline()
                end_family(job)
                assert publisher.wait(DEADLINE_S) == 0
                assert received(out)["rankscope.ranks", "failed"]["value"] == 4


@with_libraries
def test_nobody_there_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    port = free_port()
    done = published(known_run(tmp_path / "run"), "--otlp", f"grpc://127.0.0.1:{port}")
    assert done.returncode == 1
    assert done.stderr == f"rankscope: OTLP grpc://127.0.0.1:{port}: connection refused; trying again\n"


@with_libraries
@pytest.mark.skipif(
    not find_rotel(), reason="no wheel of rotel for this Python, or .envs/publish is older: make env-publish"
)
@pytest.mark.parametrize("how", ["http", "grpc"])
def test_a_collector_gets_every_value_and_passes_it_on(how: str, tmp_path: Path) -> None:
    ports = {"http": free_port(), "grpc": free_port(), "out": free_port()}
    words = [
        *(str(find_rotel()), "start", "--pid-file", str(tmp_path / "pid"), "--log-file", str(tmp_path / "log")),
        *("--otlp-http-endpoint", f"127.0.0.1:{ports['http']}", "--otlp-grpc-endpoint", f"127.0.0.1:{ports['grpc']}"),
        *("--exporter", "otlp", "--otlp-exporter-endpoint", f"http://127.0.0.1:{ports['out']}"),
    ]
    with receiving("grpc", ports["out"], tmp_path) as out, going(words, tmp_path):
        until(lambda: socket.create_connection(("127.0.0.1", ports[how]), 5).close() or True, "the collector")
        done = published(known_run(tmp_path / "march"), "--otlp", f"{how}://127.0.0.1:{ports[how]}", "--per-rank")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        found = until(lambda: received(out), "values")
    as_promised(found)


@with_libraries
def test_opentelemetrys_own_collector_gets_every_value(tmp_path: Path) -> None:
    collector = os.environ.get("RANKSCOPE_OTELCOL") or shutil.which("otelcol") or shutil.which("otelcol-contrib")
    if not collector:
        pytest.skip("no otelcol on PATH: name one with RANKSCOPE_OTELCOL")
    port, scrape = free_port(), free_port()
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{scrape}"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["prometheus"]}},
        },
    }
    (tmp_path / "otelcol.yml").write_text(json.dumps(config))
    with going([collector, "--config", str(tmp_path / "otelcol.yml")], tmp_path):
        until(lambda: socket.create_connection(("127.0.0.1", port), 5).close() or True, "the collector")
        done = published(known_run(tmp_path / "march"), "--otlp", f"http://127.0.0.1:{port}")
        assert done.returncode == 0, done.stderr
        with urllib.request.urlopen(f"http://127.0.0.1:{scrape}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    for name in ("rankscope_step_part_seconds", "rankscope_steps_total", "rankscope_communication_wait_ratio"):
        assert f"\n{name}{{" in text


# ---------------------------------------------------------------- MLflow
def runs_of(uri: str, experiment: str) -> list[dict[str, Any]]:
    words = [str(PYTHON), str(HERE / "mlflow_reader.py"), uri, experiment]
    told = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert told.returncode == 0, told.stderr
    return list(json.loads(told.stdout.splitlines()[-1]))


@with_libraries
@pytest.mark.timeout(900)
def test_mlflow_has_the_run_and_its_steps(tmp_path: Path) -> None:
    port = free_port()
    uri = f"http://127.0.0.1:{port}"
    server = [
        *(str(PYTHON), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.db'}", "--artifacts-destination", str(tmp_path)),
    ]
    run = known_run(tmp_path / "march")
    with going(server, tmp_path):
        until(lambda: urllib.request.urlopen(f"{uri}/health", timeout=30).read(), "MLflow's server", 600)
        done = published(run, "--mlflow", uri)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        [found] = runs_of(uri, "rankscope")
        assert (found["name"], found["status"], found["tags"]) == ("march", "FINISHED", {"rankscope.run": "march"})
        forward = found["series"]["rankscope/step_part_seconds/forward"]
        assert [step for step, _, _ in forward] == list(range(1, STEPS + 1))
        assert all(value == pytest.approx(PARTS_S["forward"]) for _, value, _ in forward)
        assert forward[-1][2] > forward[0][2]
        assert found["last"]["rankscope/straggler_rank"] == LATE
        assert found["last"]["rankscope/step_p99_seconds"] == pytest.approx(STEP_S)
        again = published(run, "--mlflow", uri, "--run-id", found["id"], "--per-rank")
        assert (again.returncode, again.stderr) == (0, ""), again.stderr
        [same] = runs_of(uri, "rankscope")
        assert same["id"] == found["id"] and same["last"]["rankscope/rank_steps_total/1"] == STEPS


# ---------------------------------------------------------------- Weights & Biases
def records(folder: Path) -> list[dict[str, Any]]:
    [file] = folder.glob("wandb/offline-run-*/run-*.wandb")
    words = [str(PYTHON), str(HERE / "wandb_reader.py"), str(file)]
    own = {**environment(), "PYTHONPATH": str(ENVIRONMENT / "wandb_reader")}
    told = subprocess.run(words, env=own, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


@with_libraries
def test_an_offline_folder_of_wandb_has_the_run_and_its_steps(tmp_path: Path) -> None:
    run = known_run(tmp_path / "march", command=b"python\0train.py\0--key\0SECRET\0")
    done = published(run, "--wandb", tmp_path / "offline", "--project", "lab", "--run-id", "abc")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    told = records(tmp_path / "offline")
    [named] = [one["run"] for one in told if "run" in one]
    assert (named["project"], named["id"]) == ("lab", "abc")
    history = [one["history"] for one in told if "history" in one]
    assert [one["rankscope/step"] for one in history[:-1]] == list(range(1, STEPS + 1))
    assert all(
        one[f"rankscope/step_part_seconds/{part}"] == pytest.approx(seconds)
        for one in history[:-1]
        for part, seconds in PARTS_S.items()
    )
    assert history[-1]["rankscope/straggler_rank"] == LATE
    summary: dict[str, Any] = {}
    for one in told:
        summary |= one.get("summary", {})
    assert summary["rankscope/step_p50_seconds"] == pytest.approx(STEP_S)
    assert summary["rankscope/goodput_ratio"] == pytest.approx(0.1)
    # nothing of the machine, of the code or of the command goes along
    assert "SECRET" not in json.dumps(told)
    kept = [path.name for path in (tmp_path / "offline").glob("wandb/offline-run-*/files/**/*") if path.is_file()]
    assert kept == []
