# SPDX-License-Identifier: MIT
"""What can go wrong between a program and a server."""
from __future__ import annotations

from typing import Any

from .._core import Error, GoneError, QuotaError


class ServerError(Error):
    """A server that did not decide; what a limiter then does is set by its on_error.

    `code`: "UNREACHABLE" no connection; "TIMEOUT" no reply in time; "CLOSED" the connection ended
    before the reply; "TLS"; "AUTH" the token was refused; "PROTOCOL" another program, or another
    port, replied; "UNAVAILABLE" not asked after several errors, or the server's shared store is
    gone; "FULL" the server's table is full.
    """

    code: str

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, str(self))


def quota_error(code: str, text: str) -> QuotaError:
    error = QuotaError(text)
    error.code = code
    return error


def gone_error(text: str) -> GoneError:
    error = GoneError(text)
    error.code = "GONE"
    return error
