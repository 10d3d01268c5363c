"""Real Prometheus servers with histories written to the millisecond, for tests that know what PromQL must answer."""

import math
import os
import struct
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import yaml

from frontier_local import builds
from frontier_local.assets import Resolver
from frontier_local.cache import cache_directory
from frontier_tuner.plants.processes import Process, free_port, wait_for

STALE = object()
"""A staleness marker: the series has ended."""
GAP = object()
"""No sample at this step."""
_STALE_BYTES = struct.pack("<Q", 0x7FF0000000000002)


def find_servers():
    """Return the Prometheus programs on this machine by a short name: the usual one, and a 3.x built from its module.

    With `REQUIRE_PROMETHEUS_3=1` a missing 3.x is built, which takes several minutes once.
    """
    usual = Resolver.default(print).find("prometheus")
    found = {} if usual is None else {"usual": usual.path}
    newer = cache_directory() / "assets" / f"prometheus-{builds.PROMETHEUS_RELEASE}" / "prometheus"
    if not newer.exists() and os.environ.get("REQUIRE_PROMETHEUS_3") == "1":
        newer.parent.mkdir(parents=True, exist_ok=True)
        builds.build("prometheus", newer, print)
    if newer.exists():
        found["built"] = newer
    return found


SERVERS = find_servers()
EACH_SERVER = sorted(SERVERS) or [pytest.param("none", marks=pytest.mark.skip("no Prometheus on this machine"))]
"""Parameters of a fixture that runs a test on every server; one that is skipped where there is none."""


class Server:
    """One running Prometheus that takes samples by remote write."""

    def __init__(self, program: Path, url: str) -> None:
        self.program = program
        self.url = url
        self.session = requests.Session()
        version = self.session.get(f"{url}/api/v1/status/buildinfo", timeout=10).json()["data"]["version"]
        self.version = tuple(int(part) for part in version.split("+")[0].split(".")[:2])

    @property
    def left_open(self):
        """Whether a range excludes a sample at its very start, as it does from 3.0 on."""
        return self.version >= (3, 0)

    def write(self, *series):
        """Store series, each a pair of labels and (seconds, value) samples."""
        body = b"".join(_field(1, _time_series(labels, samples)) for labels, samples in series)
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        response = self.session.post(f"{self.url}/api/v1/write", data=_snappy(body), headers=headers, timeout=10)
        assert response.status_code in (200, 204), response.text


@contextmanager
def running(program, directory, config=None, *flags):
    """Run a Prometheus on a free port of the loopback; it is ended in any case."""
    directory.mkdir(parents=True, exist_ok=True)
    host = "127.0.0.1"
    listen = f"{host}:{free_port(host)}"
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config or {"global": {"scrape_interval": "1m"}}))
    command = [
        str(program),
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={listen}",
        "--web.enable-remote-write-receiver",
        "--log.level=warn",
        *flags,
    ]
    process = Process(command, os.environ, directory / "prometheus.log")
    try:
        tls = any("web.config.file" in flag for flag in flags)
        if not tls:
            wait_for(lambda: _ready(f"http://{listen}"), 60, f"Prometheus: {process.last_words()}")
        yield Server(program, f"http://{listen}") if not tls else f"https://{listen}"
    finally:
        process.stop()


def _ready(url):
    try:
        return requests.get(f"{url}/-/ready", timeout=1.0).status_code == 200
    except requests.RequestException:
        return False


def steps(start, interval, values):
    """Return samples at equal steps; `GAP` leaves one out."""
    return [(start + number * interval, value) for number, value in enumerate(values) if value is not GAP]


def ramp(first, rise, count):
    """Return a value and `count` more, each higher by `rise`, as promtool writes `first+risexcount`."""
    return [first + rise * number for number in range(count + 1)]


def _time_series(labels, samples):
    named = sorted(labels.items())
    body = b"".join(_field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in named)
    for seconds, value in samples:
        number = _STALE_BYTES if value is STALE else struct.pack("<d", math.nan if value is None else value)
        body += _field(2, b"\x09" + number + b"\x10" + _varint(round(seconds * 1000)))
    return body


def _field(number, body):
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(number):
    encoded = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        encoded.append(low | (0x80 if number else 0))
        if not number:
            return bytes(encoded)


def _snappy(body):
    """Return a snappy block that holds its content uncompressed, which the format allows."""
    return _varint(len(body)) + b"\xfc" + struct.pack("<I", len(body) - 1) + body
