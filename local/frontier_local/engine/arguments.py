"""vLLM's command line, as far as it matters to a simulation of serving.

Parsing only: values are read and typed here, and judged together with model and hardware in `plan`.
An option may be written `--flag value` or `--flag=value`, with underscores for dashes.
"""

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NoReturn

DTYPES = ("auto", "half", "float16", "bfloat16", "float", "float32")
KV_CACHE_DTYPES = ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")
BLOCK_SIZES = (1, 8, 16, 32, 64, 128)
LARGEST_PORT = 65535
_NUMBER = re.compile(r"\d*\.?\d+")
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([kmgKMG]?)")
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class EngineArguments:
    """What was typed; None where the engine is to choose.

    Attributes:
        model: Name or directory of the checkpoint.
        served_model_name: Names that requests may use; the first is the label `model_name`.
        max_model_len: Longest sequence in tokens, or None for the model's own.
        gpu_memory_utilization: Share of each GPU's memory that the engine may use, above 0 and at most 1.
        speculative_config: The decoded object, or None where speculation is off.
        compilation_config: The decoded object, empty where not given.
    """

    model: str
    served_model_name: tuple[str, ...]
    host: str
    port: int
    max_model_len: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    gpu_memory_utilization: float
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    block_size: int
    seed: int
    enforce_eager: bool
    enable_prefix_caching: bool
    enable_chunked_prefill: bool
    async_scheduling: bool
    tensor_parallel_size: int
    pipeline_parallel_size: int
    data_parallel_size: int
    enable_expert_parallel: bool
    speculative_config: dict[str, Any] | None
    compilation_config: dict[str, Any]


class _Parser(argparse.ArgumentParser):
    """An argument parser whose last line reads `error: …` without the program's name."""

    def error(self, message: str) -> NoReturn:
        self.print_usage()
        self.exit(2, f"error: {message}\n")


def parse_arguments(argv: Sequence[str]) -> EngineArguments:
    """Return the arguments of this command line.

    Raises:
        SystemExit: With code 2 and a last line `error: …` for an unknown flag or an unreadable value; with 0 for
            `--help`.
    """
    parser = _build_parser()
    # Only the first word may be the model: elsewhere a bare word is the value of a flag that does not exist.
    positional, options = (argv[0], argv[1:]) if argv and not argv[0].startswith("-") else (None, argv)
    parsed = vars(parser.parse_args(_normalise(options)))
    if positional is not None and parsed["model"] is not None and positional != parsed["model"]:
        parser.error(f"the model is given twice: {positional} and --model {parsed['model']}; give one")
    parsed["model"] = parsed["model"] or positional
    if parsed["model"] is None:
        parser.error("the following arguments are required: --model")
    parsed["served_model_name"] = tuple(parsed["served_model_name"] or (parsed["model"],))
    return EngineArguments(**{field.name: parsed[field.name] for field in fields(EngineArguments)})


def _normalise(argv: Sequence[str]) -> list[str]:
    """Write the names of long options with dashes; values stay as they are."""
    written = []
    for word in argv:
        name, equals, value = word.partition("=")
        written.append(name.replace("_", "-") + equals + value if word.startswith("--") else word)
    return written


def _build_parser() -> _Parser:
    parser = _Parser(prog="engine", usage="%(prog)s [MODEL] --flag value …", allow_abbrev=False)
    parser.add_argument("--model")
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=_port, default=8000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", choices=DTYPES, default="auto")
    parser.add_argument("--quantization", "-q")
    parser.add_argument("--max-model-len", type=_length)
    _add_scheduling(parser)
    _add_parallelism(parser)
    _add_accepted(parser)
    return parser


def _add_scheduling(parser: _Parser) -> None:
    parser.add_argument("--max-num-seqs", type=_positive)
    parser.add_argument("--max-num-batched-tokens", type=_length)
    parser.add_argument("--gpu-memory-utilization", type=_share, default=0.9)
    parser.add_argument("--kv-cache-dtype", choices=KV_CACHE_DTYPES, default="auto")
    parser.add_argument("--block-size", type=int, choices=BLOCK_SIZES, default=16)
    parser.add_argument("--speculative-config", type=_object)
    parser.add_argument("--compilation-config", "-O", type=_object, default={})
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--enable-chunked-prefill", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--async-scheduling", action=argparse.BooleanOptionalAction, default=True)


def _add_parallelism(parser: _Parser) -> None:
    parser.add_argument("--tensor-parallel-size", "-tp", type=_positive, default=1)
    parser.add_argument("--pipeline-parallel-size", "-pp", type=_positive, default=1)
    parser.add_argument("--data-parallel-size", "-dp", type=_positive, default=1)
    parser.add_argument("--enable-expert-parallel", action=argparse.BooleanOptionalAction, default=False)


def _add_accepted(parser: _Parser) -> None:
    """Add options that change nothing here: they are read and checked for their form only."""
    parser.add_argument("--kv-transfer-config", type=_object)
    parser.add_argument("--trust-remote-code", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--distributed-executor-backend", choices=("mp", "ray", "uni", "external_launcher"))
    parser.add_argument("--tokenizer")
    parser.add_argument("--revision")
    parser.add_argument("--download-dir")
    parser.add_argument("--load-format", default="auto")
    parser.add_argument("--api-key")
    parser.add_argument("--uvicorn-log-level", default="info")
    for switch in ("--disable-log-stats", "--disable-log-requests", "--enable-log-requests"):
        parser.add_argument(switch, action="store_true")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number of at least 1")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port; give 0 to {LARGEST_PORT}")
    return int(text)


def _share(text: str) -> float:
    share = float(text) if _NUMBER.fullmatch(text) else 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share of the memory; give a value above 0 and at most 1")
    return share


def _length(text: str) -> int:
    """Read a number of tokens; `32k` is 32,000 and `32K` is 32,768."""
    match = _LENGTH.fullmatch(text)
    tokens = int(float(match[1]) * _FACTORS[match[2]]) if match else 0
    if tokens < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of tokens; give one such as 8192, 32k or 32K")
    return tokens


def _object(text: str) -> dict[str, Any]:
    try:
        decoded = json.loads(text)
    except json.JSONDecodeError as error:
        raise argparse.ArgumentTypeError(f"{text} is no JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise argparse.ArgumentTypeError(f"{text} is no JSON object")
    return decoded
