"""Settings of kopf, each with its reason."""

import logging
from typing import Any

import kopf

from frontier_operator.api import names
from frontier_operator.wiring import Context


def configure(registry: kopf.OperatorRegistry, context: Context) -> None:
    """Register what happens when the operator starts and ends."""

    @kopf.on.startup(registry=registry)
    def prepare(settings: kopf.OperatorSettings, **_: Any) -> None:
        # Below the idle limits of common load balancers, so that a dead watch is noticed and not waited for.
        settings.watching.server_timeout = 240
        settings.watching.client_timeout = 270
        # A hanging API server must not hold a watch or a patch for minutes.
        settings.networking.request_timeout = 30
        # Kopf's own events repeat its log lines; ours say what a user wants to know.
        settings.posting.enabled = False
        settings.posting.level = logging.WARNING
        # Handlers only wake loops: two per core are plenty, and a resync of thousands must not flood the process.
        settings.queueing.worker_limit = 50
        # Nothing of kopf's is kept in the objects: no finalizer is set, so deletion never waits for an operator.
        settings.persistence.finalizer = f"{names.GROUP}/finalizer"
        settings.persistence.progress_storage = kopf.StatusProgressStorage(field="status.kopf")
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.GROUP)

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        # Called again whenever a token is refused, so that a rotated one is read from its file.
        return kopf.login_via_client(**arguments)

    @kopf.on.cleanup(registry=registry)
    async def finish(**_: Any) -> None:
        await context.loops.close()
