"""Prefill and decode in pools of their own: what each pool's engines are, how many GPUs, and what must agree."""

from collections.abc import Callable, Iterator

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.engines.surroundings import Surroundings
from frontier_tuner.engines.vllm_catalogue import POOLED, POOLS, pool_name
from frontier_tuner.engines.vllm_parameters import CACHE, DP, PP, TP
from frontier_tuner.engines.vllm_versions import UNLIKE_POOLS
from frontier_tuner.parameter import Rule

Check = Callable[[Configuration], str | None]


def disaggregated(configuration: Configuration) -> bool:
    """Return whether prefill and decode have pools of their own."""
    return configuration.text("mode") == "disaggregated"


def pool_of(configuration: Configuration, role: str) -> Configuration:
    """Return the configuration of one engine of a pool, under the names of a single engine's parameters."""
    own = {name: base for base, name in POOLED[role].items()}
    pooled = {name for names in POOLED.values() for name in names.values()}
    pooled |= {"mode", *(pool_name(each, "replicas") for each in POOLS)}
    values: dict[str, Value] = {name: value for name, value in configuration.items() if name not in pooled}
    return Configuration.of(values | {own[name]: value for name, value in configuration.items() if name in own})


def engine_gpus(configuration: Configuration) -> int:
    """Return how many GPUs one engine holds, by the names of a single engine's parameters."""
    return configuration.integer(TP, 1) * configuration.integer(PP, 1) * configuration.integer(DP, 1)


def gpus(configuration: Configuration) -> int:
    """Return how many GPUs a configuration holds, over all pools."""
    if not disaggregated(configuration):
        return engine_gpus(configuration)
    return sum(
        configuration.integer(pool_name(role, "replicas"), 1) * engine_gpus(pool_of(configuration, role))
        for role in POOLS
    )


def for_pools(rule: Rule) -> Iterator[Rule]:
    """Yield a rule about one engine as rules about the engine that does everything and about each pool's engines."""
    if not any(name in POOLED["prefill"] for name in rule.parameters):
        yield rule
        return

    def alone(configuration: Configuration) -> str | None:
        return None if disaggregated(configuration) else rule.check(configuration)

    yield Rule(("mode", *rule.parameters), alone)
    for role in POOLS:
        names = tuple(POOLED[role].get(name, name) for name in rule.parameters)
        # A pool without a cache format of its own has the one that both share.
        yield Rule(tuple(dict.fromkeys(("mode", *rule.parameters, *names))), _in_pool(rule.check, role))


def _in_pool(check: Check, role: str) -> Check:
    def checked(configuration: Configuration) -> str | None:
        if not disaggregated(configuration):
            return None
        message = check(pool_of(configuration, role))
        return None if message is None else f"{role} pool: {message}"

    return checked


def pool_rules(around: Surroundings) -> tuple[Rule, ...]:
    """Return the rules between the pools."""
    names = [pool_name(role, name) for role in POOLS for name in ("replicas", TP, PP, DP)]
    agreeing = [pool_name(role, name) for role in POOLS for name in (TP, CACHE)]
    return (
        Rule(("mode", *names), lambda c: total_gpus(around, c)),
        Rule(("mode", "image", CACHE, *agreeing), lambda c: handshake(around, c)),
    )


def total_gpus(around: Surroundings, configuration: Configuration) -> str | None:
    """All pools together must fit the GPUs that may be held."""
    if not disaggregated(configuration) or not around.max_gpus:
        return None
    needed = gpus(configuration)
    if needed <= around.max_gpus:
        return None
    parts = " + ".join(
        f"{configuration.integer(pool_name(role, 'replicas'), 1)} x {engine_gpus(pool_of(configuration, role))}"
        for role in POOLS
    )
    return f"prefill and decode need {parts} = {needed} GPUs, at most {around.max_gpus} are allowed"


def handshake(around: Surroundings, configuration: Configuration) -> str | None:
    """Engines that hand over caches must agree on what a cache is: its format always, TP where nothing else is known.

    vLLM's NIXL connector refuses a partner whose version, model, cache format, attention backend or speculation
    differs; all of these but the format are the same for both pools here.
    """
    if not disaggregated(configuration):
        return None
    prefill, decode = (pool_of(configuration, role) for role in POOLS)
    formats = prefill.text(CACHE, "auto"), decode.text(CACHE, "auto")
    if formats[0] != formats[1]:
        return (
            f"prefill has kvCacheDtype {formats[0]} and decode {formats[1]}; the pools can hand over equal caches only"
        )
    degrees = prefill.integer(TP, 1), decode.integer(TP, 1)
    if degrees[0] == degrees[1] or around.version_of(configuration) in UNLIKE_POOLS:
        return None
    if "UnlikePools" in around.trusted:
        return None
    return f"prefill has TP {degrees[0]} and decode TP {degrees[1]}, which no version is known to hand over rightly"
