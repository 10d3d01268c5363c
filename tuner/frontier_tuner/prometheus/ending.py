"""Ends a rung's window when it is known well enough, from the load generator's own view of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from frontier_tuner.load.options import LoadOptions
from frontier_tuner.load.progress import Progress
from frontier_tuner.measurement import Ending, Load
from frontier_tuner.objectives import Objectives
from frontier_tuner.prometheus.histograms import Buckets
from frontier_tuner.prometheus.precision import Precision
from frontier_tuner.prometheus.running import Snapshot, decide

MIN_SCRAPES = 10
"""Scrape intervals that a window lasts at least: its intervals come from eight parts, each with a scrape at both ends,
and a rate is extrapolated by up to an interval."""

_MIN_TURNS = 2
"""Answered requests for each one in flight: a window as short as a request holds only the short ones."""

_MAX_RATE_ERROR_PERCENT = 2.0
"""How far the requests sent so far may be from an open loop's rate: where arrivals are random, the window would
otherwise be one of another level."""


@dataclass(frozen=True)
class WellEnough:
    """An `EndingRule`: `decide`, and what a window needs besides to count.

    Attributes:
        load: The level that is held.
        objectives: The SLOs to decide.
        max_seconds: When the window ends in any case.
        min_seconds: It does not end before this.
        min_requests: Nor before so many were answered.
        precision: What is tight.
    """

    load: Load
    objectives: Objectives
    max_seconds: float
    min_seconds: float = 0.0
    min_requests: int = 0
    precision: Precision = field(default_factory=Precision)

    @classmethod
    def of(cls, options: LoadOptions) -> "WellEnough | None":
        """Return what the options of a load generator ask for; None where they let it run for its time."""
        if not options.precision_percent:
            return None
        return cls(
            options.load,
            Objectives(slos=options.slos),
            options.duration_seconds,
            options.min_window_seconds,
            options.min_requests,
            Precision(options.precision_percent),
        )

    def __call__(self, course: Sequence[Progress], *, over: bool) -> Ending | None:
        """Return why the window ends, or None; see `EndingRule`."""
        last = course[-1]
        lack = self._lack(last)
        if lack and not over:
            return None
        closed = self.load.kind == "Concurrency"
        known = decide(
            [_snapshot(each) for each in course],
            self.objectives,
            max_seconds=last.seconds if over else self.max_seconds,
            in_flight=self.load.value if closed else max(1, last.in_flight),
            precision=self.precision,
        )
        if known.reason == "Tight" and not lack:
            return Ending("Tight", (), known.message)
        if not over:
            return None
        still = "; ".join(filter(None, (lack, *known.lacks)))
        return Ending("TimeUp", known.open, f"the time of {self.max_seconds:g} s is up; {still}")

    def _lack(self, now: Progress) -> str:
        """Return what keeps a window from ending, whatever its intervals are, or nothing."""
        if now.seconds < self.min_seconds:
            return f"{now.seconds:.3g} s of at least {self.min_seconds:g}"
        needed = max(self.min_requests, _MIN_TURNS * now.in_flight)
        if now.answered < needed:
            return f"{now.answered} answered requests of {needed}"
        if self.load.kind == "RequestRate":
            rate = now.sent / now.seconds if now.seconds else 0.0
            if abs(rate / self.load.value - 1) * 100 > _MAX_RATE_ERROR_PERCENT:
                return f"{rate:.3g} requests/s so far, of {self.load.value:g}"
        return ""


def _snapshot(progress: Progress) -> Snapshot:
    histograms = {metric: Buckets(each.edges, each.counts) for metric, each in progress.histograms.items()}
    return Snapshot(progress.seconds, histograms, float(progress.output_tokens))
