"""The OpenAI API's requests and answers: what is read, what is refused, what is written.

Pure. Streamed chunks are written thousands of times a second, so their constant parts are encoded once per request.
"""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from time import time
from typing import Any

from frontier_local.engine.text import token_ids

DEFAULT_COMPLETION_TOKENS = 16
DONE = b"data: [DONE]\n\n"


class RequestRefusedError(Exception):
    """A request that is answered with an error.

    Attributes:
        status: HTTP status.
        kind: OpenAI's error type.
        parameter: The field to blame, or None.
    """

    def __init__(
        self, message: str, *, parameter: str | None = None, status: int = 400, kind: str = "BadRequestError"
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.parameter = parameter

    def body(self) -> dict[str, object]:
        """Return the JSON that the client reads."""
        return {
            "error": {"message": str(self), "type": self.kind, "param": self.parameter, "code": self.status},
        }


@dataclass(frozen=True)
class Request:
    """A completion that is asked for, plain or as a chat.

    Attributes:
        prompt: Token ids, at least one.
        max_tokens: Tokens to generate at most.
        min_tokens: Tokens before which the model must not end.
        ignore_eos: Whether the model goes on to `max_tokens`.
        include_usage: Whether a stream ends with a chunk that has the usage.
        continuous_usage: Whether every chunk has it.
    """

    model: str
    chat: bool
    prompt: list[int]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    seed: int


@dataclass(frozen=True)
class Served:
    """What requests are checked against: names of the model, its vocabulary and longest sequence in tokens."""

    names: tuple[str, ...]
    vocabulary: int
    max_model_len: int


def read_request(body: object, served: Served, *, chat: bool) -> Request:
    """Return the request in this decoded JSON.

    Raises:
        RequestRefusedError: A field is missing or cannot be served; the message names it and its value.
    """
    if not isinstance(body, dict):
        raise RequestRefusedError("the body must be a JSON object")
    model = body.get("model", served.names[0])
    if model not in served.names:
        message = f"The model `{model}` does not exist; served are {', '.join(served.names)}."
        raise RequestRefusedError(message, parameter="model", status=404, kind="NotFoundError")
    if body.get("n", 1) != 1:
        raise RequestRefusedError(f"n is {body['n']!r}; only 1 is supported", parameter="n")
    prompt = _chat_prompt(body, served) if chat else _prompt(body, served)
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise RequestRefusedError("stream_options must be an object", parameter="stream_options")
    max_tokens = _max_tokens(body, served, len(prompt), chat=chat)
    return Request(
        model=str(model),
        chat=chat,
        prompt=prompt,
        max_tokens=max_tokens,
        min_tokens=min(_integer(body, "min_tokens", 0), max_tokens),
        ignore_eos=bool(body.get("ignore_eos")),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        seed=_integer(body, "seed", 0),
    )


def _integer(body: Mapping[str, Any], name: str, default: int, low: int = 0) -> int:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise RequestRefusedError(f"{name} must be a whole number of at least {low}, got {value!r}", parameter=name)
    return value


def _max_tokens(body: Mapping[str, Any], served: Served, prompt: int, *, chat: bool) -> int:
    room = served.max_model_len - prompt
    asked = _integer(body, "max_tokens", room if chat else min(room, DEFAULT_COMPLETION_TOKENS), low=1)
    if chat:
        asked = _integer(body, "max_completion_tokens", asked, low=1)
    if room < max(1, asked):
        raise RequestRefusedError(
            f"This model's maximum context length is {served.max_model_len} tokens. However, you requested "
            f"{max(1, asked)} output tokens and your prompt contains {prompt} input tokens, a total of "
            f"{prompt + max(1, asked)} tokens. Please reduce the length of the input prompt or max_tokens.",
            parameter="input_tokens",
        )
    return asked


def _prompt(body: Mapping[str, Any], served: Served) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        prompt = token_ids(prompt, served.vocabulary)
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        raise RequestRefusedError("prompt must be one text or one list of token ids", parameter="prompt")
    if not prompt:
        raise RequestRefusedError("prompt must have at least one token", parameter="prompt")
    if min(prompt) < 0 or max(prompt) >= served.vocabulary:
        message = f"Token id {max(prompt)} is out of vocabulary, which has {served.vocabulary} tokens"
        raise RequestRefusedError(message, parameter="prompt")
    return prompt


def _chat_prompt(body: Mapping[str, Any], served: Served) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise RequestRefusedError("messages must be a list of at least one message", parameter="messages")
    ids: list[int] = []
    for message in messages:
        ids += token_ids(f"<{message.get('role', 'user')}>", served.vocabulary)
        ids += token_ids(_content(message.get("content")), served.vocabulary)
    return ids


def _content(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)


class Writer:
    """Writes one answer.

    Args:
        request: What was asked.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        prefix, self._object = ("chatcmpl-", "chat.completion") if request.chat else ("cmpl-", "text_completion")
        self._head = {
            "id": prefix + uuid.uuid4().hex,
            "object": self._object + (".chunk" if request.chat and request.stream else ""),
            "created": int(time()),
            "model": request.model,
        }
        self._start = "data: " + json.dumps(self._head, separators=(",", ":"))[:-1] + ',"choices":['
        self._prompt_tokens = len(request.prompt)

    def opening(self) -> bytes:
        """Return the chunk that starts a chat; empty for a plain completion."""
        if not self._request.chat:
            return b""
        choice = '{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}'
        return f"{self._start}{choice}]}}\n\n".encode()

    def chunk(self, text: str, generated: int, finish_reason: str | None) -> bytes:
        """Return one chunk; `text` needs no escaping."""
        reason = f'"{finish_reason}"' if finish_reason else "null"
        said = f'"delta":{{"content":"{text}"}}' if self._request.chat else f'"text":"{text}"'
        usage = ""
        if self._request.continuous_usage:
            usage = (
                f',"usage":{{"prompt_tokens":{self._prompt_tokens},"total_tokens":{self._prompt_tokens + generated},'
                f'"completion_tokens":{generated}}}'
            )
        choice = f'{{"index":0,{said},"logprobs":null,"finish_reason":{reason},"stop_reason":null}}'
        return f"{self._start}{choice}]{usage}}}\n\n".encode()

    def closing(self, generated: int, cached: int) -> bytes:
        """Return what ends a stream: the usage where it was asked for, and the mark of the end."""
        if not self._request.include_usage:
            return DONE
        usage = json.dumps(self._usage(generated, cached), separators=(",", ":"))
        return f'{self._start}],"usage":{usage}}}\n\n'.encode() + DONE

    def whole(self, text: str, generated: int, cached: int, finish_reason: str | None) -> dict[str, object]:
        """Return an answer that is not streamed."""
        said = {"message": {"role": "assistant", "content": text}} if self._request.chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
        return {**self._head, "choices": [choice], "usage": self._usage(generated, cached)}

    def _usage(self, generated: int, cached: int) -> dict[str, object]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "total_tokens": self._prompt_tokens + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
