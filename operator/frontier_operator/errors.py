"""What can go wrong between the operator and the API server.

OperatorError
├── RetryableError     trouble that passes: time-outs, 429, 5xx
├── ConflictError      somebody else wrote first (409); read again and decide again
└── TerminalError      the request itself is wrong or not allowed; a person must act
    └── ForbiddenError a permission is missing; names verb, resource and namespace
"""


class OperatorError(Exception):
    """Any error that the operator raises on purpose."""


class RetryableError(OperatorError):
    """The same request may succeed later."""


class ConflictError(OperatorError):
    """The object changed, or exists already."""


class TerminalError(OperatorError):
    """The same request will fail again."""


class ForbiddenError(TerminalError):
    """The operator's service account lacks a permission."""
