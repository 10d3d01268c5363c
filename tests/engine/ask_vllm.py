"""Runs in vLLM's own environment: what its parser and its configuration checks say about command lines.

Reads a JSON list of jobs `{"arguments": [...], "configure": true}` and writes one JSON object: the version, tables of
the engine, and an answer for each job. Without weights and without a GPU; one import serves all jobs.
"""

import contextlib
import io
import json
import sys
from typing import get_args

import vllm
from vllm.config.cache import CacheConfig, CacheDType
from vllm.config.speculative import SpeculativeMethod
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS, get_quantization_config
from vllm.usage.usage_lib import UsageContext
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.attention.backends.registry import AttentionBackendEnum

PARSER = make_arg_parser(FlexibleArgumentParser())


def in_force(config):
    """Return what a configuration came out as, by the names of the parameters."""
    speculation = config.speculative_config
    return {
        "tensorParallelSize": config.parallel_config.tensor_parallel_size,
        "pipelineParallelSize": config.parallel_config.pipeline_parallel_size,
        "enableExpertParallel": config.parallel_config.enable_expert_parallel,
        "maxNumSeqs": config.scheduler_config.max_num_seqs,
        "maxNumBatchedTokens": config.scheduler_config.max_num_batched_tokens,
        "enableChunkedPrefill": config.scheduler_config.enable_chunked_prefill,
        "kvCacheDtype": config.cache_config.cache_dtype,
        "enablePrefixCaching": config.cache_config.enable_prefix_caching,
        "gpuMemoryUtilizationPercent": round(100 * config.cache_config.gpu_memory_utilization),
        "blockSize": config.cache_config.block_size,
        "enforceEager": config.model_config.enforce_eager,
        "optimizationLevel": int(config.optimization_level),
        "speculativeMethod": speculation.method if speculation else "none",
        "numSpeculativeTokens": speculation.num_speculative_tokens if speculation else 0,
    }


def asked(namespace):
    """Return what the parser made of arguments that a platform may change afterwards."""
    return {"dataParallelSize": namespace.data_parallel_size, "asyncScheduling": namespace.async_scheduling}


def answer(job):
    """Return whether the arguments parse and, where wanted, whether the configuration holds."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            namespace = PARSER.parse_args(job["arguments"])
    except SystemExit:
        return {"parsed": False, "accepted": False, "words": said.getvalue()[-400:]}
    if not job["configure"]:
        return {"parsed": True, "accepted": None, "words": "", "asked": asked(namespace)}
    try:
        config = AsyncEngineArgs.from_cli_args(namespace).create_engine_config(UsageContext.OPENAI_API_SERVER)
    except Exception as error:  # noqa: BLE001 - whatever refuses is the answer
        return {"parsed": True, "accepted": False, "words": f"{type(error).__name__}: {error}"}
    return {"parsed": True, "accepted": True, "words": "", "asked": asked(namespace), "in_force": in_force(config)}


def literals(kind):
    """Return the texts of a literal type, also of literal types within it."""
    return [text for each in get_args(kind) for text in ([each] if isinstance(each, str) else literals(each))]


def capabilities():
    """Return the compute capability that each quantization method needs, as 10 x major + minor."""
    found = {}
    for method in QUANTIZATION_METHODS:
        with contextlib.suppress(Exception):
            found[method] = get_quantization_config(method).get_min_capability()
    return found


def main():
    """Answer all jobs."""
    # A broken answer must not be mistaken for one: the engine writes its log to standard output.
    with contextlib.redirect_stdout(sys.stderr):
        jobs = json.load(sys.stdin)
        document = {
            "version": vllm.__version__,
            "flags": sorted(flag for action in PARSER._actions for flag in action.option_strings),
            "memoryShare": CacheConfig().gpu_memory_utilization,
            "cacheDtypes": literals(CacheDType),
            "methods": literals(SpeculativeMethod),
            "backends": [backend.name for backend in AttentionBackendEnum],
            "capabilities": capabilities(),
            "answers": [answer(job) for job in jobs],
        }
    json.dump(document, sys.stdout)


main()
