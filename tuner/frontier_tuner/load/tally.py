"""Counts what came back: which answers count, and what of them."""

from frontier_tuner.load.answer import Answer
from frontier_tuner.load.metrics import MEASURE, LoadMetrics


class Tally:
    """Puts answers into metrics.

    Args:
        metrics: What is counted into.

    Attributes:
        malformed: Measured answers whose times cannot be; they are failed.
        first_error: What the first failed request said, or empty.
    """

    def __init__(self, metrics: LoadMetrics) -> None:
        self._metrics = metrics
        self.malformed = 0
        self.first_error = ""

    def record(self, phase: str, answer: Answer, now: float, *, cut: bool = False) -> str:
        """Count one request and return its result: `ok`, `failed` or `cut`.

        A failed request gives no latency: an error comes soon, and would flatter. One that is cut gives the TTFT that
        it had or waited in vain for, so that an overload cannot hide, and the gaps between its tokens; it has no E2E
        latency.

        Args:
            phase: In which it was sent.
            answer: What came back.
            now: Seconds of the answer's clock.
            cut: Whether it was given up because the run ends.
        """
        result = "cut" if cut else "ok" if answer.done else "failed"
        if answer.malformed:
            answer.error = answer.error or "its tokens came before it was sent or out of order"
            result = "failed"
            self.malformed += phase == MEASURE
        self._metrics.requests[phase, result] += 1
        if result == "failed":
            self.first_error = self.first_error or answer.error
        else:
            self._latencies(phase, answer, now, whole=result == "ok")
        return result

    def _latencies(self, phase: str, answer: Answer, now: float, *, whole: bool) -> None:
        metrics = self._metrics
        first, last = answer.first, answer.last
        metrics.ttft[phase].observe((now if first is None else first) - answer.intended)
        itl = metrics.itl[phase]
        for gap, tokens in answer.gaps():
            itl.observe(gap, tokens)
        if whole and first is not None and last is not None:
            metrics.e2e[phase].observe(last - answer.intended)
            if last > first:
                metrics.user_speed[phase].observe((answer.tokens - 1) / (last - first))
