"""All valid configurations of a space, and what forbids the others.

A rule is asked as soon as its last parameter has a value, so whole branches go at once, and only once for each
combination of the parameters that it reads. A branch counts for the first rule that objects to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.parameter import Parameter, Rule

Pair = tuple[str, Value]


@dataclass(frozen=True)
class Enumeration:
    """What a space contains.

    Attributes:
        valid: The valid configurations, in the order of the parameters' values.
        reasons: For each sentence of a rule how many combinations of values it forbids.
    """

    valid: tuple[Configuration, ...]
    reasons: Mapping[str, int]


@dataclass
class _Check:
    rule: Rule
    reads: tuple[int, ...]
    known: dict[tuple[Pair | None, ...], str | None] = field(default_factory=dict)

    def objection(self, chosen: Sequence[Pair | None]) -> str | None:
        key = tuple([chosen[index] for index in self.reads])
        try:
            return self.known[key]
        except KeyError:
            answer = self.rule.check(Configuration.of(dict(pair for pair in key if pair is not None)))
            self.known[key] = answer
            return answer


class Enumerator:
    """Walks the combinations of a space's values.

    Args:
        parameters: The parameters; one that another requires comes before it.
        rules: The rules between them.
        defaults: The engine's own values, for requirements on parameters that the space lacks.
    """

    def __init__(self, parameters: Sequence[Parameter], rules: Sequence[Rule], defaults: Mapping[str, Value]) -> None:
        self._pairs: list[list[Pair]] = [[(p.name, value) for value in p.values] for p in parameters]
        places = {parameter.name: index for index, parameter in enumerate(parameters)}
        self._wanted: list[tuple[int, frozenset[Value]] | None] = []
        self._never: set[int] = set()
        for index, parameter in enumerate(parameters):
            requires = parameter.requires
            if requires is not None and requires.name in places:
                self._wanted.append((places[requires.name], frozenset(requires.values)))
                continue
            self._wanted.append(None)
            if requires is not None and defaults.get(requires.name) not in requires.values:
                self._never.add(index)
        self._parents = {wanted[0] for wanted in self._wanted if wanted is not None}
        self._due: list[list[_Check]] = [[] for _ in parameters]
        for rule in rules if parameters else ():
            reads = tuple(sorted(places[name] for name in set(rule.parameters) if name in places))
            self._due[reads[-1] if reads else 0].append(_Check(rule, reads))
        self._by_name = sorted(range(len(parameters)), key=lambda index: parameters[index].name)
        self._sizes: dict[tuple[object, ...], int] = {}

    def run(self) -> Enumeration:
        """Return what the space contains."""
        valid: list[Configuration] = []
        reasons: dict[str, int] = {}
        chosen: list[Pair | None] = [None] * len(self._pairs)
        last = len(self._pairs)

        def extend(index: int) -> None:
            if index == last:
                valid.append(Configuration(tuple([p for i in self._by_name if (p := chosen[i]) is not None])))
                return
            checks = self._due[index]
            for pair in self._options(index, chosen):
                chosen[index] = pair
                for check in checks:
                    message = check.objection(chosen)
                    if message is not None:
                        reasons[message] = reasons.get(message, 0) + self._size(index + 1, chosen)
                        break
                else:
                    extend(index + 1)
            chosen[index] = None

        extend(0)
        return Enumeration(tuple(valid), reasons)

    @property
    def combinations(self) -> int:
        """How many combinations of values there are, valid or not."""
        return self._size(0, [None] * len(self._pairs))

    def _options(self, index: int, chosen: Sequence[Pair | None]) -> Sequence[Pair | None]:
        if index in self._never:
            return (None,)
        wanted = self._wanted[index]
        if wanted is None:
            return self._pairs[index]
        other = chosen[wanted[0]]
        return self._pairs[index] if other is not None and other[1] in wanted[1] else (None,)

    def _size(self, index: int, chosen: list[Pair | None]) -> int:
        """Return the number of combinations of the parameters from `index` on, given those before it."""
        if index == len(self._pairs):
            return 1
        key = (index, *(chosen[parent] for parent in self._parents if parent < index))
        if key not in self._sizes:
            options = self._options(index, chosen)
            if index in self._parents:
                total = 0
                for pair in options:
                    chosen[index] = pair
                    total += self._size(index + 1, chosen)
                chosen[index] = None
            else:
                total = len(options) * self._size(index + 1, chosen)
            self._sizes[key] = total
        return self._sizes[key]
