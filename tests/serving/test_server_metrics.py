"""The text that Prometheus reads."""

import pytest

pytest.importorskip("prometheus_client")

from albert.serving import server_metrics  # noqa: E402

_BOUNDS = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0"]


def test_the_page():
    metrics = server_metrics.Metrics(lambda: 3, lambda: 4, lambda: False)
    for path, status in (("/b", 200), ('/"a"\\\n', 500), ("/b", 200)):
        metrics.count_request(path, status)
    for seconds in (0.5, 0.75, 8.0):
        metrics.time_request("/b", seconds)
    metrics.count_batch(5, 0.01)
    lines = metrics.page().decode().splitlines()
    assert lines[:4] == [
        "# HELP albert_requests_total Requests by path and status.",
        "# TYPE albert_requests_total counter",
        'albert_requests_total{path="/b",status="200"} 2.0',
        r'albert_requests_total{path="/\"a\"\\\n",status="500"} 1.0',
    ]
    counts = [0] * 6 + [1, 2, 2, 2, 3, 3, 3]
    assert [line for line in lines if line.startswith("albert_request_seconds")] == [
        *(
            f'albert_request_seconds_bucket{{le="{bound}",path="/b"}} {float(count)}'
            for bound, count in zip([*_BOUNDS, "30.0", "+Inf"], counts, strict=True)
        ),
        'albert_request_seconds_count{path="/b"} 3.0',
        'albert_request_seconds_sum{path="/b"} 9.25',
    ]
    rows = [line for line in lines if line.startswith("albert_batch_rows_bucket")]
    bounds = ("1.0", "2.0", "4.0", "8.0", "16.0", "32.0", "64.0", "128.0", "+Inf")
    assert rows == [
        f'albert_batch_rows_bucket{{le="{bound}"}} {float(place > 2)}'
        for place, bound in enumerate(bounds)
    ]
    assert "albert_batch_seconds_count 1.0" in lines
    assert lines[-6:] == [
        "# HELP albert_waiting_rows Texts or questions that wait.",
        "# TYPE albert_waiting_rows gauge",
        "albert_waiting_rows 3.0",
        "# HELP albert_ready 1 when requests are answered.",
        "# TYPE albert_ready gauge",
        "albert_ready 0.0",
    ]


def test_servers_have_their_own_metrics():
    first, second = (server_metrics.Metrics(lambda: 0, lambda: 0, lambda: True) for _ in range(2))
    first.count_request("/b", 200)
    assert b'status="200"' in first.page() and b'status="200"' not in second.page()
