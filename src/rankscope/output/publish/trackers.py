"""Experiment trackers: values as the metrics of a run of MLflow or of Weights & Biases, by step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rankscope.model.metrics import Histogram, Snapshot, Undelivered, Unusable
from rankscope.output.publish import reason

PROJECT = "rankscope"
BATCH = 1000  # values that MLflow takes at a time
LEFT_OUT = "rankscope.run.info"


def flat(now: Snapshot) -> dict[str, float]:
    """Values by names as trackers group them: rankscope/step_part_seconds/forward; ranks by their number."""
    values: dict[str, float] = {}
    for point in now.points:
        if isinstance(point.value, Histogram) or point.metric.name == LEFT_OUT:
            continue
        words = point.words[:1] if "rank" in point.metric.attributes else point.words
        values["/".join([point.metric.prometheus_name.replace("_", "/", 1), *words])] = float(point.value)
    return values


def whole(last: Snapshot, steps: Iterable[Snapshot]) -> dict[str, float]:
    """What is known of a run as a whole, without what is known of its steps one by one."""
    by_step = {name for snapshot in steps for name in flat(snapshot)}
    return {name: value for name, value in flat(last).items() if name not in by_step}


class MLflow:
    """A tracking server or database of MLflow: a run of its own, or the job's own by its id."""

    def __init__(self, uri: str, project: str, run_id: str | None) -> None:
        self.name = f"MLflow {uri}"
        # Refusals come back soon, and MLflow tells its makers nothing, unless the user wants otherwise.
        for name, value in (
            ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"),
            ("MLFLOW_HTTP_REQUEST_TIMEOUT", "20"),
            ("MLFLOW_DISABLE_TELEMETRY", "true"),
            ("MLFLOW_LOGGING_LEVEL", "WARNING"),
        ):
            os.environ.setdefault(name, value)
        try:
            from mlflow.entities import Metric
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise Unusable("--mlflow needs MLflow's library: pip install 'rankscope[mlflow]'") from None
        self._metric = Metric
        try:
            self._client: Any = MlflowClient(tracking_uri=uri)
        except Exception as problem:  # of MLflow or of its database
            raise Unusable(f"--mlflow {uri}: {_why(problem)}") from None
        self._project, self._run, self._is_ours, self._sent = project, run_id, run_id is None, False

    def send(self, now: Snapshot) -> None:
        self._call(lambda: self._log(now.run, self._values(flat(now), now)))
        self._sent = True

    def finish(self, last: Snapshot, history: Callable[[], list[Snapshot]]) -> None:
        steps = [] if self._sent else history()
        values = [value for snapshot in steps for value in self._values(flat(snapshot), snapshot)]
        values += self._values(whole(last, steps), last)
        self._call(lambda: self._log(last.run, values))
        if self._is_ours:
            self._call(lambda: self._client.set_terminated(self._run))

    def _call(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except Exception as problem:  # of MLflow, of its database, of the network
            raise Undelivered(_why(problem)) from None

    def _values(self, values: dict[str, float], at: Snapshot) -> list[Any]:
        return [self._metric(name, value, at.at_ns // 1_000_000, at.step or 0) for name, value in values.items()]

    def _log(self, run: str, values: list[Any]) -> None:
        if self._run is None:
            known = self._client.get_experiment_by_name(self._project)
            experiment = known.experiment_id if known else self._client.create_experiment(self._project)
            tags = {"rankscope.run": run}
            self._run = self._client.create_run(experiment, run_name=run, tags=tags).info.run_id
        for some in _batches(values, BATCH):
            self._client.log_batch(self._run, metrics=some)


class WandB:
    """Offline files of Weights & Biases, which `wandb sync` sends; with WANDB_MODE=online its server as well."""

    def __init__(self, folder: Path, project: str, run_id: str | None) -> None:
        self.name = f"W&B {folder}"
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        try:
            import wandb
        except ImportError:
            raise Unusable("--wandb needs the library of Weights & Biases: pip install 'rankscope[wandb]'") from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise Unusable(f"--wandb {folder}: {(problem.strerror or str(problem)).lower()}") from None
        self._wandb: Any = wandb
        self._folder, self._project, self._run_id, self._sent = folder, project, run_id, False
        self._run: Any = None

    def send(self, now: Snapshot) -> None:
        self._call(lambda: self._opened(now.run).log({"rankscope/step": now.step or 0, **flat(now)}))
        self._sent = True

    def finish(self, last: Snapshot, history: Callable[[], list[Snapshot]]) -> None:
        steps = [] if self._sent else history()

        def log() -> None:
            run = self._opened(last.run)
            for snapshot in steps:
                run.log({"rankscope/step": snapshot.step or 0, **flat(snapshot)})
            if not self._sent:
                run.log({"rankscope/step": last.step or 0, **whole(last, steps)})
            run.summary.update(flat(last))
            run.finish()

        self._call(log)

    def _call(self, ask: Callable[[], Any]) -> None:
        try:
            ask()
        except Exception as problem:  # of W&B, of its service, of the network
            raise Undelivered(_why(problem)) from None

    def _opened(self, name: str) -> Any:
        """Nothing of this machine or of the code goes along: no statistics, output, git, packages."""
        if self._run is None:
            quiet = self._wandb.Settings(
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                x_disable_meta=True,
                x_save_requirements=False,
            )
            self._run = self._wandb.init(
                dir=str(self._folder),
                mode=os.environ.get("WANDB_MODE", "offline"),
                project=self._project,
                name=None if self._run_id else name,
                id=self._run_id,
                resume="allow" if self._run_id else None,
                config={"rankscope_run": name},
                settings=quiet,
            )
            self._run.define_metric("rankscope/*", step_metric="rankscope/step")
        return self._run


def _batches(values: Iterable[Any], most: int) -> Iterator[list[Any]]:
    rest = iter(values)
    while some := list(islice(rest, most)):
        yield some


def _why(problem: Exception) -> str:
    return reason(str(problem)) or type(problem).__name__
