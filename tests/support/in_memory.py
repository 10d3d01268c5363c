"""An API in memory, for faults that a real API server cannot be asked for, such as a write that times out."""

from frontier_operator.errors import RetryableError
from frontier_operator.ports import Ports
from support.operator_builders import NOW


class FixedClock:
    def now(self):
        return NOW


class MemoryObjects:
    """Keeps manifests by kind and name; the next `failures` status writes time out."""

    def __init__(self, *manifests, failures=0):
        self.kept = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests}
        self.failures = failures

    def get(self, kind, namespace, name):
        return self.kept.get((kind, name))

    def find(self, kind, namespace, labels):
        wanted = labels.items()
        return [
            manifest
            for (found, _), manifest in self.kept.items()
            if found == kind and wanted <= (manifest["metadata"].get("labels") or {}).items()
        ]

    def create(self, manifest):
        key = (manifest["kind"], manifest["metadata"]["name"])
        return None if key in self.kept else self.kept.setdefault(key, manifest)

    def apply(self, manifest):
        self.kept[manifest["kind"], manifest["metadata"]["name"]] = manifest
        return manifest

    def scale(self, kind, namespace, name, replicas):
        self.kept[kind, name]["spec"]["replicas"] = replicas

    def delete(self, kind, namespace, name):
        self.kept.pop((kind, name), None)

    def write_status(self, manifest):
        if self.failures:
            self.failures -= 1
            raise RetryableError("PUT …/status: timed out")
        return self.apply(manifest)


class NoLogs:
    """A node that does not answer for its logs."""

    def tail(self, namespace, pod, container, lines):
        raise RetryableError("GET …/log: 502 the node does not answer")


class RecordedEvents:
    def __init__(self):
        self.reasons = []

    def emit(self, regarding, reason, message, *, warning):
        self.reasons.append(reason)


def make_ports(objects):
    return Ports(clock=FixedClock(), objects=objects, logs=NoLogs(), metrics=None, events=RecordedEvents())
