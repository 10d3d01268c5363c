"""What a search space contains, as plain data for tables and files."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.surroundings import Surroundings
from frontier_tuner.engines.vllm_catalogue import POOLS
from frontier_tuner.engines.vllm_memory import MemoryPlan, memory_plan
from frontier_tuner.engines.vllm_pools import disaggregated, gpus, pool_of
from frontier_tuner.parameter import shown
from frontier_tuner.space import SearchSpace


def memory_of(around: Surroundings, configuration: Configuration) -> dict[str, MemoryPlan]:
    """Return what becomes of a GPU's memory, for each pool, or under an empty name where one engine does everything.

    Empty where the model or the GPU is not known.
    """
    engines = (
        {role: pool_of(configuration, role) for role in POOLS} if disaggregated(configuration) else {"": configuration}
    )
    plans = {role: memory_plan(around, engine) for role, engine in engines.items()}
    return {role: plan for role, plan in plans.items() if plan is not None}


def space_document(
    space: SearchSpace, around: Surroundings, *, memory: bool = False, invalid: bool = False, limit: int | None = None
) -> dict[str, Any]:
    """Return a space as a JSON object.

    Args:
        space: The space.
        around: What is known of model and hardware.
        memory: Whether each configuration says what becomes of a GPU's memory.
        invalid: Whether the reasons of invalid combinations are listed, the most frequent first.
        limit: At most so many configurations; None lists all.
    """
    reasons = invalid_document(space.reasons)
    return {
        "valid": space.size,
        "invalid": sum(space.reasons.values()),
        "digest": space.digest,
        "parameters": [
            {
                "name": parameter.name,
                "values": list(parameter.values),
                "moves": parameter.moves,
                "restart": parameter.restart,
                **({"requires": str(parameter.requires)} if parameter.requires else {}),
            }
            for parameter in space.parameters
        ],
        "baseline": space.baseline.hash,
        "configurations": [
            {
                "hash": configuration.hash,
                "gpus": gpus(configuration),
                "values": dict(configuration),
                **({"memory": _memory(memory_of(around, configuration))} if memory else {}),
            }
            for configuration in islice(space.configurations(), limit)
        ],
        **({"reasons": reasons} if invalid else {}),
    }


def invalid_document(reasons: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return sentences with the number of combinations that each forbids, the most frequent first."""
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": sentence, "combinations": count} for sentence, count in ranked]


def space_rows(
    space: SearchSpace, around: Surroundings, *, memory: bool = False, limit: int | None = None
) -> tuple[Sequence[str], list[list[str]]]:
    """Return the names of columns and a row of text for each configuration; what a configuration lacks is empty."""
    names = [parameter.name for parameter in space.parameters]
    rows = []
    for configuration in islice(space.configurations(), limit):
        row = [configuration.hash, str(gpus(configuration))]
        row += [shown(configuration[name]) if name in configuration else "" for name in names]
        if memory:
            row += _memory_row(memory_of(around, configuration))
        rows.append(row)
    return ["hash", "gpus", *names, *(MEMORY_COLUMNS if memory else ())], rows


MEMORY_COLUMNS = ("weightsBytes", "cacheBytes", "cacheTokens", "contextTokens")


def _memory_row(plans: Mapping[str, MemoryPlan]) -> list[str]:
    columns = [[plan.weights, plan.cache, plan.tokens, plan.context] for plan in plans.values()]
    return ["/".join(str(number) for number in numbers) for numbers in zip(*columns, strict=True)] or [""] * 4


def _memory(plans: Mapping[str, MemoryPlan]) -> dict[str, Any]:
    return {
        role or "engine": {
            "capacityBytes": plan.capacity,
            "weightsBytes": plan.weights,
            "runtimeBytes": plan.runtime,
            "cacheBytes": plan.cache,
            "tokenBytes": plan.token,
            "cacheTokens": plan.tokens,
            "contextTokens": plan.context,
            "arithmetic": plan.text,
        }
        for role, plan in plans.items()
    }
