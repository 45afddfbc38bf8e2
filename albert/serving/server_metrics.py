"""The metrics of a server, in the text format of Prometheus (exposition format 0.0.4)."""

from collections.abc import Callable

import prometheus_client

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)

prometheus_client.disable_created_metrics()  # times at which each metric was created


class Metrics:
    """Metrics of one server, in their own registry.

    Args:
      waiting: function without arguments that returns the number of waiting rows.
      connections: function without arguments that returns the number of open connections.
      ready: function without arguments that returns whether requests are answered.
    """

    def __init__(
        self,
        waiting: Callable[[], int],
        connections: Callable[[], int],
        ready: Callable[[], bool],
    ) -> None:
        self._registry = registry = prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "albert_requests_total",
            "Requests by path and status.",
            ("path", "status"),
            registry=registry,
        )
        self._seconds = prometheus_client.Histogram(
            "albert_request_seconds",
            "Seconds to the end of a reply.",
            ("path",),
            registry=registry,
            buckets=_SECONDS,
        )
        self._rows = prometheus_client.Histogram(
            "albert_batch_rows",
            "Texts or questions computed together.",
            registry=registry,
            buckets=_ROWS,
        )
        self._batch_seconds = prometheus_client.Histogram(
            "albert_batch_seconds",
            "Seconds of computing a batch.",
            registry=registry,
            buckets=_SECONDS,
        )
        self._closed = prometheus_client.Counter(
            "albert_connections_closed_total",
            "Connections closed to make room for others.",
            registry=registry,
        )
        for name, help, read in (
            ("albert_connections", "Open connections.", connections),
            ("albert_waiting_rows", "Texts or questions that wait.", waiting),
            ("albert_ready", "1 when requests are answered.", ready),
        ):
            prometheus_client.Gauge(name, help, registry=registry).set_function(read)

    def count_request(self, path: str, status: int) -> None:
        """Counts a reply, or with status 499 a client that closed the connection."""
        self._requests.labels(path, status).inc()

    def time_request(self, path: str, seconds: float) -> None:
        """Records the seconds from a request to the end of its reply."""
        self._seconds.labels(path).observe(seconds)

    def count_batch(self, rows: int, seconds: float) -> None:
        """Records the rows of a batch and the seconds that it took."""
        self._rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def count_closed(self) -> None:
        """Counts a connection that was closed to make room for another."""
        self._closed.inc()

    def page(self) -> bytes:
        """Returns the text of all metrics."""
        return prometheus_client.generate_latest(self._registry)
