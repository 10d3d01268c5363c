"""How a request proves who sends it: nothing, a bearer token, or user and password; files are read for each request."""

from base64 import b64encode
from pathlib import Path

import requests

Secret = str | Path
"""A secret itself, or the file that holds it."""


class Credentials(requests.auth.AuthBase):
    """Adds the `Authorization` header.

    It is set for every request, also where there are no credentials: without it the library would look for some in a
    `.netrc` file, and let them replace a token.

    Args:
        bearer_token_file: File that holds a token, or None.
        basic: User and password, or None.

    Raises:
        ValueError: Both are given.
    """

    def __init__(self, bearer_token_file: Path | None, basic: tuple[str, Secret] | None) -> None:
        if bearer_token_file is not None and basic is not None:
            raise ValueError("Prometheus takes a bearer token or a user with a password, not both")
        self._token_file = bearer_token_file
        self._basic = basic

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Return the request with its header.

        Raises:
            OSError: A file cannot be read.
        """
        if self._token_file is not None:
            request.headers["Authorization"] = f"Bearer {_read(self._token_file)}"
        elif self._basic is not None:
            user, password = self._basic
            encoded = b64encode(f"{user}:{_read(password)}".encode()).decode()
            request.headers["Authorization"] = f"Basic {encoded}"
        return request


def _read(secret: Secret) -> str:
    return secret.read_text().strip() if isinstance(secret, Path) else secret
