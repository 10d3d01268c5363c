"""Building the binaries from the pinned Go modules that this package ships."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from frontier_local.cache import Progress, install
from frontier_local.errors import AssetError

KUBERNETES = "v1.36.3"
ETCD = "v3.6.8"
PROMETHEUS_RELEASE = "3.16.0"

_MODULES = Path(__file__).parent / "controlplane"
_PROGRESS_SECONDS = 15.0
_LAST_LINES = 12


@dataclass(frozen=True)
class Recipe:
    """How one binary is built.

    Attributes:
        module: Directory that holds the pinned `go.mod` and `go.sum`.
        package: Import path of the program.
        variables: Variables that the linker sets.
        tags: Build tags.
        estimate: How long it takes, for a person.
    """

    module: Path
    package: str
    estimate: str
    variables: tuple[str, ...] = ()
    tags: str = ""

    def command(self, output: Path) -> list[str]:
        """Return the command that builds into a file."""
        linker = " ".join(["-s", "-w", *(f"-X {variable}" for variable in self.variables)])
        options = ["-mod=readonly", "-trimpath", "-buildvcs=false", f"-tags={self.tags}", f"-ldflags={linker}"]
        return ["go", "build", *options, "-o", str(output), self.package]


def recipe(name: str) -> Recipe:
    """Return how a binary is built."""
    if name == "etcd":
        return Recipe(_MODULES, "go.etcd.io/etcd/server/v3", "a few minutes on two cores, once")
    if name == "prometheus":
        return Recipe(
            _MODULES / "prometheus",
            "github.com/prometheus/prometheus/cmd/prometheus",
            "several minutes on two cores, once",
            (f"github.com/prometheus/common/version.Version={PROMETHEUS_RELEASE}",),
            # Targets come from files; the service discovery of every cloud is not needed.
            tags="remove_all_sd",
        )
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    version = "k8s.io/component-base/version"
    # Clients refuse a server that does not know its own version.
    variables = (
        f"{version}.gitVersion={KUBERNETES}",
        f"{version}.gitMajor={major}",
        f"{version}.gitMinor={minor}",
    )
    estimate = "the whole control plane takes about 7 minutes on two cores, once"
    return Recipe(_MODULES, f"k8s.io/kubernetes/cmd/{name}", estimate, variables)


def build(name: str, target: Path, progress: Progress) -> None:
    """Build a binary and put it in place, telling every few seconds how long it has taken so far.

    Raises:
        AssetError: Go is not installed, or the build failed; the message holds its last lines.
    """
    if shutil.which("go") is None:
        raise AssetError("Go is not installed; install it from https://go.dev/dl")
    plan = recipe(name)
    progress(f"{name}: building from source ({plan.estimate})")
    with tempfile.TemporaryDirectory(prefix="frontier-local-") as scratch:
        # The package's own directory may be read-only.
        module = Path(scratch) / "module"
        module.mkdir()
        for source in ("go.mod", "go.sum", "tools.go"):
            shutil.copyfile(plan.module / source, module / source)
        output = Path(scratch) / name
        _run(name, plan.command(output), module, progress)
        install(output, target)


def _run(name: str, command: list[str], module: Path, progress: Progress) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"}
    begun = time.monotonic()
    with subprocess.Popen(
        command, cwd=module, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        done = threading.Event()
        teller = threading.Thread(target=_tell, args=(name, begun, done, progress), daemon=True)
        teller.start()
        try:
            last = deque(process.stdout or (), maxlen=_LAST_LINES)
        except BaseException:  # an interrupt must not leave the compiler running
            process.terminate()
            raise
        finally:
            done.set()
            teller.join()
    if process.returncode != 0:
        raise AssetError(f"`{' '.join(command)}` failed with exit code {process.returncode}:\n{''.join(last).rstrip()}")


def _tell(name: str, begun: float, done: threading.Event, progress: Progress) -> None:
    """Tell how long the build has taken, until it is done."""
    while not done.wait(_PROGRESS_SECONDS):
        progress(f"{name}: building, {time.monotonic() - begun:.0f} s so far")
