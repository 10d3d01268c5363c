"""Static rules of vLLM: which configurations cannot work, and why, before an engine starts.

Every rule is a pure function of one configuration. What only a kernel knows is not here: such a configuration fails
once, is classified, and teaches the sampler. Rules need facts; where a model or a GPU is unknown its rules are absent.
"""

from collections.abc import Callable

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines import vllm_flags as flags
from frontier_tuner.engines.surroundings import Surroundings
from frontier_tuner.engines.vllm_catalogue import CATALOGUE
from frontier_tuner.engines.vllm_memory import GIB, kv_tokens, memory_fit, memory_plan, weight_bytes_per_gpu
from frontier_tuner.engines.vllm_parameters import CACHE, DEPTH, DP, EP, MEMORY, METHOD, PP, SEQUENCES, TOKENS, TP
from frontier_tuner.engines.vllm_pools import engine_gpus, for_pools, gpus, pool_rules
from frontier_tuner.engines.vllm_shapes import attention_split, expert_split, pipeline_split, width_split
from frontier_tuner.facts import ModelFacts
from frontier_tuner.parameter import Parameter, Rule

__all__ = [
    "DP",
    "EP",
    "GIB",
    "PP",
    "TP",
    "Surroundings",
    "attention_split",
    "expert_split",
    "gpus",
    "kv_tokens",
    "memory_fit",
    "memory_plan",
    "rules",
    "weight_bytes_per_gpu",
    "width_split",
    "world_size",
]

Check = Callable[[Configuration], str | None]

_LOADED = ("variant", "quantization")
"""What the engine loads; rules about the model read both."""


def rules(around: Surroundings, *, pools: bool = False) -> tuple[Rule, ...]:
    """Return the rules that apply with these facts.

    Args:
        around: The facts.
        pools: Whether prefill and decode may have pools of their own.
    """
    single = (
        *_layout(around),
        Rule((SEQUENCES, TOKENS), flags.tokens_for_sequences),
        Rule((*_LOADED, TOKENS, "enableChunkedPrefill"), lambda c: flags.tokens_for_context(around, c)),
        Rule(("gpuProduct", CACHE), lambda c: flags.cache_precision(around, c)),
        Rule((*_LOADED, "gpuProduct", "image"), lambda c: flags.quantization(around, c)),
        *_speculation(around),
        *_runtime(around),
        Rule((*_LOADED, "gpuProduct", TP, PP, DP, EP, CACHE, MEMORY), lambda c: memory_fit(around, c)),
        *_availability(around),
    )
    everything = (*(each for rule in single for each in for_pools(rule)), *pool_rules(around)) if pools else single
    return tuple(_with_fixed(around, rule) for rule in everything)


def _layout(around: Surroundings) -> tuple[Rule, ...]:
    def widths(model: ModelFacts, c: Configuration) -> str | None:
        return width_split(model, c.integer(TP, 1), c.integer(DP, 1), c.flag(EP), around.version_of(c))

    def experts(model: ModelFacts, c: Configuration) -> str | None:
        ranks, redundant = c.integer(TP, 1) * c.integer(DP, 1), c.integer("numRedundantExperts")
        return expert_split(model, ranks, c.flag(EP), balanced=c.flag("enableEplb"), redundant=redundant)

    return (
        Rule((TP, PP, DP), lambda c: world_size(around, c)),
        Rule((*_LOADED, TP), _on_model(around, lambda m, c: attention_split(m, c.integer(TP, 1)))),
        Rule((*_LOADED, "image", TP, DP, EP), _on_model(around, widths)),
        Rule((*_LOADED, TP, DP, EP, "enableEplb", "numRedundantExperts"), _on_model(around, experts)),
        Rule((*_LOADED, PP), _on_model(around, lambda m, c: pipeline_split(m, c.integer(PP, 1)))),
    )


def _speculation(around: Surroundings) -> tuple[Rule, ...]:
    return (
        Rule((PP, METHOD, DEPTH, "image"), lambda c: flags.speculation_in_pipeline(around, c)),
        Rule((*_LOADED, METHOD, DEPTH), lambda c: flags.draft_model(around, c)),
        Rule((TP, "draftTensorParallelSize"), flags.draft_split),
    )


def _runtime(around: Surroundings) -> tuple[Rule, ...]:
    backend = (*_LOADED, "gpuProduct", "attentionBackend", CACHE, "blockSize")
    return (
        Rule(backend, lambda c: flags.attention_backend(around, c)),
        Rule((PP, METHOD, DEPTH, "image", "asyncScheduling"), lambda c: flags.async_scheduling(around, c)),
    )


def _availability(around: Surroundings) -> tuple[Rule, ...]:
    if not around.version and not around.versions:
        return ()
    return tuple(_available(around, parameter) for parameter in CATALOGUE if flags.differs_by_version(parameter))


def _available(around: Surroundings, parameter: Parameter) -> Rule:
    return Rule(("image", parameter.name), lambda c: flags.available(around, parameter, c))


def _on_model(around: Surroundings, check: Callable[[ModelFacts, Configuration], str | None]) -> Check:
    def checked(configuration: Configuration) -> str | None:
        model = around.model(configuration)
        return None if model is None else check(model, configuration)

    return checked


def _with_fixed(around: Surroundings, rule: Rule) -> Rule:
    """Return the rule as it sees the parameters that an argument fixes for every engine."""
    fixed = {name: value for name, value in around.fixed.items() if name in rule.parameters}
    if not fixed:
        return rule
    return Rule(rule.parameters, lambda c: rule.check(Configuration.of({**fixed, **c})))


def world_size(around: Surroundings, configuration: Configuration) -> str | None:
    """An engine must fit the GPUs that it may hold, and one node; over several, groups must not straddle them."""
    needed = engine_gpus(configuration)
    product = " x ".join(
        f"{short} {configuration.integer(name, 1)}" for short, name in (("TP", TP), ("PP", PP), ("DP", DP))
    )
    if around.max_gpus and needed > around.max_gpus:
        return f"{product} needs {needed} GPUs, at most {around.max_gpus} are allowed"
    if not around.gpus_per_node or needed <= around.gpus_per_node:
        return None
    if not around.several_nodes:
        return f"{product} needs {needed} GPUs, a node has {around.gpus_per_node}"
    return _over_nodes(around, configuration, product, needed)


def _over_nodes(around: Surroundings, configuration: Configuration, product: str, needed: int) -> str | None:
    node, tensor = around.gpus_per_node, configuration.integer(TP, 1)
    domain = max(node, around.domain_gpus)
    if needed % node:
        return f"{product} needs {needed} GPUs, which are not whole nodes of {node}"
    if tensor > domain and "TensorParallelAcrossNodes" not in around.trusted:
        return (
            f"TP {tensor} reaches beyond the {domain} GPUs with fast links, and each layer would wait for the network; "
            f"use PP or DP across nodes"
        )
    if tensor <= node and node % tensor:
        return f"TP {tensor} does not divide a node of {node} GPUs, so a group of it would lie on two"
    return None
