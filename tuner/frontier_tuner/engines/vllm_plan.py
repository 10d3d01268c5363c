"""Which parameters are searched for a model on some hardware, and with which values, before anything restricts them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from frontier_tuner.configuration import Value
from frontier_tuner.engines.surroundings import Surroundings
from frontier_tuner.engines.vllm_catalogue import BY_DEFAULT, BY_DEFAULT_DISAGGREGATED, base_name
from frontier_tuner.engines.vllm_parameters import CACHE, DEPTH, DEPTH_ALONE, DP, EP, METHOD, PP, TP
from frontier_tuner.engines.vllm_shapes import redundant_experts
from frontier_tuner.engines.vllm_versions import value_since
from frontier_tuner.parameter import Parameter
from frontier_tuner.versions import parse_version

FAST_LINK_BYTES_PER_S = 100e9
"""Below this, GPUs talk over PCIe, and pipeline parallelism can beat tensor parallelism."""


@dataclass(frozen=True)
class Plan:
    """What is searched, and with which values, before its restrictions.

    Attributes:
        around: The facts.
        variants: Names of the checkpoints.
        named: Parameters that a restriction names.
    """

    around: Surroundings
    variants: tuple[str, ...]
    named: frozenset[str]

    @cached_property
    def by_method(self) -> bool:
        """Whether the method of speculation is searched, and not only the depth of n-grams."""
        if METHOD in self.named:
            return True
        if DEPTH in self.named or self._too_old(METHOD, "mtp"):
            return False
        return bool(self.around.models) and all(model.mtp_layers for model in self.around.models.values())

    @cached_property
    def mixture(self) -> bool:
        """Whether any variant is a mixture of experts."""
        return any(model.experts for model in self.around.models.values())

    def derived(self, parameter: Parameter) -> Parameter:
        """Return a parameter of the catalogue as it is here: with values that make sense for model and hardware."""
        if parameter.name == DEPTH and not self.by_method:
            return DEPTH_ALONE
        if parameter.name == "gpuProduct":
            parameter = replace(parameter, free=False)
        return replace(parameter, values=self._values(parameter))

    def searches(self, parameter: Parameter) -> bool:
        """Return whether a parameter is searched although nothing names it."""
        name = parameter.name
        in_pools = "mode" in self.named and name in BY_DEFAULT_DISAGGREGATED
        if len(parameter.values) <= 1 or not (name in BY_DEFAULT or in_pools):
            return False
        base = base_name(name)
        if base in (DP, EP):
            return self.mixture
        if base == PP:
            gpu = self.around.gpu
            return gpu is not None and gpu.link_bytes_per_s < FAST_LINK_BYTES_PER_S
        return name != METHOD or self.by_method

    def _values(self, parameter: Parameter) -> tuple[Value, ...]:
        name, around = base_name(parameter.name), self.around
        values = parameter.values
        if name == "variant":
            values = self.variants or ("default",)
        elif name == "gpuProduct":
            values = tuple(around.products)
        elif name in (TP, PP, DP):
            values = self._sizes(values, name)
        elif name == CACHE and around.gpu is None and not around.products:
            values = ("auto",)
        elif name == METHOD and any(model.mtp_layers for model in around.models.values()):
            values = ("none", "ngram", "mtp")
        elif name == "numRedundantExperts":
            values = self._redundant(values)
        return values

    def _sizes(self, sizes: Sequence[Value], name: str) -> tuple[Value, ...]:
        around = self.around
        most = around.max_gpus if around.several_nodes else min(around.gpus_per_node, around.max_gpus)
        if name == TP and around.several_nodes:
            most = min(most, max(around.gpus_per_node, around.domain_gpus))
        return tuple(size for size in sizes if int(size) <= max(1, most))

    def _redundant(self, values: Sequence[Value]) -> tuple[Value, ...]:
        ranks = [2**power for power in range(max(1, self.around.max_gpus).bit_length())]
        experts = [model.experts for model in self.around.models.values() if model.experts]
        legal = {redundant_experts(count, each) for count in experts for each in ranks}
        return tuple(sorted(legal | {int(value) for value in values}))

    def _too_old(self, name: str, value: Value) -> bool:
        since, version = value_since(name, value), self.around.version
        return bool(since and version) and version < parse_version(since)
