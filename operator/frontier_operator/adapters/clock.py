"""The clock of the machine."""

from datetime import UTC, datetime


class SystemClock:
    """`ports.Clock` on the machine's time."""

    def now(self) -> datetime:
        """Return the aware UTC time."""
        return datetime.now(UTC)
