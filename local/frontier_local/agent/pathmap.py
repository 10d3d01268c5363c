"""Mounted paths, for processes that have no mount namespace of their own.

A container sees a volume at its `mountPath`. A process sees only the machine's directories, so the agent keeps every
volume in a directory below the pod's own and *translates*: wherever a mount path occurs in the container's command, in
its args, in the value of a variable that the pod sets, or in `workingDir`, the real directory takes its place. A mount
path is recognised as whole path components only: `/models` is translated in `/models`, `/models/a`,
`--model=/models/a`, `x:/models`, `"/models"` and `file:///models/a`, but not in `/models2`, `/srv/models`, `-I/models`
nor `http://host/models`. Where mount paths nest, the longest wins. Translated text is never translated again.

What follows: a path that a program puts together itself, or has built in, is not translated (programs should take
paths from their arguments or environment); `readOnly` is not enforced; the rest of the machine's file system is
visible. The termination message path (`/dev/termination-log`) is translated in the same way, for each container to a
file of its own.
"""

import re
from collections.abc import Mapping
from pathlib import Path

_BEFORE = r"(?:(?<=file://)|(?<![\w./~%+@-]))"
_AFTER = r"(?![\w.~%+@-])"


class PathMap:
    """Translates the mount paths of one container to real paths."""

    def __init__(self, mounts: Mapping[str, Path]) -> None:
        """Take the mounts of a container, mount path → real path; a trailing slash of a mount path is ignored."""
        self._real = {path.rstrip("/"): str(real) for path, real in mounts.items() if path.rstrip("/")}
        ordered = sorted(self._real, key=len, reverse=True)
        self._pattern = (
            re.compile(f"{_BEFORE}(?:{'|'.join(re.escape(path) for path in ordered)}){_AFTER}") if ordered else None
        )

    def translate(self, text: str) -> str:
        """Return the text with every mount path replaced by its real path."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._real[match.group(0)], text)

    def real_path(self, mount_path: str) -> Path | None:
        """Return the real path of exactly this mount path, or None if nothing is mounted there."""
        real = self._real.get(mount_path.rstrip("/"))
        return None if real is None else Path(real)
