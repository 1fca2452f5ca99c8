# SPDX-License-Identifier: MIT
"""Limits of an ASGI application: Starlette, FastAPI, and any other.

    app.add_middleware(LimitMiddleware, rule=Rule(limiter, address()))

Limits of single routes are in stint.starlette.
"""
from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from .http import Request, Rule, Verdict, add_fields

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
POLICY_VIOLATION = 1008


class RawHeaders:
    """The header fields of a message: a list of pairs of bytes."""

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self.raw = raw

    def lines(self, name: str) -> list[str]:
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for key, value in self.raw if key.lower() == wanted]

    def get(self, name: str) -> str | None:
        lines = self.lines(name)
        return ", ".join(lines) if lines else None

    def __setitem__(self, name: str, value: str) -> None:
        key = name.lower().encode("latin-1")
        self.raw[:] = [pair for pair in self.raw if pair[0].lower() != key]
        self.raw.append((key, value.encode("latin-1")))


def user_of(scope: Scope) -> Any:
    """The user of Starlette's AuthenticationMiddleware."""
    if "user" not in scope:
        raise RuntimeError(
            "the request has no user: AuthenticationMiddleware must run before the limit"
        )
    user = scope["user"]
    if not user.is_authenticated:
        return None
    try:
        return user.identity
    except NotImplementedError:  # as in Starlette's SimpleUser
        return user.display_name


def request_of(scope: Scope, native: Any = None) -> Request:
    client = scope.get("client")
    return Request(
        scope if native is None else native,
        scope.get("method", "GET"),
        scope["path"],
        client[0] if client else "",
        RawHeaders(list(scope["headers"])).lines,
        lambda: user_of(scope),
    )


class LimitMiddleware:
    """Limits HTTP requests, and with websocket=True the opening of WebSockets.

    A WebSocket is refused before it is accepted: with the rule's response where the server can send
    one (the extension websocket.http.response), else with close code 1008; servers make it 403.
    """

    def __init__(self, app: App, rule: Rule, websocket: bool = False) -> None:
        self.app, self.rule = app, rule
        self.kinds = ("http", "websocket") if websocket else ("http",)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in self.kinds:
            await self.app(scope, receive, send)
            return
        verdict = await self.rule.decide_async(request_of(scope))

        async def send_with_fields(message: Message) -> None:
            if message["type"].endswith(("http.response.start", "websocket.accept")):
                message["headers"] = list(message.get("headers", ()))
                add_fields(RawHeaders(message["headers"]), verdict.fields)
            await send(message)

        if verdict.passes:
            await self.app(scope, receive, send_with_fields if verdict.fields else send)
        elif scope["type"] == "websocket":
            await receive()  # websocket.connect
            await self._refuse_websocket(verdict, scope, receive, send_with_fields)
        else:
            await self._refuse(verdict, scope, receive, send_with_fields, "")

    async def _refuse_websocket(
        self, verdict: Verdict, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if "websocket.http.response" in (scope.get("extensions") or ()):
            await self._refuse(verdict, scope, receive, send, "websocket.")
        else:
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})

    @staticmethod
    async def _refuse(
        verdict: Verdict, scope: Scope, receive: Receive, send: Send, prefix: str
    ) -> None:
        """An own response is an ASGI application, as Starlette's responses are."""
        if verdict.response is not None:
            await verdict.response(scope, receive, send)
            return
        headers = [
            (b"content-type", verdict.content_type.encode()),
            (b"content-length", str(len(verdict.body)).encode()),
        ]
        start = {"status": verdict.status, "headers": headers}
        await send({"type": f"{prefix}http.response.start", **start})
        await send({"type": f"{prefix}http.response.body", "body": verdict.body})
