"""Finding, fetching or building the binaries of the embedded cluster.

Each binary is looked for in the same places, from the cheapest to the dearest: the directory that the environment
names, the PATH (Prometheus only), the cache, the official release, the distribution's package (Prometheus only), a
build from the pinned module that this package ships. What was fetched or built is kept in the cache.

A release is downloaded only if its digest is pinned here or in a checksum file that the user trusts: a checksum fetched
from the place that serves the binary proves nothing, and a build from a module whose every dependency is pinned does.
"""

import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from frontier_local import builds, downloads
from frontier_local.cache import Progress, cache_directory, file_lock, is_executable
from frontier_local.errors import AssetError

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
PROMETHEUS = "prometheus"
NAMES = (*CONTROL_PLANE, PROMETHEUS)

ASSETS_VARIABLE = "FRONTIER_ASSETS"
CHECKSUMS_VARIABLE = "FRONTIER_CHECKSUMS"


@dataclass(frozen=True)
class Asset:
    """A binary and where it was found.

    Attributes:
        name: Name of the program.
        path: The executable.
        origin: Where it comes from, for a person: `FRONTIER_ASSETS`, `PATH`, `cache`, `release`, `package` or `build`.
    """

    name: str
    path: Path
    origin: str


@dataclass(frozen=True)
class Resolver:
    """Finds the binaries.

    Attributes:
        environment: The environment variables to heed.
        cache: Root of the cache.
        checksums: Digests by URL; a release that is not listed is not downloaded.
        progress: Told what takes time.
    """

    environment: Mapping[str, str]
    cache: Path
    checksums: Mapping[str, str]
    progress: Progress

    @classmethod
    def default(cls, progress: Progress, checksums: Path | None = None) -> "Resolver":
        """Return the resolver of this process's environment.

        Args:
            progress: Told what takes time.
            checksums: A file of checksums that win over the pinned ones; None takes the one that the environment
                variable names, if any.

        Raises:
            AssetError: The checksum file is missing or malformed.
        """
        named = os.environ.get(CHECKSUMS_VARIABLE)
        source = checksums or (Path(named) if named else None)
        known = downloads.read_checksums(downloads.PINNED)
        if source is not None:
            known |= downloads.read_checksums(source)
        return cls(os.environ, cache_directory(), known, progress)

    @property
    def directory(self) -> Path:
        """Where binaries of these versions are kept."""
        versions = f"kubernetes-{builds.KUBERNETES}-etcd-{builds.ETCD}"
        return self.cache / "assets" / f"{versions}-{platform.system().lower()}-{downloads.architecture()}"

    def resolve(self, names: Sequence[str] = NAMES) -> dict[str, Asset]:
        """Return every binary by its name, fetching or building what is missing.

        Raises:
            AssetError: One could not be had; the message says what was tried.
        """
        found = {asset.name: asset for name in names if (asset := self.find(name)) is not None}
        missing = [name for name in names if name not in found]
        if not missing:
            return found
        lock = self.directory / ".lock"
        with file_lock(lock, lambda: self.progress("waiting for another process that prepares the binaries")):
            for name in missing:
                found[name] = self.find(name) or self._obtain(name)
        return found

    def find(self, name: str) -> Asset | None:
        """Return a binary that is already on this machine, or None.

        Raises:
            AssetError: The environment names an assets directory that does not exist.
        """
        named = self.environment.get(ASSETS_VARIABLE)
        if named:
            directory = Path(named)
            if not directory.is_dir():
                raise AssetError(f"{ASSETS_VARIABLE}={named} is not a directory; correct or unset the variable")
            if is_executable(directory / name):
                return Asset(name, (directory / name).absolute(), ASSETS_VARIABLE)
        if name == PROMETHEUS and (installed := shutil.which(name, path=self.environment.get("PATH"))):
            return Asset(name, Path(installed).absolute(), "PATH")
        cached = self.directory / name
        return Asset(name, cached, "cache") if is_executable(cached) else None

    def _obtain(self, name: str) -> Asset:
        """Fetch or build one binary into the cache."""
        target = self.directory / name
        steps: list[tuple[str, Callable[[], None]]] = [
            ("release", lambda: downloads.download(name, target, self.checksums, self.progress)),
            ("build", lambda: builds.build(name, target, self.progress)),
        ]
        if name == PROMETHEUS:
            steps.insert(1, ("package", lambda: downloads.unpack_package(target, self.progress)))
        failures = []
        for origin, step in steps:
            begun = time.monotonic()
            try:
                step()
            except AssetError as error:
                failures.append(f"  {origin}: {error}")
                continue
            self.progress(f"{name}: ready after {time.monotonic() - begun:.0f} s ({origin})")
            return Asset(name, target, origin)
        raise AssetError(
            f"{name} could not be had; put it into a directory and name that in {ASSETS_VARIABLE}. Tried:\n"
            + "\n".join(failures)
        )
