"""vLLM: the space that its parameters make for a model on some hardware, and the command line of a configuration."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.engines.surroundings import Surroundings
from frontier_tuner.engines.vllm_arguments import FixedArguments, clashes, command_line
from frontier_tuner.engines.vllm_catalogue import ALWAYS, CATALOGUE, DEFAULTS, FEATURES, POOLED, defaults_of
from frontier_tuner.engines.vllm_memory import GIB
from frontier_tuner.engines.vllm_parameters import DRAFTERS, MEMORY, METHOD, SEQUENCES, TOKENS
from frontier_tuner.engines.vllm_plan import Plan
from frontier_tuner.engines.vllm_pools import gpus
from frontier_tuner.engines.vllm_rules import rules
from frontier_tuner.engines.vllm_shapes import attention_split, expert_split, width_split
from frontier_tuner.engines.vllm_versions import LARGEST_BATCHES_SINCE
from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.facts import GPUFacts, ModelFacts
from frontier_tuner.parameter import Parameter
from frontier_tuner.restriction import restrict_parameters, unreachable
from frontier_tuner.space import Restriction, SearchSpace
from frontier_tuner.versions import image_version, parse_version

__all__ = [
    "CATALOGUE",
    "DEFAULTS",
    "FEATURES",
    "baseline",
    "build_space",
    "command_line",
    "gpus",
    "tensor_parallel_sizes",
]

LARGE_GPU_BYTES = 70 * GIB
"""From this memory on, A100 excepted, vLLM's server takes larger batches by default."""
LARGEST_GPU_BYTES = 160 * GIB
"""From this memory on newer versions take the largest steps by default."""
REMEMBERED_SPACES = 32
"""Spaces that are kept once built: a reconcile pass asks for the same few again and again."""

_NOT_PARAMETERS = {
    "expertParallelSize": "vLLM derives the degree, TP x DP; use enableExpertParallel",
    "maxModelLen": "it changes what can be served; set --max-model-len in engine.args",
}


@dataclass(frozen=True, eq=False)
class SpaceRequest:
    """All that a space is made from; two are equal where every value and every type is.

    Attributes:
        models: Facts of the model, or by variant where variants differ; None where unknown: no rule reads a shape.
        gpu: Facts of the accelerator; None where unknown or on CPU.
        gpus_per_node: GPUs of one node; 0 on CPU.
        variants: Names of the checkpoints; the first is the quality reference.
        max_gpus: GPUs that one engine may hold, over all pools; 0 on CPU.
        restrictions: What the user says about parameters; all others keep their default values.
        fixed_args: Arguments that every engine gets.
        max_model_len: Longest context to serve; None takes it from `fixed_args` or the model.
        engine_version: Such as `0.33.0`; empty takes the strictest of the known versions.
        products: Facts of the accelerators that `gpuProduct` may name.
        supports: Parameters of `FEATURES` that the plant can do; a restriction of any other of them is refused.
        several_nodes: Whether one engine may spread over nodes.
        domain_gpus: GPUs with fast links between them; 0 where that is one node.
        trusted: `SpeculationInPipeline`, `UnlikePools` or `TensorParallelAcrossNodes`: combinations that are known to
            work here although no version is known to do them well.
    """

    models: ModelFacts | Mapping[str, ModelFacts] | None
    gpu: GPUFacts | None
    gpus_per_node: int
    variants: Sequence[str]
    max_gpus: int
    restrictions: Sequence[Restriction] = ()
    fixed_args: Sequence[str] = ()
    max_model_len: int | None = None
    engine_version: str = ""
    products: Mapping[str, GPUFacts] = field(default_factory=dict)
    supports: Collection[str] = ()
    several_nodes: bool = False
    domain_gpus: int = 0
    trusted: Collection[str] = ()

    @cached_property
    def content(self) -> str:
        """Everything as text, because 1 and true are equal as keys and different as values."""
        told = {each.name: getattr(self, each.name) for each in fields(self)}
        told |= {name: sorted(told[name]) for name in ("supports", "trusted")}
        return repr({name: list(value) if isinstance(value, tuple) else value for name, value in told.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpaceRequest) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    @cached_property
    def fixed(self) -> FixedArguments:
        """The fixed arguments, read."""
        return FixedArguments.parse(self.fixed_args)

    @cached_property
    def surroundings(self) -> Surroundings:
        """What rules and memory arithmetic know."""
        return _surroundings(self)


def build_space(
    model: ModelFacts | Mapping[str, ModelFacts] | None,
    gpu: GPUFacts | None,
    gpus_per_node: int,
    variants: Sequence[str],
    max_gpus: int,
    restrictions: Sequence[Restriction] = (),
    fixed_args: Sequence[str] = (),
    max_model_len: int | None = None,
    *,
    engine_version: str = "",
    products: Mapping[str, GPUFacts] | None = None,
    supports: Collection[str] = (),
    several_nodes: bool = False,
    domain_gpus: int = 0,
    trusted: Collection[str] = (),
) -> SearchSpace:
    """Return the space of valid configurations, without values that no valid configuration has.

    The arguments are those of `SpaceRequest`.

    Raises:
        InvalidSpaceError: A restriction is wrong, a fixed argument sets a searched parameter, or nothing is valid;
            carries every problem.
    """
    return space_of_request(
        SpaceRequest(
            models=model,
            gpu=gpu,
            gpus_per_node=gpus_per_node,
            variants=variants,
            max_gpus=max_gpus,
            restrictions=restrictions,
            fixed_args=fixed_args,
            max_model_len=max_model_len,
            engine_version=engine_version,
            products=products or {},
            supports=supports,
            several_nodes=several_nodes,
            domain_gpus=domain_gpus,
            trusted=trusted,
        )
    )


def space_of_request(request: SpaceRequest) -> SearchSpace:
    """Return the space of a request; an equal request is answered from memory.

    Raises:
        InvalidSpaceError: As for `build_space`.
    """
    built = _remembered(request)
    if isinstance(built, SearchSpace):
        return built
    raise InvalidSpaceError(*built)


@lru_cache(maxsize=REMEMBERED_SPACES)
def _remembered(request: SpaceRequest) -> SearchSpace | tuple[tuple[str, ...], Mapping[str, int]]:
    try:
        return _build(request)
    except InvalidSpaceError as error:
        return error.problems, error.reasons


def _build(request: SpaceRequest) -> SearchSpace:
    named = [entry.name for entry in request.restrictions]
    around = request.surroundings
    plan = Plan(around, tuple(request.variants), frozenset(named))
    problems = [*_refused(named, request.supports), *_too_long(around, request.fixed)]
    usable = [
        entry
        for entry in request.restrictions
        if entry.name not in _NOT_PARAMETERS and not _unsupported(entry.name, request.supports)
    ]
    offered = (parameter for parameter in CATALOGUE if not _unsupported(parameter.name, request.supports))
    parameters = tuple(plan.derived(parameter) for parameter in offered)
    try:
        parameters = restrict_parameters(parameters, usable)
    except InvalidSpaceError as error:
        problems.extend(error.problems)
    kept = _rooted(tuple(p for p in parameters if p.name in {*named, *ALWAYS} or plan.searches(p)))
    defaults = {**_defaults(around, request.variants), **around.fixed}
    problems.extend(clashes(kept, request.fixed))
    problems.extend(unreachable(kept, [entry.name for entry in usable], defaults))
    problems.extend(_without_drafter(kept))
    if problems:
        raise InvalidSpaceError(tuple(dict.fromkeys(problems)))
    names = {parameter.name for parameter in kept}
    around = replace(around, fixed={name: value for name, value in around.fixed.items() if name not in names})
    return SearchSpace(kept, rules(around, pools="mode" in names), defaults).without_dead_values()


def baseline(space: SearchSpace) -> Configuration:
    """Return what the engine would do by itself: its defaults, or the nearest valid values, for the space's parameters.

    Raises:
        InvalidSpaceError: No configuration is valid.
    """
    return space.baseline


def tensor_parallel_sizes(
    model: ModelFacts, *, expert_parallel: bool = False, limit: int = 64, engine_version: str = ""
) -> tuple[int, ...]:
    """Return the tensor parallel sizes up to `limit` that the model's shape allows, whatever the hardware."""
    return tuple(
        size
        for size in range(1, limit + 1)
        if attention_split(model, size) is None
        and width_split(model, size, 1, expert_parallel, parse_version(engine_version)) is None
        and expert_split(model, size, expert_parallel) is None
    )


def _surroundings(request: SpaceRequest) -> Surroundings:
    fixed, models = request.fixed, request.models
    length = request.max_model_len or int(fixed.number("--max-model-len") or 0)
    images = next((entry for entry in request.restrictions if entry.name == "image"), None)
    names = (*(images.values or ()), *((images.value,) if images.value else ())) if images else ()
    version = parse_version(request.engine_version)
    share = fixed.number("--gpu-memory-utilization")
    return Surroundings(
        models={"": models} if isinstance(models, ModelFacts) else dict(models or {}),
        gpu=request.gpu,
        gpus_per_node=request.gpus_per_node,
        max_gpus=request.max_gpus,
        max_model_len=length if length > 0 else None,
        memory_percent=round(100 * share) if share else int(defaults_of(version)[MEMORY]),
        chunked_prefill="--no-enable-chunked-prefill" not in fixed.values,
        version=version,
        products=dict(request.products),
        versions={str(name): parse_version(image_version(str(name))) for name in names},
        fixed=fixed.values_of_parameters(),
        dtype=fixed.values.get("--dtype", ""),
        several_nodes=request.several_nodes,
        domain_gpus=request.domain_gpus,
        trusted=frozenset(request.trusted),
    )


def _defaults(around: Surroundings, variants: Sequence[str]) -> dict[str, Value]:
    defaults = dict(defaults_of(around.version))
    if variants:
        defaults["variant"] = variants[0]
    gpu = around.gpu
    if gpu is not None and gpu.memory_bytes >= LARGE_GPU_BYTES and "A100" not in gpu.product:
        newer = not around.version or around.version >= LARGEST_BATCHES_SINCE
        tokens = 16384 if newer and gpu.memory_bytes >= LARGEST_GPU_BYTES else 8192
        larger: dict[str, Value] = {SEQUENCES: 1024, TOKENS: tokens}
        for names in ({name: name for name in larger}, *POOLED.values()):
            defaults |= {names[base]: value for base, value in larger.items()}
    return defaults


def _rooted(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters without requirements on `mode` where that is not searched: then nothing else is there."""
    names = {parameter.name for parameter in parameters}
    return tuple(
        replace(p, requires=None) if p.requires and p.requires.name not in names and p.requires.name == "mode" else p
        for p in parameters
    )


def _unsupported(name: str, supports: Collection[str]) -> bool:
    return name in FEATURES and name not in supports


def _refused(names: Sequence[str], supports: Collection[str]) -> list[str]:
    wrong = [
        f"search parameter {name} is unknown: {_NOT_PARAMETERS[name]}" for name in names if name in _NOT_PARAMETERS
    ]
    return sorted(set(wrong)) + [
        f"search parameter {name} needs a plant that {FEATURES[name]}; the one here does not, leave it out"
        for name in dict.fromkeys(names)
        if _unsupported(name, supports)
    ]


def _without_drafter(parameters: Sequence[Parameter]) -> list[str]:
    values = {parameter.name: parameter.values for parameter in parameters}
    return [
        f"speculativeMethod {method} needs a checkpoint that drafts; pin it: {{name: {name}, value: …}}"
        for method, name in DRAFTERS.items()
        if method in values.get(METHOD, ()) and not values.get(name)
    ]


def _too_long(around: Surroundings, fixed: FixedArguments) -> list[str]:
    overridden = any("rope" in flag or "override" in flag for flag in fixed.values)
    return [
        f"the context length {around.max_model_len} is above the {model.max_context} of {model.name}; "
        f"lower it, or override the model's rope scaling in engine.args"
        for model in around.models.values()
        if around.max_model_len and around.max_model_len > model.max_context and not overridden
    ]
