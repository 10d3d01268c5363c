"""Other load generators: the command that puts the same load on the same endpoint, and where each writes what it saw.

Nothing here is run. Each rival has prompts of its own making, of the same lengths: uniform around a mean.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from frontier_tuner.errors import MeasurementError
from frontier_tuner.measurement import Load

_VLLM_BENCH = (
    "from vllm.benchmarks.serve import add_cli_args, main\n"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
    "p = FlexibleArgumentParser(); add_cli_args(p); main(p.parse_args())"
)
"""What `vllm bench serve` does, for installations whose command does not start."""


@dataclass(frozen=True)
class Task:
    """One run on an endpoint.

    Attributes:
        url: Base URL, without `/v1`.
        model: Served model name.
        load: The level to hold; open loops are Poisson.
        input_tokens: Mean length of the prompts.
        output_tokens: Mean length of the answers.
        spread_percent: Lengths are uniform within this around their mean.
        requests: How many to send.
        seconds: How long that takes at the load's rate; for a closed loop, about.
        seed: Of prompts and arrivals.
        tokenizer: Name or directory, or empty for the model's name.
    """

    url: str
    model: str
    load: Load
    input_tokens: int
    output_tokens: int
    spread_percent: int
    requests: int
    seconds: float
    seed: int
    tokenizer: str = ""

    def lengths(self, mean: int) -> tuple[int, int]:
        """Return the shortest and the longest of lengths with this mean."""
        return max(1, mean * (100 - self.spread_percent) // 100), -(-mean * (100 + self.spread_percent) // 100)

    @property
    def warm_up_requests(self) -> int:
        """Requests that are sent before it counts."""
        return max(1, round(self.load.value)) if self.load.kind == "Concurrency" else 4


@dataclass(frozen=True)
class Figures:
    """What a load generator saw; latencies in seconds, throughput in tokens per second."""

    ttft_p50: float
    ttft_p95: float
    itl_p50: float
    itl_p95: float
    throughput: float
    answered: int

    @classmethod
    def of(cls, latencies: Iterable[float], throughput: float, answered: int) -> Self:
        """Return figures from the four latencies in the order of the attributes."""
        ttft_p50, ttft_p95, itl_p50, itl_p95 = map(float, latencies)
        return cls(ttft_p50, ttft_p95, itl_p50, itl_p95, float(throughput), int(answered))


@dataclass(frozen=True)
class Rival:
    """One other load generator.

    Attributes:
        name: As in `--program NAME=COMMAND`.
        program: Its executable.
        arguments: From a task and a directory to what follows the executable.
        prepare: Writes the files that the arguments name.
        read: Reads the result from the directory.
        note: How its figures differ in kind, or empty.
        module: Python module whose presence means it is installed, and the code that runs it.
    """

    name: str
    program: str
    arguments: Callable[[Task, Path], Sequence[str]]
    read: Callable[[Path], Figures]
    prepare: Callable[[Task, Path], None] = lambda _task, _directory: None
    note: str = ""
    module: tuple[str, str] | None = None

    def command(self, given: Sequence[str] = ()) -> list[str] | None:
        """Return the start of its command line, or None where it is not installed.

        Args:
            given: The executable with its first arguments, or a Python that has the rival installed.
        """
        if given:
            python = Path(given[-1]).name.startswith("python")
            return [*given, "-c", self.module[1]] if python and self.module else list(given)
        found = shutil.which(self.program)
        if found:
            return [found, "bench", "serve"] if self.program == "vllm" else [found]
        if self.module and find_spec(self.module[0]):
            return [sys.executable, "-c", self.module[1]]
        return None


def _vllm(task: Task, directory: Path) -> list[str]:
    level = f"{task.load.value:g}"
    loop = ["--max-concurrency", level] if task.load.kind == "Concurrency" else ["--request-rate", level]
    return [
        *("--backend", "openai", "--base-url", task.url, "--endpoint", "/v1/completions", "--model", task.model),
        *("--tokenizer", task.tokenizer or task.model, "--dataset-name", "random", "--seed", str(task.seed)),
        *("--random-input-len", str(task.input_tokens), "--random-output-len", str(task.output_tokens)),
        *("--random-range-ratio", f"{task.spread_percent / 100:g}", "--num-prompts", str(task.requests), *loop),
        *("--num-warmups", str(task.warm_up_requests), "--ignore-eos", "--temperature", "0", "--disable-tqdm"),
        *("--percentile-metrics", "ttft,itl,e2el", "--metric-percentiles", "50,95"),
        *("--save-result", "--result-dir", str(directory), "--result-filename", "result.json"),
    ]


def _read_vllm(directory: Path) -> Figures:
    with _reading(directory / "result.json") as body:
        return Figures.of(
            (body[f"p{percentile}_{metric}_ms"] / 1000 for metric in ("ttft", "itl") for percentile in (50, 95)),
            body["output_throughput"],
            body["completed"],
        )


def _aiperf(task: Task, directory: Path) -> list[str]:
    level = f"{task.load.value:g}"
    loop = (
        ["--concurrency", level]
        if task.load.kind == "Concurrency"
        else ["--request-rate", level, "--arrival-pattern", "poisson"]
    )
    return [
        *("profile", "--model", task.model, "--url", task.url, "--endpoint-type", "completions", "--streaming"),
        *("--tokenizer", task.tokenizer or task.model, "--isl", str(task.input_tokens), "--osl"),
        *(str(task.output_tokens), "--random-range-ratio", f"{task.spread_percent / 100:g}", *loop),
        *("--request-count", str(task.requests), "--warmup-request-count", str(task.warm_up_requests)),
        *("--extra-inputs", "ignore_eos:true", "--extra-inputs", "temperature:0", "--use-server-token-count"),
        *("--random-seed", str(task.seed), "--artifact-dir", str(directory), "--export-level", "summary"),
        *("--ui", "none"),
    ]


def _read_aiperf(directory: Path) -> Figures:
    with _reading(directory / "profile_export_aiperf.json") as body:
        metrics = ("time_to_first_token", "inter_chunk_latency")
        return Figures.of(
            (body[metric][percentile] / 1000 for metric in metrics for percentile in ("p50", "p95")),
            body["output_token_throughput"]["avg"],
            body["request_count"]["avg"],
        )


def _guidellm(task: Task, directory: Path) -> list[str]:
    level = f"{task.load.value:g}"
    profile = f"kind=concurrent,streams={level}" if task.load.kind == "Concurrency" else f"kind=poisson,rate={level}"
    lengths = []
    for name, mean in (("prompt", task.input_tokens), ("output", task.output_tokens)):
        low, high = task.lengths(mean)
        lengths.append(f"{name}_tokens={mean},{name}_tokens_min={low},{name}_tokens_max={high}")
    return [
        "run",
        *("--backend", f"kind=openai_http,target={task.url},model={task.model},request_format=/v1/completions"),
        *("--profile", profile, "--constraint", f"kind=max_requests,count={task.requests}"),
        *("--tokenizer", f"kind=hf_auto,model={task.tokenizer or task.model}"),
        *("--data", f"kind=synthetic_text,{','.join(lengths)}", "--seed", f"kind=static,value={task.seed}"),
        *("--output", f"kind=json,path={directory / 'result.json'}", "--disable-console"),
    ]


def _read_guidellm(directory: Path) -> Figures:
    with _reading(directory / "result.json") as body:
        metrics = body["benchmarks"][0]["metrics"]
        names = ("time_to_first_token_ms", "inter_token_latency_ms")
        return Figures.of(
            (metrics[name]["successful"]["percentiles"][each] / 1000 for name in names for each in ("p50", "p95")),
            metrics["output_tokens_per_second"]["successful"]["mean"],
            metrics["request_totals"]["successful"],
        )


def _prepare_inference_perf(task: Task, directory: Path) -> None:
    def distribution(mean: int) -> dict[str, float]:
        low, high = task.lengths(mean)
        return {"min": low, "max": high, "mean": mean, "std_dev": (high - low) / 12**0.5, "total_count": task.requests}

    level = task.load.value
    if task.load.kind == "Concurrency":
        load = {"type": "concurrent", "stages": [{"concurrency_level": round(level), "num_requests": task.requests}]}
    else:
        load = {"type": "poisson", "stages": [{"rate": level, "duration": max(1, round(task.seconds))}]}
    config = {
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": task.model, "base_url": task.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": task.tokenizer or task.model},
        "data": {
            "type": "random",
            "input_distribution": distribution(task.input_tokens),
            "output_distribution": distribution(task.output_tokens),
        },
        "load": {**load, "num_workers": 1, "base_seed": task.seed},
        "report": {"request_lifecycle": {"summary": True, "per_stage": False, "percentiles": [50, 95]}},
        "storage": {"local_storage": {"path": str(directory)}},
    }
    (directory / "config.yml").write_text(json.dumps(config, indent=1))  # JSON is YAML


def _inference_perf(_: Task, directory: Path) -> list[str]:
    return ["--config_file", str(directory / "config.yml")]


def _read_inference_perf(directory: Path) -> Figures:
    with _reading(directory / "summary_lifecycle_metrics.json") as body:
        whole, names = body["successes"], ("time_to_first_token", "inter_token_latency")
        return Figures.of(
            (float(whole["latency"][name][each]) for name in names for each in ("median", "p95")),
            whole["throughput"]["output_tokens_per_sec"],
            whole["count"],
        )


@contextmanager
def _reading(path: Path) -> Iterator[Mapping[str, Any]]:
    """Give a JSON file's content; whatever is missing in it or wrong with it is an error that names the file."""
    try:
        body: Mapping[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise MeasurementError(f"the result {path} cannot be read: {error}") from error
    try:
        yield body
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise MeasurementError(f"the result {path} is incomplete: {error!r}") from error


RIVALS: Mapping[str, Rival] = {
    rival.name: rival
    for rival in (
        Rival("vllm", "vllm", _vllm, _read_vllm, module=("vllm", _VLLM_BENCH)),
        Rival("aiperf", "aiperf", _aiperf, _read_aiperf),
        Rival("guidellm", "guidellm", _guidellm, _read_guidellm, note="its ITL percentiles are of means per request"),
        Rival("inference-perf", "inference-perf", _inference_perf, _read_inference_perf, _prepare_inference_perf),
    )
}
"""By name, in the order in which they are run."""
