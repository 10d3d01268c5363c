"""Kubeconfig files: who talks to which API server, with which certificate."""

import base64
from pathlib import Path

import yaml

from frontier_local.certificates import KeyPair


def write_kubeconfig(path: Path, *, cluster: str, server: str, authority: Path, user: str, client: KeyPair) -> None:
    """Write a kubeconfig that holds its certificates itself and that only its owner can read.

    Args:
        path: The file to write.
        cluster: Name of the cluster; the context has the same name.
        server: URL of the API server.
        authority: PEM file of the authority that signed the server's certificate.
        user: Name of the user entry.
        client: The user's certificate and key.
    """
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": cluster, "cluster": {"server": server, "certificate-authority-data": _encoded(authority)}}
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _encoded(client.certificate),
                    "client-key-data": _encoded(client.key),
                },
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content, sort_keys=False))


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
