"""Why an engine process ended, judged by its exit code and its last words.

Both the local plant and the operator ask here. The judgement is conservative: only words that an engine writes when its
memory or its arguments are at fault blame those; everything else before readiness is `EngineStartFailed`, after it
`EngineDied`. An engine that something outside ended (an eviction, a deletion) must not be brought here.
"""

import re

from frontier_tuner.trial import Failure

MAX_MESSAGE_CHARACTERS = 1000
_MAX_LINE_CHARACTERS = 600
_ARGPARSE_EXIT = 2

_OUT_OF_MEMORY_WORDS = (
    r"OutOfMemoryError",
    r"\bOOMKilled\b",
    r"(?:CUDA|HIP) out of memory",
    r"(?:CUDA|HIP) error: out of memory",
    r"No available memory for the cache blocks",
    r"larger than the available KV cache memory",
    r"larger than the maximum number of tokens that can be stored in KV cache",
    r"less than desired GPU memory utilization",
    r"DefaultCPUAllocator: can't allocate memory",
    r"\bMemoryError\b",
    r"less than desired CPU memory utilization",
    r"allocation is less than requested memory for kv",
)
_OUT_OF_MEMORY = re.compile("|".join(_OUT_OF_MEMORY_WORDS))
_ARGUMENTS_REFUSED_WORDS = (
    r"error: (?:unrecognized arguments|argument |the following arguments are required|ambiguous option)",
    r"(?:^|[\s.])(?:ValidationError|ValueError|NotImplementedError|ArgumentError|ArgumentTypeError):",
    r"validation errors? for \w+",
    r"^\s*Value error, ",
)
_ARGUMENTS_REFUSED = re.compile("|".join(_ARGUMENTS_REFUSED_WORDS), re.MULTILINE)
_CONSEQUENCE = re.compile(r"Engine core initialization failed|EngineCore failed|EngineDeadError|See (?:stack|root) ")
_EXCEPTION = re.compile(r"(?:^|\s)(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit): .+")


def hides_its_cause(last_words: str) -> bool:
    """Return whether the words only point at a cause that was said before them, so that more of the log is needed."""
    return bool(_CONSEQUENCE.search(last_words)) and not _OUT_OF_MEMORY.search(last_words)


def classify_exit(exit_code: int | None, last_words: str, *, was_ready: bool) -> Failure:
    """Return why an engine ended.

    Args:
        exit_code: Of its process; below 0 or above 128 for a signal; None where it is unknown.
        last_words: The end of its output.
        was_ready: Whether it had answered its health check.

    Returns:
        A failure with reason `EngineOutOfMemory`, `EngineArgumentsRefused`, `EngineStartFailed` or `EngineDied`.
    """
    message = _message(exit_code, last_words)
    if _OUT_OF_MEMORY.search(last_words):
        return Failure("EngineOutOfMemory", message)
    if was_ready:
        return Failure("EngineDied", message)
    if exit_code == _ARGPARSE_EXIT or _ARGUMENTS_REFUSED.search(last_words):
        return Failure("EngineArgumentsRefused", message)
    return Failure("EngineStartFailed", message)


def start_timeout(seconds: float, last_words: str) -> Failure:
    """Return the failure of an engine that was not ready in time."""
    tail = _telling_line(last_words)
    said = f"; its last words: {tail}" if tail else ""
    return Failure("EngineStartTimeout", f"not ready within {seconds:g} s{said}")


def _message(exit_code: int | None, last_words: str) -> str:
    tail = _telling_line(last_words)
    code = "an unknown exit code" if exit_code is None else f"exit code {exit_code}"
    message = f"{tail} ({code})" if tail else f"the engine ended with {code} and said nothing"
    return message[:MAX_MESSAGE_CHARACTERS]


def _telling_line(last_words: str) -> str:
    """Return the line that says why.

    Of lines about memory it is the first; else the last exception that is not the mere consequence of another; else the
    last line.
    """
    lines = [line.strip() for line in last_words.splitlines() if line.strip()]
    memory = next((line for line in lines if _OUT_OF_MEMORY.search(line)), "")
    if memory:
        return memory[:_MAX_LINE_CHARACTERS]
    telling = [line for line in lines if _EXCEPTION.search(line) or _ARGUMENTS_REFUSED.search(line)]
    causes = [line for line in telling if not _CONSEQUENCE.search(line)] or telling or lines
    return causes[-1][:_MAX_LINE_CHARACTERS] if causes else ""
