"""The methods that a benchmark can run side by side, by name."""

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from frontier_tuner.bench.arena import Arena
from frontier_tuner.errors import TunerError

Method = Callable[[Arena, int, int], None]
"""Runs one experiment: the arena, a seed, and the number of starts to spend."""
EXTRA = "install the extra for it: pip install 'frontier-operator[baselines]'"


class MethodError(TunerError):
    """A method cannot be run; the message says what is missing."""


@dataclass(frozen=True)
class Entry:
    """A method by the place of its function, so that one is imported only where it runs.

    Attributes:
        summary: What it does, in a few words.
        module: The module that has it.
        function: Its name there.
        sampler: Name of the sampler in `baselines`, for those that take one.
        needs: Modules that it needs beyond the library's own.
        prior: Whether it needs a prior.
    """

    summary: str
    module: str = "frontier_tuner.bench.baselines"
    function: str = "run_optuna"
    sampler: str = ""
    needs: tuple[str, ...] = ()
    prior: bool = False


METHODS: Mapping[str, Entry] = {
    "ours": Entry("the tuner's own search", "frontier_tuner.bench.ours", "run"),
    "random": Entry("random engines, none twice", function="run_random"),
    "tpe": Entry("Optuna's TPE, multivariate, with constraints", sampler="tpe"),
    "tpe-point": Entry("the same with one load per start, as others run it", function="run_point", sampler="tpe"),
    "gp": Entry("Optuna's GPSampler", sampler="gp", needs=("torch", "scipy")),
    "nsga2": Entry("Optuna's NSGA-II", sampler="nsga2"),
    "botorch": Entry("BoTorch by Optuna's integration", sampler="botorch", needs=("torch", "botorch")),
    "frontier-sampler": Entry("the tuner's sampler for Optuna, told one value of each start", sampler="frontier"),
    "prior": Entry("the prior's ranking alone", function="run_prior", prior=True),
    "tpe+prior": Entry("TPE, its opening picked by the prior", function="run_opened", sampler="tpe", prior=True),
}


def names_of(text: str) -> tuple[str, ...]:
    """Return the methods of a comma-separated list.

    Raises:
        MethodError: One is unknown or named twice, or there is none.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        what = ", ".join(map(repr, unknown)) or "an empty list"
        raise MethodError(f"no method is called {what}; known are {', '.join(METHODS)}")
    if len({*names}) < len(names):
        raise MethodError(f"a method is named twice in {text!r}")
    return names


def check(name: str, *, prior: bool) -> None:
    """Raise where a method cannot run here.

    Raises:
        MethodError: It needs a package that is not installed, or a prior where there is none.
    """
    entry = METHODS[name]
    absent = [module for module in entry.needs if importlib.util.find_spec(module) is None]
    if absent:
        raise MethodError(f"method {name} needs {' and '.join(absent)}; {EXTRA}")
    if importlib.util.find_spec(entry.module) is None:
        raise MethodError(f"method {name} is not part of this version: there is no {entry.module}")
    if entry.prior and not prior:
        raise MethodError(f"method {name} follows a prior; give --prior roofline or --prior wrong")


def method_of(name: str) -> Method:
    """Return a method by its name.

    Raises:
        MethodError: It is unknown, or needs a package that is not installed.
    """
    names_of(name)
    check(name, prior=True)
    entry = METHODS[name]
    module = importlib.import_module(entry.module)
    function = getattr(module, entry.function)
    method: Method = partial(function, sampler=getattr(module, entry.sampler)) if entry.sampler else function
    return method
