"""What can go wrong in the tuner, as exceptions.

TunerError
├── FactsError             a model or a GPU is not known, or a fact about it is wrong
├── InvalidSpaceError      the search space contradicts itself; carries every problem found
├── JournalError           a journal cannot be read back
├── MeasurementError       Prometheus could not be asked, or answered with an error
└── PlantError             an engine or a load generator could not be started
"""

from collections.abc import Mapping


class TunerError(Exception):
    """Any error that the tuner raises on purpose."""


class FactsError(TunerError):
    """A model or a GPU is not known, or a fact about it is wrong; the message says what to give."""


class JournalError(TunerError):
    """A journal, or a record in it, cannot be read back; the message names the place."""


class InvalidSpaceError(TunerError):
    """The search space cannot be used; `problems` lists every sentence a user should read.

    Where rules leave nothing valid, `reasons` has all their sentences, also those that are too many for a message, with
    the number of combinations that each forbids.
    """

    def __init__(self, problems: tuple[str, ...], reasons: Mapping[str, int] | None = None) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.reasons = dict(reasons or {})


class MeasurementError(TunerError):
    """Prometheus could not be reached or refused a query; says nothing about the configuration."""


class PlantError(TunerError):
    """An engine or a load generator could not be started for a reason of its surroundings."""
