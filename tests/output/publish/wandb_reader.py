"""Prints the records of a .wandb file as lines, with wandb's own reader: python wandb_reader.py FILE."""

import json
import sys

from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal.datastore import DataStore


def values(items):
    return {"/".join(one.nested_key) or one.key: json.loads(one.value_json) for one in items}


file = DataStore()
file.open_for_scan(sys.argv[1])
while (data := file.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    if kind == "history":
        print(json.dumps({"history": values(record.history.item)}))
    elif kind == "summary":
        print(json.dumps({"summary": values(record.summary.update)}))
    elif kind == "run":
        told = record.run
        print(json.dumps({"run": {"project": told.project, "name": told.display_name, "id": told.run_id}}))
    else:
        print(json.dumps({"other": kind, "text": str(getattr(record, kind))}))
