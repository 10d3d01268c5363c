"""The operator on the embedded cluster: installed from the shipped manifests, under exactly their RBAC."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from frontier_local.cluster import Cluster

ROOT = Path(__file__).parents[2]
KUBECTL = Path(sys.executable).parent / "kubectl"
SYSTEM = "frontier-system"

DEPLOYMENT = {
    "apiVersion": "frontier-operator.dev/v1alpha1",
    "kind": "InferenceDeployment",
    "metadata": {"name": "chat"},
    "spec": {
        "model": {
            "servedName": "m",
            "variants": [{"name": "bf16", "source": "hf://meta-llama/Llama-3.1-8B-Instruct"}],
        },
        "engine": {
            "image": "vllm/vllm-openai:v0.33.0",
            "args": ["--max-model-len=4096"],
            "env": [
                {"name": "FRONTIER_SIM_GPU", "value": "NVIDIA-L40S"},
                {"name": "FRONTIER_SIM_TIME_SCALE", "value": "4"},
                {"name": "FRONTIER_SIM_START_SECONDS", "value": "1"},
            ],
        },
        "hardware": {"gpusPerNode": 8, "pricePerGPUHour": "1.20"},
        "workload": {"profile": {"inputTokens": {"mean": 128}, "outputTokens": {"mean": 20}}},
        "objectives": {"slos": [{"name": "itl", "metric": "ITL", "percentile": 95, "max": "30ms"}]},
        "target": {"policy": "MinLatency", "headroomPercent": 0},
        "search": {
            "parameters": [
                {"name": "maxNumSeqs", "values": [16, 64]},
                {"name": "tensorParallelSize", "values": [1, 2]},
                {"name": "maxNumBatchedTokens", "value": 2048},
                {"name": "numSpeculativeTokens", "value": 0},
                {"name": "enablePrefixCaching", "value": True},
            ],
            "ladder": {"levels": ["4", "48"]},
            "maxTrialGPUs": 4,
            "budget": {"maxTrials": 4},
            "seed": 1,
        },
        "measurement": {"warmUp": "200ms", "maxRungDuration": "1500ms", "minRequests": 10, "engineStartTimeout": "30s"},
        "rollout": {"canary": {"steps": [50], "stepDuration": "3s", "minRequests": 5, "analysisDeadline": "40s"}},
    },
}


def eventually(reached: Callable[[], Any], seconds: float, what: str) -> Any:
    """Return the first true value of `reached`; fail with the last one after a bound."""
    deadline = time.monotonic() + seconds
    value = reached()
    while not value:
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; last seen: {value!r}"
        time.sleep(0.3)
        value = reached()
    return value


def condition(manifest: dict, kind: str) -> dict:
    """Return a condition, empty where there is none of that type."""
    found = [c for c in manifest.get("status", {}).get("conditions", []) if c["type"] == kind]
    return found[0] if found else {}


class Bench:
    """A namespace on a cluster with the operator, and what a user does there."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Return what kubectl prints."""
        command = [str(KUBECTL), f"--kubeconfig={self.cluster.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout + ("" if check else done.stderr)

    def apply(self, manifest: dict) -> None:
        """Apply a manifest in the namespace."""
        self.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=yaml.safe_dump(manifest))

    def get(self, kind: str, name: str = "chat") -> dict:
        """Return an object."""
        return json.loads(self.kubectl("get", kind, name, "-n", self.namespace, "-o", "json"))

    def all(self, kind: str, *selectors: str) -> list[dict]:
        """Return the objects of a kind."""
        return json.loads(self.kubectl("get", kind, "-n", self.namespace, *selectors, "-o", "json"))["items"]

    def trials(self) -> list[dict]:
        """Return the trials by number."""
        return sorted(self.all("trials"), key=lambda trial: int(trial["spec"]["number"]))

    def finished(self) -> list[dict]:
        """Return the trials that have an outcome."""
        return [trial for trial in self.trials() if trial.get("status", {}).get("outcome")]

    def converged(self, seconds: float = 150, name: str = "chat") -> dict:
        """Wait until the selected point serves and return the InferenceDeployment."""

        def reached() -> dict | None:
            found = self.get("infd", name)
            done = condition(found, "Converged").get("status") == "True" and not condition(found, "Reconciling")
            return found if done else None

        return eventually(reached, seconds, f"{name} converges; it is {self.get('infd', name).get('status')}")

    def traffic(self, rate: float = 8.0, seconds: int = 300) -> None:
        """Send live requests through the Service."""
        workload = json.dumps({"profile": {"inputTokens": {"mean": 64}, "outputTokens": {"mean": 8}}})
        arguments = ["--url", "http://$(CHAT_SERVICE_HOST):8000", "--model", "m", "--request-rate", str(rate)]
        arguments += ["--duration", f"{seconds}s", "--warm-up", "0s", "--workload", workload, "--seed", "7"]
        arguments += [
            "--metrics-listen",
            "$(POD_IP):9100",
            "--scrape-wait",
            "0s",
            "--summary",
            "/dev/termination-log",
            "--new-connections",
        ]
        address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        container = {
            "name": "users",
            "image": "frontier-operator:0.1.0",
            "command": ["frontier", "load"],
            "args": arguments,
            "env": [address],
        }
        pod = {"metadata": {"name": "users"}, "spec": {"restartPolicy": "Never", "containers": [container]}}
        self.apply({"apiVersion": "v1", "kind": "Pod", **pod})


def install(cluster: Cluster) -> None:
    """Install CRDs, RBAC and operator from the shipped manifests, with quick settings."""
    bench = Bench(cluster, SYSTEM)
    bench.kubectl("apply", "--server-side", "-k", str(ROOT / "manifests/overlays/default"))
    settings = {
        "FRONTIER_PROMETHEUS_URL": cluster.prometheus_url,
        "FRONTIER_POLL_SECONDS": "0.4",
        "FRONTIER_IDLE_SECONDS": "2",
        "FRONTIER_SCRAPE_SECONDS": "0.5",
        "FRONTIER_SCHEDULING_SECONDS": "6",
    }
    pairs = [f"{name}={value}" for name, value in settings.items()]
    bench.kubectl("set", "env", "-n", SYSTEM, "deployment/frontier-operator", *pairs)
    bench.kubectl("rollout", "status", "-n", SYSTEM, "deployment/frontier-operator", "--timeout=60s")


def operator_processes(cluster: Cluster) -> list[int]:
    """Return the process ids of the operator on this cluster."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        runs = any(part.endswith(b"frontier-operator") for part in command[:2]) and b"run" in command
        if runs and str(cluster.pods_directory.parent).encode() in environment:
            found.append(int(entry.name))
    return found


def kill_operator(cluster: Cluster) -> None:
    """Kill the operator's process with SIGKILL, and its pod with it, so that a new one starts without back-off."""
    processes = operator_processes(cluster)
    assert processes, "the operator does not run"
    for process in processes:
        os.kill(process, signal.SIGKILL)
    bench = Bench(cluster, SYSTEM)
    bench.kubectl("delete", "pod", "-n", SYSTEM, "-l", "app.kubernetes.io/name=frontier-operator", "--grace-period=1")
    bench.kubectl("rollout", "status", "-n", SYSTEM, "deployment/frontier-operator", "--timeout=60s")


def assert_prometheus_agrees(cluster: Cluster, measured: dict) -> None:
    """Ask Prometheus every query of a measured point again, at the window's end, and compare the answers."""
    assert len(measured["metrics"]) >= 8
    moment = datetime.fromisoformat(measured["window"]["end"].replace("Z", "+00:00")).timestamp()
    for metric in measured["metrics"]:
        question = urllib.parse.urlencode({"query": metric["query"], "time": f"{moment:.3f}"})
        with urllib.request.urlopen(f"{cluster.prometheus_url}/api/v1/query?{question}", timeout=10) as answer:
            (series,) = json.load(answer)["data"]["result"]
        assert float(series["value"][1]) == pytest.approx(float(metric["value"]), rel=1e-9), metric
