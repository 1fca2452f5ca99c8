# SPDX-License-Identifier: MIT
"""Applications that test_web_servers.py starts under real servers: TABLE is the shared file.

A request for /pid passes, and says which worker answered.
"""

from __future__ import annotations

import os

import stint
from stint.http import Rule, address, first_of, header

LIMIT = "40/1h"
PROXY = "127.0.0.1"


def rule():
    limiter = stint.Limiter(stint.Table(os.environ["TABLE"], keys=1000), LIMIT, name="served")
    client = first_of(header("X-User"), address([PROXY, "unix"]))
    return Rule(limiter, client, exempt=lambda request: request.path == "/pid")


def make_flask():
    from flask import Flask

    from stint.flask import limit_app

    app = Flask(__name__)
    limit_app(app, rule())
    app.route("/", methods=["GET", "POST"], endpoint="home")(lambda: "hello")
    app.route("/pid", endpoint="pid")(lambda: str(os.getpid()))
    return app


def make_django(is_async=False):
    import web

    return web.web_django.handler(rule(), "served", is_async)


async def make_aiohttp():
    from aiohttp import web

    from stint.aiohttp import middleware

    async def answer(request):
        return web.Response(text=str(os.getpid()) if request.path == "/pid" else "hello")

    app = web.Application(middlewares=[middleware(rule())])
    app.router.add_get("/{path:.*}", answer)
    return app


def make_fastapi():
    from fastapi import FastAPI
    from fastapi.responses import PlainTextResponse
    from starlette.routing import WebSocketRoute

    from stint.asgi import LimitMiddleware

    app = FastAPI()
    app.add_middleware(LimitMiddleware, rule=rule(), websocket=True)
    app.api_route("/", methods=["GET", "HEAD"])(lambda: PlainTextResponse("hello"))
    app.get("/pid")(lambda: PlainTextResponse(str(os.getpid())))

    async def accept(websocket):
        await websocket.accept()
        await websocket.close()

    app.router.routes.append(WebSocketRoute("/socket", accept))
    return app


def make_django_async():
    return make_django(is_async=True)
