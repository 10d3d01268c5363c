"""The scalars and the base class of specs: strings that mean durations, money and memory; problems with their paths.

Every problem of a spec is reported, not only the first: `Section` gathers what is wrong within fields and between them.
This module knows no field of any spec.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from frontier_tuner import durations
from frontier_tuner.errors import TunerError

_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|k|M|G|T)?")
_LARGEST = Decimal(10) ** 15
_LONGEST_SECONDS = 10 * 365 * 86400.0
_MEMORY_UNITS = {
    "": 1,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
}


@dataclass(frozen=True)
class FieldError:
    """One problem of a spec.

    Attributes:
        path: The field, as in `spec.objectives.slos[0].max`.
        value: What stands there, as text; empty where nothing does.
        message: What is wrong and the way out.
    """

    path: str
    value: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" + (f" (got {self.value})" if self.value else "")


class InvalidSpecError(TunerError):
    """The spec cannot be used; `problems` lists every one of them."""

    def __init__(self, problems: Sequence[FieldError]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


def parse_duration(text: object) -> timedelta:
    """Return the duration of a string such as `500ms`, `30s` or `1h30m`; raises ValueError for anything else."""
    if isinstance(text, timedelta):
        return text
    try:
        seconds = durations.parse_duration(text) if isinstance(text, str) else -1.0
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise ValueError("must be a duration with a unit, such as 500ms, 30s, 2m or 1h30m")
    if seconds > _LONGEST_SECONDS:
        raise ValueError("must be at most ten years")
    return timedelta(seconds=seconds)


def format_duration(duration: timedelta) -> str:
    """Return a duration as `parse_duration` reads it, in whole milliseconds."""
    return durations.format_duration(duration.total_seconds())


def parse_decimal(text: object) -> Decimal:
    """Return the number of a string such as `0.60`; a float is refused, because it may not be what was written."""
    if isinstance(text, Decimal):
        return text
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise ValueError('must be a decimal number in quotes, 0 or above, such as "0.60"')
    number = Decimal(text)
    if number > _LARGEST:
        raise ValueError(f"must be at most {_LARGEST:g}")
    return number


def parse_memory(text: object) -> int:
    """Return the bytes of a quantity such as `141Gi`; raises ValueError for anything else."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = _MEMORY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("must be an amount of memory, such as 80Gi or 141G")
    amount = Decimal(match[1]) * _MEMORY_UNITS[match[2] or ""]
    if amount > _LARGEST:
        raise ValueError(f"must be at most {_LARGEST:g} bytes")
    return int(amount)


Positive = TypeVar("Positive", timedelta, Decimal)


def _positive(value: Positive) -> Positive:
    zero = timedelta() if isinstance(value, timedelta) else Decimal()
    if value <= zero:
        raise ValueError("must be above 0")
    return value


def _increasing(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if any(left >= right for left, right in pairwise(values)):
        raise ValueError("must rise from one entry to the next, without repeats")
    return values


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration)]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
Number = Annotated[Decimal, BeforeValidator(parse_decimal), PlainSerializer(str)]
PositiveNumber = Annotated[Number, AfterValidator(_positive)]
Memory = Annotated[int, BeforeValidator(parse_memory, json_schema_input_type=str), Field(gt=0)]
Rising = AfterValidator(_increasing)


Complaint = tuple[tuple[str | int, ...], object, str]
"""Where, what stands there, what is wrong."""


def repeated(raw: Mapping[str, Any], field: str, what: str) -> Iterator[Complaint]:
    """Yield a complaint where two entries of a list have one name."""
    items = raw.get(field)
    names = [str(item.get("name")) for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield (field,), ", ".join(twice), f"every {what} needs a name of its own; rename or remove the second one"


class Section(BaseModel):
    """A part of a spec: strict, frozen, camelCase outside; reports its own and its parts' problems together."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield what is wrong between fields; sees the mapping as written and must bear any content."""
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _collect(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = list(cls.complaints(data)) if isinstance(data, Mapping) else []
        lines = [_line(loc, value, message) for loc, value, message in found]
        try:
            result = handler(data)
        except ValidationError as error:
            lines = [_line(each["loc"], each["input"], _sentence(each)) for each in _told_once(error)] + lines
        if lines:
            raise ValidationError.from_exception_data(cls.__name__, lines)
        return result


def _line(loc: tuple[str | int, ...], value: object, message: str) -> InitErrorDetails:
    return InitErrorDetails(
        type=PydanticCustomError("problem", "{message}", {"message": message}), loc=loc, input=value
    )


def _told_once(error: ValidationError) -> Iterator[ErrorDetails]:
    # a list whose only entries are refused is reported as too short, too
    for each in error.errors():
        inner = (other for other in error.errors() if len(other["loc"]) > len(each["loc"]))
        if each["type"] != "too_short" or not any(other["loc"][: len(each["loc"])] == each["loc"] for other in inner):
            yield each


def _sentence(error: ErrorDetails) -> str:
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return "is not a field of this object; remove it or check its spelling"
        case "too_short":
            return f"needs at least {error['ctx']['min_length']} entry"
        case "too_long":
            return f"may have at most {error['ctx']['max_length']} entries"
        case "value_error":
            return str(error["ctx"]["error"])
        case _:
            message = str(error["msg"])
            return "must" + message.removeprefix("Input should") if message.startswith("Input should") else message


def problems_of(error: ValidationError, root: str) -> list[FieldError]:
    """Return the problems of a validation error in the order of their paths, under a root such as `spec`."""
    return sorted(
        (FieldError(_path(root, each["loc"]), _shown(each), str(each["msg"])) for each in error.errors()),
        key=lambda problem: problem.path,
    )


def _path(root: str, loc: Sequence[str | int]) -> str:
    return root + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)


def _shown(error: ErrorDetails) -> str:
    value = error["input"]
    if isinstance(value, Mapping | list | tuple):
        return ""
    return "" if value is None else str(value)[:80]
