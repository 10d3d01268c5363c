"""When a question may be asked again: within a deadline of its own, and a budget that all questions share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FULL = 10.0
_EARNED = 0.2
_FIRST_PAUSE_SECONDS = 0.2


class RetryBudget:
    """Tokens that retries use up and successes earn, so that a failing server is not asked more and more.

    A failure costs one token and a success earns a fifth; below half of the tokens nothing is retried. This is the
    retry throttling of gRPC (gRFC A6, Client Retry Design).
    """

    def __init__(self) -> None:
        self._tokens = _FULL

    def failed(self) -> None:
        """Take note of a failed attempt."""
        self._tokens = max(0.0, self._tokens - 1)

    def succeeded(self) -> None:
        """Take note of an answer."""
        self._tokens = min(_FULL, self._tokens + _EARNED)

    @property
    def allows(self) -> bool:
        """Whether an attempt may follow on a failed one."""
        return self._tokens > _FULL / 2


@dataclass
class Attempt:
    """One attempt.

    Attributes:
        timeout_seconds: How long it may take.
        ends_at: When it must have ended, on the clock.
    """

    timeout_seconds: float
    ends_at: float
    _pause_at_least: float | None = None

    def failed(self, retry_after_seconds: float | None) -> None:
        """Let another attempt follow, after at least so many seconds where the server said so."""
        self._pause_at_least = retry_after_seconds or 0.0


def attempts(
    count: int,
    deadline_seconds: float,
    timeout_seconds: float,
    budget: RetryBudget,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
    jitter: Callable[[], float],
) -> Iterator[Attempt]:
    """Yield attempts for as long as each is reported as failed, and number, deadline and budget allow.

    The pause before the n-th retry is between half and all of 0.2 s · 2^(n-1), and at least what the server asked for.

    Args:
        count: Attempts at most.
        deadline_seconds: From the first attempt's start to the last one's end.
        timeout_seconds: Of each attempt.
        budget: Shared with other questions.
        clock: Seconds of a monotonic clock.
        sleep: Waits so many seconds.
        jitter: A random number between 0 and 1.
    """
    end = clock() + deadline_seconds
    for number in range(count):
        now = clock()
        timeout = min(timeout_seconds, end - now)
        if timeout <= 0:
            return
        attempt = Attempt(timeout, now + timeout)
        yield attempt
        if attempt._pause_at_least is None:  # noqa: SLF001 - of this module
            return
        budget.failed()
        pause = max(attempt._pause_at_least, _FIRST_PAUSE_SECONDS * 2**number * (0.5 + jitter() / 2))  # noqa: SLF001
        if number + 1 == count or not budget.allows or clock() + pause >= end:
            return
        sleep(pause)
