"""A configuration: one full assignment of the parameters of a search space.

Configurations are compared, hashed and stored by content. The hash names workloads and trials, so it must
never depend on the order of the parameters nor on the process that computes it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Value = str | int | bool


@dataclass(frozen=True, order=True)
class Configuration(Mapping[str, Value]):
    """An immutable mapping from parameter name to value, ordered by name.

    Attributes:
        items_: The assignments, sorted by parameter name.
    """

    items_: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, values: Mapping[str, Value]) -> "Configuration":
        """Return the configuration with these values."""
        return cls(tuple(sorted(values.items())))

    def __getitem__(self, name: str) -> Value:
        for key, value in self.items_:
            if key == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def integer(self, name: str, default: int = 0) -> int:
        """Return the value of an integer parameter, or `default` where the space does not have it."""
        return int(self.get(name, default))

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return the value of a boolean parameter, or `default` where the space does not have it."""
        return bool(self.get(name, default))

    def text(self, name: str, default: str = "") -> str:
        """Return the value of a categorical parameter, or `default` where the space does not have it."""
        return str(self.get(name, default))

    @property
    def hash(self) -> str:
        """Ten hexadecimal digits that name this configuration in object names and labels."""
        return digest(dict(self.items_))

    def __str__(self) -> str:
        return " ".join(
            f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in self.items_
        )


def digest(content: object, length: int = 10) -> str:
    """Return the first `length` hexadecimal digits of the SHA-256 of the content's canonical JSON."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:length]
