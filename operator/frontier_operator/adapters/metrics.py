"""Windows asked of Prometheus: the tuner's measurement with the labels that pods have in a cluster."""

from datetime import timedelta

from frontier_operator.ports import Clock, LiveRequest, RungRequest
from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.learned import LENGTHS_AND_RATE, Learned, TooFewRequestsError, learn, learning_queries
from frontier_tuner.measurement import Measurement, Window
from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.live import measure_live
from frontier_tuner.prometheus.rung import Scope, evaluation_time, measure_rung
from frontier_tuner.prometheus.source import MetricsSource
from frontier_tuner.prometheus.validity import Limits


class PrometheusMetrics:
    """`ports.Metrics` on one Prometheus.

    Args:
        source: The Prometheus.
        clock: Tells whether a scrape past a window's end can have landed.
        scrape_seconds: How often engines and load generators are scraped.
    """

    def __init__(self, source: MetricsSource, clock: Clock, scrape_seconds: float) -> None:
        self._source = source
        self._clock = clock
        self._scrape_seconds = scrape_seconds

    def rung(self, request: RungRequest) -> Measurement:
        """Return what Prometheus says of a load Job's window."""
        scope = Scope(
            engine={"namespace": request.namespace, "pod": request.engine_pod},
            load={"namespace": request.namespace, "pod": request.load_pod},
            gpus=request.pricing.gpus,
            price_per_gpu_hour=request.pricing.price_per_gpu_hour,
            scrape_interval_seconds=self._scrape_seconds,
            cached_input_percent=request.pricing.cached_input_percent,
            configuration=dict(request.configuration),
            declared_hit_percent=request.declared_hit_percent,
            mismatches=request.mismatches,
        )
        ready = evaluation_time(scope, request.summary)
        if self._clock.now() < ready:
            raise MeasurementError(f"the scrape past the window's end lands by {ready:%H:%M:%S.%f}")
        limits = Limits(min_requests=request.min_requests)
        return measure_rung(self._source, scope, request.summary, request.objectives, limits)

    def live(self, request: LiveRequest) -> Measurement:
        """Return what Prometheus says of live traffic."""
        settled = timedelta(seconds=self._scrape_seconds)
        now = self._clock.now()
        end = min(request.window.end, now if request.up_to_now else now - settled)
        if end - request.window.start < 4 * settled:
            raise MeasurementError("the live window does not hold four scrapes yet")
        return measure_live(
            self._source,
            request.namespace,
            request.pods,
            Window(request.window.start, end),
            request.objectives,
            gpus=request.pricing.gpus,
            price_per_gpu_hour=request.pricing.price_per_gpu_hour,
            min_requests=request.min_requests,
        )

    def learn(self, namespace: str, pods: tuple[str, ...], window_seconds: float) -> Learned:
        """Return the workload that these pods have seen in the last seconds."""
        now = self._clock.now()
        problem = queries.window_problem(window_seconds, self._scrape_seconds)
        if problem is not None:
            raise TooFewRequestsError(problem)
        wanted = learning_queries(namespace, pods, window_seconds)
        # The course over a day is dear to ask for: first it must be known that there is something to learn.
        answers = {name: self._source.vector(wanted.pop(name), now) for name in LENGTHS_AND_RATE}
        if not answers["inputBuckets"]:
            raise MeasurementError("the engines that serve have no histogram of prompt lengths in Prometheus")
        learn(answers)
        answers |= {name: self._source.vector(query, now) for name, query in wanted.items()}
        return learn(answers)
