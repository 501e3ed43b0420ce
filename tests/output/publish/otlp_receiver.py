"""Receives OTLP with the receivers of oteltest, a line for each value: python otlp_receiver.py http|grpc PORT FILE."""

import json
import logging
import sys
from threading import Event

from oteltest.sink import GrpcSink, HttpSink
from oteltest.sink.handler import RequestHandler

HOW, PORT, FILE = sys.argv[1], int(sys.argv[2]), sys.argv[3]


class Lines(RequestHandler):
    """What opentelemetry-proto decodes, flat."""

    def handle_logs(self, request, context):
        pass

    def handle_trace(self, request, context):
        pass

    def handle_metrics(self, request, context):
        with open(FILE, "a") as file:
            for of_resource in request.resource_metrics:
                resource = words(of_resource.resource.attributes)
                for of_scope in of_resource.scope_metrics:
                    scope = of_scope.scope.name
                    for metric in of_scope.metrics:
                        for line in lines(metric):
                            print(json.dumps({"resource": resource, "scope": scope, **line}), file=file)


def words(attributes):
    return {one.key: one.value.string_value for one in attributes}


def lines(metric):
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    for point in data.data_points:
        made = {"name": metric.name, "unit": metric.unit, "kind": kind, "attributes": words(point.attributes)}
        made["at_ns"], made["start_ns"] = point.time_unix_nano, point.start_time_unix_nano
        if kind == "histogram":
            made |= {"count": point.count, "sum": point.sum, "counts": list(point.bucket_counts)}
            made |= {"bounds": list(point.explicit_bounds), "temporality": data.aggregation_temporality}
        else:
            made["value"] = point.as_double if point.WhichOneof("value") == "as_double" else point.as_int
        if kind == "sum":
            made |= {"temporality": data.aggregation_temporality, "monotonic": data.is_monotonic}
        yield made


logging.basicConfig(level=logging.WARNING)
sink = (GrpcSink if HOW == "grpc" else HttpSink)(Lines(), logging.getLogger("sink"), port=PORT)
sink.start()
print("ready", flush=True)
Event().wait()
