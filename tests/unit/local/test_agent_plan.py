"""From a container's spec to a process: expansion, environment, translation, refusals."""

from pathlib import Path

import pytest

from frontier_local.agent.environment import (
    ContainerConfigError,
    PodFacts,
    Sources,
    container_environment,
    expand,
    references,
    service_variables,
)
from frontier_local.agent.pathmap import PathMap
from frontier_local.agent.plan import Image, Surroundings, port_number, process_plan, should_restart
from frontier_local.agent.refusals import unsupported_fields

SURROUNDINGS = Surroundings(Path("/pod/home"), Path("/pod/work"), "/usr/bin", "engine-0", Path("/pod/kubeconfig"))
IMAGE = Image(("/venv/python", "-m", "engine"), {"IMAGE": "1"}, ("/venv/bin",))


def make_pod(**spec):
    return {
        "metadata": {
            "name": "engine-0",
            "namespace": "serving",
            "uid": "u-1",
            "labels": {"app": "engine", "a.b/c": "d"},
            "annotations": {"note": 'say "hi"'},
        },
        "spec": {
            "nodeName": "node-1",
            "serviceAccountName": "runner",
            "containers": [{"name": "engine", "image": "i"}],
            **spec,
        },
    }


def make_facts(pod=None):
    return PodFacts(pod or make_pod(), "127.11.0.7", "127.131.1.1", {"cpu": "64", "memory": "512Gi"})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("$(A)-$(B)", "1-2"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $(A", "$A ${A} $(A"),
        ("100$", "100$"),
    ],
)
def test_expansion_follows_kubernetes(text, want):
    assert expand(text, {"A": "1", "B": "2"}) == want


def test_variables_see_earlier_ones_and_services_only():
    container = {
        "name": "c",
        "env": [
            {"name": "ONE", "value": "1"},
            {"name": "TWO", "value": "$(ONE)2$(THREE)"},
            {"name": "THREE", "value": "$(KUBERNETES_SERVICE_HOST)"},
        ],
    }
    got = container_environment(container, make_facts(), Sources(), {"KUBERNETES_SERVICE_HOST": "127.131.0.1"})
    assert (got["TWO"], got["THREE"]) == ("12$(THREE)", "127.131.0.1")


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("metadata.name", "engine-0"),
        ("metadata.namespace", "serving"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['a.b/c']", "d"),
        ("metadata.labels['absent']", ""),
        ("metadata.annotations", 'note="say \\"hi\\""'),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "runner"),
        ("status.podIP", "127.11.0.7"),
        ("status.hostIP", "127.131.1.1"),
    ],
)
def test_the_downward_api_tells_of_the_pod(path, want):
    container = {"name": "c", "env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}
    assert container_environment(container, make_facts(), Sources(), {})["X"] == want


def test_an_unknown_field_is_a_configuration_error():
    with pytest.raises(ContainerConfigError, match=r"spec\.priority"):
        make_facts().field_value("spec.priority")


@pytest.mark.parametrize(
    ("reference", "want"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "512"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "512"),
        ({"resource": "requests.cpu"}, "0"),
    ],
)
def test_resources_are_divided_and_rounded_up(reference, want):
    resources = {"limits": {"cpu": "1500m"}, "requests": {"memory": "512Mi"}}
    assert make_facts().resource_value(reference, {"name": "c", "resources": resources}) == want


SOURCES = Sources(
    {"cm": {"data": {"key": "value", "other": "o"}}, "gone": None}, {"s": {"data": {"token": "c2VjcmV0"}}, "gone": None}
)


def test_config_maps_and_secrets_fill_the_environment():
    container = {
        "name": "c",
        "envFrom": [{"prefix": "CM_", "configMapRef": {"name": "cm"}}, {"secretRef": {"name": "s"}}],
        "env": [
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "key"}}},
            {"name": "NO", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}}},
        ],
    }
    assert references([container]) == (frozenset({"cm"}), frozenset({"s", "gone"}))
    got = container_environment(container, make_facts(), SOURCES, {})
    assert got == {"CM_key": "value", "CM_other": "o", "token": "secret", "KEY": "value"}


@pytest.mark.parametrize(
    ("container", "want"),
    [
        ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k"}}}]}, '"gone" not found'),
        ({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, "key k in secret s"),
        ({"envFrom": [{"secretRef": {"name": "gone"}}]}, 'secret "gone" not found'),
    ],
)
def test_what_is_missing_is_named(container, want):
    with pytest.raises(ContainerConfigError, match=want):
        container_environment({"name": "c"} | container, make_facts(), SOURCES, {})


def test_services_of_the_namespace_become_variables():
    services = [
        {
            "metadata": {"name": "my-engine", "namespace": "serving"},
            "spec": {"clusterIP": "127.131.0.9", "ports": [{"name": "http", "port": 80}, {"port": 81}]},
        },
        {"metadata": {"name": "other", "namespace": "x"}, "spec": {"clusterIP": "1.2.3.4", "ports": [{"port": 1}]}},
        {"metadata": {"name": "headless", "namespace": "serving"}, "spec": {"clusterIP": "None", "ports": []}},
    ]
    got = service_variables(services, "serving", "127.131.0.1", 443)
    assert got["MY_ENGINE_SERVICE_HOST"] == "127.131.0.9"
    assert got["MY_ENGINE_SERVICE_PORT"] == got["MY_ENGINE_SERVICE_PORT_HTTP"] == "80"
    assert got["MY_ENGINE_PORT_81_TCP"] == "tcp://127.131.0.9:81"
    assert got["KUBERNETES_SERVICE_PORT"] == "443"
    assert not [name for name in got if name.startswith(("OTHER", "HEADLESS"))]


PATHS = PathMap({"/models": Path("/pod/v/m"), "/models/deep/": Path("/pod/v/d"), "/tmp": Path("/tmp/pod/tmp")})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/models", "/pod/v/m"),
        ("--model=/models/a", "--model=/pod/v/m/a"),
        ("/models/deep/x", "/pod/v/d/x"),
        ('{"path": "/models/a.csv"}', '{"path": "/pod/v/m/a.csv"}'),
        ("a:/models:/tmp/x", "a:/pod/v/m:/tmp/pod/tmp/x"),
        ("file:///models/a", "file:///pod/v/m/a"),
        ("echo >/models/a", "echo >/pod/v/m/a"),
        ("http://host/models/a", "http://host/models/a"),
        ("/models2 /srv/models -I/models /models.bak", "/models2 /srv/models -I/models /models.bak"),
    ],
)
def test_mount_paths_are_translated_as_whole_components(text, want):
    assert PATHS.translate(text) == want


def test_the_image_gives_the_entrypoint_and_args_are_appended():
    container = {"name": "engine", "args": ["--model", "/models/x", "--host", "$(POD_IP)", "$(IMAGE)"]}
    plan = process_plan(container, IMAGE, {"POD_IP": "127.11.0.7", "CACHE": "/models/c"}, PATHS, SURROUNDINGS)
    assert plan.argv == ("/venv/python", "-m", "engine", "--model", "/pod/v/m/x", "--host", "127.11.0.7", "1")
    assert plan.environment == {
        "HOME": "/pod/home",
        "HOSTNAME": "engine-0",
        "PATH": "/venv/bin:/usr/bin",
        "IMAGE": "1",
        "POD_IP": "127.11.0.7",
        "CACHE": "/pod/v/m/c",
    }
    assert plan.directory == Path("/pod/work")


def test_a_command_replaces_the_entrypoint_and_translated_values_are_not_translated_again():
    mounts = [{"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    container = {"name": "c", "command": ["run"], "args": ["$(DIR)"], "workingDir": "/models", "volumeMounts": mounts}
    plan = process_plan(container, IMAGE, {"DIR": "/tmp/x", "PATH": "/own"}, PATHS, SURROUNDINGS)
    assert plan.argv == ("run", "/tmp/pod/tmp/x")
    assert plan.directory == Path("/pod/v/m")
    assert (plan.environment["PATH"], plan.environment["KUBECONFIG"]) == ("/own", "/pod/kubeconfig")


def test_a_container_without_any_command_says_what_to_set():
    with pytest.raises(ValueError, match="set `command`"):
        process_plan({"name": "c"}, Image((), {}, ()), {}, PATHS, SURROUNDINGS)


def test_ports_are_found_by_name():
    container = {"name": "c", "ports": [{"name": "http", "containerPort": 8000}]}
    assert [port_number(container, port) for port in ("http", 9, "10")] == [8000, 9, 10]
    with pytest.raises(ValueError, match="port grpc"):
        port_number(container, "grpc")


@pytest.mark.parametrize(
    ("policy", "code", "want"),
    [("Always", 0, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_restart_policy_decides(policy, code, want):
    assert should_restart(policy, code) is want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, ()),
        ({"volumes": [{"name": "n", "nfs": {}}, {"name": "e", "emptyDir": {}}]}, ("spec.volumes[n].nfs",)),
        ({"runtimeClassName": "gvisor"}, ("spec.runtimeClassName",)),
        (
            {"containers": [{"name": "c", "livenessProbe": {"grpc": {"port": 1}}, "volumeDevices": [{"name": "d"}]}]},
            ("spec.containers[c].volumeDevices", "spec.containers[c].livenessProbe.grpc"),
        ),
        (
            {"volumes": [{"name": "p", "projected": {"sources": [{"clusterTrustBundle": {}}]}}]},
            ("spec.volumes[p].projected.clusterTrustBundle",),
        ),
        (
            {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]},
            ("spec.containers[c].ports[1].hostPort",),
        ),
        ({"hostNetwork": True, "containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}]}, ()),
    ],
)
def test_what_processes_cannot_have_is_refused_by_field(spec, want):
    assert unsupported_fields(make_pod(**spec)) == want
