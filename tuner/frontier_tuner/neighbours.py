"""Which configurations are neighbours: one knob apart, by one step of it."""

from collections.abc import Iterable, Mapping

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.space import SearchSpace

Orders = Mapping[str, tuple[Value, ...]]
"""The values of each knob, in their order."""


def orders(configurations: Iterable[Configuration], space: SearchSpace | None = None) -> Orders:
    """Return the order of each knob's values: the space's, or for knobs that it lacks that of the values that occur."""
    seen: dict[str, set[Value]] = {}
    for configuration in configurations:
        for name, value in configuration.items():
            seen.setdefault(name, set()).add(value)
    found: dict[str, tuple[Value, ...]] = {name: tuple(sorted(values, key=_size)) for name, values in seen.items()}
    if space is not None:
        found |= {parameter.name: parameter.values for parameter in space.parameters}
    return found


def knob_between(one: Configuration, other: Configuration, order: Orders) -> str | None:
    """Return the only knob in which two configurations differ, where that is by one step; otherwise None.

    Numbers must be next to each other among the knob's values; between names every step is one. A knob that only one
    of the two has does not count beside the one that brought it, such as a depth of speculation beside its method.
    """
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    both = [name for name in names if name in one and name in other]
    changed = both or names
    if len(changed) != 1:
        return None
    name = changed[0]
    pair = [each.get(name) for each in (one, other)]
    if any(isinstance(value, str | bool) or value is None for value in pair):
        return name
    places = [order[name].index(value) for value in pair if value is not None and value in order.get(name, ())]
    return name if len(places) == len(pair) and abs(places[0] - places[1]) == 1 else None


def _size(value: Value) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int) else (1, 0.0, value)
