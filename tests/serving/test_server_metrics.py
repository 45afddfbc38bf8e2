"""The text that Prometheus reads."""

from albert.serving import server_metrics


def test_the_page():
    counter = server_metrics.Counter("done_total", "What was done.", ("path", "status"))
    counter.add("/b", 200)
    counter.add('/"a"\\\n', 500, amount=2_000_001)
    counter.add("/b", 200)
    histogram = server_metrics.Histogram("took_seconds", "How long.", (0.5, 1.0), ("path",))
    for value in (0.5, 0.75, 8.0):
        histogram.observe(value, "/b")
    gauge = server_metrics.Gauge("waiting", "How many wait.", lambda: 3)
    assert server_metrics.page([counter, histogram, gauge]).splitlines() == [
        "# HELP done_total What was done.",
        "# TYPE done_total counter",
        r'done_total{path="/\"a\"\\\n",status="500"} 2000001',
        'done_total{path="/b",status="200"} 2',
        "# HELP took_seconds How long.",
        "# TYPE took_seconds histogram",
        'took_seconds_bucket{path="/b",le="0.5"} 1',
        'took_seconds_bucket{path="/b",le="1.0"} 2',
        'took_seconds_bucket{path="/b",le="+Inf"} 3',
        'took_seconds_sum{path="/b"} 9.25',
        'took_seconds_count{path="/b"} 3',
        "# HELP waiting How many wait.",
        "# TYPE waiting gauge",
        "waiting 3",
    ]
