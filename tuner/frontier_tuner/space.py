"""The search space: parameters with their values, and the static rules that hold between them.

The space after its rules is small enough to enumerate, so validity is decided before an engine starts and a sampler
never has to guess it. A parameter may exist only with values of another; configurations without those lack it.
Nothing here knows an engine; `engines` builds the spaces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import BaseTrial

from frontier_tuner.configuration import Configuration, Value, digest
from frontier_tuner.enumeration import Enumeration, Enumerator
from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.parameter import Argument, Moves, Parameter, Requirement, Rule, Violation, shown
from frontier_tuner.restriction import Restriction, restrict_parameters, unreachable

__all__ = [
    "MAX_MESSAGES",
    "Argument",
    "Moves",
    "Parameter",
    "Requirement",
    "Restriction",
    "Rule",
    "SearchSpace",
    "Violation",
    "restrict",
]

MAX_MESSAGES = 12
"""How many sentences an error lists before it says how many more there are."""


@dataclass(frozen=True)
class SearchSpace:
    """Parameters and the rules between them.

    Attributes:
        parameters: The parameters, in the order of enumeration; one that another requires comes before it.
        rules: The static rules; a configuration is valid where none of them objects.
        defaults: The engine's own values, from which the baseline is made.
    """

    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...] = ()
    defaults: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = {parameter.name: index for index, parameter in enumerate(self.parameters)}
        for index, parameter in enumerate(self.parameters):
            if parameter.requires is not None and places.get(parameter.requires.name, -1) >= index:
                raise ValueError(
                    f"{parameter.name} requires {parameter.requires.name}, which must come before it in the space"
                )

    def violations(self, configuration: Configuration) -> tuple[Violation, ...]:
        """Return every reason why this configuration is not a valid member of the space; empty where it is one."""
        known = {parameter.name: parameter for parameter in self.parameters}
        strangers = sorted(set(configuration) - set(known))
        found = [Violation((name,), f"{name} is not a parameter of this space") for name in strangers]
        for name, parameter in known.items():
            exists = self.exists(parameter, configuration)
            if name not in configuration:
                found.extend([Violation((name,), f"{name} has no value")] if exists else [])
            elif not exists:
                found.append(Violation((name,), f"{name} exists only with {parameter.requires}"))
            elif configuration[name] not in parameter.values:
                values = ", ".join(shown(value) for value in parameter.values)
                found.append(Violation((name,), f"{name} is {shown(configuration[name])}, not one of {values}"))
        for rule in self.rules:
            message = rule.check(configuration)
            if message is not None:
                found.append(Violation(rule.parameters, message))
        return tuple(found)

    def exists(self, parameter: Parameter, values: Mapping[str, Value]) -> bool:
        """Return whether a parameter exists beside these values of the others."""
        requires = parameter.requires
        if requires is None:
            return True
        if requires.name in self._places:
            return values.get(requires.name) in requires.values
        return self.defaults.get(requires.name) in requires.values

    def configurations(self) -> tuple[Configuration, ...]:
        """Return all valid configurations, in the order of the parameters' values."""
        return self._enumeration.valid

    def __contains__(self, configuration: object) -> bool:
        return configuration in self._numbers

    def index(self, configuration: Configuration) -> int:
        """Return the place of a configuration among `configurations()`.

        Raises:
            ValueError: It is no valid member of the space.
        """
        try:
            return self._numbers[configuration]
        except KeyError:
            raise ValueError(f"{configuration} is not a valid configuration of this space") from None

    @property
    def size(self) -> int:
        """The number of valid configurations."""
        return len(self._enumeration.valid)

    @cached_property
    def pruned(self) -> int:
        """How many combinations of values the rules forbid."""
        return self._enumerator(()).combinations - self.size

    @property
    def reasons(self) -> Mapping[str, int]:
        """For each sentence of a rule how many combinations of values it forbids; each counts for one sentence only.

        Values that were dropped because no valid configuration has them are counted, too: these are the reasons.
        """
        return self._enumeration.reasons

    @cached_property
    def digest(self) -> str:
        """Ten hexadecimal digits that change when a parameter, a value or a requirement does."""
        return digest({parameter.name: _content(parameter) for parameter in self.parameters})

    @cached_property
    def baseline(self) -> Configuration:
        """The valid configuration nearest to the engine's defaults: fewest differences, then the smallest ones.

        Raises:
            InvalidSpaceError: No configuration is valid.
        """
        if not self.size:
            raise InvalidSpaceError(self.objections())
        return min(self.configurations(), key=self._distance_from_defaults)

    def objections(self) -> tuple[str, ...]:
        """Return the sentences of all rules that forbid a combination of this space, each once."""
        messages = tuple(self.reasons)
        if len(messages) > MAX_MESSAGES:
            return (*messages[:MAX_MESSAGES], "and more combinations are invalid")
        return messages

    def without_dead_values(self) -> "SearchSpace":
        """Return the space without the values, and without the parameters, that occur in no valid configuration.

        Raises:
            InvalidSpaceError: No configuration is valid; carries the rules' sentences.
        """
        if not self.size:
            raise InvalidSpaceError(self.objections() or ("the search space has no configuration",), self.reasons)
        alive: dict[str, set[Value]] = {parameter.name: set() for parameter in self.parameters}
        for configuration in self.configurations():
            for name, value in configuration.items_:
                alive[name].add(value)
        kept = (replace(p, values=tuple(v for v in p.values if v in alive[p.name])) for p in self.parameters)
        smaller = replace(self, parameters=tuple(parameter for parameter in kept if parameter.values))
        # The same configurations are valid in the same order, so they need not be found again.
        smaller.__dict__["_enumeration"] = Enumeration(self.configurations(), self.reasons)
        return smaller

    def with_rules(self, rules: Sequence[Rule]) -> "SearchSpace":
        """Return the space with further rules, such as those that a study has learned; the parameters stay."""
        return replace(self, rules=(*self.rules, *rules)) if rules else self

    def to_distributions(self, configuration: Configuration | None = None) -> dict[str, BaseDistribution]:
        """Return Optuna distributions for the parameters with a choice, as `encode` writes them.

        Numbers become their position among the values, so that a geometric list is evenly spaced.

        Args:
            configuration: Take only the parameters that it has; None takes all, also those that exclude one another.
        """
        return {
            parameter.name: IntDistribution(0, len(parameter.values) - 1)
            if parameter.ordered
            else CategoricalDistribution(parameter.values)
            for parameter in self.parameters
            if len(parameter.values) > 1 and (configuration is None or parameter.name in configuration)
        }

    def suggest(self, trial: BaseTrial) -> Configuration:
        """Return the configuration that an Optuna trial suggests; it is asked only for parameters that exist.

        The result need not be valid: Optuna does not know the rules.
        """
        values: dict[str, Value] = {}
        for parameter in self.parameters:
            if not self.exists(parameter, values):
                continue
            if len(parameter.values) == 1:
                values[parameter.name] = parameter.values[0]
            elif parameter.ordered:
                place = trial.suggest_int(parameter.name, 0, len(parameter.values) - 1)
                values[parameter.name] = parameter.values[place]
            else:
                chosen = trial.suggest_categorical(parameter.name, parameter.values)
                values[parameter.name] = next(value for value in parameter.values if value == chosen)
        return Configuration.of(values)

    def encode(self, configuration: Configuration) -> dict[str, Value]:
        """Return the configuration in terms of `to_distributions`; parameters that it lacks stay away.

        Raises:
            ValueError: A value is not in the space.
        """
        return {
            parameter.name: parameter.values.index(configuration[parameter.name])
            if parameter.ordered
            else configuration[parameter.name]
            for parameter in self.parameters
            if len(parameter.values) > 1 and parameter.name in configuration
        }

    def decode(self, encoded: Mapping[str, Value]) -> Configuration:
        """Return the configuration of values in terms of `to_distributions`; inverse of `encode`.

        Values of parameters that do not exist beside the others are ignored.
        """
        values: dict[str, Value] = {}
        for parameter in self.parameters:
            if not self.exists(parameter, values):
                continue
            if len(parameter.values) == 1:
                values[parameter.name] = parameter.values[0]
            else:
                choice = encoded[parameter.name]
                values[parameter.name] = parameter.values[int(choice)] if parameter.ordered else choice
        return Configuration.of(values)

    def distance(self, one: Configuration, other: Configuration) -> float:
        """Return how far two members of the space are apart.

        A parameter adds 1 at opposite ends, or where only one of the two has it.
        """
        total = 0.0
        for parameter in self.parameters:
            left, right = one.get(parameter.name), other.get(parameter.name)
            if left == right:
                continue
            if parameter.ordered and left is not None and right is not None:
                steps = parameter.values.index(left) - parameter.values.index(right)
                total += abs(steps) / (len(parameter.values) - 1)
            else:
                total += 1
        return total

    @cached_property
    def _enumeration(self) -> Enumeration:
        return self._enumerator(self.rules).run()

    def _enumerator(self, rules: Sequence[Rule]) -> Enumerator:
        return Enumerator(self.parameters, rules, self.defaults)

    @cached_property
    def _numbers(self) -> Mapping[Configuration, int]:
        return {configuration: number for number, configuration in enumerate(self.configurations())}

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {parameter.name: place for place, parameter in enumerate(self.parameters)}

    def _distance_from_defaults(self, configuration: Configuration) -> tuple[int, float, tuple[bool, ...]]:
        apart = 0.0
        changed = []
        for parameter in self.parameters:
            value = configuration.get(parameter.name)
            wanted = value if value is None else self.defaults.get(parameter.name, value)
            changed.append(value != wanted)
            if value != wanted and isinstance(value, int) and isinstance(wanted, int):
                apart += abs(value - wanted) / max(abs(value), abs(wanted))
        # Among equals the earlier parameters give way: an engine grows by tensor parallelism first.
        return sum(changed), apart, tuple(reversed(changed))


def restrict(space: SearchSpace, entries: Sequence[Restriction]) -> SearchSpace:
    """Return the space narrowed to what the entries allow; parameters without an entry stay as they are.

    Raises:
        InvalidSpaceError: An entry names an unknown parameter, asks for an impossible value, has an inverted range,
            contradicts another entry or restricts what can never exist; carries every problem of every entry.
    """
    parameters = restrict_parameters(space.parameters, entries)
    problems = unreachable(parameters, [entry.name for entry in entries], space.defaults)
    if problems:
        raise InvalidSpaceError(problems)
    return replace(space, parameters=parameters)


def _content(parameter: Parameter) -> object:
    values = list(parameter.values)
    if parameter.requires is None:
        return values
    return {"values": values, "requires": {parameter.requires.name: list(parameter.requires.values)}}
