import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from frontier_local import lifecycle, processes
from frontier_local.assets import Asset, Resolver
from frontier_local.cluster import Cluster, ClusterSpec
from frontier_local.errors import ClusterError

pytestmark = pytest.mark.integration


def eventually(condition, message, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, message
        time.sleep(0.1)
    return value


def left_over(cluster):
    return list(processes.carrying(lifecycle.DIRECTORY_VARIABLE, str(cluster.directory)))


def pids(status):
    return {component.name: component.pid for component in status.components}


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


def test_an_administrator_reaches_an_api_server_that_knows_its_version(control_plane, kubectl):
    versions = json.loads(kubectl(control_plane, "version", "-o", "json"))
    assert versions["serverVersion"]["gitVersion"] == "v1.36.3"
    assert "yes" in kubectl(control_plane, "auth", "can-i", "*", "*")


def test_a_namespace_gets_its_service_account_and_root_certificate(control_plane, kubectl):
    kubectl(control_plane, "create", "namespace", "filled")

    def listed():
        return kubectl(control_plane, "-n", "filled", "get", "serviceaccounts,configmaps", "-o", "name").split()

    want = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
    eventually(lambda: want <= set(listed()), "the controller manager did not fill the namespace")


def test_a_service_account_without_a_binding_is_denied(control_plane, kubectl):
    token = kubectl(control_plane, "create", "token", "default").strip()
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = control_plane.directory / "configuration" / "unbound.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    unbound = type("Unbound", (), {"kubeconfig": path})
    denied = kubectl(unbound, "get", "secrets", check=False)
    assert denied.returncode == 1
    assert 'User "system:serviceaccount:default:default" cannot list resource "secrets"' in denied.stderr


def test_a_client_without_a_certificate_is_nobody(control_plane):
    context = ssl.create_default_context(cafile=control_plane.directory / "certificates" / "ca.crt")
    host, port = control_plane.api_server.removeprefix("https://").split(":")
    connection = http.client.HTTPSConnection(host, int(port), timeout=10, context=context)
    try:
        connection.request("GET", "/api/v1/namespaces")
        assert connection.getresponse().status == 403
    finally:
        connection.close()


def test_the_database_refuses_whoever_has_no_certificate_of_its_own(control_plane):
    certificates = control_plane.directory / "certificates"
    words = processes_command(control_plane, "etcd")
    client = next(word for word in words if word.startswith("--listen-client-urls=")).partition("://")[2]
    host, port = client.split(":")
    context = ssl.create_default_context(cafile=certificates / "etcd-ca.crt")
    context.load_cert_chain(certificates / "admin.crt", certificates / "admin.key")
    with socket.create_connection((host, int(port)), timeout=10) as plain, pytest.raises(ssl.SSLError):
        ask(context.wrap_socket(plain, server_hostname=host))


def ask(secured):
    with secured:
        secured.sendall(b"GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n")
        secured.recv(1)


def processes_command(cluster, name):
    pid = pids(cluster.status())[name]
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_services_get_loopback_addresses(control_plane, kubectl):
    kubectl(control_plane, "create", "service", "clusterip", "engine", "--tcp=8000:8000")
    address = kubectl(control_plane, "get", "service", "engine", "-o", "jsonpath={.spec.clusterIP}")
    assert address.startswith("127.")
    kubernetes = kubectl(control_plane, "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    told = json.loads((control_plane.directory / "agent.json").read_text())
    assert kubernetes == told["serviceHost"]


def test_prometheus_scrapes_what_is_listed_at_the_wanted_interval(control_plane):
    config = json.loads(get(f"{control_plane.prometheus_url}/api/v1/status/config"))
    assert "scrape_interval: 500ms" in config["data"]["yaml"]
    port = control_plane.prometheus_url.rpartition(":")[2]
    group = [{"targets": [f"127.0.0.1:{port}"], "labels": {"namespace": "ml", "pod": "engine-0"}}]
    temporary = control_plane.directory / "targets" / "new"
    temporary.write_text(json.dumps(group))
    temporary.rename(temporary.with_suffix(".json"))

    def up():
        answer = json.loads(get(f"{control_plane.prometheus_url}/api/v1/query?query=up"))
        return [sample["metric"] for sample in answer["data"]["result"] if sample["value"][1] == "1"]

    (metric,) = eventually(up, "Prometheus did not scrape the target")
    assert (metric["job"], metric["namespace"], metric["pod"]) == ("pods", "ml", "engine-0")


def test_starting_again_changes_nothing(control_plane):
    before = pids(control_plane.status())
    assert pids(control_plane.up()) == before


def test_starting_with_other_wishes_says_which_and_changes_nothing(control_plane):
    before = pids(control_plane.status())
    other = Cluster(control_plane.directory, replace(control_plane.spec, scrape_interval="1s"))
    with pytest.raises(ClusterError, match="scrape_interval is 500ms, asked for 1s; stop it first"):
        other.up()
    assert pids(control_plane.status()) == before


def test_two_clusters_side_by_side_heal_keep_their_data_and_leave_nothing(binaries, control_plane, kubectl, tmp_path):
    directory = tmp_path / "second"
    command = [sys.executable, "-m", "frontier_local.cli"]
    place = ["--directory", str(directory), "--name", "second"]
    subprocess.run([*command, "up", *place, "--nodes", "0"], check=True, timeout=200)
    second = Cluster(directory)
    try:
        assert second.status().ready
        assert second.spec == ClusterSpec(name="second", nodes=0)
        assert second.api_server != control_plane.api_server
        kubectl(second, "create", "namespace", "kept")
        assert kubectl(control_plane, "get", "namespace", "kept", check=False).returncode == 1

        crossed = yaml.safe_load(second.kubeconfig.read_text())
        crossed["clusters"][0]["cluster"]["server"] = control_plane.api_server
        (tmp_path / "crossed").write_text(yaml.safe_dump(crossed))
        foreign = type("Foreign", (), {"kubeconfig": tmp_path / "crossed"})
        assert "x509" in kubectl(foreign, "get", "namespaces", check=False).stderr

        before = pids(second.status())
        killed = ("kube-apiserver", "kube-scheduler")
        for name in killed:
            os.kill(before[name], signal.SIGKILL)
        # It takes a large process a moment to die; until then it counts as one that runs.
        eventually(
            lambda: all(pids(second.status()).get(name) != before[name] for name in killed),
            "a killed API server went unnoticed",
        )
        assert not second.status().ready
        after = pids(second.up())
        assert after["etcd"] == before["etcd"]
        assert after["kube-apiserver"] != before["kube-apiserver"]

        subprocess.run([*command, "down", *place], check=True, timeout=100)
        assert left_over(second) == []
        assert subprocess.run([*command, "status", *place], check=False, timeout=60).returncode == 1
        second.up()
        assert "kept" in kubectl(second, "get", "namespace", "kept")
    finally:
        second.down(delete=True)
    assert left_over(second) == []
    assert not directory.exists()
    assert control_plane.status().ready


def test_a_component_that_fails_says_its_last_words_and_takes_the_rest_along(binaries, tmp_path):
    broken = tmp_path / "kube-scheduler"
    broken.write_text("#!/bin/sh\necho the scheduler has no licence\nexit 1\n")
    broken.chmod(0o755)

    class Broken(Resolver):
        def resolve(self, names=()):
            return super().resolve() | {"kube-scheduler": Asset("kube-scheduler", broken, "test")}

    cluster = Cluster(tmp_path / "cluster", ClusterSpec(nodes=0), resolver=Broken.default(print))
    with pytest.raises(ClusterError, match=r"(?s)kube-scheduler ended; .*the scheduler has no licence"):
        cluster.up()
    assert left_over(cluster) == []


def test_nodes_carry_their_gpus_and_can_be_scheduled_to(cluster, kubectl):
    nodes = json.loads(kubectl(cluster, "get", "nodes", "-o", "json"))["items"]
    assert sorted(node["metadata"]["name"] for node in nodes) == ["tests-node-1", "tests-node-2"]
    for node in nodes:
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
        assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-L40S"
        assert not node["spec"].get("taints")


def test_pods_of_a_killed_agent_are_stopped_and_a_smaller_cluster_forgets_its_surplus_nodes(
    binaries, kubectl, tmp_path
):
    directory = tmp_path / "cluster"
    with Cluster(directory, ClusterSpec(name="kill", nodes=2)) as cluster:
        components = len(left_over(cluster))
        pod = ["run", "parent", "--image=busybox", "--restart=Never", "--", "sh", "-c", "sleep 600 & wait"]
        kubectl(cluster, *pod)
        eventually(lambda: len(left_over(cluster)) == components + 2, "the pod and its child did not start")
        os.kill(pids(cluster.status())["agent"], signal.SIGKILL)
        eventually(lambda: not cluster.status().ready, "a killed agent went unnoticed")
        assert len(left_over(cluster)) >= components, "the pod's child was expected to outlive the agent"
        cluster.down()
        assert left_over(cluster) == []
        smaller = Cluster(directory, ClusterSpec(name="kill", nodes=1))
        smaller.up()
        assert kubectl(smaller, "get", "nodes", "-o", "name").split() == ["node/kill-node-1"]
    assert left_over(cluster) == []
