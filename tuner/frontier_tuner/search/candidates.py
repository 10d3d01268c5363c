"""The candidates of a search as arrays: one row for each valid configuration, one column for each knob.

Which knobs act together is told by the space itself, through the group of each parameter.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from frontier_tuner.configuration import Configuration
from frontier_tuner.predict import Floats, Prediction
from frontier_tuner.space import SearchSpace

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Knob:
    """One column of the candidates.

    Attributes:
        name: The parameter.
        group: Knobs of one group act together; empty for a knob that acts alone.
        ordered: Whether neighbouring values behave alike.
    """

    name: str
    group: str
    ordered: bool


@dataclass(frozen=True)
class Candidates:
    """n configurations with their knobs and, where there is a prior, their predicted curves.

    Attributes:
        configurations: The n configurations.
        knobs: The k knobs that vary among them.
        levels: (n, k) position of the value among the knob's values, -1 where the knob does not exist.
        scale: (n, k) the same where equal steps matter alike: the binary logarithm of a number, else the position.
        gpus: (n,) GPUs that one start holds.
        ranks: (n,) by which a concurrency is divided to get the sequences of one attention rank.
        concurrency: (n, L) levels of load in ascending order; not a number beyond a candidate's last.
        prediction: What the prior says, or None.
    """

    configurations: tuple[Configuration, ...]
    knobs: tuple[Knob, ...]
    levels: Integers
    scale: Floats
    gpus: Floats
    ranks: Floats
    concurrency: Floats
    prediction: Prediction | None = None

    def __len__(self) -> int:
        return len(self.configurations)

    @cached_property
    def index(self) -> dict[Configuration, int]:
        """Position of each configuration."""
        return {configuration: place for place, configuration in enumerate(self.configurations)}


def candidates_of(
    space: SearchSpace,
    *,
    gpus: Callable[[Configuration], int],
    ranks: Callable[[Configuration], int],
    concurrency: Sequence[float] | Floats,
) -> Candidates:
    """Return the valid configurations of a space as candidates, without a prediction.

    Args:
        space: Where they come from; parameters with a single value do not become knobs.
        gpus: GPUs that a configuration holds.
        ranks: Attention ranks (and stages) over which its requests are spread.
        concurrency: Levels for all candidates, or (n, L) levels for each.
    """
    members = space.configurations()
    varied = [p for p in space.parameters if len({member.get(p.name) for member in members}) > 1]
    knobs = tuple(Knob(p.name, p.group, p.ordered) for p in varied)
    levels = np.full((len(members), len(varied)), -1, dtype=np.int64)
    scale = np.full((len(members), len(varied)), -1.0)
    for column, parameter in enumerate(varied):
        places = {value: place for place, value in enumerate(parameter.values)}
        for row, member in enumerate(members):
            value = member.get(parameter.name)
            if value is None:
                continue
            levels[row, column] = places[value]
            scale[row, column] = np.log2(max(float(value), 0.5)) if parameter.ordered else places[value]
    each = np.asarray(concurrency, dtype=float)
    return Candidates(
        configurations=members,
        knobs=knobs,
        levels=levels,
        scale=scale,
        gpus=np.array([gpus(member) for member in members], dtype=float),
        ranks=np.array([ranks(member) for member in members], dtype=float),
        concurrency=each if each.ndim > 1 else np.tile(each, (len(members), 1)),
    )
