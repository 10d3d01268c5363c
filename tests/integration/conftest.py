"""The running embedded cluster that integration tests share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from frontier_local.assets import NAMES, Resolver
from frontier_local.cluster import Cluster, ClusterSpec

KUBECTL = Path(sys.executable).parent / "kubectl"


@pytest.fixture(scope="session")
def binaries():
    """Skip without the control plane's binaries, or have them made where they are required."""
    resolver = Resolver.default(print)
    if os.environ.get("REQUIRE_APISERVER") == "1":
        resolver.resolve()
    missing = [name for name in NAMES if resolver.find(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}; `frontier-local assets` makes them, REQUIRE_APISERVER=1 requires them")


@pytest.fixture(scope="session")
def prometheus_on_path(binaries):
    """Let programs that look for Prometheus on the PATH find the one that the embedded cluster uses."""
    found = Resolver.default(print).find("prometheus")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(found.path.parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def cluster(binaries, tmp_path_factory):
    """A running cluster of two nodes with eight simulated GPUs each; its pods run as processes."""
    directory = tmp_path_factory.mktemp("cluster")
    with Cluster(directory, ClusterSpec(name="tests", nodes=2), progress=print) as running:
        yield running


@pytest.fixture(scope="session")
def control_plane(binaries, tmp_path_factory):
    """A running cluster without nodes: everything of the API, and no pod ever starts."""
    directory = tmp_path_factory.mktemp("control-plane")
    with Cluster(directory, ClusterSpec(name="bare", nodes=0), progress=print) as running:
        yield running


@pytest.fixture(scope="session")
def kubectl():
    """Run kubectl as a cluster's administrator; returns what it printed, and fails with what it complained about."""

    def run(cluster, *arguments, check=True, stdin=None):
        command = [str(KUBECTL), f"--kubeconfig={cluster.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout if check else done

    return run
