"""Strategic merge of a user's pod template over the rendered pod.

Maps are merged, lists of named things are merged by their key, everything else is replaced, as Kubernetes does for the
same fields. `null` removes a key.
"""

from collections.abc import Mapping, Sequence
from typing import Any

MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
}
"""The patch merge keys of the pod's lists (Kubernetes API reference, PodSpec and Container)."""


def strategic_merge(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `patch` merged over it; neither is changed."""
    merged = dict(base)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = strategic_merge(merged[name], value)
        elif name in MERGE_KEYS and isinstance(value, Sequence) and isinstance(merged.get(name), Sequence):
            merged[name] = _merge_lists(merged[name], value, MERGE_KEYS[name])
        else:
            merged[name] = value
    return merged


def _merge_lists(base: Sequence[Any], patch: Sequence[Any], key: str) -> list[Any]:
    merged = [dict(item) for item in base]
    for item in patch:
        for i, known in enumerate(merged):
            if known.get(key) == item.get(key):
                merged[i] = strategic_merge(known, item)
                break
        else:
            merged.append(dict(item))
    return merged
