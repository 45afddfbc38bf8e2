"""The metrics of a server, in the text format of Prometheus (exposition format 0.0.4)."""

import functools
import platform
from collections.abc import Callable, Iterable, Sequence

import prometheus_client

import albert

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)

prometheus_client.disable_created_metrics()  # times at which each metric was created


class Metrics:
    """Metrics of one server, in their own registry.

    Args:
      waiting: returns the number of waiting rows.
      connections: returns the number of open connections.
      ready: returns whether requests are answered.
      models: returns (name, number of waiting rows, whether it answers requests) for each model.
    """

    def __init__(
        self,
        waiting: Callable[[], int],
        connections: Callable[[], int],
        ready: Callable[[], bool],
        models: Callable[[], Iterable[tuple[str, int, bool]]] = tuple,
    ) -> None:
        self._registry = registry = prometheus_client.CollectorRegistry()
        # The library's own look-up takes longer than all else that counting does.
        self._of = functools.cache(lambda metric, *labels: metric.labels(*labels))
        self._requests = self._counter(
            "albert_requests_total", "Requests by path and status.", "path", "status"
        )
        self._seconds = self._histogram(
            "albert_request_seconds", "Seconds to the end of a reply.", _SECONDS, "path"
        )
        self._rows = self._histogram(
            "albert_batch_rows", "Texts or questions computed together.", _ROWS
        )
        self._batch_seconds = self._histogram(
            "albert_batch_seconds", "Seconds of computing a batch.", _SECONDS
        )
        self._closed = self._counter(
            "albert_connections_closed_total", "Connections closed to make room for others."
        )
        self._add_models(models)
        self._add_process()
        for name, help, read in (
            ("albert_connections", "Open connections.", connections),
            ("albert_waiting_rows", "Texts or questions that wait.", waiting),
            ("albert_ready", "1 when requests are answered.", ready),
        ):
            prometheus_client.Gauge(name, help, registry=registry).set_function(read)

    def _counter(self, name: str, help: str, *labels: str) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, help, labels, registry=self._registry)

    def _histogram(
        self, name: str, help: str, buckets: Sequence[float], *labels: str
    ) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            name, help, labels, registry=self._registry, buckets=buckets
        )

    def _add_models(self, models: Callable[[], Iterable[tuple[str, int, bool]]]) -> None:
        """Adds the metrics with the name of a model; those without it are sums over models."""
        self._model_requests = self._counter(
            "albert_model_requests_total", "Requests by model and status.", "model", "status"
        )
        self._model_rows = self._histogram(
            "albert_model_batch_rows",
            "Texts or questions computed together, by model.",
            _ROWS,
            "model",
        )
        self._model_batch_seconds = self._histogram(
            "albert_model_batch_seconds",
            "Seconds of computing a batch, by model.",
            _SECONDS,
            "model",
        )
        self._models = models
        self._model_waiting, self._model_ready = (
            prometheus_client.Gauge(name, help, ["model"], registry=self._registry)
            for name, help in (
                ("albert_model_waiting_rows", "Texts or questions that wait, by model."),
                ("albert_model_ready", "1 when the model answers requests."),
            )
        )

    def _add_process(self) -> None:
        """Adds memory, processor time and open files of this process, and what it was built of."""
        prometheus_client.ProcessCollector(registry=self._registry)
        build = prometheus_client.Info(
            "albert_build", "Versions of the program.", registry=self._registry
        )
        build.info({"version": albert.__version__, "python": platform.python_version()})

    def count_request(self, path: str, status: int, model: str | None = None) -> None:
        """Counts a reply, or with status 499 a client that closed the connection.

        `model`: name of the model that was asked, if any.
        """
        self._of(self._requests, path, status).inc()
        if model is not None:
            self._of(self._model_requests, model, status).inc()

    def time_request(self, path: str, seconds: float) -> None:
        """Records the seconds from a request to the end of its reply."""
        self._of(self._seconds, path).observe(seconds)

    def count_batch(self, rows: int, seconds: float, model: str | None = None) -> None:
        """Records the rows of a batch, the seconds that it took, and its model."""
        self._rows.observe(rows)
        self._batch_seconds.observe(seconds)
        if model is not None:
            self._of(self._model_rows, model).observe(rows)
            self._of(self._model_batch_seconds, model).observe(seconds)

    def count_closed(self) -> None:
        """Counts a connection that was closed to make room for another."""
        self._closed.inc()

    def page(self) -> bytes:
        """Returns the text of all metrics."""
        for name, rows, is_ready in self._models():
            self._model_waiting.labels(name).set(rows)
            self._model_ready.labels(name).set(is_ready)
        return prometheus_client.generate_latest(self._registry)
