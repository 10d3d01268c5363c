"""The agent as a whole: puts its parts together, runs until it is told to stop, and leaves nothing running."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from frontier_local.agent import process
from frontier_local.agent.addresses import PodAddresses
from frontier_local.agent.api import CONNECTION_ERRORS, ApiClient
from frontier_local.agent.events import EventRecorder
from frontier_local.agent.informer import Informer
from frontier_local.agent.kubelet_server import KubeletServer
from frontier_local.agent.node import Node, capacity
from frontier_local.agent.plan import Image
from frontier_local.agent.pods import Pods
from frontier_local.agent.provisioner import Provisioner
from frontier_local.agent.proxy import ServiceProxy
from frontier_local.agent.targets import TargetsFile
from frontier_local.agent.tools import NodeFacts, Tools
from frontier_local.errors import ImageError
from frontier_local.images import ImageMap
from frontier_local.node_spec import KUBELET_PORT, AgentConfig

BACK_OFF_VARIABLE = "FRONTIER_LOCAL_BACK_OFF_SECONDS"
"""Environment variable with the base of the restart back-off in seconds; 10 without it, as a kubelet has."""
DIRECTORY_VARIABLE = "FRONTIER_LOCAL_DIRECTORY"
"""Environment variable with the cluster's directory, which every process of a pod gets: the cluster sweeps by it."""
_STOP_GRACE = 5.0
_HTTPS_PORT = 443
_RETIRE_SECONDS = 1.0
_UNPRIVILEGED_PORTS = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_LOG = logging.getLogger(__name__)


def image_resolver(image_map: ImageMap) -> Callable[[str], Image | None]:
    """Return a function that resolves images with the map, with errors that the agent knows."""

    def resolve(name: str) -> Image | None:
        try:
            found = image_map.resolve(name)
        except ImageError as error:
            raise RuntimeError(str(error)) from error
        return None if found is None else Image(found.entrypoint, found.environment, found.path)

    return resolve


def service_address(config: AgentConfig) -> tuple[str, int]:
    """Return where pods find the API server: the `kubernetes` Service, or itself if that port cannot be listened on."""
    if os.geteuid() == 0 or int(_UNPRIVILEGED_PORTS.read_text()) <= _HTTPS_PORT:
        return config.service_host, _HTTPS_PORT
    url = urlsplit(config.api_server)
    return str(url.hostname), int(url.port or _HTTPS_PORT)


async def run(config: AgentConfig) -> None:
    """Run the agent until SIGTERM or SIGINT; all processes of its pods are gone when it returns."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    config.pods_directory.mkdir(parents=True, exist_ok=True)
    left = process.end_leftovers(config.pods_directory)
    if left:
        _LOG.warning("ended %d processes that an earlier agent left behind", left)
    # What the image map starts (making an environment) is ours to end as well.
    os.environ[process.MARK] = str(config.pods_directory / "agent")
    executor = ThreadPoolExecutor(max_workers=4)
    try:
        async with ApiClient(config.kubeconfig, config.api_server) as api:
            await _serve(config, api, executor, stop)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        process.end_leftovers(config.pods_directory)


async def _serve(config: AgentConfig, api: ApiClient, executor: ThreadPoolExecutor, stop: asyncio.Event) -> None:
    pods = Informer(api, "/api/v1/pods")
    services = Informer(api, "/api/v1/services")
    claims = Informer(api, "/api/v1/persistentvolumeclaims")
    events = EventRecorder(api)
    host, port = service_address(config)
    tools = Tools(
        api=api,
        events=events,
        services=services,
        resolve_image=image_resolver(ImageMap.load(config.image_map, _LOG.info)),
        executor=executor,
        pods_directory=config.pods_directory,
        ca_file=config.certificate_authority,
        server=config.api_server,
        service_host=host,
        service_port=port,
        back_off=float(os.environ.get(BACK_OFF_VARIABLE, "10")),
        host_path=os.environ.get("PATH", os.defpath),
        inherited={name: os.environ[name] for name in (DIRECTORY_VARIABLE,) if name in os.environ},
    )
    nodes = {spec.name: NodeFacts(spec.name, spec.address, capacity(spec)) for spec in config.nodes}
    addresses = PodAddresses(config.pod_network, config.pods_directory / "last-address")
    manager = Pods(tools, nodes, pods, addresses, TargetsFile(config.targets_directory, "pods"))
    server = KubeletServer(manager.find_logs, config.kubelet_certificate, config.kubelet_key, config.client_ca)
    proxy = ServiceProxy(services, pods, events, config.service_network, config.api_server)
    provisioner = Provisioner(api, claims, config.volumes_directory)
    await server.start([spec.address for spec in config.nodes], KUBELET_PORT)
    tasks = [_task(part) for part in (services.run(), events.run(), proxy.run(), provisioner.run(), claims.run())]
    try:
        # Services first: the first pods must see them in their environment.
        if await _unless(stop, services.synced.wait()):
            tasks.append(_task(pods.run()))
        if await _unless(stop, pods.synced.wait()):
            manager.remove_stale_directories()
            registered = [Node(api, spec) for spec in config.nodes]
            tasks.append(_task(_keep_nodes(registered)))
            await _until(stop, tasks)
            await _retire(registered)
    finally:
        await manager.close(_STOP_GRACE)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.stop()


def _task(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    return asyncio.create_task(work)


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, Any]) -> bool:
    """Wait for the work or for the stop; return whether the work was done without being told to stop."""
    tasks = {asyncio.create_task(work), asyncio.create_task(stop.wait())}
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return not stop.is_set()


async def _until(stop: asyncio.Event, parts: list["asyncio.Task[None]"]) -> None:
    """Wait for the stop; a part that ends on its own has a fault, which ends the agent with it."""
    waiting = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait([waiting, *parts], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        waiting.cancel()


async def _keep_nodes(nodes: list[Node]) -> None:
    """Register the nodes, trying again while the API server is not up to it yet, and keep them alive."""
    for node in nodes:
        while True:
            try:
                await node.register()
                break
            except CONNECTION_ERRORS as error:
                _LOG.info("node %s is not registered yet: %s", node.spec.name, error)
                await asyncio.sleep(0.2)
    await asyncio.gather(*(node.run() for node in nodes))


async def _retire(nodes: list[Node]) -> None:
    """Take the nodes out of scheduling if the API server still listens; it may be going down as well."""
    try:
        async with asyncio.timeout(_RETIRE_SECONDS):
            await asyncio.gather(*(node.retire() for node in nodes))
    except CONNECTION_ERRORS as error:
        _LOG.info("nodes not retired: %s", error)
