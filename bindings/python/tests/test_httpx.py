# SPDX-License-Identifier: MIT
"""Transports: a key of a pool for each request, also for the real openai and anthropic clients."""
from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from fake_provider import FakeProvider
from hypothesis import given, settings
from hypothesis import strategies as st

import stint
import stint.httpx
from stint.httpx import AsyncTransport, Transport, cooldown_of
from stint.testing import Clock

SECRETS = {"first": "sk-one-77", "second": "sk-two-88"}
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
SENT_AT = 1792567680.0  # the same
CHAT: dict[str, Any] = {"model": "gpt-4o", "max_tokens": 5,
                        "messages": [{"role": "user", "content": "one two three"}]}


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


def pool_of(table: stint.Table, quota: str = "100/1m", keys: Any = SECRETS) -> stint.Pool:
    return stint.Pool(table, "llm", list(keys), quota=quota)


def options(provider: FakeProvider, pool: stint.Pool, **more: Any) -> dict[str, Any]:
    return {"pool": pool, "secrets": SECRETS, "origin": provider.url, **more}


def client_of(provider: FakeProvider, pool: stint.Pool, **more: Any) -> httpx.Client:
    return httpx.Client(base_url=provider.url, transport=Transport(
        httpx.HTTPTransport(), **options(provider, pool, **more)))


def standings(pool: stint.Pool) -> dict[str, str]:
    return {status.name: status.standing for status in pool.status()}


# ---- What providers say of time ----

@pytest.mark.parametrize(("headers", "is_refused", "expected"), [
    ({"retry-after": "7"}, True, 7),
    ({"retry-after": " 1.5 "}, True, 1.5),
    ({"retry-after": "7"}, False, None),
    ({"retry-after": "7", "retry-after-ms": "1200"}, True, 1.2),
    ({"retry-after": "7", "retry-after-ms": "soon"}, True, 7),
    ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, True, 30),
    ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT",
      "date": "Wed, 21 Oct 2026 07:28:20 GMT"}, True, 10),  # the clock of the provider
    ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, True, None),
    ({"retry-after": "Fri, 31 Dec 9999 23:59:59 GMT"}, True, 3600),
    ({"retry-after": "99999999999999999999999999"}, True, None),
    ({"retry-after": "999999999999"}, True, 3600),
    ({"retry-after": "0"}, True, None),
    ({"retry-after": "-5"}, True, None),
    ({"retry-after": "nan"}, True, None),
    ({"retry-after": "inf"}, True, None),
    ({"retry-after": "1e9"}, True, None),
    ({"retry-after": "1_000"}, True, None),
    ({"retry-after": "٣"}, True, None),  # a digit, but none of HTTP
    ({"retry-after": "1, 2"}, True, None),
    ({"retry-after": "1s" * 40}, True, None),
    ({"retry-after": "Wed, 99 Oct 2026 77:28:00 GMT"}, True, None),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, False, 360),
    ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, False, 0.02),
    ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1h2m3.5s"}, False, 3600),
    ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1s junk"}, False, None),
    ({"x-ratelimit-remaining-tokens": "0"}, False, None),
    ({"x-ratelimit-remaining-tokens": "12", "x-ratelimit-reset-tokens": "6m0s"}, True, None),
    ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s",
      "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}, False, 9),
    ({"anthropic-ratelimit-output-tokens-remaining": "0",
      "anthropic-ratelimit-output-tokens-reset": "2026-10-21T07:28:45Z"}, False, 45),
    ({"anthropic-ratelimit-requests-remaining": "0",
      "anthropic-ratelimit-requests-reset": "2026-10-21T09:28:05+02:00"}, False, 5),
    ({"anthropic-ratelimit-requests-remaining": "0",
      "anthropic-ratelimit-requests-reset": "2026-13-41T99:99:99Z"}, False, None),
    ({}, True, None),
])
def test_cooldown(headers: dict[str, str], is_refused: bool, expected: float | None) -> None:
    assert cooldown_of(headers, is_refused, now=SENT_AT) == pytest.approx(expected)


NAMES = ["date", "retry-after", "retry-after-ms", *(limit.format(what) for limit in
         stint.httpx._LIMITS for what in ("remaining", "reset"))]
VALUES = st.one_of(st.text(max_size=80), st.integers().map(str), st.floats().map(str),
                   st.datetimes().map(lambda date: date.isoformat() + "Z"),
                   st.sampled_from(["0", DATE, "6m0s", "Mon, 01 Jan 0001 00:00:00 +2359"]))


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES), st.booleans())
def test_any_header_is_bounded(headers: dict[str, str], is_refused: bool) -> None:
    cooldown = cooldown_of(headers, is_refused, longest=60.0)
    assert cooldown is None or 0 < cooldown <= 60


# ---- Keys ----

def test_keys_take_turns_and_each_is_sent_as_its_secret(provider: FakeProvider,
                                                        table: stint.Table) -> None:
    with client_of(provider, pool_of(table)) as client:
        for _ in range(4):
            assert client.post("/chat/completions", json=CHAT).status_code == 200
    assert Counter(c.key for c in provider.calls) == {"sk-one-77": 2, "sk-two-88": 2}


def test_a_refused_key_cools_down_for_all_and_another_is_tried(provider: FakeProvider,
                                                               table: stint.Table) -> None:
    provider.limits = {"sk-one-77": 1, "sk-two-88": 2}
    pool = pool_of(table)
    with client_of(provider, pool) as client:
        statuses = [client.post("/chat/completions", json=CHAT).status_code for _ in range(3)]
        assert statuses == [200, 200, 200]
        assert provider.statuses() == [200, 200, 429, 200]
        assert standings(pool_of(table)) == {"first": "cooling", "second": "free"}
        assert client.post("/chat/completions", json=CHAT).status_code == 429
        assert standings(pool) == {"first": "cooling", "second": "cooling"}
        # The next one is refused here: the provider sees no more of it.
        refused = client.post("/chat/completions", json=CHAT)
    assert refused.status_code == 429 and 1 <= int(refused.headers["retry-after"]) <= 60
    assert provider.statuses() == [200, 200, 429, 200, 429]


def test_what_is_sent_once_is_not_tried_again(provider: FakeProvider, table: stint.Table) -> None:
    provider.faults["gpt-4o"] = [429]
    with client_of(provider, pool_of(table)) as client:
        body = httpx.Request("POST", "http://x", json=CHAT).content
        response = client.post("/chat/completions", content=iter([body]),
                               headers={"content-length": str(len(body))})
    assert response.status_code == 429 and provider.statuses() == [429]


def test_attempts_are_bounded(provider: FakeProvider, table: stint.Table) -> None:
    provider.faults["gpt-4o"] = [429] * 9
    provider.refusal_headers = {"retry-after-ms": "1"}
    with client_of(provider, pool_of(table), attempts=2, max_wait=60) as client:
        assert client.post("/chat/completions", json=CHAT).status_code == 429
    assert provider.statuses() == [429, 429]


@pytest.mark.parametrize(("max_wait", "status", "at"), [(60, 200, 60), (59, 429, 0)])
def test_waits_for_a_key(provider: FakeProvider, table: stint.Table, clock: Clock, max_wait: float,
                         status: int, at: float) -> None:
    with client_of(provider, pool_of(table, "log 1/1m"), max_wait=max_wait) as client:
        for _ in SECRETS:
            assert client.post("/chat/completions", json=CHAT).status_code == 200
        last = client.post("/chat/completions", json=CHAT)
    assert last.status_code == status
    assert clock.now() == pytest.approx(at)
    assert len(provider.calls) == (3 if status == 200 else 2)
    if status == 429:
        assert last.headers["retry-after"] == "60"


@pytest.mark.parametrize(("status", "standing"), [(401, "backing_off"), (429, "backing_off"),
                                                  (500, "free"), (400, "free")])
def test_outcomes_without_a_time(provider: FakeProvider, table: stint.Table, status: int,
                                 standing: str) -> None:
    provider.faults["gpt-4o"] = [status]
    pool = pool_of(table)
    with client_of(provider, pool, attempts=1) as client:
        assert client.post("/chat/completions", json=CHAT).status_code == status
    assert standings(pool)["first"] == standing


def test_a_success_forgets_failures(provider: FakeProvider, table: stint.Table,
                                    clock: Clock) -> None:
    provider.faults["gpt-4o"] = [429]
    pool = pool_of(table, keys=["first"])
    with client_of(provider, pool, attempts=1) as client:
        client.post("/chat/completions", json=CHAT)
        assert [s.failures for s in pool.status()] == [1]
        clock.advance(1.5)
        assert client.post("/chat/completions", json=CHAT).status_code == 200
    assert [s.failures for s in pool.status()] == [0]


def test_a_success_of_an_earlier_request_ends_no_cooldown(table: stint.Table) -> None:
    pool = pool_of(table, keys=["first"])

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/slow":
            assert client.get("/quick").status_code == 429
            return httpx.Response(200)
        return httpx.Response(429, headers={"retry-after": "30"})

    with httpx.Client(base_url="http://llm", transport=Transport(
            httpx.MockTransport(answer), pool=pool, secrets=SECRETS,
            origin="http://llm")) as client:
        assert client.get("/slow").status_code == 200
    assert standings(pool) == {"first": "cooling"}


def test_threads_may_end_one_cooldown(table: stint.Table) -> None:
    """Two requests succeed at once: the second finds the mark of the first one's cooldown gone."""
    pool = pool_of(table, keys=["first"])
    transport = Transport(httpx.MockTransport(lambda request: httpx.Response(200)), pool=pool,
                          secrets=SECRETS, origin="http://llm")

    class Raced(dict):  # type: ignore[type-arg]
        def get(self, name: str, default: Any = None) -> Any:
            found = super().get(name, default)
            self.pop(name, None)
            return found

    transport._cooled_at = Raced(first=-1)
    with httpx.Client(transport=transport) as client:
        assert client.get("http://llm").status_code == 200


@pytest.mark.parametrize("status", [200, 401, 429])
def test_a_key_may_be_removed_during_its_request(table: stint.Table, status: int) -> None:
    pool = pool_of(table, keys=["first"])

    def answer(request: httpx.Request) -> httpx.Response:
        pool.remove("first")
        return httpx.Response(status)

    transport = Transport(httpx.MockTransport(answer), pool=pool, secrets=SECRETS,
                          origin="http://llm", attempts=1)
    transport._cooled_at["first"] = -1
    with httpx.Client(transport=transport) as client:
        assert client.get("http://llm").status_code == status


class Refusal(httpx.AsyncByteStream):
    """The body of a response, which counts how many are open."""

    n_open = 0

    def __init__(self) -> None:
        Refusal.n_open += 1

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"{}"

    async def aclose(self) -> None:
        Refusal.n_open -= 1


def refuse(request: httpx.Request) -> httpx.Response:
    return httpx.Response(429, headers={"retry-after": "5"}, stream=Refusal())


def test_no_response_is_open_while_a_request_waits(table: stint.Table,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """A response keeps a connection of the transport within."""
    monkeypatch.setattr(Refusal, "n_open", 0)
    pool = pool_of(table, keys=["first"])
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(Refusal.n_open)
        raise asyncio.CancelledError

    monkeypatch.setattr("anyio.sleep", sleep)

    async def run() -> None:
        async with httpx.AsyncClient(transport=AsyncTransport(
                httpx.MockTransport(refuse), pool=pool, secrets=SECRETS, origin="http://llm",
                max_wait=30)) as client:
            await client.get("http://llm")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    assert slept == [0] and Refusal.n_open == 0


def test_a_response_is_closed_if_the_table_fails(table: stint.Table,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refusal, "n_open", 0)
    pool = pool_of(table, keys=["first"])

    def close_and_refuse(request: httpx.Request) -> httpx.Response:
        table.close()
        return refuse(request)

    async def run() -> None:
        async with httpx.AsyncClient(transport=AsyncTransport(
                httpx.MockTransport(close_and_refuse), pool=pool, secrets=SECRETS,
                origin="http://llm")) as client:
            await client.get("http://llm")

    with pytest.raises(stint.TableError):
        asyncio.run(run())
    assert Refusal.n_open == 0


def test_only_a_request_that_was_not_sent_gives_its_unit_back(provider: FakeProvider,
                                                              table: stint.Table) -> None:
    provider.faults["gpt-4o"] = ["no response"]
    pool = pool_of(table, keys=["first"])
    with client_of(provider, pool) as client, pytest.raises(httpx.RemoteProtocolError):
        client.post("/chat/completions", json=CHAT)
    assert pool.status()[0].decision.remaining == 99
    closed = "http://127.0.0.1:9"
    with httpx.Client(transport=Transport(httpx.HTTPTransport(), pool=pool, secrets=SECRETS,
                                          origin=closed)) as client:
        with pytest.raises(httpx.ConnectError):
            client.get(closed)
    assert pool.status()[0].decision.remaining == 99


# ---- Secrets ----

def test_secrets_are_shown_to_the_provider_alone(provider: FakeProvider, table: stint.Table,
                                                 caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    with client_of(provider, pool_of(table), header="x-api-key") as client:
        for model in ("gpt-4o", "other"):
            provider.faults["other"] = ["no response"]
            try:
                response = client.post("/chat/completions", json={**CHAT, "model": model})
                shown += [repr(response.request.headers.raw), repr(response.headers.raw)]
            except httpx.HTTPError as error:
                shown += [repr(error), repr(error.request.headers.raw)]
        shown += [repr(client._transport), str(vars(client.headers)), caplog.text]
    assert {call.key for call in provider.calls} == set(SECRETS.values())
    for secret in SECRETS.values():
        assert not any(secret in text for text in shown)


def test_a_redirect_to_another_origin_gets_no_key(provider: FakeProvider,
                                                  table: stint.Table) -> None:
    with FakeProvider() as other:
        provider.faults["gpt-4o"] = [other.url.removesuffix("/v1")]
        with client_of(provider, pool_of(table)) as client:
            client.post("/chat/completions", json=CHAT, follow_redirects=True,
                        headers={"authorization": "Bearer unused"})
        assert [call.key for call in other.calls] == [""]


# ---- Settings ----

@pytest.mark.parametrize(("settings", "error", "text"), [
    ({}, TypeError, "one of pool= and limiter="),
    ({"secrets": None}, TypeError, "needs secrets="),
    ({"secrets": {"first": "x"}}, ValueError, "no secret for second"),
    ({"origin": "api.openai.com"}, ValueError, "https://api.openai.com"),
    ({"max_wait": -1}, ValueError, "max_wait is -1"),
    ({"max_wait": float("inf")}, ValueError, "max_wait is inf"),
    ({"attempts": 0}, ValueError, "attempts is 0"),
])
def test_settings(table: stint.Table, settings: dict[str, Any], error: type[Exception],
                  text: str) -> None:
    given_ = {"pool": pool_of(table), "secrets": SECRETS, "origin": "http://a", **settings} \
        if settings else {}
    with pytest.raises(error, match=text) as raised:
        Transport(httpx.HTTPTransport(), **given_)
    assert "sk-" not in str(raised.value)


# ---- A limiter instead of a pool ----

def test_limiter(provider: FakeProvider, table: stint.Table, clock: Clock) -> None:
    limiter = stint.Limiter(table, "2/1m")
    with httpx.Client(base_url=provider.url, transport=Transport(
            httpx.HTTPTransport(), limiter=limiter, max_wait=5,
            key=lambda request: request.headers["x-user"])) as client:
        def ask(user: str) -> httpx.Response:
            return client.post("/chat/completions", json=CHAT, headers={"x-user": user})

        assert [ask("a").status_code for _ in range(3)] == [200, 200, 429]
        assert ask("b").status_code == 200
        assert "retry-after" in ask("a").headers
    assert len(provider.calls) == 3 and clock.now() == 0


def test_what_can_never_be_granted_says_so(provider: FakeProvider, table: stint.Table) -> None:
    with httpx.Client(base_url=provider.url, transport=Transport(
            httpx.HTTPTransport(), limiter=stint.Limiter(table, "2/1m"), cost=3)) as client:
        response = client.post("/chat/completions", json=CHAT)
    assert (response.status_code, response.headers["x-should-retry"]) == (429, "false")
    assert "retry-after" not in response.headers and provider.calls == []


class Awaited:
    """A limiter whose verbs are awaited, as one of a server in async code."""

    def __init__(self, limiter: stint.Limiter) -> None:
        self._limiter, self.table = limiter, limiter.table

    async def take(self, key: str, cost: int = 1) -> stint.Decision:
        return self._limiter.take(key, cost)


def test_an_async_limiter(table: stint.Table) -> None:
    """A coroutine is true: it must not pass for units."""
    limiter: Any = Awaited(stint.Limiter(table, "2/1m"))
    sent = httpx.MockTransport(lambda request: httpx.Response(200))

    async def run() -> list[int]:
        async with httpx.AsyncClient(transport=AsyncTransport(sent, limiter=limiter)) as client:
            return [(await client.get("http://llm")).status_code for _ in range(3)]

    assert asyncio.run(run()) == [200, 200, 429]
    with httpx.Client(transport=Transport(sent, limiter=limiter)) as client:
        with pytest.raises(TypeError, match="use AsyncTransport"):
            client.get("http://llm")


# ---- Many at a time ----

def test_concurrent_requests_stay_within_the_limits_of_the_provider(provider: FakeProvider) -> None:
    provider.limits = {secret: 10 for secret in SECRETS.values()}

    async def run(pool: stint.Pool) -> Counter[int]:
        transport = AsyncTransport(httpx.AsyncHTTPTransport(), **options(provider, pool))
        async with httpx.AsyncClient(base_url=provider.url, transport=transport) as client:
            responses = await asyncio.gather(
                *(client.post("/chat/completions", json=CHAT, timeout=30) for _ in range(50)))
        return Counter(response.status_code for response in responses)

    with stint.Table() as table:
        assert asyncio.run(run(pool_of(table, "10/1m"))) == {200: 20, 429: 30}
    assert Counter(c.key for c in provider.calls) == dict.fromkeys(SECRETS.values(), 10)


# ---- Real clients ----

def test_openai(provider: FakeProvider, table: stint.Table) -> None:
    provider.limits = {"sk-one-77": 1}
    transport = Transport(httpx.HTTPTransport(), **options(provider, pool_of(table)))
    with openai.OpenAI(api_key="unused", base_url=provider.url, max_retries=0,
                       http_client=httpx.Client(transport=transport)) as client:
        texts = [client.chat.completions.create(**CHAT).choices[0].message.content
                 for _ in range(3)]
        stream = client.chat.completions.create(**CHAT, stream=True)
        texts.append("".join(chunk.choices[0].delta.content or "" for chunk in stream))
    assert texts == ["word0 word1 word2 word3 word4 "] * 4
    assert provider.statuses() == [200, 200, 429, 200, 200]


def test_openai_asynchronous(provider: FakeProvider, table: stint.Table) -> None:
    async def run() -> None:
        transport = AsyncTransport(httpx.AsyncHTTPTransport(),
                                   **options(provider, pool_of(table, "log 1/1m")))
        async with openai.AsyncOpenAI(
                api_key="unused", base_url=provider.url, max_retries=0,
                http_client=httpx.AsyncClient(transport=transport)) as client:
            await client.chat.completions.create(**CHAT)
            stream = await client.chat.completions.create(**CHAT, stream=True)
            assert [c.choices[0].delta.content async for c in stream][0] == "word0 "
            with pytest.raises(openai.RateLimitError, match="no units are free") as raised:
                await client.chat.completions.create(**CHAT)
            assert raised.value.response.headers["retry-after"] == "60"

    asyncio.run(run())
    assert len(provider.calls) == 2


def test_anthropic(provider: FakeProvider, table: stint.Table) -> None:
    provider.limits = {"sk-one-77": 1}
    transport = Transport(httpx2.HTTPTransport(),
                          **options(provider, pool_of(table), header="x-api-key"))
    chat = {**CHAT, "model": "claude"}
    with anthropic.Anthropic(api_key="unused", base_url=provider.url.removesuffix("/v1"),
                             max_retries=0,
                             http_client=httpx2.Client(transport=transport)) as client:
        for _ in range(3):
            assert client.messages.create(**chat).usage.output_tokens == 5
        with client.messages.stream(**chat) as stream:
            assert "".join(stream.text_stream) == "word0 word1 word2 word3 word4 "
    assert provider.statuses() == [200, 200, 429, 200, 200]


def test_anthropic_asynchronous(provider: FakeProvider, table: stint.Table) -> None:
    chat = {**CHAT, "model": "claude"}

    async def run() -> None:
        transport = AsyncTransport(
            httpx2.AsyncHTTPTransport(),
            **options(provider, pool_of(table, "1/1m"), header="x-api-key"))
        async with anthropic.AsyncAnthropic(
                api_key="unused", base_url=provider.url.removesuffix("/v1"), max_retries=0,
                http_client=httpx2.AsyncClient(transport=transport)) as client:
            async with client.messages.stream(**chat) as stream:
                assert await stream.get_final_text() == "word0 word1 word2 word3 word4 "
            await client.messages.create(**chat)
            with pytest.raises(anthropic.RateLimitError):
                await client.messages.create(**chat)

    asyncio.run(run())
    assert len(provider.calls) == 2
