"""A configuration: one full assignment of the parameters of a search space.

Configurations are compared, hashed and stored by content. The hash names workloads and trials, so it must
never depend on the order of the parameters nor on the process that computes it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

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

    @cached_property
    def _values(self) -> dict[str, Value]:
        return dict(self.items_)

    @cached_property
    def _content_hash(self) -> int:
        return hash(self.items_)

    def __hash__(self) -> int:
        # Members of a space are looked up far more often than they are made.
        return self._content_hash

    def __reduce__(self) -> tuple[type["Configuration"], tuple[tuple[tuple[str, Value], ...]]]:
        # Text hashes differently in every process, so what is cached must stay behind.
        return type(self), (self.items_,)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.items_)

    def __len__(self) -> int:
        return len(self.items_)

    def integer(self, name: str, default: int = 0) -> int:
        """Return the value of an integer parameter, or `default` where the space does not have it."""
        return int(self._values.get(name, default))

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return the value of a boolean parameter, or `default` where the space does not have it."""
        return bool(self._values.get(name, default))

    def text(self, name: str, default: str = "") -> str:
        """Return the value of a categorical parameter, or `default` where the space does not have it."""
        return str(self._values.get(name, default))

    @cached_property
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
