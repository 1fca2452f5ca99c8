# SPDX-License-Identifier: MIT
"""Limits of a Flask application, or of single views.

    limit_app(app, Rule(limiter, address()))

    @app.post("/login")
    @limit(Rule(logins, address()))
    def login(): ...
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from flask import Blueprint, Flask, Response, after_this_request, current_app, make_response
from flask import request as current_request

from .http import Rule, Verdict, add_fields
from .wsgi import request_of

View = TypeVar("View", bound=Callable[..., Any])


def user_of() -> Any:
    """The user of Flask-Login if the application uses it, else REMOTE_USER."""
    if not hasattr(current_app, "login_manager"):
        return current_request.remote_user
    user = import_module("flask_login").current_user
    return user.get_id()  # None for anonymous users


def decide(rule: Rule) -> Verdict:
    native = current_request._get_current_object()  # type: ignore[attr-defined]
    verdict = rule.decide(request_of(native.environ, native, user=user_of))

    @after_this_request
    def add(response: Response) -> Response:
        add_fields(response.headers, verdict.fields)
        return response

    return verdict


def refuse(verdict: Verdict) -> Response:
    if verdict.response is not None:
        return make_response(verdict.response)
    return Response(verdict.body, verdict.status, content_type=verdict.content_type)


def limit(rule: Rule) -> Callable[[View], Callable[..., Any]]:
    """Decorates a view, below the route's decorator. For async views, too."""

    def around(view: View) -> Callable[..., Any]:
        @functools.wraps(view)
        def limited(*args: Any, **kwargs: Any) -> Any:
            verdict = decide(rule)
            if not verdict.passes:
                return refuse(verdict)
            return current_app.ensure_sync(view)(*args, **kwargs)

        return limited

    return around


def limit_app(app: Flask | Blueprint, rule: Rule) -> None:
    """Limits every request of an application or a blueprint, before its other functions run."""

    def check() -> Response | None:
        verdict = decide(rule)
        return None if verdict.passes else refuse(verdict)

    app.before_request_funcs.setdefault(None, []).insert(0, check)
