"""Instruments: what they have counted, also when many threads count at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from lakemark_server.host import scrape_server
from lakemark_server.metrics.instruments import Buckets, Counter, Gauge, Histogram, Sample


def test_counters_and_gauges() -> None:
    counter, gauge = Counter("things_total", "Things.", ["kind"]), Gauge("here", "Now.")

    def count(number: int) -> None:
        counter.add("odd" if number % 2 else "even", by=2)
        gauge.add(1)
        gauge.add(-1)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(2_000)))
    assert sorted(counter.samples()) == [Sample(("even",), 2_000), Sample(("odd",), 2_000)]
    assert gauge.value == 0
    assert Counter("none_total", "Without labels.").samples() == [Sample((), 0)]


def test_histograms_count_by_bounds() -> None:
    histogram = Histogram("seconds", "Time.", ["what"], bounds=[0.1, 1.0])
    for seconds in (0.05, 0.1, 0.5, 3.0):
        histogram.observe(seconds, "a")
    assert histogram.buckets() == [Buckets(("a",), (2, 1, 1), 3.65)]
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for sample in scrape_server.histogram_family(histogram).samples
    }
    assert samples == {
        ("seconds_bucket", "0.1"): 2,
        ("seconds_bucket", "1.0"): 3,
        ("seconds_bucket", "+Inf"): 4,
        ("seconds_count", None): 4,
        ("seconds_sum", None): 3.65,
    }
