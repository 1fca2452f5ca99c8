# SPDX-License-Identifier: MIT
"""Limits of a Django site, or of single views.

    limit_site = middleware(Rule(limiter, address()))   # in shop/limits.py
    MIDDLEWARE = ["shop.limits.limit_site", …]           # in the settings

    @limit(Rule(logins, address()))
    def login(request): ...
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import sync_and_async_middleware

from .http import Request, Rule, Verdict, add_fields
from .wsgi import request_of

View = Callable[..., Any]


def _identity(user: Any) -> Any:
    return user.pk if user is not None and user.is_authenticated else None


async def _identity_async(request: Any) -> Any:
    return _identity(await request.auser())


def django_request(request: HttpRequest, native: Any = None, is_async: bool = False) -> Request:
    """native: REST framework's request around it, which has a user of its own."""
    of_user: Any = request if native is None else native

    def user() -> Any:
        if not hasattr(of_user, "user"):
            raise RuntimeError(
                "the request has no user: AuthenticationMiddleware must run before the limit"
            )
        return _identity_async(request) if is_async else _identity(of_user.user)

    return request_of(request.META, of_user, request.path, user)


def refuse(verdict: Verdict) -> HttpResponse:
    if verdict.response is not None:
        response: HttpResponse = verdict.response
    else:
        response = HttpResponse(verdict.body, verdict.content_type, verdict.status)
    add_fields(response.headers, verdict.fields)
    return response


def _is_async(view: View) -> bool:
    """method_decorator passes a partial of a method: dispatch() of async classes is not marked."""
    owner = getattr(getattr(view, "func", None), "__self__", None)
    return iscoroutinefunction(view) or getattr(owner, "view_is_async", False)


def limit(rule: Rule) -> Callable[[View], View]:
    """Decorates a view, async or not; of a class with method_decorator(limit(rule), "dispatch")."""

    def around(view: View) -> View:
        if _is_async(view):

            async def limited_async(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                verdict = await rule.decide_async(django_request(request, is_async=True))
                if not verdict.passes:
                    return refuse(verdict)
                response = await view(request, *args, **kwargs)
                add_fields(response.headers, verdict.fields)
                return response

            return functools.wraps(view)(limited_async)

        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            verdict = rule.decide(django_request(request))
            if not verdict.passes:
                return refuse(verdict)
            response = view(request, *args, **kwargs)
            add_fields(response.headers, verdict.fields)
            return response

        return functools.wraps(view)(limited)

    return around


def middleware(rule: Rule) -> Callable[[View], View]:
    """A middleware, async or not: an entry of MIDDLEWARE is the name that it is bound to."""

    @sync_and_async_middleware
    def limit_site(get_response: View) -> View:
        return limit(rule)(get_response)

    return limit_site
