"""What a user would type, run and shown."""

import json
import os
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from frontier_local.errors import LocalError


class Kubectl:
    """kubectl against one cluster; the commands that change something are printed as a user would type them.

    Args:
        kubeconfig: Credentials of the cluster's administrator.
        say: Prints a line.
    """

    def __init__(self, kubeconfig: Path, say: Any) -> None:
        installed = Path(sysconfig.get_path("scripts"), "kubectl")
        self._program = str(installed) if installed.exists() else "kubectl"
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
        self._say = say

    def run(self, *arguments: str, stdin: str | None = None, quiet: bool = False) -> str:
        """Return what kubectl prints.

        Raises:
            LocalError: kubectl failed; carries what it said.
        """
        if not quiet:
            self._say(f"$ kubectl {' '.join(arguments)}")
        done = subprocess.run(
            [self._program, *arguments],
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise LocalError(f"kubectl {' '.join(arguments)} failed: {done.stderr.strip()}")
        return done.stdout

    def objects(self, kind: str, namespace: str) -> Sequence[dict[str, Any]]:
        """Return the objects of a kind in a namespace."""
        answer = json.loads(self.run("get", kind, "-n", namespace, "-o", "json", quiet=True))
        items: list[dict[str, Any]] = answer["items"]
        return items

    def object(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Return one object."""
        found: dict[str, Any] = json.loads(self.run("get", kind, name, "-n", namespace, "-o", "json", quiet=True))
        return found
