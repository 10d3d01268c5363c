"""What can go wrong with the embedded cluster, as exceptions.

LocalError
├── AssetError      a binary could not be found, fetched or built
├── ClusterError    a cluster could not be started, changed or stopped
└── ImageError      an image map is malformed, or an image's Python environment could not be made
"""


class LocalError(Exception):
    """Any error that the embedded cluster raises on purpose; its text is meant for a person."""


class AssetError(LocalError):
    """A binary could not be found, fetched or built."""


class ClusterError(LocalError):
    """A cluster could not be started, changed or stopped."""


class ImageError(LocalError):
    """An image map is malformed, or an image's Python environment could not be made."""
