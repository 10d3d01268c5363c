"""Versions of engines, as they stand in image tags and in tables of what came when."""

import re

Version = tuple[int, ...]
"""The numbers of a version; empty where it is not known."""

_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")


def parse_version(text: str) -> Version:
    """Return the numbers that a version begins with: `v0.33.0`, `0.33.0+cu128` and `0.33` are three, three and two.

    A version that does not begin with a number, such as `nightly`, is not known.
    """
    found = _NUMBERS.match(text)
    return tuple(int(number) for number in found[1].split(".")) if found else ()


def image_version(image: str) -> str:
    """Return the version in an image's tag, as in `vllm/vllm-openai:v0.33.0`, or nothing where the tag is none."""
    _, _, tag = image.rpartition("/")[2].partition(":")
    version = tag.partition("@")[0].removeprefix("v").partition("-")[0]
    parts = version.split(".")
    return version if len(parts) > 1 and all(part.isdigit() for part in parts) else ""


def format_version(version: Version) -> str:
    """Return a version as a person reads it."""
    return ".".join(str(number) for number in version) or "of unknown version"
