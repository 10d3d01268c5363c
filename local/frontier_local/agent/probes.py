"""Probes and hooks: what to ask a container, and what its answers mean."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from frontier_local.agent.plan import port_number

Exec = Callable[[tuple[str, ...], float], Awaitable[tuple[bool, str]]]
"""Runs a command in a container for at most so many seconds; returns success and what to say about it."""


@dataclass(frozen=True)
class ProbeSettings:
    """When to probe and how many answers decide. All times in seconds."""

    initial_delay: float
    period: float
    timeout: float
    success_threshold: int
    failure_threshold: int

    @classmethod
    def of(cls, probe: Mapping[str, Any]) -> "ProbeSettings":
        """Return the settings of a probe, with the API's defaults."""
        return cls(
            initial_delay=float(probe.get("initialDelaySeconds") or 0),
            period=float(probe.get("periodSeconds") or 10),
            timeout=float(probe.get("timeoutSeconds") or 1),
            success_threshold=int(probe.get("successThreshold") or 1),
            failure_threshold=int(probe.get("failureThreshold") or 3),
        )


@dataclass
class ProbeCounter:
    """Counts equal answers in a row. `verdict` is True, False, or None while the threshold is not reached."""

    settings: ProbeSettings
    _last: bool | None = None
    _run: int = 0

    def observe(self, success: bool) -> bool | None:
        """Take one answer and return the verdict after it."""
        self._run = self._run + 1 if success == self._last else 1
        self._last = success
        threshold = self.settings.success_threshold if success else self.settings.failure_threshold
        return success if self._run >= threshold else None


async def ask(
    handler: Mapping[str, Any], container: Mapping[str, Any], host: str, seconds: float, run: Exec
) -> tuple[bool, str]:
    """Ask once by `exec`, `httpGet`, `tcpSocket` or `sleep`; return success and, if it failed, why.

    Args:
        handler: A probe or a lifecycle hook.
        container: The container, for its named ports.
        host: The pod's address, asked unless the handler names a host.
        seconds: Time after which the answer is no.
        run: Runs commands in the container.
    """
    try:
        if "exec" in handler:
            return await run(tuple(handler["exec"].get("command") or ()), seconds)
        if "sleep" in handler:
            await asyncio.sleep(min(seconds, float(handler["sleep"]["seconds"])))
            return True, ""
        if "httpGet" in handler:
            return await _http_get(handler["httpGet"], container, host, seconds)
        socket = handler["tcpSocket"]
        return await _tcp(socket.get("host") or host, port_number(container, socket["port"]), seconds)
    except ValueError as error:
        return False, str(error)


async def _http_get(
    get: Mapping[str, Any], container: Mapping[str, Any], host: str, seconds: float
) -> tuple[bool, str]:
    """GET; 200 to 399 is success. Certificates are not verified, as a kubelet does not."""
    port = port_number(container, get["port"])
    path = str(get.get("path") or "/")
    url = f"{str(get.get('scheme') or 'HTTP').lower()}://{get.get('host') or host}:{port}/{path.lstrip('/')}"
    headers = {"User-Agent": "kube-probe/1.36"} | {h["name"]: h["value"] for h in get.get("httpHeaders") or []}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.get(url, headers=headers, allow_redirects=False, ssl=False) as response,
        ):
            if HTTPStatus.OK <= response.status < HTTPStatus.BAD_REQUEST:
                return True, ""
            return False, f"HTTP probe failed with statuscode: {response.status}"
    except TimeoutError:
        return False, f'Get "{url}": no answer within {seconds:g} s'
    except (aiohttp.ClientError, OSError) as error:
        return False, f'Get "{url}": {error}'


async def _tcp(host: str, port: int, seconds: float) -> tuple[bool, str]:
    """Connect; an accepted connection is success."""
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return False, f"dial tcp {host}:{port}: no answer within {seconds:g} s"
    except OSError as error:
        return False, f"dial tcp {host}:{port}: {error.strerror or error}"
    writer.close()
    return True, ""


async def probe_forever(
    probe: Mapping[str, Any],
    ask_once: Callable[[float], Awaitable[tuple[bool, str]]],
    on_answer: Callable[[bool | None, str], bool],
    running_for: float = 0.0,
) -> None:
    """Probe until `on_answer` returns False.

    Args:
        probe: The probe of the container's spec.
        ask_once: Asks once, within the given seconds.
        on_answer: Called after every answer with the verdict (None while undecided) and the reason of a failure;
            returns whether to go on.
        running_for: Seconds that the container runs already; the initial delay counts from its start.
    """
    settings = ProbeSettings.of(probe)
    counter = ProbeCounter(settings)
    await asyncio.sleep(max(0.0, settings.initial_delay - running_for))
    while True:
        success, message = await ask_once(settings.timeout)
        if not on_answer(counter.observe(success), message):
            return
        await asyncio.sleep(settings.period)
