"""The search space: parameters with their values, and the static rules that hold between them.

The space after its rules is small enough to enumerate, so validity is decided before an engine starts and a sampler
never has to guess it. Nothing here knows an engine; `engines` builds the spaces.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from frontier_tuner.configuration import Configuration, Value, digest
from frontier_tuner.errors import InvalidSpaceError

Moves = Literal["Along", "Out", "Both"]
"""Whether a parameter moves a point along the frontier, pushes the frontier out, or does both."""

MAX_MESSAGES = 12
"""How many sentences an error lists before it says how many more there are."""


@dataclass(frozen=True)
class Parameter:
    """One tunable knob.

    Attributes:
        name: Its name in configurations and resources.
        values: The values to search, in order.
        moves: What it does to the frontier.
        restart: Whether a change needs a new engine start.
        argument: The engine's argument, empty where there is none.
        bounds: Smallest and largest integer that a user may ask for; None where only some values are possible.
        choices: All values that a user may ask for where there are no bounds; empty means `values`.
        group: Parameters of one group act together on speed, such as the degrees of a parallel layout.
    """

    name: str
    values: tuple[Value, ...]
    moves: Moves = "Both"
    restart: bool = True
    argument: str = ""
    bounds: tuple[int, int] | None = None
    choices: tuple[Value, ...] = ()
    group: str = ""

    @property
    def ordered(self) -> bool:
        """Whether the values have an order that a sampler can use."""
        return all(isinstance(value, int) and not isinstance(value, bool) for value in self.values)

    def convert(self, value: object) -> Value | None:
        """Return the value in this parameter's type, also from text; None where it is not possible here."""
        known = {str(each).lower(): each for each in (*self.values, *self.choices)}
        found = known.get(str(value).lower())
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
        if self.bounds is not None:
            return f"whole numbers from {self.bounds[0]} to {self.bounds[1]}"
        return ", ".join(str(value) for value in dict.fromkeys((*self.values, *self.choices)))


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
        parameters: The only parameters that it reads; those that a space lacks stay at the engine's defaults.
        check: Returns the sentence to show where the configuration breaks the rule, otherwise None.
    """

    parameters: tuple[str, ...]
    check: Callable[[Configuration], str | None]


@dataclass(frozen=True)
class Restriction:
    """What a user says about one parameter: a value, some values, or a range.

    A range keeps the values that it covers and adds its two ends where the parameter is open to other numbers.

    Attributes:
        name: The parameter.
        values: The values to search.
        minimum: Lower end of the range.
        maximum: Upper end of the range.
        value: The only value.
    """

    name: str
    values: tuple[Value, ...] | None = None
    minimum: int | None = None
    maximum: int | None = None
    value: Value | None = None


@dataclass(frozen=True)
class SearchSpace:
    """Parameters and the rules between them.

    Attributes:
        parameters: The parameters, in the order of enumeration.
        rules: The static rules; a configuration is valid where none of them objects.
        defaults: The engine's own values, from which the baseline is made.
    """

    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...] = ()
    defaults: Mapping[str, Value] = field(default_factory=dict)

    def violations(self, configuration: Configuration) -> tuple[Violation, ...]:
        """Return every reason why this configuration is not a valid member of the space; empty where it is one."""
        known = {parameter.name: parameter for parameter in self.parameters}
        strangers = sorted(set(configuration) - set(known))
        found = [Violation((name,), f"{name} is not a parameter of this space") for name in strangers]
        for name, parameter in known.items():
            if name not in configuration:
                found.append(Violation((name,), f"{name} has no value"))
            elif configuration[name] not in parameter.values:
                values = ", ".join(str(value) for value in parameter.values)
                found.append(Violation((name,), f"{name} is {configuration[name]}, not one of {values}"))
        for rule in self.rules:
            message = rule.check(configuration)
            if message is not None:
                found.append(Violation(rule.parameters, message))
        return tuple(found)

    def configurations(self) -> tuple[Configuration, ...]:
        """Return all valid configurations, in the order of the parameters' values."""
        return self._valid

    @property
    def size(self) -> int:
        """The number of valid configurations."""
        return len(self._valid)

    @property
    def pruned(self) -> int:
        """How many combinations of values the rules forbid."""
        total = 1
        for parameter in self.parameters:
            total *= len(parameter.values)
        return total - self.size

    @property
    def digest(self) -> str:
        """Ten hexadecimal digits that change when a parameter or a value does."""
        return digest({parameter.name: list(parameter.values) for parameter in self.parameters})

    @cached_property
    def baseline(self) -> Configuration:
        """The valid configuration nearest to the engine's defaults: fewest differences, then the smallest ones.

        Raises:
            InvalidSpaceError: No configuration is valid.
        """
        if not self._valid:
            raise InvalidSpaceError(self.objections())
        return min(self._valid, key=self._distance_from_defaults)

    def objections(self) -> tuple[str, ...]:
        """Return the sentences of all rules that forbid a combination of this space, each once."""
        messages: dict[str, None] = {}
        for configuration in self._combinations(()):
            for rule in self.rules:
                message = rule.check(configuration)
                if message is not None:
                    messages[message] = None
                    break
            if len(messages) > MAX_MESSAGES:
                return (*tuple(messages)[:MAX_MESSAGES], "and more combinations are invalid")
        return tuple(messages)

    def without_dead_values(self) -> "SearchSpace":
        """Return the space without the values that occur in no valid configuration.

        Raises:
            InvalidSpaceError: No configuration is valid; carries the rules' sentences.
        """
        if not self._valid:
            raise InvalidSpaceError(self.objections() or ("the search space has no configuration",))
        alive = {p.name: {configuration[p.name] for configuration in self._valid} for p in self.parameters}
        kept = (replace(p, values=tuple(v for v in p.values if v in alive[p.name])) for p in self.parameters)
        return replace(self, parameters=tuple(kept))

    def to_distributions(self) -> dict[str, BaseDistribution]:
        """Return Optuna distributions for the parameters with a choice, as `encode` writes them.

        Numbers become their position among the values, so that a geometric list is evenly spaced.
        """
        return {
            parameter.name: IntDistribution(0, len(parameter.values) - 1)
            if parameter.ordered
            else CategoricalDistribution(parameter.values)
            for parameter in self.parameters
            if len(parameter.values) > 1
        }

    def encode(self, configuration: Configuration) -> dict[str, Value]:
        """Return the configuration in terms of `to_distributions`.

        Raises:
            ValueError: A value is not in the space.
        """
        return {
            parameter.name: parameter.values.index(configuration[parameter.name])
            if parameter.ordered
            else configuration[parameter.name]
            for parameter in self.parameters
            if len(parameter.values) > 1
        }

    def decode(self, encoded: Mapping[str, Value]) -> Configuration:
        """Return the configuration of values in terms of `to_distributions`; inverse of `encode`."""
        values: dict[str, Value] = {}
        for parameter in self.parameters:
            if len(parameter.values) == 1:
                values[parameter.name] = parameter.values[0]
            else:
                choice = encoded[parameter.name]
                values[parameter.name] = parameter.values[int(choice)] if parameter.ordered else choice
        return Configuration.of(values)

    def distance(self, one: Configuration, other: Configuration) -> float:
        """Return how far two members of the space are apart: 1 for each parameter at opposite ends."""
        total = 0.0
        for parameter in self.parameters:
            if one[parameter.name] == other[parameter.name]:
                continue
            steps = len(parameter.values) - 1
            if parameter.ordered:
                apart = parameter.values.index(one[parameter.name]) - parameter.values.index(other[parameter.name])
                total += abs(apart) / steps
            else:
                total += 1
        return total

    @cached_property
    def _valid(self) -> tuple[Configuration, ...]:
        return tuple(self._combinations(self.rules))

    def _combinations(self, rules: Sequence[Rule]) -> Iterator[Configuration]:
        # Each rule is asked as soon as its last parameter has a value, so whole branches go at once.
        positions = {parameter.name: index for index, parameter in enumerate(self.parameters)}
        due: list[list[Rule]] = [[] for _ in self.parameters]
        for rule in rules:
            if self.parameters:
                due[max((positions.get(name, 0) for name in rule.parameters), default=0)].append(rule)

        def extend(values: dict[str, Value], index: int) -> Iterator[Configuration]:
            if index == len(self.parameters):
                yield Configuration.of(values)
                return
            parameter = self.parameters[index]
            for value in parameter.values:
                chosen = {**values, parameter.name: value}
                partial = Configuration.of(chosen)
                if all(rule.check(partial) is None for rule in due[index]):
                    yield from extend(chosen, index + 1)

        return extend({}, 0)

    def _distance_from_defaults(self, configuration: Configuration) -> tuple[int, float, tuple[bool, ...]]:
        apart = 0.0
        changed = []
        for parameter in self.parameters:
            value = configuration[parameter.name]
            wanted = self.defaults.get(parameter.name, value)
            changed.append(value != wanted)
            if value != wanted and isinstance(value, int) and isinstance(wanted, int):
                apart += abs(value - wanted) / max(abs(value), abs(wanted))
        # Among equals the earlier parameters give way: an engine grows by tensor parallelism first.
        return sum(changed), apart, tuple(reversed(changed))


def restrict(space: SearchSpace, entries: Sequence[Restriction]) -> SearchSpace:
    """Return the space narrowed to what the entries allow; parameters without an entry stay as they are.

    Raises:
        InvalidSpaceError: An entry names an unknown parameter, asks for an impossible value, has an inverted range or
            contradicts another entry; carries every problem of every entry.
    """
    problems: list[str] = []
    parameters = {parameter.name: parameter for parameter in space.parameters}
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            problems.append(f"search parameter {entry.name} is given twice; keep one entry")
        seen.add(entry.name)
        parameter = parameters.get(entry.name)
        if parameter is None:
            problems.append(f"search parameter {entry.name} is unknown; known are {', '.join(parameters)}")
            continue
        values, found = _restricted(parameter, entry)
        problems.extend(found)
        if not found:
            parameters[entry.name] = replace(parameter, values=values)
    if problems:
        raise InvalidSpaceError(tuple(dict.fromkeys(problems)))
    return replace(space, parameters=tuple(parameters.values()))


def _restricted(parameter: Parameter, entry: Restriction) -> tuple[tuple[Value, ...], list[str]]:
    ranged = entry.minimum is not None or entry.maximum is not None
    if sum((entry.value is not None, entry.values is not None, ranged)) != 1:
        return (), [f"search parameter {entry.name} needs exactly one of value, values, or a range of min and max"]
    if ranged:
        return _in_range(parameter, entry.minimum, entry.maximum)
    asked = entry.values if entry.values is not None else (entry.value,)
    if not asked:
        return (), [f"search parameter {entry.name} has an empty list of values; leave it out to search its defaults"]
    converted = [(value, parameter.convert(value)) for value in asked]
    problems = [
        f"search parameter {entry.name} cannot be {value}; possible are {parameter.domain}"
        for value, known in converted
        if known is None
    ]
    kept = {known for _, known in converted if known is not None}
    if parameter.ordered:
        return tuple(sorted(kept, key=int)), problems
    return tuple(value for value in dict.fromkeys((*parameter.values, *parameter.choices)) if value in kept), problems


def _in_range(parameter: Parameter, low: int | None, high: int | None) -> tuple[tuple[Value, ...], list[str]]:
    name = parameter.name
    if not parameter.ordered:
        return (), [f"search parameter {name} has no order; give values instead of min and max"]
    if low is not None and high is not None and low > high:
        return (), [f"search parameter {name} has an inverted range: min {low} is above max {high}"]
    outside = [end for end in (low, high) if end is not None and parameter.convert(end) is None]
    numbers = [int(value) for value in parameter.values]
    if parameter.bounds is not None and outside:
        return (), [f"search parameter {name} cannot be {end}; possible are {parameter.domain}" for end in outside]
    if parameter.bounds is not None:
        numbers += [end for end in (low, high) if end is not None]
    kept = sorted({n for n in numbers if (low is None or n >= low) and (high is None or n <= high)})
    if not kept:
        return (), [f"search parameter {name} has no value from {low} to {high}; possible are {parameter.domain}"]
    return tuple(kept), []
