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


def test_models_process_and_build_as_a_parser_of_prometheus_reads_them():
    parser = pytest.importorskip("prometheus_client.parser")
    states = [('a"b', 3, True), ("c", 0, False)]
    metrics = server_metrics.Metrics(lambda: 3, lambda: 0, lambda: False, lambda: states)
    metrics.count_request("/b", 200, "c")
    metrics.count_request("/b", 404)
    metrics.count_batch(5, 0.01, "c")
    families = {
        family.name: family
        for family in parser.text_string_to_metric_families(metrics.page().decode())
    }

    def values(name, family=None):
        found = families[family or name].samples
        return {tuple(row.labels.values()): row.value for row in found if row.name == name}

    assert values("albert_model_waiting_rows") == {('a"b',): 3.0, ("c",): 0.0}
    assert values("albert_model_ready") == {('a"b',): 1.0, ("c",): 0.0}
    assert values("albert_model_requests_total", "albert_model_requests") == {("c", "200"): 1.0}
    assert values("albert_model_batch_rows_count", "albert_model_batch_rows") == {("c",): 1.0}
    assert values("albert_model_batch_seconds_sum", "albert_model_batch_seconds") == {("c",): 0.01}
    (build,) = families["albert_build_info"].samples
    assert build.value == 1.0 and build.labels.keys() == {"version", "python"}
    if "process_resident_memory_bytes" in families:  # not on every system
        assert values("process_resident_memory_bytes")[()] > 1e6
        assert values("process_open_fds")[()] > 0
