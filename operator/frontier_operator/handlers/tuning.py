"""Thin kopf functions: they wake loops and decide nothing.

Loops are started from events and not with kopf's daemons, because a daemon puts a finalizer on its object: with the
operator gone, such an object and its namespace could never be deleted. What the operator owns goes by owner references.
"""

from typing import Any

import kopf

from frontier_operator.api import names
from frontier_operator.wiring import Context


def configure(registry: kopf.OperatorRegistry, context: Context) -> None:
    """Register the watches."""
    seen: dict[str, tuple[int, str]] = {}

    @kopf.on.event(names.GROUP, names.VERSION, names.INFERENCE_DEPLOYMENTS, registry=registry)
    async def woken(body: kopf.Body, **_: Any) -> None:
        # The operator's own status writes must not wake it again: only spec, annotations and deletion do.
        uid = str(body.metadata["uid"])
        annotations = str(sorted((body.metadata.get("annotations") or {}).items()))
        mark = (int(body.metadata["generation"]), annotations + str(body.metadata.get("deletionTimestamp")))
        if seen.get(uid) != mark:
            seen[uid] = mark
            context.loops.wake(str(body.metadata["namespace"]), str(body.metadata["name"]))

    @kopf.on.event(names.GROUP, names.VERSION, names.INFERENCE_DEPLOYMENTS, registry=registry, id="forget")
    async def forgotten(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        if event["type"] == "DELETED":
            seen.pop(str(body.metadata["uid"]), None)
            context.loops.wake(str(body.metadata["namespace"]), str(body.metadata["name"]))
