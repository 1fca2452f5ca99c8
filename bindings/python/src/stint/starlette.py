# SPDX-License-Identifier: MIT
"""Limits of single routes of Starlette and FastAPI. The whole application: stint.asgi.

    @app.post("/login")
    @limit(rule)
    async def login(): ...

    router = APIRouter(dependencies=[Depends(limited(rule))])
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from .asgi import request_of
from .http import Rule, Verdict, add_fields

# Parameters that endpoints get in addition.
ADDED: dict[type, str] = {Request: "stint_request", Response: "stint_response"}


def _response(verdict: Verdict) -> Response:
    """The response to a refused request."""
    response: Response = verdict.response
    if response is None:
        response = Response(verdict.body, verdict.status, media_type=verdict.content_type)
    add_fields(response.headers, verdict.fields)
    return response


def _parameters(endpoint: Callable[..., Any]) -> tuple[inspect.Signature, dict[type, str]]:
    """A signature with a Request and a Response, and their names. FastAPI fills in one of each."""
    signature = inspect.signature(endpoint)
    try:
        hints = get_type_hints(endpoint, include_extras=True)
    except NameError:  # FastAPI reports it in its own words
        hints = {}
    parameters = [
        parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in signature.parameters.items()
    ]
    names: dict[type, str] = {}
    for kind in (Request, Response):
        for parameter in parameters:
            if isinstance(parameter.annotation, type) and issubclass(parameter.annotation, kind):
                names[kind] = parameter.name
    added = [
        inspect.Parameter(ADDED[kind], inspect.Parameter.KEYWORD_ONLY, annotation=kind)
        for kind in ADDED
        if kind not in names
    ]
    at = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_KEYWORD), len(parameters))
    parameters[at:at] = added
    returned = hints.get("return", signature.return_annotation)
    return signature.replace(parameters=parameters, return_annotation=returned), {**ADDED, **names}


def limit(rule: Rule) -> Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]:
    """Decorates an endpoint, below the route's decorator. Plain functions run in threads."""

    def around(endpoint: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        is_async = inspect.iscoroutinefunction(endpoint)
        signature, names = _parameters(endpoint)

        @functools.wraps(endpoint)
        async def limited_endpoint(*args: Any, **kwargs: Any) -> Any:
            request: Request = kwargs.get(names[Request]) or args[0]
            response: Response | None = kwargs.get(names[Response])
            for name in ADDED.values():
                kwargs.pop(name, None)
            verdict = await rule.decide_async(request_of(request.scope, request))
            if not verdict.passes:
                return _response(verdict)
            if is_async:
                result = await endpoint(*args, **kwargs)
            else:
                result = await run_in_threadpool(endpoint, *args, **kwargs)
            target = result if isinstance(result, Response) else response
            if target is not None:
                add_fields(target.headers, verdict.fields)
            return result

        limited_endpoint.__signature__ = signature  # type: ignore[attr-defined]
        return limited_endpoint

    return around


class Refused(HTTPException):
    """Raised by limited(). Its reply is FastAPI's, {"detail": …}, with the status and the fields.

    For problem details: app.add_exception_handler(Refused, refused).
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.status, verdict.problem["detail"], dict(verdict.fields))
        self.verdict = verdict


def refused(request: Request, exception: Exception) -> Response:
    """The exception handler that replies as the middleware does."""
    assert isinstance(exception, Refused)
    return _response(exception.verdict)


def limited(rule: Rule) -> Callable[..., Awaitable[None]]:
    """A dependency of FastAPI: Depends(limited(rule)).

    FastAPI drops the fields where an endpoint returns a Response of its own; limit() adds them.
    """

    async def dependency(request: Request, response: Response) -> None:
        verdict = await rule.decide_async(request_of(request.scope, request))
        if not verdict.passes:
            raise Refused(verdict)
        add_fields(response.headers, verdict.fields)

    dependency.__annotations__ = {"request": Request, "response": Response, "return": None}
    return dependency
