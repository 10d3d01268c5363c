"""Why an engine ends before or while it serves, as exceptions that know their exit code and last words.

EngineEndedError
├── ArgumentsRefusedError   exit 1, `ValueError: …`: the values parse but cannot work together
└── OutOfMemoryError        exit 1, `torch.OutOfMemoryError: …`: weights and activations do not fit
"""


class EngineEndedError(Exception):
    """The engine cannot start or go on.

    Attributes:
        kind: The exception name that a real engine's last line starts with.
    """

    kind = "RuntimeError"

    @property
    def last_line(self) -> str:
        """The last line that the process writes to standard error."""
        return f"{self.kind}: {self}"


class ArgumentsRefusedError(EngineEndedError):
    """The arguments contradict each other, the model or the hardware."""

    kind = "ValueError"


class OutOfMemoryError(EngineEndedError):
    """A GPU cannot hold the weights and the activations."""

    kind = "torch.OutOfMemoryError"
