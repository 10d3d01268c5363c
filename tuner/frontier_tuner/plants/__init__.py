"""Plants: whatever answers "this configuration under this load".

A plant is a real engine, a simulated one or a table. The loop that tunes knows only the two protocols of this module.
"""

from typing import Protocol

from frontier_tuner.configuration import Configuration
from frontier_tuner.errors import TunerError
from frontier_tuner.measurement import Load, Measurement
from frontier_tuner.trial import Failure

__all__ = ["Engine", "EngineFailedError", "Plant"]


class EngineFailedError(TunerError):
    """The engine could not serve; `failure` says whether the configuration or its surroundings are to blame."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.reason}: {failure.message}")
        self.failure = failure


class Engine(Protocol):
    """One engine start."""

    start_seconds: float
    """From the start of the process to readiness."""

    def measure(self, load: Load, seed: int) -> Measurement:
        """Return what the engine shows under a load.

        Raises:
            EngineFailedError: The engine ended, or could not be put under load.
            MeasurementError: Prometheus could not be asked.
        """
        ...

    def stop(self) -> None:
        """End the engine; safe to call twice."""
        ...


class Plant(Protocol):
    """Where engines are started."""

    def start(self, configuration: Configuration) -> Engine:
        """Start an engine with a configuration and return it once it is ready.

        Raises:
            EngineFailedError: It did not become ready.
            PlantError: It could not even be started.
        """
        ...
