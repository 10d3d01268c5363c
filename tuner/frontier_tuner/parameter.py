"""What a search space is made of: parameters, the arguments that they become, and the rules between them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.versions import Version, parse_version

Moves = Literal["Along", "Out", "Both"]
"""Whether a parameter moves a point along the frontier, pushes the frontier out, or does both."""


def shown(value: Value) -> str:
    """Return a value as resources spell it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Argument:
    """How some versions of an engine spell a parameter on their command line.

    Attributes:
        flag: The flag.
        member: Where the flag takes a JSON object, the member of it that takes the value.
        since: The first version that has it; empty where every known one does.
        before: The first version that has it no more; empty where none does.
    """

    flag: str
    member: str = ""
    since: str = ""
    before: str = ""

    def known_to(self, version: Version) -> bool:
        """Return whether a version has it; an unknown version is taken for the newest."""
        if not version:
            return not self.before
        started = not self.since or version >= parse_version(self.since)
        return started and (not self.before or version < parse_version(self.before))


@dataclass(frozen=True)
class Requirement:
    """What another parameter must be for a parameter to exist.

    Attributes:
        name: The other parameter.
        values: The values of it with which the parameter exists.
    """

    name: str
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.name} {' or '.join(shown(value) for value in self.values)}"


@dataclass(frozen=True)
class Parameter:
    """One tunable knob.

    Attributes:
        name: Its name in configurations and resources.
        values: The values to search, in order.
        moves: What it does to the frontier.
        restart: Whether a change needs a new engine start.
        arguments: What it becomes on the engine's command line, the newest spelling first; empty where it is none.
        bounds: Smallest and largest integer that a user may ask for; None where only some values are possible.
        choices: All values that a user may ask for where there are no bounds; empty means `values`.
        group: Parameters of one group act together on speed, such as the degrees of a parallel layout.
        requires: With what it exists; configurations without that lack it. None where it always exists.
        free: Whether a user may ask for any text, such as the name of a checkpoint.
        meaning: What it is, in one sentence.
    """

    name: str
    values: tuple[Value, ...]
    moves: Moves = "Both"
    restart: bool = True
    arguments: tuple[Argument, ...] = ()
    bounds: tuple[int, int] | None = None
    choices: tuple[Value, ...] = ()
    group: str = ""
    requires: Requirement | None = None
    free: bool = False
    meaning: str = ""

    @property
    def argument(self) -> str:
        """The engine's newest flag, empty where there is none."""
        return self.arguments[0].flag if self.arguments else ""

    def argument_of(self, version: Version) -> Argument | None:
        """Return what a version of the engine calls it, or None where it has no such argument."""
        return next((argument for argument in self.arguments if argument.known_to(version)), None)

    @property
    def ordered(self) -> bool:
        """Whether the values have an order that a sampler can use."""
        if not self.values:
            return self.bounds is not None
        return all(isinstance(value, int) and not isinstance(value, bool) for value in self.values)

    def convert(self, value: object) -> Value | None:
        """Return the value in this parameter's type, also from text; None where it is not possible here."""
        known = {str(each).lower(): each for each in (*self.values, *self.choices)}
        found = known.get(str(value).lower())
        if found is None and self.free and isinstance(value, str) and value:
            return value
        if found is not None or self.bounds is None or isinstance(value, bool):
            return found
        try:
            number = int(str(value))
        except ValueError:
            return None
        return number if self.bounds[0] <= number <= self.bounds[1] else None

    @property
    def domain(self) -> str:
        """The possible values as a user reads them."""
        if self.free:
            return "any text"
        if self.bounds is not None:
            return f"whole numbers from {self.bounds[0]} to {self.bounds[1]}"
        return ", ".join(shown(value) for value in dict.fromkeys((*self.values, *self.choices)))


@dataclass(frozen=True)
class Violation:
    """Why a configuration cannot work.

    Attributes:
        parameters: The parameters to blame.
        message: The sentence a user reads.
    """

    parameters: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class Rule:
    """One static rule.

    Attributes:
        parameters: The only parameters that it reads; those that a space or a configuration lacks stay at the engine's
            defaults.
        check: Returns the sentence to show where the configuration breaks the rule, otherwise None.
    """

    parameters: tuple[str, ...]
    check: Callable[[Configuration], str | None]
