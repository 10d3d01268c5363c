"""A tokenizer that needs no files: words and their pieces become token ids by hashing.

The words that the engine generates are each one token, and become the same token again when they come back in the next
turn's prompt; so prefixes are found in the cache as with a real tokenizer.
"""

import re
import zlib
from collections.abc import Sequence

PIECE = re.compile(r"\s?[^\s]{1,4}|\s")
_CONSONANTS, _VOWELS = "bdfgklmnprst", "aeiou"
WORDS = tuple(f" {a}{v}{b}{w}" for a in _CONSONANTS for v in _VOWELS for b in _CONSONANTS for w in _VOWELS)
"""What the engine can say."""


def token_ids(text: str, vocabulary: int) -> list[int]:
    """Return the tokens of a text, each at least 0 and below `vocabulary`."""
    return [zlib.crc32(piece.encode()) % vocabulary for piece in PIECE.findall(text)]


class Speech:
    """What a model with this vocabulary says: always the same after the same prompt.

    Args:
        vocabulary: Number of token ids.
    """

    def __init__(self, vocabulary: int) -> None:
        self._ids = [zlib.crc32(word.encode()) % vocabulary for word in WORDS]

    def start(self, prompt: Sequence[int], seed: int) -> "Utterance":
        """Return the continuation of a prompt."""
        return Utterance(self._ids, hash((seed, *prompt[:64], *prompt[-64:], len(prompt))))


class Utterance:
    """One continuation, position by position."""

    def __init__(self, ids: Sequence[int], start: int) -> None:
        self._ids = ids
        self._start = start

    def token(self, position: int) -> int:
        """Return the token at a position of the output."""
        return self._ids[self._index(position)]

    def text(self, first: int, number: int) -> str:
        """Return the text of `number` tokens from a position on."""
        return "".join(WORDS[self._index(position)] for position in range(first, first + number))

    def uniform(self) -> float:
        """Return a number from 0 to 1 that depends on the prompt only."""
        return (self._start * 2654435761 % 2**32) / 2**32

    def _index(self, position: int) -> int:
        return (self._start + position * 7919 + position * position * 31) % len(WORDS)
