# SPDX-License-Identifier: MIT
"""One application in each framework, with one rule, behind one way to send requests to it."""

from __future__ import annotations

import asyncio
import functools
import json

import aiohttp
import aiohttp.test_utils
import django
import fastapi
import flask
import httpx
import starlette.applications
import starlette.responses
import starlette.routing
import werkzeug.test
from aiohttp import web
from django.conf import settings

import stint.aiohttp
import stint.asgi
import stint.flask
import stint.starlette
import stint.wsgi

settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"],
                   ROOT_URLCONF="web_django", ALLOWED_HOSTS=["*"], SECRET_KEY="of tests",
                   MIDDLEWARE=["web_django.limit_site"], REST_FRAMEWORK={
                       "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
                       "UNAUTHENTICATED_USER": None})
django.setup()

import web_django  # noqa: E402


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.body = status, body
        self.headers = {}
        for name, value in headers:
            self.headers.setdefault(name.lower(), []).append(value)

    def field(self, name):
        """A field's value; None if it is absent. Twice is an error."""
        values = self.headers.get(name.lower())
        assert values is None or len(values) == 1, (name, values)
        return None if values is None else values[0]

    def problem(self):
        return json.loads(self.body)


def ask_wsgi(app, method="GET", path="/", headers=(), peer="127.0.0.2"):
    with werkzeug.test.Client(app).open(
            path, method=method, headers=list(headers), buffered=True,
            environ_overrides={"REMOTE_ADDR": peer}) as reply:
        return Reply(reply.status_code, list(reply.headers), reply.data)


def ask_asgi(app, method="GET", path="/", headers=(), peer="127.0.0.2", body=None):
    async def ask():
        transport = httpx.ASGITransport(app, client=(peer, 1) if peer else None)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            client.headers.clear()
            reply = await client.request(method, path, headers=list(headers), json=body)
            return Reply(reply.status_code, reply.headers.multi_items(), reply.content)

    return asyncio.run(ask())


def ask_aiohttp(make, method="GET", path="/", headers=(), peer="127.0.0.2"):
    async def ask():
        server = aiohttp.test_utils.TestServer(make())
        connector = aiohttp.TCPConnector(local_addr=(peer, 0))
        async with server, aiohttp.ClientSession(connector=connector) as client:
            async with client.request(method, server.make_url(path), headers=list(headers),
                                      skip_auto_headers=["Accept"]) as reply:
                return Reply(reply.status, reply.headers.items(), await reply.read())

    return asyncio.run(ask())


def asgi_middleware(rule):
    app = starlette.applications.Starlette(
        routes=[starlette.routing.Route("/{path:path}", hello, methods=METHODS)])
    app.add_middleware(stint.asgi.LimitMiddleware, rule=rule)
    return functools.partial(ask_asgi, app)


METHODS = ["GET", "HEAD", "POST", "OPTIONS"]


async def hello(request):
    return starlette.responses.PlainTextResponse("hello")


def starlette_decorator(rule):
    endpoint = stint.starlette.limit(rule)(hello)
    return functools.partial(ask_asgi, starlette.applications.Starlette(
        routes=[starlette.routing.Route("/{path:path}", endpoint, methods=METHODS)]))


def fastapi_middleware(rule):
    app = fastapi.FastAPI()
    app.add_middleware(stint.asgi.LimitMiddleware, rule=rule)
    app.api_route("/{path:path}", methods=METHODS)(lambda path: "hello")
    return functools.partial(ask_asgi, app)


def fastapi_decorator(rule):
    """A plain function, which knows nothing of requests."""
    app = fastapi.FastAPI()

    @app.api_route("/{path:path}", methods=METHODS)
    @stint.starlette.limit(rule)
    def endpoint(path: str):
        return path

    return functools.partial(ask_asgi, app)


def fastapi_dependency(rule):
    app = fastapi.FastAPI(dependencies=[fastapi.Depends(stint.starlette.limited(rule))])
    app.add_exception_handler(stint.starlette.Refused, stint.starlette.refused)
    app.api_route("/{path:path}", methods=METHODS)(lambda path: "hello")
    return functools.partial(ask_asgi, app)


def wsgi_middleware(rule):
    def app(environ, start):
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]

    return functools.partial(ask_wsgi, stint.wsgi.LimitMiddleware(app, rule))


def flask_hello(path):
    return "hello"


def flask_app(rule):
    app = flask.Flask(__name__)
    stint.flask.limit_app(app, rule)
    app.route("/", defaults={"path": ""}, methods=METHODS)(flask_hello)
    app.route("/<path:path>", methods=METHODS)(flask_hello)
    return functools.partial(ask_wsgi, app)


def flask_decorator(rule):
    app = flask.Flask(__name__)

    @app.route("/", defaults={"path": ""}, methods=METHODS)
    @app.route("/<path:path>", methods=METHODS)
    @stint.flask.limit(rule)
    def view(path):
        return "hello"

    return functools.partial(ask_wsgi, app)


def django_app(rule, kind, ask):
    return functools.partial(ask, web_django.handler(rule, kind, is_async=ask is ask_asgi))


async def aiohttp_hello(request):
    return web.Response(text="hello")


def aiohttp_middleware(rule):
    def make():
        app = web.Application(middlewares=[stint.aiohttp.middleware(rule)])
        app.router.add_route("*", "/{path:.*}", aiohttp_hello)
        return app

    return functools.partial(ask_aiohttp, make)


def aiohttp_decorator(rule):
    def make():
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", stint.aiohttp.limit(rule)(aiohttp_hello))
        return app

    return functools.partial(ask_aiohttp, make)


FRAMEWORKS = {
    "asgi": asgi_middleware,
    "starlette-decorator": starlette_decorator,
    "fastapi": fastapi_middleware,
    "fastapi-decorator": fastapi_decorator,
    "fastapi-dependency": fastapi_dependency,
    "wsgi": wsgi_middleware,
    "flask": flask_app,
    "flask-decorator": flask_decorator,
    "django": functools.partial(django_app, kind="middleware", ask=ask_wsgi),
    "django-decorator": functools.partial(django_app, kind="decorator", ask=ask_wsgi),
    "django-async": functools.partial(django_app, kind="middleware", ask=ask_asgi),
    "django-async-decorator": functools.partial(django_app, kind="async_decorator", ask=ask_asgi),
    "drf": functools.partial(django_app, kind="drf", ask=ask_wsgi),
    "aiohttp": aiohttp_middleware,
    "aiohttp-decorator": aiohttp_decorator,
}


def middleware_and_starlette(outer, inner):
    app = starlette.applications.Starlette(
        routes=[starlette.routing.Route("/", stint.starlette.limit(inner)(hello))])
    return functools.partial(ask_asgi, stint.asgi.LimitMiddleware(app, outer))


def middleware_and_flask(outer, inner):
    app = flask.Flask(__name__)
    stint.flask.limit_app(app, inner)
    app.route("/")(lambda: "hello")
    return functools.partial(ask_wsgi, stint.wsgi.LimitMiddleware(app, outer))


def middleware_and_aiohttp(outer, inner):
    def make():
        app = web.Application(middlewares=[stint.aiohttp.middleware(outer)])
        app.router.add_get("/", stint.aiohttp.limit(inner)(aiohttp_hello))
        return app

    return functools.partial(ask_aiohttp, make)


NESTED = [middleware_and_starlette, middleware_and_flask, middleware_and_aiohttp]
