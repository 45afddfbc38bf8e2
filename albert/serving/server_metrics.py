"""What a server counts, as the text that Prometheus reads.

Source: Prometheus, Exposition formats, text-based format 0.0.4.
"""

import bisect
import threading

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


def _escaped(value):
    return str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _sample(name, labels, value):
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


class Counter:
    """A number for each set of labels, which only grows.

    Args:
      name, help: of the metric.
      labels: names of the labels.
    """

    kind = "counter"

    def __init__(self, name, help, labels=()):
        self.name, self.help, self._labels = name, help, labels
        self._values = {}
        self._lock = threading.Lock()

    def add(self, *labels, amount=1):
        """Counts, for these values of the labels."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + amount

    def lines(self):
        """Lines of its samples."""
        with self._lock:
            values = sorted(self._values.items())
        for labels, value in values:
            yield _sample(self.name, dict(zip(self._labels, labels, strict=True)), value)


class Gauge:
    """A number that a function tells when it is asked.

    Args:
      name, help: of the metric.
      read: function without arguments.
    """

    kind = "gauge"

    def __init__(self, name, help, read):
        self.name, self.help, self._read = name, help, read

    def lines(self):
        """Lines of its samples."""
        yield _sample(self.name, {}, self._read())


class Histogram:
    """How often values up to some bounds came, for each set of labels.

    Args:
      name, help: of the metric.
      bounds: rising numbers.
      labels: names of the labels.
    """

    kind = "histogram"

    def __init__(self, name, help, bounds, labels=()):
        self.name, self.help, self._labels = name, help, labels
        self._bounds = bounds
        self._values = {}  # labels: [counts by bucket, the last without bound; sum]
        self._lock = threading.Lock()

    def observe(self, value, *labels):
        """Counts a value, for these values of the labels."""
        with self._lock:
            empty = [[0] * (len(self._bounds) + 1), 0.0]
            found = self._values.setdefault(labels, empty)
            found[0][bisect.bisect_left(self._bounds, value)] += 1
            found[1] += value

    def lines(self):
        """Lines of its samples."""
        with self._lock:
            values = sorted(
                (key, [*counts], total) for key, (counts, total) in self._values.items()
            )
        for key, counts, total in values:
            labels = dict(zip(self._labels, key, strict=True))
            below = 0
            for bound, count in zip((*self._bounds, "+Inf"), counts, strict=True):
                below += count
                yield _sample(f"{self.name}_bucket", {**labels, "le": bound}, below)
            yield _sample(f"{self.name}_sum", labels, total)
            yield _sample(f"{self.name}_count", labels, below)


def page(metrics):
    """The text of some metrics."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
        lines += metric.lines()
    return "".join(f"{line}\n" for line in lines)
