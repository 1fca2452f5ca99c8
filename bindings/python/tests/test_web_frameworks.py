# SPDX-License-Identifier: MIT
"""What differs between frameworks: users, signatures, streams, scopes that are not HTTP."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated, Optional
from wsgiref.validate import validator

import fastapi
import flask
import pytest
import starlette.applications
import starlette.authentication
import starlette.middleware.authentication
import starlette.responses
import starlette.routing
import web
import web_django
import werkzeug.test
from django.contrib.auth.models import AnonymousUser
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View

import stint
import stint.aiohttp
import stint.asgi
import stint.django
import stint.flask
import stint.starlette
import stint.wsgi
from stint.http import Rule, address, first_of, user


@pytest.fixture
def limiter(table):
    return stint.Limiter(table, "1/1m")


@pytest.fixture
def rule(limiter):
    """One request a minute of an address."""
    return Rule(limiter, address())


@pytest.fixture
def user_rule(limiter):
    """One request a minute of a user, or of an address without one."""
    return Rule(limiter, first_of(user(), address()))


# ---- Users --------------------------------------------------------------------------------------

USERS = ["ada", "ada", "bob", None, None, "bob"]
EXPECTED = [200, 429, 200, 200, 429, 429]


class Backend(starlette.authentication.AuthenticationBackend):
    async def authenticate(self, connection):
        name = connection.headers.get("X-User")
        if name is not None:
            return (starlette.authentication.AuthCredentials(),
                    starlette.authentication.SimpleUser(name))


class DjangoUser:
    def __init__(self, pk):
        self.pk, self.is_authenticated = pk, True


def starlette_users(rule):
    app = starlette.applications.Starlette(
        routes=[starlette.routing.Route("/", web.hello)])
    app.add_middleware(stint.asgi.LimitMiddleware, rule=rule)
    app.add_middleware(
        starlette.middleware.authentication.AuthenticationMiddleware, backend=Backend())
    return lambda name: web.ask_asgi(app, headers=[("X-User", name)] if name else []).status


def wsgi_users(rule):
    def hello(environ, start):
        start("200 OK", [])
        return []

    client = werkzeug.test.Client(stint.wsgi.LimitMiddleware(hello, rule))
    return lambda name: client.get("/", environ_base={"REMOTE_USER": name or ""}).status_code


def flask_users(rule):
    app = flask.Flask(__name__)
    app.route("/")(stint.flask.limit(rule)(lambda: "hello"))
    client = app.test_client()
    return lambda name: client.get(
        "/", environ_overrides={"REMOTE_USER": name} if name else {}).status_code


def flask_login_users(rule):
    flask_login = pytest.importorskip("flask_login")
    app = flask.Flask(__name__)
    manager = flask_login.LoginManager(app)

    class Named(flask_login.UserMixin):
        def __init__(self, name):
            self.id = name

    @manager.request_loader
    def load(request):
        name = request.headers.get("X-User")
        return Named(name) if name else None

    stint.flask.limit_app(app, rule)
    app.route("/")(lambda: "hello")
    client = app.test_client()
    return lambda name: client.get("/", headers={"X-User": name} if name else {}).status_code


def django_users(rule):
    def ask(name):
        request = RequestFactory().get("/")
        request.user = DjangoUser(name) if name else AnonymousUser()
        return stint.django.limit(rule)(web_django.hello)(request).status_code

    return ask


def django_async_users(rule):
    def ask(name):
        request = RequestFactory().get("/")

        async def auser():
            return DjangoUser(name) if name else AnonymousUser()

        request.user, request.auser = None, auser
        return asyncio.run(stint.django.limit(rule)(web_django.hello_async)(request)).status_code

    return ask


def drf_users(rule):
    from rest_framework.test import APIRequestFactory, force_authenticate

    view = web_django.rest_view(rule)

    def ask(name):
        request = APIRequestFactory().get("/")
        force_authenticate(request, DjangoUser(name) if name else None)
        return view(request).status_code

    return ask


@pytest.mark.parametrize("users", [
    starlette_users, wsgi_users, flask_users, flask_login_users, django_users, django_async_users,
    drf_users], ids=lambda users: users.__name__)
def test_users(users, user_rule):
    ask = users(user_rule)
    assert [ask(name) for name in USERS] == EXPECTED


def test_a_limit_before_the_authentication_says_so(user_rule):
    """It would find no user, and limit no one by it."""
    with pytest.raises(RuntimeError, match="AuthenticationMiddleware must run before the limit"):
        web.asgi_middleware(user_rule)()
    with pytest.raises(RuntimeError, match="AuthenticationMiddleware must run before the limit"):
        stint.django.limit(user_rule)(web_django.hello)(RequestFactory().get("/"))
    assert web.aiohttp_middleware(user_rule)().status == 500  # it has no users


# ---- Starlette and FastAPI ----------------------------------------------------------------------


def current_user(x_user: Annotated[str, fastapi.Header()]) -> str:
    return x_user


def test_a_decorated_endpoint_keeps_its_parameters(rule):
    app = fastapi.FastAPI()
    limit = stint.starlette.limit(rule)

    @app.post("/items/{number}", status_code=201)
    @limit
    async def create(number: int, name: Annotated[str, fastapi.Depends(current_user)],
                     request: fastapi.Request, response: fastapi.Response,
                     body: dict[str, int], q: Optional[str] = None):
        """An endpoint with everything."""
        response.headers["X-Own"] = request.url.path
        return [number, name, body, q]

    def post(path):
        return web.ask_asgi(app, "POST", path, [("X-User", "ada")], body={"b": 1})

    reply = post("/items/7?q=a")
    assert (reply.status, reply.problem()) == (201, [7, "ada", {"b": 1}, "a"])
    assert (reply.field("X-Own"), reply.field("RateLimit")) == ("/items/7", '"1/1m";r=0;t=63')
    document = web.ask_asgi(app, path="/openapi.json").problem()
    operation = document["paths"]["/items/{number}"]["post"]
    assert operation["description"] == "An endpoint with everything."
    assert sorted(p["name"] for p in operation["parameters"]) == ["number", "q", "x-user"]
    reply = post("/items/7")
    assert (reply.status, reply.field("Retry-After")) == (429, "63")


def test_endpoints_of_one_rule_share_it(rule):
    """Each with its own way: a router's dependency, and a decorator of a plain function."""
    app = fastapi.FastAPI()
    router = fastapi.APIRouter(
        dependencies=[fastapi.Depends(stint.starlette.limited(rule))])
    router.get("/a")(lambda: fastapi.Response("own response"))
    app.include_router(router)
    threads = []

    @app.get("/b")
    @stint.starlette.limit(rule)
    def plain():
        threads.append(threading.current_thread())
        return "b"

    assert web.ask_asgi(app, path="/a").status == 200
    refused = web.ask_asgi(app, path="/b")
    assert (refused.status, refused.field("Content-Type")) == (429, stint.http.PROBLEM)
    refused = web.ask_asgi(app, path="/a")  # without the handler refused() the body is FastAPI's
    assert (refused.status, refused.field("Retry-After")) == (429, "63")
    assert refused.problem() == {"detail": "The units are not free now; retry after 63 s."}
    assert threads == []


def test_a_plain_endpoint_runs_in_a_thread(table):
    threads = []

    @stint.starlette.limit(Rule(stint.Limiter(table, "9/1m"), "all"))
    def plain(request):
        threads.append(threading.current_thread())
        return starlette.responses.Response()

    app = starlette.applications.Starlette(routes=[starlette.routing.Route("/", plain)])
    assert web.ask_asgi(app).field("RateLimit") == '"9/1m";r=8;t=63'
    assert threads and threads[0] is not threading.main_thread()


# ---- Scopes and streams -------------------------------------------------------------------------


def test_the_lifespan_is_not_limited(rule):
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])
        await receive()
        await send({"type": "lifespan.startup.complete"})

    async def run():
        async def receive():
            return {"type": "lifespan.startup"}

        async def send(message):
            seen.append(message["type"])

        limited = stint.asgi.LimitMiddleware(app, rule, websocket=True)
        for _ in range(2):
            await limited({"type": "lifespan"}, receive, send)

    asyncio.run(run())
    assert seen == ["lifespan", "lifespan.startup.complete"] * 2


@pytest.mark.parametrize("limited, extensions, expected", [
    (False, {}, [["websocket.accept"], ["websocket.accept"]]),
    (True, {}, [["websocket.accept"], [("websocket.close", 1008)]]),
    (True, None, [["websocket.accept"], [("websocket.close", 1008)]]),
    (True, {"websocket.http.response": {}}, [
        ["websocket.accept"],
        [("websocket.http.response.start", 429), ("websocket.http.response.body", None)]]),
])
def test_websockets(limited, extensions, expected, rule):
    async def app(scope, receive, send):
        assert (await receive())["type"] == "websocket.connect"
        await send({"type": "websocket.accept"})

    async def open_one():
        sent = []

        async def receive():
            return {"type": "websocket.connect"}

        async def send(message):
            detail = message.get("code") or message.get("status")
            plain = message["type"] == "websocket.accept"
            assert not plain or bool(message.get("headers")) == limited
            sent.append(message["type"] if plain else (message["type"], detail))

        scope = {"type": "websocket", "path": "/", "headers": [], "client": ("192.0.2.1", 1),
                 "extensions": extensions}
        await stint.asgi.LimitMiddleware(app, rule, websocket=limited)(scope, receive, send)
        return sent

    assert [asyncio.run(open_one()) for _ in range(2)] == expected


def test_the_middleware_is_wsgi(rule):
    """By the checker of the standard library: an application that passes, then a refusal."""
    def app(environ, start):
        start("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]

    checked = validator(stint.wsgi.LimitMiddleware(validator(app), rule))
    assert [web.ask_wsgi(checked).status for _ in range(2)] == [200, 429]


def test_streams_have_the_fields(rule):
    """They are added before the first byte, and the stream stays one."""
    def app(environ, start):
        def body():
            write = start("200 OK", [("Content-Type", "text/plain")])
            assert write is not None
            yield b"a"
            yield b"b"

        return body()

    reply = web.ask_wsgi(stint.wsgi.LimitMiddleware(app, rule))
    assert (reply.body, reply.field("RateLimit")) == (b"ab", '"1/1m";r=0;t=63')


def test_aiohttp_views_errors_and_streams(table):
    class Item(web.web.View):
        @stint.aiohttp.limit(Rule(stint.Limiter(table, "9/1m", name="view"), "all"))
        async def get(self):
            return web.web.Response(text=self.request.path)

    async def missing(request):
        raise web.web.HTTPNotFound

    async def stream(request):
        response = web.web.StreamResponse()
        await response.prepare(request)
        await response.write(b"streamed")
        return response

    def make():
        app = web.web.Application(middlewares=[
            stint.aiohttp.middleware(Rule(stint.Limiter(table, "9/1m", name="app"), "all"))])
        app.router.add_view("/item", Item)
        app.router.add_get("/missing", missing)
        app.router.add_get("/stream", stream)
        return app

    reply = web.ask_aiohttp(make, path="/item")
    assert (reply.body, reply.field("RateLimit")) == (
        b"/item", '"view";r=8;t=63, "app";r=8;t=63')
    for path, status in (("/missing", 404), ("/nowhere", 404)):
        reply = web.ask_aiohttp(make, path=path)
        assert (reply.status, reply.field("RateLimit-Policy")) == (status, '"app";q=9;w=60')
    assert web.ask_aiohttp(make, path="/stream").body == b"streamed"


def test_views_of_django_classes(rule):
    limit = stint.django.limit(rule)

    @method_decorator(limit, "dispatch")
    class Sync(View):
        def get(self, request):
            return web_django.HttpResponse("hello")

    class Async(View):
        async def get(self, request):
            return web_django.HttpResponse("hello")

    asked = RequestFactory().get("/", REMOTE_ADDR="192.0.2.1")
    assert [Sync.as_view()(asked).status_code for _ in range(2)] == [200, 429]
    marked = method_decorator(limit, "dispatch")(type("Marked", (Async,), {}))
    for i, view in enumerate((limit(Async.as_view()), marked.as_view())):
        asked = RequestFactory().get("/", REMOTE_ADDR=f"192.0.3.{i}")
        assert [asyncio.run(view(asked)).status_code for _ in range(2)] == [200, 429]


def test_flask_blueprints_errors_and_async_views(table):
    app, part = flask.Flask(__name__), flask.Blueprint("part", __name__)
    stint.flask.limit_app(part, Rule(stint.Limiter(table, "2/1m"), address()))
    part.route("/part")(lambda: flask.abort(403))

    async def other():
        return "async"

    app.route("/other")(stint.flask.limit(Rule(stint.Limiter(table, "9/1m"), "all"))(other))
    app.register_blueprint(part)
    client = app.test_client()
    replies = [client.get("/part") for _ in range(3)]
    assert [reply.status_code for reply in replies] == [403, 403, 429]
    assert replies[0].headers["RateLimit"] == '"2/1m";r=1;t=63'
    reply = client.get("/other")
    assert (reply.text, reply.headers["RateLimit"]) == ("async", '"9/1m";r=8;t=63')


# ---- All or none --------------------------------------------------------------------------------


class Raced:
    """A limiter whose last units another request takes between the look and the take."""

    def __init__(self, limiter):
        self.limiter, self.name, self.quotas = limiter, limiter.name, limiter.quotas
        self.peek, self.refund = limiter.peek, limiter.refund

    def take(self, key, cost=1):
        self.limiter.take(key, self.limiter.peek(key, 0).remaining)
        return self.limiter.take(key, cost)


def test_units_are_returned_if_another_request_is_faster(table):
    first, second = stint.Limiter(table, "5/1m", name="a"), stint.Limiter(table, "5/1m", name="b")
    rule = Rule([(first, "key", 3), (Raced(second), "key")])
    reply = web.wsgi_middleware(rule)()
    assert reply.status == 429
    assert first.peek("key", 0).remaining == 5
    assert reply.field("RateLimit") == '"b";r=0;t=63, "a";r=5'


def test_threads_share_a_rule(table):
    """All or none under contention: what passed is what both limits were charged."""
    wide, narrow = stint.Limiter(table, "300/1m", name="wide"), stint.Limiter(table, "50/1m")
    ask = web.wsgi_middleware(Rule([(wide, "all"), (narrow, "all")]))
    passed = []

    def run():
        passed.extend(ask().status for _ in range(40))

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert passed.count(200) <= 50 and set(passed) == {200, 429}
    # A race lost may keep a unit charged until its time; none is ever gained.
    assert 300 - wide.peek("all", 0).remaining >= passed.count(200) > 0
    assert narrow.peek("all", 0).remaining == 50 - passed.count(200)
