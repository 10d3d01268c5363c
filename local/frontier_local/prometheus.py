"""The configuration of the cluster's Prometheus: scrape what the node agent lists, as a PodMonitor would."""

import re
from pathlib import Path

import yaml

from frontier_local.errors import ClusterError

_DURATION = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?")
_SHORTEST_MILLISECONDS = 250
_LONGEST_TIMEOUT_MILLISECONDS = 10_000


def scrape_milliseconds(text: str) -> int:
    """Return a scrape interval in milliseconds, if Prometheus can keep it.

    Raises:
        ClusterError: It is no duration such as `500ms`, `15s` or `1m30s`, or shorter than 250 ms.
    """
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise ClusterError(f"scrape interval: {text!r} is no duration; write it like 500ms, 15s or 1m30s")
    minutes, seconds, milliseconds = (int(part or 0) for part in found.groups())
    total = minutes * 60_000 + seconds * 1000 + milliseconds
    if total < _SHORTEST_MILLISECONDS:
        raise ClusterError(f"scrape interval: {text} is shorter than {_SHORTEST_MILLISECONDS}ms; take a longer one")
    return total


def write_configuration(path: Path, *, targets: Path, scrape_interval: str) -> None:
    """Write Prometheus's configuration file.

    Args:
        path: The file to write.
        targets: Directory of `file_sd` files.
        scrape_interval: How often every target is scraped.
    """
    timeout = min(scrape_milliseconds(scrape_interval), _LONGEST_TIMEOUT_MILLISECONDS)
    content = {
        "global": {
            "scrape_interval": scrape_interval,
            "scrape_timeout": f"{timeout}ms",
            "evaluation_interval": scrape_interval,
        },
        "scrape_configs": [
            {
                "job_name": "pods",
                # Prometheus watches the files; the interval is for file systems that report no changes.
                "file_sd_configs": [{"files": [str(targets / "*.json")], "refresh_interval": "1s"}],
            }
        ],
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False))
