"""Endless streams of random token ids as JSON text, any stretch of which is made at once and the same in any process.

All ids of a vocabulary that are used have one number of digits, so that a prompt is cut by slicing bytes and a long one
is made in a fraction of a millisecond: a generator that spends longer on a prompt is late with everything else.
"""

import random

PAGE_TOKENS = 4096
"""Tokens that one seed yields: a stretch in the middle of a stream is made without what lies before its page."""
_SPECIAL_IDS = 1024
"""So many of the highest ids, but at most an eighth, are left out: they are often special, or not in the tokenizer."""
_DECIMAL = bytes(number % 10 + ord("0") for number in range(256))


class Vocabulary:
    """Token ids of one width, below the size of a model's vocabulary and away from its ends.

    Args:
        size: Every id is below it; at least 2.

    Raises:
        ValueError: The size is below 2.
    """

    def __init__(self, size: int) -> None:
        if size < 2:  # noqa: PLR2004 - one id would make all prompts alike
            raise ValueError(f"vocabulary {size} must be at least 2")
        high = size - min(_SPECIAL_IDS, size // 8)
        width = max(range(1, len(str(size)) + 1), key=lambda digits: _capacity(digits, high))
        leads = _leads(width, high)
        self._free_digits = width - len(str(leads[0]))
        self.stride = width + 1
        """Bytes of one token with the comma after it."""
        columns = ["".join(str(lead)[place] for lead in leads) for place in range(len(str(leads[0])))]
        self._lead_tables = [bytes(ord(column[number % len(leads)]) for number in range(256)) for column in columns]

    def text(self, key: str, start: int, end: int) -> bytes:
        """Return the tokens from `start` to `end` of the stream that a key names, each followed by a comma."""
        pieces = []
        while start < end:
            page, offset = divmod(start, PAGE_TOKENS)
            until = min(end - page * PAGE_TOKENS, PAGE_TOKENS)
            pieces.append(self._page(f"{key}:{page}", offset, until))
            start += until - offset
        return b"".join(pieces)

    def _page(self, key: str, start: int, end: int) -> bytes:
        per_token = 1 + self._free_digits
        # Whole words of the generator: only then do shorter draws agree with longer ones.
        drawn = random.Random(key).randbytes(per_token * (end + -end % 4))  # noqa: S311 - reproducible on purpose
        tokens = bytearray(b",") * (self.stride * (end - start))
        leads = drawn[start * per_token : end * per_token : per_token]
        for place, table in enumerate(self._lead_tables):
            tokens[place :: self.stride] = leads.translate(table)
        for digit in range(self._free_digits):
            place = len(self._lead_tables) + digit
            tokens[place :: self.stride] = drawn[start * per_token + 1 + digit : end * per_token : per_token].translate(
                _DECIMAL
            )
        return bytes(tokens)


def _leads(width: int, high: int) -> range:
    """Return the first digits, two where there are two, of the ids of one width below `high`."""
    if width == 1:
        return range(min(10, high))
    return range(10, min(100, high // 10 ** (width - 2)))


def _capacity(width: int, high: int) -> int:
    return int(len(_leads(width, high)) * 10 ** max(0, width - 2))
