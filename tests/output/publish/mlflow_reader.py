"""Prints the runs of an experiment with all their metrics, through MlflowClient: python mlflow_reader.py URI NAME."""

import json
import sys

from mlflow.tracking import MlflowClient

client = MlflowClient(tracking_uri=sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2])
told = []
for run in client.search_runs([experiment.experiment_id]):
    series = {
        name: [(one.step, one.value, one.timestamp) for one in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    tags = {name: value for name, value in run.data.tags.items() if not name.startswith("mlflow.")}
    named = {"name": run.info.run_name, "status": run.info.status, "id": run.info.run_id}
    told.append({**named, "tags": tags, "last": run.data.metrics, "series": series})
print(json.dumps(told))
