# SPDX-License-Identifier: MIT
"""Limits of a WSGI application.

    app = LimitMiddleware(app, Rule(limiter, address()))
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, Optional
from wsgiref.headers import Headers

from .http import Request, Rule, add_fields

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def lines_of(environ: dict[str, Any]) -> Callable[[str], Sequence[str]]:
    """Header fields of an environ, in which the lines of a field are one text."""

    def lines(name: str) -> Sequence[str]:
        key = name.upper().replace("-", "_")
        value: Optional[str] = environ.get(
            key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
        )
        return [] if value is None else [value]

    return lines


def request_of(
    environ: dict[str, Any],
    native: Any = None,
    path: str | None = None,
    user: Callable[[], Any] | None = None,
) -> Request:
    """A Request of an environ. The user is the server's, REMOTE_USER, unless `user` finds one."""
    if path is None:
        text = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        path = text.encode("latin-1").decode("utf-8", "replace")
    return Request(
        environ if native is None else native,
        environ["REQUEST_METHOD"],
        path,
        environ.get("REMOTE_ADDR") or "",
        lines_of(environ),
        user or (lambda: environ.get("REMOTE_USER") or None),
    )


def status_line(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Error"


class LimitMiddleware:
    """Limits the requests of a WSGI application. An own response is a WSGI application, too."""

    def __init__(self, app: App, rule: Rule) -> None:
        self.app, self.rule = app, rule

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        verdict = self.rule.decide(request_of(environ))

        def start_with_fields(status: str, headers: list[tuple[str, str]], *info: Any) -> Any:
            add_fields(Headers(headers), verdict.fields)
            return start(status, headers, *info)

        if verdict.passes:
            return self.app(environ, start_with_fields if verdict.fields else start)
        if verdict.response is not None:
            answer: Iterable[bytes] = verdict.response(environ, start_with_fields)
            return answer
        length = ("Content-Length", str(len(verdict.body)))
        start(status_line(verdict.status), [*verdict.headers, length])
        return [verdict.body]
