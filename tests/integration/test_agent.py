"""The node agent on a real control plane: pods run as processes and look like pods."""

import contextlib
import itertools
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from frontier_local.cluster import Cluster, ClusterSpec

pytestmark = pytest.mark.integration

SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(404 if self.path == '/broken' else 200); self.end_headers()
        self.wfile.write(os.environ['HOSTNAME'].encode() + b' 1\\n')
    def log_message(self, *arguments): pass
http.server.ThreadingHTTPServer((os.environ['POD_IP'], 8000), Handler).serve_forever()
"""
SERIAL = itertools.count()
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def eventually(get, wanted=bool, seconds=30.0):
    """Return the first value that is wanted, or fail with the last one."""
    until = time.monotonic() + seconds
    while not wanted(value := get()):
        assert time.monotonic() < until, f"not in time; the last value was {value!r}"
        time.sleep(0.05)
    return value


class Namespace:
    """A namespace of the cluster, and what tests do in it."""

    def __init__(self, cluster, kubectl, name):
        self.cluster, self.kubectl, self.name = cluster, kubectl, name

    def run(self, *arguments, **options):
        return self.kubectl(self.cluster, "-n", self.name, *arguments, **options)

    def apply(self, *objects):
        self.run("create", "-f", "-", stdin="---\n".join(yaml.safe_dump(item) for item in objects))

    def pod(self, name, **spec):
        """Create a pod; keys of its only container go into the container."""
        inside = {"command", "args", "env", "image", "volumeMounts", "terminationMessagePolicy", "envFrom"}
        container = {"name": "main", "image": "python:3.11"} | {k: v for k, v in spec.items() if k in inside}
        container |= spec.pop("container", {})
        outside = {key: value for key, value in spec.items() if key not in inside}
        metadata = {"name": name} | outside.pop("metadata", {})
        body = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]} | outside
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body})

    def get(self, kind, name):
        found = self.run("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(found) if found else None

    def state(self, name):
        """Return the state of the pod's first container."""
        statuses = (self.get("pod", name) or {}).get("status", {}).get("containerStatuses")
        return statuses[0] if statuses else {}

    def phase(self, name, wanted, seconds=30.0):
        return eventually(lambda: self.get("pod", name), lambda pod: pod["status"].get("phase") == wanted, seconds)

    def ready(self, name):
        return eventually(lambda: self.state(name), lambda state: state.get("ready"))

    def events(self, name):
        found = json.loads(self.run("get", "events", f"--field-selector=involvedObject.name={name}", "-o", "json"))
        return {event["reason"]: event["message"] for event in found["items"]}


@pytest.fixture
def namespace(cluster, kubectl, request):
    words = request.node.name.partition("[")[0].removeprefix("test_").replace("_", "-")[:50].strip("-")
    name = f"{words}-{next(SERIAL)}"
    kubectl(cluster, "create", "namespace", name)
    yield Namespace(cluster, kubectl, name)
    kubectl(cluster, "delete", "namespace", name, "--wait=false")


def shell(script):
    return ["sh", "-c", script]


def processes_of(uid):
    """Return the live processes that belong to the pod."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"/{uid}/containers/" in entry.read_text(errors="replace"):
                found.append(int(entry.parent.name))
    return found


def test_a_pod_succeeds_with_its_message_and_its_output(namespace):
    namespace.pod("ok", command=shell("echo hello; echo '{\"sent\": 1}' > /dev/termination-log"))
    pod = namespace.phase("ok", "Succeeded")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", '{"sent": 1}\n')
    assert namespace.run("logs", "ok") == "hello\n"
    assert pod["status"]["qosClass"] == "BestEffort"
    assert pod["status"]["podIP"].startswith("127.")


@pytest.mark.parametrize(
    ("script", "policy", "want"),
    [
        ("echo last words; exit 3", "FallbackToLogsOnError", (3, "last words\n")),
        ("echo last words; exit 3", "File", (3, None)),
        ("echo told > /dev/termination-log; exit 4", "FallbackToLogsOnError", (4, "told\n")),
        ("kill -9 $$$$", "File", (137, None)),
    ],
)
def test_a_failure_keeps_its_last_words(namespace, script, policy, want):
    namespace.pod("bad", command=shell(script), terminationMessagePolicy=policy)
    pod = namespace.phase("bad", "Failed")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended.get("message")) == want


def test_configuration_reaches_the_process(namespace):
    namespace.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "cm"},
            "data": {"file.txt": "content", "K": "v"},
        },
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"token": "hidden"}},
    )
    namespace.pod(
        "configured",
        command=shell('echo "$K $TOKEN $NAME $(cat /config/file.txt) $(cat /shared/x)"; cat /info/labels; echo; env'),
        env=[
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        envFrom=[{"configMapRef": {"name": "cm"}}],
        metadata={"labels": {"app": "x"}},
        initContainers=[
            {
                "name": "init",
                "image": "busybox:1",
                "command": shell("echo from-init > /shared/x"),
                "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            }
        ],
        volumeMounts=[
            {"name": "config", "mountPath": "/config", "readOnly": True},
            {"name": "shared", "mountPath": "/shared"},
            {"name": "info", "mountPath": "/info"},
        ],
        volumes=[
            {"name": "config", "configMap": {"name": "cm"}},
            {"name": "shared", "emptyDir": {}},
            {
                "name": "info",
                "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            },
        ],
    )
    namespace.phase("configured", "Succeeded")
    output = namespace.run("logs", "configured").splitlines()
    assert output[:2] == ["v hidden configured content from-init", 'app="x"']
    assert "KUBERNETES_SERVICE_PORT=443" in output


def test_what_is_missing_waits_with_a_reason(namespace):
    reference = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "k"}}}
    namespace.pod("waits", command=shell("echo $X"), env=[reference])
    namespace.pod("unknown", image="registry.example/unknown:1")

    def reason(name):
        return namespace.state(name).get("state", {}).get("waiting", {}).get("reason")

    eventually(lambda: reason("waits"), lambda found: found == "CreateContainerConfigError")
    eventually(lambda: reason("unknown"), lambda found: found in {"ErrImagePull", "ImagePullBackOff"})
    assert "registry.example/unknown:1" in eventually(lambda: namespace.events("unknown").get("Failed"))
    namespace.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}, "data": {"k": "here"}})
    namespace.phase("waits", "Succeeded")
    assert namespace.run("logs", "waits") == "here\n"


def test_what_processes_cannot_have_is_refused(namespace):
    namespace.pod("nfs", command=["true"], volumes=[{"name": "data", "nfs": {"server": "a", "path": "/b"}}])
    status = namespace.phase("nfs", "Failed")["status"]
    assert status["reason"] == "UnsupportedByNodeAgent"
    assert "spec.volumes[data].nfs" in status["message"]
    assert "spec.volumes[data].nfs" in eventually(lambda: namespace.events("nfs").get("UnsupportedByNodeAgent"))


def test_a_crash_restarts_at_once_and_then_backs_off(namespace):
    namespace.pod("crash", command=shell("echo once; exit 1"), restartPolicy="Always")
    found = eventually(
        lambda: namespace.state("crash"),
        lambda s: s.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff",
    )
    assert found["restartCount"] >= 1
    assert found["lastState"]["terminated"]["exitCode"] == 1
    assert namespace.run("logs", "crash", "--previous") == "once\n"


def test_a_sidecar_runs_beside_the_container_and_ends_after_it(namespace):
    volume = [{"name": "shared", "mountPath": "/shared"}]
    sidecar = {
        "name": "side",
        "image": "busybox:1",
        "restartPolicy": "Always",
        "command": shell("trap 'echo bye; exit 0' TERM; touch /shared/up; while :; do sleep 0.05; done"),
        "startupProbe": {"exec": {"command": ["test", "-e", "/shared/up"]}, "periodSeconds": 1},
        "volumeMounts": volume,
    }
    volumes = [{"name": "shared", "emptyDir": {}}]
    namespace.pod("both", command=["ls", "/shared"], volumeMounts=volume, volumes=volumes, initContainers=[sidecar])
    pod = namespace.phase("both", "Succeeded")
    assert namespace.run("logs", "both", "-c", "main") == "up\n"
    eventually(lambda: namespace.run("logs", "both", "-c", "side"), lambda log: log == "bye\n")
    uid = pod["metadata"]["uid"]
    eventually(lambda: processes_of(uid), lambda pids: not pids)


def test_a_failed_liveness_probe_restarts_the_container(namespace):
    probe = {"exec": {"command": shell("test ! -e /state/ill")}, "periodSeconds": 1, "failureThreshold": 1}
    namespace.pod(
        "ill",
        command=shell("if [ -e /state/ill ]; then rm /state/ill; exec sleep 600; fi; touch /state/ill; exec sleep 600"),
        restartPolicy="Always",
        container={"livenessProbe": probe},
        volumeMounts=[{"name": "state", "mountPath": "/state"}],
        volumes=[{"name": "state", "emptyDir": {}}],
    )
    found = eventually(lambda: namespace.state("ill"), lambda s: s.get("restartCount") == 1 and "running" in s["state"])
    assert found["lastState"]["terminated"]["exitCode"] == 143
    assert "liveness" in namespace.events("ill")["Killing"]


def test_deleting_a_pod_runs_its_hook_and_leaves_no_process(namespace, tmp_path):
    namespace.pod(
        "goes",
        command=shell(
            f"trap 'echo term >> {tmp_path}/seen; exit 0' TERM; setsid sleep 600 & while :; do sleep 0.05; done"
        ),
        container={"lifecycle": {"preStop": {"exec": {"command": shell(f"echo hook >> {tmp_path}/seen")}}}},
        terminationGracePeriodSeconds=20,
    )
    namespace.ready("goes")
    uid = namespace.get("pod", "goes")["metadata"]["uid"]
    assert len(processes_of(uid)) >= 2
    began = time.monotonic()
    namespace.run("delete", "pod", "goes")
    assert time.monotonic() - began < 15
    assert (tmp_path / "seen").read_text() == "hook\nterm\n"
    assert processes_of(uid) == []


def test_the_grace_period_ends_with_a_kill(namespace):
    namespace.pod("deaf", command=shell("trap '' TERM; echo up; while :; do sleep 0.05; done"))
    eventually(lambda: namespace.run("logs", "deaf", check=False).stdout)
    uid = namespace.get("pod", "deaf")["metadata"]["uid"]
    namespace.run("delete", "pod", "deaf", "--grace-period=1")
    assert processes_of(uid) == []


def test_a_pod_past_its_deadline_fails(namespace):
    namespace.pod("late", command=["sleep", "600"], activeDeadlineSeconds=1)
    assert namespace.phase("late", "Failed")["status"]["reason"] == "DeadlineExceeded"


def test_logs_can_be_followed_and_cut(namespace):
    namespace.pod("talks", command=shell("for n in 1 2 3 4 5; do echo $n; sleep 0.2; done"))
    namespace.ready("talks")
    assert namespace.run("logs", "-f", "talks") == "1\n2\n3\n4\n5\n"
    assert namespace.run("logs", "talks", "--tail=2") == "4\n5\n"
    assert "keeps logs without times" in namespace.run("logs", "talks", "--timestamps", check=False).stderr


def test_a_job_completes_through_the_real_controllers(namespace):
    template = {"restartPolicy": "Never", "containers": [{"name": "load", "image": "busybox:1", "command": ["true"]}]}
    namespace.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "job"},
            "spec": {"template": {"spec": template}},
        }
    )
    namespace.run("wait", "--for=condition=Complete", "job/job", "--timeout=30s")
    namespace.run("delete", "job", "job")
    eventually(lambda: namespace.run("get", "pods", "-o", "name"), lambda names: not names)


def make_server(name, replicas=2):
    container = {
        "name": "web",
        "image": "python:3.11",
        "command": [sys.executable, "-c", SERVER],
        "env": [POD_IP],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1},
    }
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8000", "prometheus.io/path": "/metrics"}
    template = {
        "metadata": {"labels": {"app": name}, "annotations": annotations},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def fetch(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def refused(url):
    try:
        fetch(url)
    except urllib.error.URLError as error:
        return isinstance(error.reason, ConnectionRefusedError)
    return False


def test_a_service_spreads_over_ready_pods_and_refuses_without_any(namespace):
    ports = [{"port": 80, "targetPort": "http"}]
    namespace.apply(
        make_server("web"),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": ports},
        },
    )
    url = f"http://{namespace.get('service', 'web')['spec']['clusterIP']}/"
    namespace.run("wait", "--for=condition=Available", "deployment/web", "--timeout=30s")
    eventually(lambda: len({fetch(url) for _ in range(20)}), lambda found: found == 2)
    namespace.run("scale", "deployment", "web", "--replicas=0")
    eventually(lambda: refused(url))


def test_prometheus_scrapes_running_pods_with_their_labels(namespace):
    namespace.apply(make_server("scraped", replicas=1))
    query = f'{namespace.cluster.prometheus_url}/api/v1/query?query=up{{namespace="{namespace.name}"}}'.replace(
        '"', "%22"
    )

    def targets():
        return [item["metric"] for item in json.loads(fetch(query))["data"]["result"]]

    found = eventually(targets)[0]
    assert (found["job"], found["container"]) == ("pods", "web")
    assert {"pod", "node", "namespace"} <= set(found)
    namespace.run("scale", "deployment", "scraped", "--replicas=0")
    eventually(targets, lambda result: not result)


IN_CLUSTER = """
import kubernetes
kubernetes.config.load_config()
api = kubernetes.client.AuthenticationV1Api()
review = api.create_self_subject_review({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
print(review.status.user_info.username)
"""


ASK_VERSION = """
import os, ssl, sys, urllib.request
url = "https://%(KUBERNETES_SERVICE_HOST)s:%(KUBERNETES_SERVICE_PORT)s/version" % os.environ
with open(sys.argv[1] + "/token") as token:
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token.read()})
context = ssl.create_default_context(cafile=sys.argv[1] + "/ca.crt")
print(urllib.request.urlopen(request, context=context).status)
"""


def test_a_pod_reaches_the_api_server_as_its_service_account(namespace):
    namespace.pod("client", command=[sys.executable, "-W", "ignore", "-c", IN_CLUSTER])
    namespace.phase("client", "Succeeded")
    assert namespace.run("logs", "client") == f"system:serviceaccount:{namespace.name}:default\n"
    namespace.pod(
        "curl",
        image="python:3.11",
        command=[sys.executable, "-c", ASK_VERSION, "/var/run/secrets/kubernetes.io/serviceaccount"],
    )
    namespace.phase("curl", "Succeeded")
    assert namespace.run("logs", "curl") == "200\n"


def test_a_claim_keeps_data_from_one_pod_to_the_next(namespace):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    namespace.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": spec})
    mounted = {
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    namespace.pod("writes", command=shell("mkdir -p /models/a; echo weights > /models/a/x"), **mounted)
    namespace.phase("writes", "Succeeded")
    namespace.pod("reads", command=["cat", "/models/a/x"], **mounted)
    namespace.phase("reads", "Succeeded")
    assert namespace.run("logs", "reads") == "weights\n"


def test_gpus_are_scheduled_and_a_pod_that_asks_for_too_many_waits(namespace):
    def limits(count):
        return {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}

    namespace.pod("fits", command=["sleep", "600"], container=limits(8))
    namespace.ready("fits")
    namespace.pod("waits", command=["sleep", "600"], container=limits(9))
    assert "Insufficient nvidia.com/gpu" in eventually(lambda: namespace.events("waits").get("FailedScheduling"))
    namespace.run("delete", "pod", "fits", "waits", "--grace-period=0", "--force")


def agent_pid(cluster):
    return next(component.pid for component in cluster.status().components if component.name == "agent")


def test_a_killed_agent_leaves_no_orphan_and_goes_on(binaries, kubectl, tmp_path):
    with Cluster(tmp_path / "cluster", ClusterSpec(name="restart", nodes=1)) as cluster:
        namespace = Namespace(cluster, kubectl, "default")
        eventually(lambda: namespace.get("serviceaccount", "default"))
        script = shell("setsid sleep 600 & exec sleep 600")
        namespace.pod("never", command=script)
        namespace.pod("always", command=script, restartPolicy="Always")
        namespace.pod("deleted", command=script)
        for name in ("never", "always", "deleted"):
            namespace.ready(name)
        uids = [namespace.get("pod", name)["metadata"]["uid"] for name in ("never", "always", "deleted")]
        os.kill(agent_pid(cluster), signal.SIGKILL)
        namespace.run("delete", "pod", "deleted", "--wait=false")
        cluster.up()
        status = namespace.phase("never", "Failed")["status"]
        assert status["reason"] == "NodeAgentRestarted"
        eventually(lambda: namespace.state("always"), lambda s: s.get("restartCount") == 1 and s.get("ready"))
        eventually(lambda: namespace.get("pod", "deleted"), lambda pod: pod is None)
        eventually(lambda: processes_of(uids[0]) + processes_of(uids[2]), lambda pids: not pids)
        assert len(processes_of(uids[1])) == 2
    assert processes_of(uids[1]) == []
