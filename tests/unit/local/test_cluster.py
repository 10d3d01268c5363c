import datetime as dt
import itertools
import json
import os
import socket
import stat
import sys
import time
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from frontier_local import addresses, components, processes, prometheus
from frontier_local.addresses import Addresses
from frontier_local.assets import NAMES, Asset
from frontier_local.cluster import Cluster, ClusterSpec
from frontier_local.errors import ClusterError, LocalError
from frontier_local.layout import Credentials, Layout, write_kubeconfigs
from frontier_local.node_spec import AgentConfig
from frontier_local.processes import ProcessRecord

WAIT = "print('ready', flush=True); import time; time.sleep(60)"
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def eventually(condition, message, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)


def start(tmp_path, program, **over):
    log = tmp_path / "log"
    command = [sys.executable, "-c", program]
    return processes.start(command, {"PATH": os.environ["PATH"], **over.pop("environment", {})}, log, **over), log


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "cluster")
    layout.make()
    return layout


def test_no_two_indexes_share_an_address_or_a_port():
    everything = [Addresses(index) for index in range(addresses.INDEXES)]
    networks = [network for one in everything for network in (one.pod_network, one.service_network)]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(networks, 2))
    assert all(network.is_loopback for network in networks)
    ports = [port for one in everything for port in (one.api_server_port, one.prometheus_port)]
    assert len(set(ports)) == len(ports)


def test_nodes_and_control_plane_lie_outside_the_service_range():
    one = Addresses(7)
    hosts = {one.node(1), one.node(addresses.MAX_NODES), one.control_plane}
    assert len(hosts) == 3
    assert not any(socket.inet_aton(host)[:3] == one.service_network.network_address.packed[:3] for host in hosts)


def test_a_claimed_index_is_passed_over_and_free_again_when_its_holder_ends(tmp_path):
    first, held = addresses.claim(tmp_path, None)
    with held:
        second, also_held = addresses.claim(tmp_path, None)
        also_held.close()
        assert second != first
        with pytest.raises(ClusterError, match=r"another program uses now.*down --delete"):
            addresses.claim(tmp_path, first.index)
    again, held = addresses.claim(tmp_path, first.index)
    held.close()
    assert again == first


def test_a_claim_lives_as_long_as_the_process_that_inherits_it(tmp_path):
    claimed, held = addresses.claim(tmp_path, None)
    with held:
        record, _ = start(tmp_path, WAIT, keep_open=[held.fileno()])
    with pytest.raises(ClusterError):
        addresses.claim(tmp_path, claimed.index)
    processes.stop([record], 10)
    addresses.claim(tmp_path, claimed.index)[1].close()


def test_an_index_with_an_occupied_port_is_passed_over(tmp_path):
    first, held = addresses.claim(tmp_path, None)
    held.close()
    with socket.create_server(("127.0.0.1", first.api_server_port)):
        second, held = addresses.claim(tmp_path, None)
        held.close()
    assert second != first


def test_a_record_of_an_id_that_is_used_again_names_no_living_process(tmp_path):
    record, _ = start(tmp_path, WAIT)
    try:
        other = ProcessRecord(record.pid, record.start_time + 1)
        assert not other.is_alive()
        assert processes.stop([other], 0.1) == ()
        assert record.is_alive()
    finally:
        processes.stop([record], 10)
    assert not record.is_alive()


def test_a_process_that_ignores_the_request_to_end_is_killed(tmp_path):
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    )
    record, log = start(tmp_path, program)
    eventually(lambda: "ready" in processes.last_lines(log), "the process did not start")
    assert processes.stop([record], 0.2) == (record,)
    assert not record.is_alive()


def test_processes_are_found_by_what_their_environment_carries(tmp_path):
    record, log = start(
        tmp_path, "print('ready', flush=True); import time; time.sleep(60)", environment={"MARK": str(tmp_path)}
    )
    try:
        eventually(lambda: "ready" in processes.last_lines(log), "the process did not start")
        assert list(processes.carrying("MARK", str(tmp_path))) == [record]
    finally:
        processes.stop([record], 10)
    assert list(processes.carrying("MARK", str(tmp_path))) == []


def test_a_started_process_leads_its_own_session_and_can_be_asked_to_end(tmp_path):
    record, log = start(tmp_path, "import os, signal; print(os.getsid(0), signal.getsignal(signal.SIGTERM).name)")
    eventually(lambda: not record.is_alive(), "the process did not end")
    assert processes.last_lines(log) == f"{record.pid} SIG_DFL"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}'])
def test_a_damaged_record_is_no_record(tmp_path, content):
    (tmp_path / "record").write_text(content)
    assert ProcessRecord.read(tmp_path / "record") is None
    assert ProcessRecord.read(tmp_path / "absent") is None


def test_last_lines_of_a_log_are_its_end(tmp_path):
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(9000)))
    assert processes.last_lines(tmp_path / "log", 2) == "line 8998\nline 8999"
    assert processes.last_lines(tmp_path / "absent") == "(no log)"


def test_server_certificates_hold_every_address_they_are_reached_at(layout):
    one = Addresses(3)
    nodes = ClusterSpec(nodes=2).node_specs(one)
    credentials = Credentials.sign(layout, one, nodes, NOW)

    def hosts(pair):
        certificate = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return {str(name.value) for name in names}

    assert {"127.0.0.1", one.service_host, "kubernetes.default.svc"} <= hosts(credentials.api_server)
    assert {node.address for node in nodes} | {node.name for node in nodes} <= hosts(credentials.kubelet)
    assert hosts(credentials.etcd) == {one.control_plane}


def test_etcd_trusts_another_authority_than_the_api_server(layout):
    credentials = Credentials.sign(layout, Addresses(3), (), NOW)
    assert credentials.etcd_authority.certificate.read_bytes() != credentials.authority.certificate.read_bytes()


def test_signing_again_keeps_the_authority_and_the_service_account_keys(layout):
    def kept():
        credentials = Credentials.sign(layout, Addresses(3), (), NOW)
        return credentials.authority.certificate.read_bytes(), credentials.service_accounts.key.read_bytes()

    assert kept() == kept()


def test_private_files_can_be_read_by_their_owner_only(layout):
    credentials = Credentials.sign(layout, Addresses(3), (), NOW)
    write_kubeconfigs(layout, "test", "https://127.0.0.1:1", credentials, NOW)
    private = [*layout.certificates.glob("*.key"), *layout.configuration.glob("*.kubeconfig"), layout.kubeconfig]
    assert len(private) > 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    assert stat.S_IMODE(layout.root.stat().st_mode) == 0o700


def test_every_component_is_bound_to_loopback_and_authorizes(layout):
    one = Addresses(5)
    credentials = Credentials.sign(layout, one, (), NOW)
    found = {name: Asset(name, Path("/bin") / name, "cache") for name in NAMES}
    lines = components.commands(layout, one, credentials, found, with_agent=True)
    names = list(lines)
    assert (names[0], names[-1]) == ("etcd", "agent")
    assert "--authorization-mode=RBAC" in lines["kube-apiserver"]
    assert "--service-cluster-ip-range=127.135.0.0/24" in lines["kube-apiserver"]
    assert "--client-cert-auth" in lines["etcd"]
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "prometheus"):
        bound = next(word for word in lines[name] if word.startswith(("--bind-address=", "--web.listen-address=")))
        assert bound.partition("=")[2].startswith("127.")


@pytest.mark.parametrize(
    ("over", "want"),
    [
        ({"name": "Frontier"}, "name: 'Frontier'"),
        ({"name": "x-"}, "name: 'x-'"),
        ({"nodes": -1}, "nodes: -1 is outside 0 to 254"),
        ({"nodes": 255}, "nodes: 255 is outside"),
        ({"gpus_per_node": -1}, "gpus-per-node: -1 is negative"),
        ({"cpus_per_node": 0}, "cpus-per-node: 0"),
        ({"gpu_resource": "gpu"}, "gpu-resource: 'gpu' needs a domain"),
        ({"gpu_memory": "48 GB"}, "gpu-memory: '48 GB' is no quantity"),
        ({"memory_per_node": "0"}, "memory-per-node: '0'"),
        ({"scrape_interval": "fast"}, "scrape interval: 'fast' is no duration"),
        ({"scrape_interval": ""}, "scrape interval: '' is no duration"),
        ({"scrape_interval": "100ms"}, "scrape interval: 100ms is shorter than 250ms"),
        ({"image_map": "/absent"}, "image map /absent cannot be read"),
    ],
)
def test_a_specification_that_cannot_be_used_names_the_field_and_the_value(over, want):
    with pytest.raises(LocalError) as caught:
        ClusterSpec(**over).check()
    assert want in str(caught.value)


def test_the_default_specification_can_be_used():
    ClusterSpec().check()


def test_a_specification_survives_being_written_and_fields_of_other_versions():
    want = ClusterSpec(name="other", nodes=3, image_map="/x")
    assert ClusterSpec.from_mapping(json.loads(json.dumps(want.to_mapping())) | {"newer": 1}) == want
    assert want.differences(ClusterSpec(name="other", nodes=2, image_map="/x")) == ("nodes is 3, asked for 2",)


def test_what_the_agent_is_told_survives_being_written(tmp_path):
    one = Addresses(9)
    want = AgentConfig(
        kubeconfig=tmp_path / "kubeconfig",
        api_server="https://127.0.0.1:1",
        nodes=ClusterSpec(nodes=2, gpus_per_node=0).node_specs(one),
        pod_network=one.pod_network,
        service_network=one.service_network,
        service_host=one.service_host,
        certificate_authority=tmp_path / "ca",
        kubelet_certificate=tmp_path / "crt",
        kubelet_key=tmp_path / "key",
        client_ca=tmp_path / "ca",
        targets_directory=tmp_path,
        pods_directory=tmp_path,
        volumes_directory=tmp_path,
    )
    assert AgentConfig.from_json(want.to_json()) == want
    values = json.loads(want.to_json())
    del values["nodes"][0]["address"]
    with pytest.raises(ValueError, match=r"nodes\[\]: field address is missing"):
        AgentConfig.from_json(json.dumps(values))


@pytest.mark.parametrize(("interval", "want"), [("250ms", 250), ("1s500ms", 1500), ("1m30s", 90_000)])
def test_a_scrape_may_take_as_long_as_the_interval_but_not_longer_than_ten_seconds(tmp_path, interval, want):
    assert prometheus.scrape_milliseconds(interval) == want
    prometheus.write_configuration(tmp_path / "p", targets=tmp_path, scrape_interval=interval)
    content = yaml.safe_load((tmp_path / "p").read_text())
    assert content["global"]["scrape_timeout"] == f"{min(want, 10_000)}ms"
    assert content["scrape_configs"][0]["job_name"] == "pods"


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis").touch()
    with pytest.raises(ClusterError, match="holds something else"):
        Cluster(tmp_path).up()
    with pytest.raises(ClusterError, match="holds no embedded cluster"):
        Cluster(tmp_path).down(delete=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


def test_a_cluster_that_never_was_started_has_a_status_and_no_address(tmp_path):
    cluster = Cluster(tmp_path / "absent")
    assert not cluster.status().ready
    with pytest.raises(ClusterError, match="start one with `frontier-local up`"):
        _ = cluster.api_server


def test_a_damaged_state_file_is_named(tmp_path):
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(ClusterError, match=r"cluster\.json is damaged"):
        Cluster(tmp_path).status()
