"""What a run of the load generator shows while it lasts, for whoever decides when its window may end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from frontier_tuner.measurement import Ending


@dataclass(frozen=True)
class Counts:
    """A histogram at one moment.

    Attributes:
        edges: Upper edges, ascending, ending with infinity.
        counts: Observations at or below each edge.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]


@dataclass(frozen=True)
class Progress:
    """A window at one moment.

    Attributes:
        seconds: Since its start.
        histograms: Of the measured requests, by metric, always with the same edges.
        output_tokens: That have arrived within the window.
        sent: Measured requests sent.
        answered: Of these, answered completely.
        in_flight: Requests without a complete answer, those of the warm-up included.
    """

    seconds: float
    histograms: Mapping[str, Counts]
    output_tokens: int = 0
    sent: int = 0
    answered: int = 0
    in_flight: int = 0


class EndingRule(Protocol):
    """Decides when a window may end."""

    def __call__(self, course: Sequence[Progress], *, over: bool) -> Ending | None:
        """Return why the window ends, or None where it goes on, which it cannot where its time is over.

        Args:
            course: The window so far, in the order of time, from its start on.
            over: Whether its time is up.
        """
        ...
