"""A plant of local processes: one engine at a time, the load generator beside it, Prometheus watching both."""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from frontier_tuner.configuration import Configuration
from frontier_tuner.durations import format_duration
from frontier_tuner.errors import MeasurementError
from frontier_tuner.failures import classify_exit, start_timeout
from frontier_tuner.load.options import LoadOptions
from frontier_tuner.load.summary import LoadSummary, parse_summary
from frontier_tuner.load.workload import declared_hit_percent
from frontier_tuner.measurement import Load, Measurement
from frontier_tuner.objectives import Objectives
from frontier_tuner.plants import EngineFailedError
from frontier_tuner.plants.processes import POLL_SECONDS, Process, free_port, loopback_address, wait_until
from frontier_tuner.plants.prometheus import SCRAPE_SECONDS, LocalPrometheus, is_up
from frontier_tuner.prometheus import Limits, PrometheusSource, Scope, evaluation_time, measure_rung
from frontier_tuner.prometheus.ending import MIN_SCRAPES
from frontier_tuner.trial import Failure

NAMESPACE = "local"
ENGINE_POD = "engine"
LOAD_POD = "load"
SCRAPE_WAIT_SECONDS = 5.0

CommandLine = Callable[[Configuration, str, int], Sequence[str]]
"""From a configuration, an address and a port to the engine's whole command."""


@dataclass(frozen=True)
class ProcessSettings:
    """How engines are started and measured.

    Attributes:
        directory: For logs, summaries and Prometheus's data.
        command_line: Makes the engine's command.
        environment: Added to the engine's environment.
        model: Served model name.
        workload: The resolved workload.
        objectives: Percentiles and buckets to measure.
        gpus: GPUs that a configuration holds.
        price_per_gpu_hour: Money, or None.
        cached_input_percent: What a cached input token counts in the cost of input, in percent of an uncached one.
        limits: When a window counts.
        start_timeout_seconds: For the engine to become ready.
        warm_up_seconds: Before each window.
        duration_seconds: Longest length of each window.
        precision_percent: Half of an interval, in percent of its value, at which a window ends before its time; 0 never
            does.
        request_timeout_seconds: After this a request counts as failed.
        vocabulary: Prompt token ids are below this.
    """

    directory: Path
    command_line: CommandLine
    model: str
    workload: Mapping[str, Any]
    objectives: Objectives
    gpus: Callable[[Configuration], int]
    price_per_gpu_hour: float | None = None
    cached_input_percent: float = 100.0
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    start_timeout_seconds: float = 1800.0
    warm_up_seconds: float = 30.0
    duration_seconds: float = 120.0
    precision_percent: float = 0.0
    request_timeout_seconds: float = 120.0
    vocabulary: int = 2000


class ProcessPlant:
    """Starts engines as local processes; it lives from entering the context to leaving it, and leaves no process."""

    def __init__(self, settings: ProcessSettings) -> None:
        self._settings = settings
        self._stack = ExitStack()
        self.host = loopback_address()
        self.engine_port = free_port(self.host)
        self.load_port = free_port(self.host)
        self._starts = 0
        self._source: PrometheusSource | None = None

    def __enter__(self) -> Self:
        targets = {ENGINE_POD: f"{self.host}:{self.engine_port}", LOAD_POD: f"{self.host}:{self.load_port}"}
        directory = self._settings.directory
        directory.mkdir(parents=True, exist_ok=True)
        prometheus = LocalPrometheus(directory / "prometheus", self.host, free_port(self.host), targets, NAMESPACE)
        with self._stack:
            self.prometheus = self._stack.enter_context(prometheus)
            self._source = self._stack.enter_context(PrometheusSource(prometheus.url))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._stack.close()

    @property
    def source(self) -> PrometheusSource:
        """The plant's Prometheus.

        Raises:
            RuntimeError: The plant has not been entered.
        """
        if self._source is None:
            raise RuntimeError("enter the plant's context first")
        return self._source

    def start(self, configuration: Configuration) -> "ProcessEngine":
        """Start an engine and return it once it is ready; see `Plant`."""
        self._starts += 1
        command = self._settings.command_line(configuration, self.host, self.engine_port)
        log = self._settings.directory / f"engine-{self._starts}.log"
        begun, since = time.monotonic(), datetime.now(UTC)
        process = Process(command, {**os.environ, **self._settings.environment}, log)
        self._stack.callback(process.stop)
        try:
            self._wait_ready(process)
        except EngineFailedError:
            process.stop()
            raise
        seconds = time.monotonic() - begun
        return ProcessEngine(self._settings, self, process, seconds, configuration, since)

    def _wait_ready(self, process: Process) -> None:
        timeout = self._settings.start_timeout_seconds
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            code = process.exit_code
            if code is not None:
                raise EngineFailedError(classify_exit(code, process.last_words(), was_ready=False))
            if is_up(f"http://{self.host}:{self.engine_port}/health"):
                return
            time.sleep(POLL_SECONDS)
        raise EngineFailedError(start_timeout(timeout, process.last_words()))


class ProcessEngine:
    """One running engine of a `ProcessPlant`."""

    def __init__(
        self,
        settings: ProcessSettings,
        plant: ProcessPlant,
        process: Process,
        start_seconds: float,
        configuration: Configuration,
        since: datetime,
    ) -> None:
        self.start_seconds = start_seconds
        self._settings = settings
        self._plant = plant
        self._process = process
        self._configuration = configuration
        self._since = since

    def measure(self, load: Load, seed: int) -> Measurement:
        """Run one rung and return what Prometheus saw of it; see `Engine`."""
        options = self._options(load, seed)
        Path(options.summary).unlink(missing_ok=True)
        self._run_load(options)
        summary = self._read_summary(options)
        scope = self.scope()
        wait_until(evaluation_time(scope, summary).timestamp())
        self._check_alive()
        return measure_rung(self._plant.source, scope, summary, self._settings.objectives, self._settings.limits)

    def measured_as(self, **changes: Any) -> "ProcessEngine":
        """Return the same engine, measured by settings of which some differ; ending either ends both.

        Args:
            changes: Fields of `ProcessSettings` that say how to measure, such as `duration_seconds`.
        """
        settings = replace(self._settings, **changes)
        return ProcessEngine(settings, self._plant, self._process, self.start_seconds, self._configuration, self._since)

    def scope(self) -> Scope:
        """Return whose series make up its measurements, and what is known of them beforehand."""
        settings = self._settings
        return Scope(
            engine={"namespace": NAMESPACE, "pod": ENGINE_POD},
            load={"namespace": NAMESPACE, "pod": LOAD_POD},
            gpus=settings.gpus(self._configuration),
            price_per_gpu_hour=settings.price_per_gpu_hour,
            scrape_interval_seconds=SCRAPE_SECONDS,
            cached_input_percent=settings.cached_input_percent,
            configuration=dict(self._configuration),
            declared_hit_percent=declared_hit_percent(settings.workload),
            engine_since=self._since,
        )

    def stop(self) -> None:
        """End the engine; see `Engine`."""
        self._process.stop()

    def _options(self, load: Load, seed: int) -> LoadOptions:
        settings, plant = self._settings, self._plant
        return LoadOptions(
            url=f"http://{plant.host}:{plant.engine_port}",
            model=settings.model,
            load=load,
            workload=settings.workload,
            duration_seconds=settings.duration_seconds,
            warm_up_seconds=settings.warm_up_seconds,
            seed=seed,
            slos=settings.objectives.slos,
            metrics_listen=f"{plant.host}:{plant.load_port}",
            scrape_wait_seconds=SCRAPE_WAIT_SECONDS,
            summary=str(settings.directory / "summary.json"),
            timeout_seconds=settings.request_timeout_seconds,
            vocabulary=settings.vocabulary,
            precision_percent=settings.precision_percent,
            min_window_seconds=MIN_SCRAPES * SCRAPE_SECONDS,
            min_requests=settings.limits.min_requests,
        )

    def _run_load(self, options: LoadOptions) -> None:
        command = [sys.executable, "-m", "frontier_tuner.cli", "load", *options.arguments()]
        generator = Process(command, os.environ, self._settings.directory / "load.log")
        limit = options.longest_seconds
        deadline = time.monotonic() + limit
        try:
            while generator.wait(POLL_SECONDS) is None:
                self._check_alive()
                if time.monotonic() > deadline:
                    message = f"the load generator did not end within {format_duration(limit)}"
                    raise EngineFailedError(Failure("DeadlineExceeded", message))
        finally:
            generator.stop()
        if generator.exit_code != 0:
            words = generator.last_words().strip()[-500:]
            message = f"the load generator ended with exit code {generator.exit_code}: {words}"
            raise EngineFailedError(Failure("LoadFailed", message))

    def _read_summary(self, options: LoadOptions) -> LoadSummary:
        try:
            return parse_summary(Path(options.summary).read_text())
        except (OSError, MeasurementError) as error:
            raise EngineFailedError(Failure("LoadFailed", str(error))) from error

    def _check_alive(self) -> None:
        code = self._process.exit_code
        if code is not None:
            raise EngineFailedError(classify_exit(code, self._process.last_words(), was_ready=True))
