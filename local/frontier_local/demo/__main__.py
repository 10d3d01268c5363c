"""Runs a demo: `python -m frontier_local.demo --engine simulated|vllm`."""

import http.client
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from frontier_local.cluster import Cluster
from frontier_local.demo import scenario as scenarios
from frontier_local.demo import story, vllm
from frontier_local.demo.kubectl import Kubectl
from frontier_local.demo.scenario import Scenario
from frontier_local.errors import LocalError
from frontier_tuner.load.options import LoadOptions
from frontier_tuner.measurement import Load

SYSTEM = "frontier-system"
POLL_SECONDS = 1.0


class Demo:
    """One run of a scenario on a cluster that is up.

    Args:
        scenario: What to run.
        repository: Where manifests and examples are.
        cluster: The running cluster.
        say: Prints a line.
    """

    def __init__(self, scenario: Scenario, repository: Path, cluster: Cluster, say: Callable[[str], None]) -> None:
        self._scenario = scenario
        self._repository = repository
        self._cluster = cluster
        self._say = say
        self._kubectl = Kubectl(cluster.kubeconfig, say)
        self._began = time.monotonic()
        self._rows: set[str] = set()
        self._last = ""

    def run(self) -> tuple[str, ...]:
        """Run the scenario and return what is not as it must be."""
        self._install()
        self._request()
        self._watch()
        return self._finish()

    def _step(self, text: str) -> None:
        self._say(f"\n== {time.monotonic() - self._began:5.0f} s  {text}")

    def _install(self) -> None:
        self._step("install the CRDs and the operator, with exactly the RBAC that ships")
        kubectl = self._kubectl
        kubectl.run("apply", "--server-side", "-k", str(self._repository / "manifests/overlays/default"))
        settings = [
            f"FRONTIER_PROMETHEUS_URL={self._cluster.prometheus_url}",
            "FRONTIER_POLL_SECONDS=0.5",
            "FRONTIER_SCRAPE_SECONDS=0.5",
        ]
        kubectl.run("set", "env", "-n", SYSTEM, "deployment/frontier-operator", *settings)
        kubectl.run("rollout", "status", "-n", SYSTEM, "deployment/frontier-operator", "--timeout=60s")

    def _request(self) -> None:
        scenario = self._scenario
        self._step("ask for an inference deployment")
        self._kubectl.run("create", "namespace", scenario.namespace)
        if scenario.name == "vllm":
            vllm.put_model(self._kubectl, scenario.namespace, self._repository)
        self._kubectl.run("apply", "-n", scenario.namespace, "-f", str(self._repository / scenario.manifest))
        self._until("the baseline serves", lambda: story.is_true(self._deployment(), "Ready"))
        self._say(story.condition(self._deployment(), "Ready")["message"])
        self._step(f"live traffic through the Service: {scenario.traffic_rate:g} requests/s until the end")
        self._kubectl.run("apply", "-f", "-", stdin=json.dumps(self._traffic()))

    def _deployment(self) -> dict[str, Any]:
        return self._kubectl.object("infd", self._scenario.namespace, self._scenario.deployment)

    def _until(self, what: str, reached: Callable[[], bool]) -> None:
        while not reached():
            if time.monotonic() - self._began > self._scenario.timeout_seconds:
                raise LocalError(f"gave up after {self._scenario.timeout_seconds:.0f} s while waiting until {what}")
            time.sleep(POLL_SECONDS)

    def _traffic(self) -> dict[str, Any]:
        scenario = self._scenario
        spec = self._deployment()["spec"]
        service = scenario.deployment.upper().replace("-", "_")
        served = spec["model"].get("servedName") or spec["model"]["variants"][0]["source"].partition("://")[2]
        options = LoadOptions(
            url=f"http://$({service}_SERVICE_HOST):8000",
            model=served,
            load=Load("RequestRate", scenario.traffic_rate),
            workload={"profile": {"inputTokens": {"mean": 64}, "outputTokens": {"mean": 8}}},
            duration_seconds=scenario.timeout_seconds,
            warm_up_seconds=0,
            seed=7,
            metrics_listen="$(POD_IP):9100",
            scrape_wait_seconds=0,
            summary="/dev/termination-log",
            new_connections=True,
        )
        address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        container = {
            "name": "users",
            "image": "frontier-operator:0.1.0",
            "command": ["frontier", "load"],
            "args": options.arguments(),
            "env": [address],
        }
        pod = {"restartPolicy": "Never", "containers": [container]}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "users", "namespace": scenario.namespace},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        }

    def _watch(self) -> None:
        self._step("trials, as they finish")
        self._until("the selected point serves", self._progress)

    def _progress(self) -> bool:
        namespace = self._scenario.namespace
        trials = self._kubectl.objects("trials", namespace)
        for trial in sorted(trials, key=lambda item: int(item["spec"]["number"])):
            name = trial["metadata"]["name"]
            if name not in self._rows and (trial.get("status") or {}).get("outcome"):
                self._rows.add(name)
                self._say(story.trial_row(trial))
        deployment = self._deployment()
        now = story.condition(deployment, "Converged")
        line = f"{now.get('reason', '')}: {now.get('message', '')}"
        if line != self._last and now:
            self._last = line
            budget = deployment["spec"].get("search", {}).get("budget", {}).get("maxTrials")
            elapsed = time.monotonic() - self._began
            ended = f"{len(self._rows)} of {budget} trials and their confirmations"
            self._say(f"    [{elapsed:4.0f} s, {ended} ended] {line}")
        if now.get("reason") in {"RolledBack", "NoFeasiblePoint"}:
            raise LocalError(line)
        return now.get("status") == "True" and not story.condition(deployment, "Reconciling")

    def _finish(self) -> tuple[str, ...]:
        scenario = self._scenario
        deployment = self._deployment()
        trials = self._kubectl.objects("trials", scenario.namespace)
        status = deployment["status"]
        self._step("the frontier, fastest for a user first")
        for point in status.get("frontier", []):
            self._say(f"  {story.configuration(point['configuration']):<60} {story.measured(point)}")
        self._step("the selection and its reason")
        self._say(status["selection"]["message"])
        self._step("the rollout, as events tell it")
        self._say(
            self._kubectl.run(
                "get",
                "events",
                "-n",
                scenario.namespace,
                "--field-selector",
                f"involvedObject.kind=InferenceDeployment,involvedObject.name={scenario.deployment}",
                "-o",
                "custom-columns=AT:.lastTimestamp,TYPE:.type,REASON:.reason,MESSAGE:.message",
            ).rstrip()
        )
        self._step("what a user sees")
        self._say(self._kubectl.run("get", "infd", "-n", scenario.namespace, "-o", "wide").rstrip())
        self._say(self._kubectl.run("get", "trials", "-n", scenario.namespace).rstrip())
        end = story.ending(scenario, deployment, trials)
        self._step("the outcome")
        for line in end.lines:
            self._say(line)
        failures = list(end.failures)
        try:
            self._say(f"a completion through Service {scenario.deployment}: {self._completion(deployment)}")
        except (OSError, LocalError, ValueError) as error:
            failures.append(f"no completion through the Service: {error}")
        return tuple(failures)

    def _completion(self, deployment: dict[str, Any]) -> str:
        """Return the text of a streamed completion from whatever serves now."""
        service = self._kubectl.object("service", self._scenario.namespace, self._scenario.deployment)
        host = service["spec"]["clusterIP"]
        model = deployment["spec"]["model"]
        served = model.get("servedName") or model["variants"][0]["source"].partition("://")[2]
        body = {"model": served, "prompt": "def fibonacci(n):", "max_tokens": 16, "stream": True, "temperature": 0}
        connection = http.client.HTTPConnection(host, 8000, timeout=60)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise LocalError(f"HTTP {answer.status}: {text[:200]}")
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        words = "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])
        return f"{len(chunks)} chunks from model {chunks[0]['model']}: {words!r}"


@click.command()
@click.option("--engine", type=click.Choice(["simulated", "vllm"]), default="simulated", help="What serves.")
@click.option("--directory", type=click.Path(path_type=Path), default=None, help="Where the cluster lives.")
@click.option("--repository", type=click.Path(path_type=Path, exists=True), default=Path(), help="The checkout.")
@click.option("--keep", is_flag=True, help="Leave the cluster running to look around.")
def main(engine: str, directory: Path | None, repository: Path, *, keep: bool) -> None:
    """Run the main job end to end on an embedded cluster and leave with 0 if everything is as it must be."""
    console = Console(soft_wrap=True, highlight=False)

    def say(line: str) -> None:
        console.print(line, markup=False)

    scenario = scenarios.simulated() if engine == "simulated" else scenarios.vllm(vllm.image_map())
    place = directory or Path.home() / ".frontier-local" / scenario.cluster.name
    say(f"== a Kubernetes control plane, Prometheus and a node agent in {place}")
    cluster = Cluster(place.resolve(), scenario.cluster, progress=say)
    try:
        if scenario.name == "vllm":
            vllm.prepare(say)
        cluster.up()
        failures = Demo(scenario, repository.resolve(), cluster, say).run()
    except LocalError as error:
        failures = (str(error),)
    finally:
        if keep:
            say(f"\nThe cluster runs on: export KUBECONFIG={cluster.kubeconfig}")
            say(f"End it with: frontier-local down --delete --directory {place}")
        else:
            cluster.down(delete=True)
    for failure in failures:
        say(f"NOT AS IT MUST BE: {failure}")
    if not failures:
        say("\nAll as it must be.")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
