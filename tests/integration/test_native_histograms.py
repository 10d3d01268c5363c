"""Histograms that the server stores natively: the same numbers as from series of buckets."""

from datetime import UTC, datetime

import pytest

from frontier_tuner.objectives import SLO
from frontier_tuner.plants.processes import wait_for
from frontier_tuner.prometheus import PrometheusSource
from frontier_tuner.prometheus.engine_metrics import resolve
from frontier_tuner.prometheus.estimates import estimate_quantile, estimate_share
from frontier_tuner.prometheus.queries import Histogram, Span
from frontier_tuner.prometheus.reader import Reader
from support.prometheus_server import SERVERS, running
from support.scripted_server import Reply, ScriptedServer

pytestmark = pytest.mark.integration
NAME = "vllm:time_to_first_token_seconds"
COUNTS = {"0.1": 0, "0.25": 30, "0.5": 90, "1.0": 100, "+Inf": 100}


def exposition(times):
    buckets = "".join(f'{NAME}_bucket{{engine="0",le="{edge}"}} {count * times}\n' for edge, count in COUNTS.items())
    ends = f'{NAME}_sum{{engine="0"}} {37.5 * times}\n{NAME}_count{{engine="0"}} {100 * times}\n'
    return Reply(f"# TYPE {NAME} histogram\n{buckets}{ends}", headers={"Content-Type": "text/plain; version=0.0.4"})


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A source whose server has converted a classic histogram, scraped a few times by two jobs, and the time."""
    program = SERVERS.get("built")
    if program is None:
        pytest.skip("no Prometheus 3: REQUIRE_PROMETHEUS_3=1 builds one")
    with ScriptedServer(exposition(1), exposition(1), exposition(2)) as engine:
        job = {
            "scrape_interval": "200ms",
            "scrape_timeout": "200ms",
            "convert_classic_histograms_to_nhcb": True,
            "static_configs": [{"targets": [engine.url.removeprefix("http://")], "labels": {"pod": "p"}}],
        }
        config = {"scrape_configs": [{"job_name": name, **job} for name in ("svc", "podmon")]}
        with running(program, tmp_path_factory.mktemp("native"), config) as server:
            wait_for(lambda: len(engine.asked) > 8, 30, "some scrapes")
            with PrometheusSource(server.url) as source:
                yield source, datetime.now(UTC)


WHERE, SPAN = 'pod="p"', Span(60)


def test_a_histogram_without_series_of_buckets_is_found(stored):
    source, at = stored
    assert resolve(source, ["TTFT"], WHERE, SPAN, at).histograms == {"TTFT": Histogram(NAME, native=True)}


@pytest.mark.parametrize(
    ("percentile", "want", "edges"), [(50, 1 / 3, (0.25, 0.5)), (95, 0.75, (0.5, 1.0)), (99, 0.95, (0.5, 1.0))]
)
def test_quantiles_and_their_edges_are_those_of_the_classic_buckets(stored, percentile, want, edges):
    source, at = stored
    histogram = Histogram(NAME, native=True)
    reading = Reader(source, at).histogram(
        lambda where: histogram.final(where, SPAN), WHERE, [(percentile, lambda _: percentile / 100)]
    )
    got = estimate_quantile(reading, percentile, percentile / 100, reading.n)
    assert reading.n == 200  # two jobs scrape it, and it counts once
    assert got.value == pytest.approx(want, rel=1e-6)
    assert (got.low, got.high) == edges


def test_the_share_within_an_slo_is_exact_on_an_edge_and_bracketed_elsewhere(stored):
    source, at = stored
    histogram = Histogram(NAME, native=True)
    reading = Reader(source, at).histogram(
        lambda where: histogram.final(where, SPAN), WHERE, [(95, lambda _: 0.95)], [0.5, 0.4]
    )
    exact = estimate_share(reading, SLO("ttft", "TTFT", 95, maximum=0.5), reading.n)
    between = estimate_share(reading, SLO("ttft", "TTFT", 95, maximum=0.4), reading.n)
    assert exact.value == pytest.approx(0.9, rel=1e-6)
    assert 0.3 < between.value < 0.9
    assert between.low < 0.3
    assert between.high > 0.9


def test_mean_and_count_are_those_of_the_classic_series(stored):
    source, at = stored
    histogram = Histogram(NAME, native=True)
    reader = Reader(source, at)
    assert reader.number(histogram.final_count(WHERE, SPAN)) == 200
    assert reader.number(histogram.final_mean(WHERE, SPAN)) == pytest.approx(0.375)
    assert reader.number(histogram.mean(WHERE, SPAN)) == pytest.approx(0.375)
