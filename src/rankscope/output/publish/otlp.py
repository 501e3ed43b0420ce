"""OpenTelemetry: values over OTLP, by HTTP or gRPC, through OpenTelemetry's own exporters."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from rankscope import __version__
from rankscope.model.metrics import Histogram, Kind, Metric, Point, Snapshot, Undelivered, Unusable
from rankscope.output.publish import reason

INSTALL = "pip install 'rankscope[otlp]'"
TIMEOUT_S = 5
METRICS_PATH = "/v1/metrics"
NOT_ACCEPTED = "not accepted"


class Otlp:
    """A collector, or whatever takes OTLP: http(s)://HOST:4318, or grpc(s)://HOST:4317.

    OTEL_EXPORTER_OTLP_HEADERS, …_CERTIFICATE and OTEL_RESOURCE_ATTRIBUTES are heeded, as the exporters do."""

    def __init__(self, endpoint: str) -> None:
        self.name = f"OTLP {endpoint}"
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https", "grpc", "grpcs") or not parts.hostname:
            raise Unusable(f"--otlp {endpoint}: give http://HOST:4318 or grpc://HOST:4317")
        try:
            from opentelemetry.sdk.metrics import export
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError:
            raise Unusable(f"--otlp needs OpenTelemetry's libraries: {INSTALL}") from None
        self._export, self._scope = export, InstrumentationScope("rankscope", __version__)
        self._resource = Resource.create
        self._exporter = _exporter(parts.scheme, endpoint)
        self._refusal = _Refusal()

    def send(self, now: Snapshot) -> None:
        with self._refusal:
            try:
                result = self._exporter.export(self._data(now), timeout_millis=TIMEOUT_S * 1000)
            except Exception as problem:  # whatever a transport raises
                raise Undelivered(reason(str(problem)) or type(problem).__name__) from None
        if result is not self._export.MetricExportResult.SUCCESS:
            raise Undelivered(self._refusal.text)

    def finish(self, last: Snapshot, history: Callable[[], list[Snapshot]]) -> None:
        self.send(last)

    def _data(self, now: Snapshot) -> Any:
        by_metric: dict[Metric, list[Point]] = {}
        for point in now.points:
            by_metric.setdefault(point.metric, []).append(point)
        metrics = [self._metric(metric, points, now) for metric, points in by_metric.items()]
        about = {"service.name": "rankscope", "service.instance.id": now.run, "rankscope.run": now.run}
        of_scope = self._export.ScopeMetrics(self._scope, metrics, "")
        resource = self._resource(about)
        return self._export.MetricsData([self._export.ResourceMetrics(resource, [of_scope], "")])

    def _metric(self, metric: Metric, points: list[Point], now: Snapshot) -> Any:
        cumulative = self._export.AggregationTemporality.CUMULATIVE
        if metric.kind is Kind.HISTOGRAM:
            data = self._export.Histogram([self._distribution(point, now) for point in points], cumulative)
        else:
            values = [self._value(point, now) for point in points]
            data = (
                self._export.Sum(values, cumulative, True)
                if metric.kind is Kind.COUNTER
                else self._export.Gauge(values)
            )
        return self._export.Metric(metric.name, metric.about, metric.unit, data)

    def _value(self, point: Point, now: Snapshot) -> Any:
        started_ns = now.started_ns if point.metric.kind is Kind.COUNTER else None
        return self._export.NumberDataPoint(_attributes(point, now), started_ns, now.at_ns, point.value)

    def _distribution(self, point: Point, now: Snapshot) -> Any:
        assert isinstance(point.value, Histogram)
        distribution = point.value
        sums = (distribution.count, distribution.total, list(distribution.counts), list(distribution.bounds))
        least = most = None  # not known
        return self._export.HistogramDataPoint(_attributes(point, now), now.started_ns, now.at_ns, *sums, least, most)


def _attributes(point: Point, now: Snapshot) -> dict[str, str]:
    return {"run": now.run, **dict(zip(point.metric.attributes, point.words, strict=True))}


def _exporter(scheme: str, endpoint: str) -> Any:
    try:
        if scheme.startswith("grpc"):
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as Grpc

            address = endpoint.partition("://")[2].rstrip("/")
            return Grpc(endpoint=address, insecure=scheme == "grpc", timeout=TIMEOUT_S)
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http
    except ImportError:
        raise Unusable(f"--otlp needs OpenTelemetry's libraries: {INSTALL}") from None
    path = "" if urlsplit(endpoint).path.strip("/") else METRICS_PATH
    return Http(endpoint=endpoint.rstrip("/") + path, timeout=TIMEOUT_S)


class _Refusal(logging.Handler):
    """The exporters tell the log why they failed, and nobody else: heard here, so that it is told once."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._log = logging.getLogger("opentelemetry")

    def __enter__(self) -> None:
        self.text = NOT_ACCEPTED
        self._log.addHandler(self)
        self._log.propagate = False

    def __exit__(self, *_: object) -> None:
        self._log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """The first words say what is wrong, later ones that it was tried again."""
        if self.text == NOT_ACCEPTED:
            self.text = reason(record.getMessage()) or self.text
