"""`rankscope publish`: sends a job's metrics to Prometheus, OpenTelemetry, MLflow or Weights & Biases."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rankscope.api.publish import Destination, NoRun, Outlet, Unusable, deliver, job_metrics
from rankscope.cli.printing import RUN_HELP
from rankscope.output.cells import printable
from rankscope.output.publish.otlp import Otlp
from rankscope.output.publish.prometheus import Scrapes, TextFile
from rankscope.output.publish.trackers import PROJECT, MLflow, WandB

HELP = "send a job's metrics to Prometheus, OpenTelemetry, MLflow or W&B"
ABOUT = """\
Send a job's metrics to the monitoring you use: step time and its parts, wait and transfer, straggler, hang,
slow-down, goodput, restarts, memory. It follows a running job until the job ends, or publishes a finished run once.
Nothing is loaded into the job, and data goes only to the destinations you name."""
EPILOG = """\
exit code: 0 published, 1 a destination did not take the last values, 2 nothing published (no such run, a library or
address that cannot be used)"""
LOCAL = "127.0.0.1"


def run(argv: list[str]) -> int:
    """0: published; 1: not the last values everywhere; 2: nothing."""
    options = parser().parse_args(argv)
    if options.every <= 0 or min(options.linger, options.wait) < 0:
        return refused("give --every more than 0, --wait and --linger at least 0 seconds")
    try:
        job = job_metrics(options.run, options.per_rank, options.wait)
        destinations = list(asked(options))
    except (NoRun, Unusable) as problem:
        return refused(str(problem))
    if not destinations:
        return refused("name a destination: --prometheus, --textfile, --otlp, --mlflow or --wandb")
    outlets = [Outlet(destination, warn, options.every) for destination in destinations]
    for destination in destinations:
        print(f"publishing {printable(job.name)} to {printable(destination.name)}", flush=True)
    try:
        for _ in deliver(job, outlets, options.every, options.once):
            pass
        if any(isinstance(destination, Scrapes) for destination in destinations):
            time.sleep(options.linger)
    except NoRun as problem:
        return refused(str(problem))
    except KeyboardInterrupt:
        pass  # the way to leave it
    return int(any(outlet.failures for outlet in outlets))


def asked(options: argparse.Namespace) -> Iterator[Destination]:
    if options.prometheus is not None:
        yield Scrapes(*options.prometheus)
    if options.textfile is not None:
        yield TextFile(options.textfile)
    if options.otlp is not None:
        yield Otlp(options.otlp)
    if options.mlflow is not None:
        yield MLflow(options.mlflow, options.project, options.run_id)
    if options.wandb is not None:
        yield WandB(options.wandb, options.project, options.run_id)


def address(text: str) -> tuple[str, int]:
    """[ADDRESS:]PORT"""
    host, _, port = text.rpartition(":")
    if not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: give a port, or ADDRESS:PORT")
    return host.strip("[]") or LOCAL, int(port)


def warn(text: str) -> None:
    print(f"rankscope: {printable(text)}", file=sys.stderr, flush=True)


def refused(text: str) -> int:
    warn(text)
    return 2


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser("rankscope publish", description=ABOUT, epilog=EPILOG)
    arguments.add_argument("run", nargs="?", type=Path, metavar="RUN", help=RUN_HELP)
    to = arguments.add_argument_group("destinations, one or more")
    to.add_argument(
        "--prometheus",
        type=address,
        metavar="[ADDRESS:]PORT",
        help=f"answer Prometheus' scrapes there (default address: {LOCAL})",
    )
    to.add_argument(
        "--textfile", type=Path, metavar="FILE", help="write FILE for a node exporter's text collector (FILE: *.prom)"
    )
    to.add_argument(
        "--otlp",
        metavar="ENDPOINT",
        help="send to an OpenTelemetry collector: http://HOST:4318 or grpc://HOST:4317 (rankscope[otlp])",
    )
    to.add_argument(
        "--mlflow", metavar="URI", help="log to MLflow: a tracking server, or a database (rankscope[mlflow])"
    )
    to.add_argument(
        "--wandb",
        type=Path,
        metavar="FOLDER",
        help="write offline files of Weights & Biases there; WANDB_MODE=online sends (rankscope[wandb])",
    )
    arguments.add_argument(
        "--every", type=float, default=10.0, metavar="SECONDS", help="time between updates (default: 10)"
    )
    arguments.add_argument(
        "--wait", type=float, default=0.0, metavar="SECONDS", help="wait this long for the run to begin (default: 0)"
    )
    arguments.add_argument("--once", action="store_true", help="publish once, even if the job is running")
    arguments.add_argument(
        "--per-rank", action="store_true", help="also metrics of each rank: one series per rank and metric"
    )
    arguments.add_argument(
        "--project", default=PROJECT, metavar="NAME", help=f"MLflow: experiment, W&B: project (default: {PROJECT})"
    )
    arguments.add_argument(
        "--run-id",
        metavar="ID",
        help="MLflow, W&B: add to the run with this id, such as the job's own, instead of a new one",
    )
    arguments.add_argument(
        "--linger",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="keep answering scrapes this long after the job has ended (default: 60)",
    )
    return arguments
