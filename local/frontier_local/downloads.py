"""Fetching binaries: official releases whose checksum is known, and the distribution's own Prometheus package."""

import hashlib
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from frontier_local import builds
from frontier_local.cache import Progress, install
from frontier_local.errors import AssetError

_CONNECT_SECONDS = 5.0  # a machine without a way out must not wait long before it builds
_PACKAGE_SECONDS = 180.0
_ALGORITHMS = {64: "sha256", 128: "sha512"}  # by the number of hexadecimal digits
KUBERNETES_RELEASE = "v1.36.0"
"""The patch release whose checksum is pinned; what is built may be a later one of the same minor version."""
PROMETHEUS_RELEASE = "3.9.1"
PINNED = Path(__file__).parent / "data" / "checksums.txt"
"""Published checksums, with where they are published."""
_SERVER = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Release:
    """Where a binary is published.

    Attributes:
        url: The file to download.
        member: Path of the binary inside the archive, or None if the file is the binary.
    """

    url: str
    member: str | None = None


def architecture() -> str:
    """Return the machine's architecture as Go calls it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def release(name: str) -> Release:
    """Return where the official release of a binary is published."""
    arch = architecture()
    if name == "etcd":
        stem = f"etcd-{builds.ETCD}-linux-{arch}"
        return Release(f"https://github.com/etcd-io/etcd/releases/download/{builds.ETCD}/{stem}.tar.gz", f"{stem}/etcd")
    if name == "prometheus":
        version = PROMETHEUS_RELEASE
        stem = f"prometheus-{version}.linux-{arch}"
        place = f"https://github.com/prometheus/prometheus/releases/download/v{version}"
        return Release(f"{place}/{stem}.tar.gz", f"{stem}/prometheus")
    stem = f"kubernetes-server-linux-{arch}"
    return Release(f"https://dl.k8s.io/{KUBERNETES_RELEASE}/{stem}.tar.gz", f"kubernetes/server/bin/{name}")


def read_checksums(path: Path) -> dict[str, str]:
    """Return digests by URL from a file with lines `<digest>  <URL>`; `#` begins a comment.

    A digest has the 64 hexadecimal digits of SHA-256 or the 128 of SHA-512.

    Raises:
        AssetError: The file cannot be read, or a line is malformed; the message names it.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise AssetError(f"checksum file {path} cannot be read: {error.strerror}") from error
    known = {}
    for number, line in enumerate(lines, start=1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        if len(fields) != 2 or len(fields[0]) not in _ALGORITHMS:  # noqa: PLR2004 - a digest and a URL
            raise AssetError(f"{path}:{number}: expected `<64 or 128 hexadecimal digits>  <URL>`, got {line.strip()!r}")
        known[fields[1]] = fields[0].lower()
    return known


def download(name: str, target: Path, checksums: Mapping[str, str], progress: Progress) -> None:
    """Download an official release, check it, and put its binary in place.

    Raises:
        AssetError: No checksum is known, the place cannot be reached, or the checksum does not match.
    """
    source = release(name)
    wanted = checksums.get(source.url)
    if wanted is None:
        raise AssetError(f"no checksum is known for {source.url}; list it in a file and name that with --checksums")
    progress(f"{name}: downloading {source.url}")
    with tempfile.TemporaryDirectory(prefix="frontier-local-") as scratch:
        archive = Path(scratch) / "download"
        algorithm = _ALGORITHMS[len(wanted)]
        got = _fetch(source.url, archive, algorithm)
        if got != wanted:
            raise AssetError(f"{source.url}: {algorithm} is {got}, expected {wanted}; nothing was installed")
        if source.member is None:
            install(archive, target)
            return
        # One archive holds the whole server: it is fetched once for all of its binaries.
        for sibling in (name, *(each for each in _SERVER if name in _SERVER and each != name)):
            binary = Path(scratch) / sibling
            _extract(archive, release(sibling).member or sibling, binary)
            install(binary, target.with_name(sibling))


def unpack_package(target: Path, progress: Progress) -> None:
    """Download Debian's `prometheus` package and unpack its binary; needs no root and installs nothing.

    Raises:
        AssetError: This machine has no apt, or the package cannot be fetched or does not run here.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise AssetError("apt-get and dpkg are not installed")
    progress("prometheus: downloading the distribution's package")
    with tempfile.TemporaryDirectory(prefix="frontier-local-") as scratch:
        if not _apt_download(scratch):
            if os.geteuid() == 0:
                _run(["apt-get", "update", "-qq"], scratch)
            if not _apt_download(scratch):
                raise AssetError(
                    "`apt-get download prometheus` failed; run `apt-get update` as root, or install prometheus"
                )
        package = next(Path(scratch).glob("prometheus_*.deb"))
        if not _run(["dpkg", "-x", package.name, "unpacked"], scratch):
            raise AssetError(f"{package.name} could not be unpacked")
        binary = Path(scratch) / "unpacked" / "usr" / "bin" / "prometheus"
        if not _run([str(binary), "--version"], scratch):
            raise AssetError(f"the prometheus of {package.name} does not run on this machine")
        install(binary, target)


def _apt_download(directory: str) -> bool:
    return _run(["apt-get", "download", "-qq", "prometheus"], directory) and any(
        Path(directory).glob("prometheus_*.deb")
    )


def _run(command: list[str], directory: str) -> bool:
    """Return whether a command succeeded in time."""
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, check=False, timeout=_PACKAGE_SECONDS)
    except (subprocess.TimeoutExpired, OSError):
        return False
    return done.returncode == 0


def _fetch(url: str, target: Path, algorithm: str) -> str:
    """Download a file; returns its digest."""
    digest = hashlib.new(algorithm)
    try:
        # The URL is one of the constants of `release`.
        with urllib.request.urlopen(url, timeout=_CONNECT_SECONDS) as response, target.open("wb") as out:  # noqa: S310
            while chunk := response.read(1 << 20):
                digest.update(chunk)
                out.write(chunk)
    except (OSError, urllib.error.URLError) as error:
        raise AssetError(f"{url} cannot be fetched: {error}") from error
    return digest.hexdigest()


def _extract(archive: Path, member: str, target: Path) -> None:
    """Copy one member out of a compressed archive."""
    with tarfile.open(archive) as contents:
        try:
            source = contents.extractfile(member)
        except KeyError:
            source = None
        if source is None:
            raise AssetError(f"the archive holds no file {member}")
        with source, target.open("wb") as out:
            shutil.copyfileobj(source, out)
