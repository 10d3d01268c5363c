"""How long to wait before a container is started again, as a kubelet does: at once, then 10 s, 20 s, … 300 s. Pure."""

from dataclasses import dataclass


@dataclass
class BackOff:
    """Exponential back-off of one container.

    Attributes:
        base: Seconds before the second restart; the first one is immediate.
        maximum: Longest wait in seconds. A container that ran for twice this long is forgiven.
    """

    base: float = 10.0
    maximum: float = 300.0
    _next: float = 0.0

    def delay(self, ran_for: float) -> float:
        """Return the seconds to wait after a container ran for so many seconds, and make the next wait longer."""
        if ran_for >= 2 * self.maximum:
            self._next = 0.0
        current = self._next
        self._next = min(self.maximum, max(self.base, 2 * current))
        return current
