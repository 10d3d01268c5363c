"""What a user says about parameters, and the values that are left to search."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from frontier_tuner.configuration import Value
from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.parameter import Parameter, shown


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


def restrict_parameters(parameters: Sequence[Parameter], entries: Sequence[Restriction]) -> tuple[Parameter, ...]:
    """Return the parameters narrowed to what the entries allow; those without an entry stay as they are.

    Raises:
        InvalidSpaceError: An entry names an unknown parameter, asks for an impossible value, has an inverted range or
            contradicts another entry; carries every problem of every entry.
    """
    problems: list[str] = []
    found = {parameter.name: parameter for parameter in parameters}
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            problems.append(f"search parameter {entry.name} is given twice; keep one entry")
        seen.add(entry.name)
        parameter = found.get(entry.name)
        if parameter is None:
            problems.append(f"search parameter {entry.name} is unknown; known are {', '.join(found)}")
            continue
        values, wrong = _restricted(parameter, entry)
        problems.extend(wrong)
        if not wrong:
            found[entry.name] = replace(parameter, values=values)
    if problems:
        raise InvalidSpaceError(tuple(dict.fromkeys(problems)))
    return tuple(found.values())


def unreachable(
    parameters: Sequence[Parameter], names: Sequence[str], defaults: Mapping[str, Value]
) -> tuple[str, ...]:
    """Return a sentence for each named parameter that exists with none of the values of the one that it requires."""
    found = {parameter.name: parameter for parameter in parameters}
    sentences = []
    for name in dict.fromkeys(names):
        requires = found[name].requires if name in found else None
        if requires is None:
            continue
        other = found.get(requires.name)
        possible = other.values if other is not None else (defaults.get(requires.name),)
        if not any(value in requires.values for value in possible):
            sentences.append(
                f"search parameter {name} exists only with {requires}; search that too, or leave {name} out"
            )
    return tuple(sentences)


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
        f"search parameter {entry.name} cannot be {shown(value)}; possible are {parameter.domain}"
        for value, known in converted
        if known is None and value is not None
    ]
    kept = tuple(dict.fromkeys(known for _, known in converted if known is not None))
    if replace(parameter, values=kept or parameter.values).ordered:
        return tuple(sorted(kept, key=int)), problems
    known_order = [value for value in dict.fromkeys((*parameter.values, *parameter.choices)) if value in kept]
    return tuple(dict.fromkeys((*known_order, *kept))), problems


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
