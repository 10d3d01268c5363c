"""A Prometheus of the plant's own, which scrapes one engine and one load generator."""

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import requests
import yaml

from frontier_tuner.errors import PlantError
from frontier_tuner.plants.processes import POLL_SECONDS, Process

ASSETS_VARIABLE = "FRONTIER_ASSETS"
SCRAPE_SECONDS = 0.5
_READY_TIMEOUT_SECONDS = 60.0


def find_prometheus(environment: Mapping[str, str]) -> str:
    """Return the program, from the directory that `FRONTIER_ASSETS` names or from the PATH.

    Raises:
        PlantError: There is none; the message says how to get it.
    """
    assets = environment.get(ASSETS_VARIABLE)
    places = os.pathsep.join(filter(None, (assets, environment.get("PATH", os.defpath))))
    found = shutil.which("prometheus", path=places)
    if found is None:
        raise PlantError(
            f"no prometheus on the PATH nor in {ASSETS_VARIABLE}: install it (apt-get install prometheus), "
            "or name a running one that scrapes the engine and the load generator",
        )
    return found


class LocalPrometheus:
    """A Prometheus process with fixed targets; it runs from entering the context to leaving it.

    The targets are written once, before it starts: a change would take effect only seconds later.

    Args:
        directory: For its data, configuration and log.
        host: Address to listen on.
        port: Port to listen on.
        targets: Address with port, by pod name.
        namespace: Label of every series.
    """

    def __init__(self, directory: Path, host: str, port: int, targets: Mapping[str, str], namespace: str) -> None:
        self.url = f"http://{host}:{port}"
        self._directory = directory
        self._listen = f"{host}:{port}"
        self._targets = targets
        self._namespace = namespace
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        groups = [
            {"targets": [address], "labels": {"namespace": self._namespace, "pod": pod, "container": pod}}
            for pod, address in self._targets.items()
        ]
        (self._directory / "targets.json").write_text(json.dumps(groups))
        interval = f"{round(SCRAPE_SECONDS * 1000)}ms"
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [{"job_name": "pods", "file_sd_configs": [{"files": ["targets.json"]}]}],
        }
        (self._directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            find_prometheus(os.environ),
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address={self._listen}",
            "--log.level=warn",
        ]
        self._process = Process(command, os.environ, self._directory / "prometheus.log")
        try:
            self._wait_ready(self._process)
        except PlantError:
            self._process.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._process is not None:
            self._process.stop()

    @property
    def pid(self) -> int:
        """Its process id.

        Raises:
            RuntimeError: It has not been started.
        """
        if self._process is None:
            raise RuntimeError("enter the context of this Prometheus first")
        return self._process.pid

    def _wait_ready(self, process: Process) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if process.exit_code is not None:
                break
            if is_up(f"{self.url}/-/ready"):
                return
            time.sleep(POLL_SECONDS)
        raise PlantError(f"Prometheus did not become ready; its last words: {process.last_words().strip()[-300:]}")


def is_up(url: str) -> bool:
    """Return whether a GET is answered with 200 within a second."""
    try:
        return requests.get(url, timeout=1.0).status_code == requests.codes.ok
    except requests.RequestException:
        return False
