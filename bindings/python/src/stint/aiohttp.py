# SPDX-License-Identifier: MIT
"""Limits of an aiohttp application, or of single handlers.

    app = web.Application(middlewares=[middleware(Rule(limiter, address()))])

    @routes.post("/login")
    @limit(Rule(logins, address()))
    async def login(request): ...
"""
from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from .http import Request, Rule, Verdict, add_fields

Handler = Callable[..., Awaitable[Any]]


def request_of(request: web.Request) -> Request:
    def lines(name: str) -> list[str]:
        """aiohttp decodes fields as UTF-8; stint's are latin-1 in all frameworks."""
        values = request.headers.getall(name, ())
        return [value.encode("utf-8", "surrogateescape").decode("latin-1") for value in values]

    def user() -> Any:
        raise RuntimeError("aiohttp has no users of its own: use a function of the request as key")

    return Request(request, request.method, request.path, request.remote or "", lines, user)


def refuse(verdict: Verdict) -> web.StreamResponse:
    response: web.StreamResponse | None = verdict.response
    if response is None:
        headers = {"Content-Type": verdict.content_type}
        response = web.Response(body=verdict.body, status=verdict.status, headers=headers)
    add_fields(response.headers, verdict.fields)
    return response


def limit(rule: Rule) -> Callable[[Handler], Handler]:
    """Decorates a handler, or a method of a web.View.

    Responses that a handler has begun to send itself (streams, WebSockets) get no fields.
    """

    def around(handler: Handler) -> Handler:
        @functools.wraps(handler)
        async def limited(owner: Any, *args: Any) -> Any:
            request = owner.request if isinstance(owner, web.View) else owner
            verdict = await rule.decide_async(request_of(request))
            if not verdict.passes:
                return refuse(verdict)
            try:
                response = await handler(owner, *args)
            except web.HTTPException as error:
                add_fields(error.headers, verdict.fields)
                raise
            if not response.prepared:
                add_fields(response.headers, verdict.fields)
            return response

        return limited

    return around


def middleware(rule: Rule) -> Any:
    """A middleware for web.Application(middlewares=[…]): it limits every request, also 404s."""

    @web.middleware
    async def limit_app(request: web.Request, handler: Handler) -> web.StreamResponse:
        response: web.StreamResponse = await limit(rule)(handler)(request)
        return response

    return limit_app
