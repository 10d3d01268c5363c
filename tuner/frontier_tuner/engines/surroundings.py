"""All that the rules of an engine may know beside a configuration: models, GPUs, nodes, the engine's version."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.facts import SIXTEEN_BITS, GPUFacts, ModelFacts
from frontier_tuner.versions import Version

BFLOAT_CAPABILITY = 8.0
"""GPUs below it have no bfloat16, and models run as float16."""


@dataclass(frozen=True)
class Surroundings:
    """All that the rules may know beside the configuration.

    Attributes:
        models: Facts by variant; the key "" answers for variants without facts of their own.
        gpu: The accelerator, or None where it is unknown.
        gpus_per_node: GPUs of one node; 0 where there are none.
        max_gpus: GPUs that one engine may hold; 0 where there are none.
        max_model_len: Longest context to serve, or None for the model's own.
        memory_percent: Share of the GPU's memory that the engine may use unless the space says otherwise.
        chunked_prefill: Whether prefills are chunked unless the space says otherwise.
        version: The engine's version, empty where it is unknown.
        products: The accelerators of a space over several, by product.
        versions: The versions of a space over several images, by image.
        fixed: What arguments that every engine gets say about parameters that are not searched.
        dtype: Number format that the model runs in, where an argument fixes it.
        several_nodes: Whether one engine may spread over several nodes.
        domain_gpus: GPUs that reach each other at the speed of a node's links; 0 where that is one node.
        trusted: Names of combinations that are known to work here although rules forbid them.
    """

    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    gpu: GPUFacts | None = None
    gpus_per_node: int = 0
    max_gpus: int = 0
    max_model_len: int | None = None
    memory_percent: int = 90
    chunked_prefill: bool = True
    version: Version = ()
    products: Mapping[str, GPUFacts] = field(default_factory=dict)
    versions: Mapping[str, Version] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    dtype: str = ""
    several_nodes: bool = False
    domain_gpus: int = 0
    trusted: frozenset[str] = frozenset()

    def model(self, configuration: Configuration) -> ModelFacts | None:
        """Return the facts of the configuration's variant as the engine loads it, or None where they are unknown."""
        model = self.models.get(configuration.text("variant"), self.models.get(""))
        if model is not None and configuration.text("quantization") == "fp8" and model.weight_bits == SIXTEEN_BITS:
            return replace(model, weight_bits=8)
        return model

    def gpu_of(self, configuration: Configuration) -> GPUFacts | None:
        """Return the accelerator of a configuration, or None where it is unknown."""
        return self.products.get(configuration.text("gpuProduct"), self.gpu)

    def version_of(self, configuration: Configuration) -> Version:
        """Return the version of a configuration's engine, empty where it is unknown."""
        return self.versions.get(configuration.text("image"), self.version)

    def context(self, configuration: Configuration) -> int | None:
        """Return the longest context that the engine will serve, or None where it is unknown."""
        model = self.model(configuration)
        return self.max_model_len or (model.max_context if model else None)

    def model_dtype(self, configuration: Configuration) -> str:
        """Return the number format that the model runs in: the argument's, or what the GPU allows."""
        if self.dtype not in ("", "auto"):
            return {"half": "float16", "float": "float32"}.get(self.dtype, self.dtype)
        gpu = self.gpu_of(configuration)
        return "float16" if gpu is not None and gpu.compute_capability < BFLOAT_CAPABILITY else "bfloat16"
