# SPDX-License-Identifier: MIT
"""Transports for httpx and httpx2 that send requests with a key of a pool, or within a limit.

    pool = stint.Pool(table, "openai", {"first": "500/1m", "second": "60/1m"})
    transport = stint.httpx.Transport(
        httpx.HTTPTransport(), pool=pool, secrets={"first": "sk-…", "second": "sk-…"},
        origin="https://api.openai.com", max_wait=30)
    client = openai.OpenAI(api_key="unused", http_client=httpx.Client(transport=transport))

The anthropic package takes clients of httpx2, and `header="x-api-key"`. A key that the provider
refuses with 429 cools down, in all processes that share the pool, for as long as the provider says.

Several providers forbid the use of several keys to pass the limits of one account.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from ._core import GoneError
from .limiter import Limiter
from .pool import Lease, Pool

if TYPE_CHECKING:
    from .remote import AsyncLimiter, RemoteLimiter

# Any: instances fit both httpx.BaseTransport and that of httpx2, which are checked by methods.
_Base: Any = object

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_DURATION = re.compile(rf"({_NUMBER})(ms|us|[dhms])")
_DURATIONS = re.compile(rf"(?:{_NUMBER}(?:ms|us|[dhms]))+")
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_HEADER_MAX = 64  # characters of a time
_LIMITS = [form.format(what) for form, whats in (
    ("x-ratelimit-{{}}-{}", ("requests", "tokens")),
    ("anthropic-ratelimit-{}-{{}}", ("requests", "tokens", "input-tokens", "output-tokens")),
) for what in whats]


def cooldown_of(headers: Mapping[str, str], is_refused: bool, longest: float = 3600.0,
                now: float | None = None) -> float | None:
    """Seconds, above 0 and at most `longest`, for which a provider wants no request; None if it
    does not say.

    headers: of a response, by names in lower case. is_refused: its status is 429: retry-after-ms
    and retry-after count. Limits of which nothing remains always count. now: seconds since 1970,
    used if the response has no date. What is no time, is negative or past counts as absent.
    """
    date = _time(headers.get("date"))
    base = date if date is not None else time.time() if now is None else now
    waits = []
    if is_refused:
        milliseconds = _number(headers.get("retry-after-ms"))
        waits.append(_wait(headers.get("retry-after"), base) if milliseconds is None
                     else milliseconds / 1e3)
    if not any(waits):
        waits += [_wait(headers.get(limit.format("reset")), base) for limit in _LIMITS
                  if _number(headers.get(limit.format("remaining"))) == 0]
    longest_wait = max((wait for wait in waits if wait is not None), default=0.0)
    return min(longest_wait, longest) if longest_wait > 0 else None


def _number(text: str | None) -> float | None:
    text = (text or "").strip()
    return float(text) if re.fullmatch(_NUMBER, text) else None


def _wait(text: str | None, now: float) -> float | None:
    """Seconds: of a number of seconds, a duration as 6m0s or 20ms, or until a date."""
    text = (text or "").strip()
    if len(text) > _HEADER_MAX:
        return None
    seconds = _number(text)
    if seconds is not None:
        return seconds
    if _DURATIONS.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))
    date = _time(text)
    return None if date is None else max(0.0, date - now)


def _time(text: str | None) -> float | None:
    """Seconds since 1970 of an HTTP date or of RFC 3339."""
    text = (text or "").strip()
    if not text or len(text) > _HEADER_MAX:
        return None
    try:
        date = (parsedate_to_datetime(text) if text[0].isalpha()
                else datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text)))
        return (date if date.tzinfo else date.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class _Step(NamedTuple):
    """What a transport has to do next: "sleep" seconds, "send" a request, "close" a response,
    "await" the decision of an async limiter."""

    action: str
    what: Any


Steps = Generator[_Step, Any, Any]


class _Limits:
    """What both transports do, without their input and output."""

    def __init__(self, transport: Any, *, pool: Pool | None = None,
                 secrets: Mapping[str, str] | None = None, origin: str | None = None,
                 header: str = "authorization",
                 limiter: Limiter | RemoteLimiter | AsyncLimiter | None = None,
                 key: str | bytes | Callable[[Any], str | bytes] = "",
                 cost: int | Callable[[Any], int] = 1, max_wait: float = 0.0, attempts: int = 3,
                 max_cooldown: float = 3600.0) -> None:
        if (pool is None) == (limiter is None):
            raise TypeError("a transport needs one of pool= and limiter=")
        if pool is not None and (secrets is None or origin is None):
            raise TypeError("pool= needs secrets= (a mapping of the names of its keys), and "
                            "origin= (such as https://api.openai.com: who may see them)")
        for name, value, least in (("max_wait", max_wait, 0), ("attempts", attempts, 1),
                                   ("max_cooldown", max_cooldown, 0)):
            if not least <= value < math.inf:
                raise ValueError(f"{name} is {value}; expected at least {least}, and finite")
        if pool is not None:
            missing = [s.name for s in pool.status() if s.name not in (secrets or {})]
            if missing:
                raise ValueError(f"no secret for {', '.join(missing)} of the pool {pool.name!r}")
        self._transport = transport
        self._pool = pool
        self._secrets = secrets or {}
        self._origin = None if origin is None else _origin(origin)
        self._header = header.lower()
        self._limiter = limiter
        self._key = key
        self._cost = cost
        self._max_wait = max_wait
        self._attempts = attempts
        self._max_cooldown = max_cooldown
        self._cooled_at: dict[str, int] = {}  # by name of key: when this transport reported it
        table = getattr(pool or limiter, "table", None)
        self._clock = getattr(table, "clock", None)

    def __repr__(self) -> str:
        return f"<stint.httpx.{type(self).__name__} of {self._pool or self._limiter!r}>"

    def _steps(self, request: Any) -> Steps:
        if self._pool is not None:
            if _origin(request.url) != self._origin:  # a redirect, maybe: it gets no key
                return (yield _Step("send", request))
            return (yield from self._with_key(self._pool, request))
        assert self._limiter is not None
        limiter, cost = self._limiter, self._cost_of(request)
        key = self._key(request) if callable(self._key) else self._key
        decision, _, _ = yield from self._until(lambda: limiter.take(key, cost), self._max_wait)
        if not decision:
            return _refusal(request, decision.retry_after)
        return (yield _Step("send", request))

    def _with_key(self, pool: Pool, request: Any) -> Steps:
        cost, left = self._cost_of(request), self._max_wait
        may_repeat = _is_read(request)
        response = None
        try:
            for _ in range(self._attempts):
                lease, left, response = yield from self._until(lambda: pool.next(cost), left,
                                                               response)
                if not lease:
                    return response or _refusal(request, lease.retry_after)
                started_at = pool.table.now()
                response = yield from self._send(pool, lease, cost, request)
                with suppress(GoneError):  # removed meanwhile: the response is what it is
                    self._report(pool, lease, response, started_at)
                if response.status_code != 429 or not may_repeat:
                    break
        except BaseException:
            if response is not None:
                yield _Step("close", response)
            raise
        return response

    def _send(self, pool: Pool, lease: Lease, cost: int, request: Any) -> Steps:
        try:
            return (yield _Step("send", self._signed(request, lease)))
        except Exception as error:
            if type(error).__name__ in ("ConnectError", "ConnectTimeout", "PoolTimeout"):
                with suppress(GoneError):
                    pool.give_back(lease.name or "", cost, lease.granted_at_ns)
            raise

    def _until(self, take: Callable[[], Any], left: float,
               response: Any = None) -> Generator[_Step, Any, Any]:
        """Takes until it is granted or would wait longer than `left`.

        Returns the answer, what remains of `left`, and the response. This one, which has a
        connection of its own, is closed before a wait and before the next request.
        """
        while True:
            answer = take()
            if inspect.isawaitable(answer):
                answer = yield _Step("await", answer)
            if not answer and answer.retry_after > left:
                return answer, left, response
            if response is not None:
                yield _Step("close", response)
                response = None
            if answer:
                return answer, left, None
            wait = max(answer.retry_after, 0.001)
            left -= wait
            yield _Step("sleep", wait)

    def _cost_of(self, request: Any) -> int:
        return self._cost(request) if callable(self._cost) else self._cost

    def _signed(self, request: Any, lease: Lease) -> Any:
        """A copy of the request with the key, which is in no object that the caller sees."""
        secret = self._secrets[lease.name or ""]
        headers = request.headers.copy()
        for name in ("authorization", "x-api-key", "api-key"):
            headers.pop(name, None)
        headers[self._header] = f"Bearer {secret}" if self._header == "authorization" else secret
        return type(request)(request.method, request.url, headers=headers, stream=request.stream,
                             extensions=request.extensions)

    def _report(self, pool: Pool, lease: Lease, response: Any, started_at: int) -> None:
        name, status = lease.name or "", response.status_code
        cooldown = cooldown_of(response.headers, status == 429, self._max_cooldown)
        if cooldown is not None:
            pool.report(name, cooldown=cooldown)
        elif status in (401, 429):
            pool.report(name, ok=False)  # without a time: backs off, longer each time
        else:
            # An earlier request may succeed later: only one that began after the cooldown ends it.
            if status < 400 and self._cooled_at.get(name, started_at) < started_at:
                self._cooled_at.pop(name, None)  # another thread may be faster
                pool.report(name, ok=True)
            return
        self._cooled_at[name] = pool.table.now()


class Transport(_Limits, _Base):  # type: ignore[misc]
    """A transport for httpx.Client or httpx2.Client, around another.

    Either pool: each request is charged to a key of this stint.Pool. secrets: its keys by their
    names. origin: the scheme and host that may see them; requests to others, such as redirects,
    pass without a key. header: "authorization" (as Bearer), or the header that takes the bare key.
    Or limiter, and key: what is limited, or a function of the request.

    cost: units of a request, or a function of it. max_wait: seconds that a request may wait for
    units in all. A request that would wait longer is answered with 429 and Retry-After without
    being sent. attempts: keys that are tried when the provider answers 429, if the body of the
    request can be sent again. max_cooldown: bounds what a provider may ask for, in seconds.

    A key that gets 429, or that has nothing left by the provider's headers, cools down as they say;
    one that gets 401, or 429 without a time, backs off. Any thread. close() closes the transport
    within.
    """

    def handle_request(self, request: Any) -> Any:
        steps = self._steps(request)
        step: _Step | None = None
        result, error = None, None
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            result, error = None, None
            try:
                result = self._do(step)
            except BaseException as raised:
                error = raised

    def _do(self, step: _Step) -> Any:
        if step.action == "send":
            return self._transport.handle_request(step.what)
        if step.action == "close":
            return step.what.close()
        if step.action == "await":
            if inspect.iscoroutine(step.what):
                step.what.close()
            raise TypeError("limiter= is async, and this transport is not; use AsyncTransport")
        return (self._clock.advance if self._clock is not None else time.sleep)(step.what)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Transport:
        self._transport.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._transport.__exit__(*details)


class AsyncTransport(_Limits, _Base):  # type: ignore[misc]
    """As Transport, for httpx.AsyncClient or httpx2.AsyncClient; other tasks run while it waits.

    limiter: also an async one, such as stint.remote.AsyncLimiter.
    """

    async def handle_async_request(self, request: Any) -> Any:
        steps = self._steps(request)
        step: _Step | None = None
        result, error = None, None
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            result, error = None, None
            try:
                result = await self._do(step)
            except BaseException as raised:
                error = raised

    async def _do(self, step: _Step) -> Any:
        if step.action == "send":
            return await self._transport.handle_async_request(step.what)
        if step.action == "close":
            return await step.what.aclose()
        if step.action == "await":
            return await step.what
        import anyio  # httpx and httpx2 need it for asynchronous clients

        if self._clock is not None:
            self._clock.advance(step.what)
        return await anyio.sleep(0 if self._clock is not None else step.what)

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> AsyncTransport:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *details: Any) -> None:
        await self._transport.__aexit__(*details)


def _origin(url: Any) -> tuple[str, str, int]:
    """Scheme, host and port. Raises ValueError for what is no absolute URL."""
    from urllib.parse import urlsplit

    parts = urlsplit(str(url))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{str(url)!r} is no origin; expected such as https://api.openai.com")
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _is_read(request: Any) -> bool:
    """Whether the body is in memory, and so can be sent again."""
    try:
        return request.content is not None
    except Exception:  # noqa: BLE001  # RequestNotRead, of httpx or httpx2
        return False


def _refusal(request: Any, retry_after: float) -> Any:
    """The response to a request that was not sent, of the package that the request is of."""
    headers = {"x-should-retry": "false"}
    if retry_after < math.inf:
        headers = {"retry-after": str(max(1, math.ceil(retry_after)))}
    package = sys.modules[type(request).__module__.partition(".")[0]]
    return package.Response(429, headers=headers, request=request, json={"error": {
        "type": "rate_limit_error", "code": "rate_limit_exceeded",
        "message": "stint: no units are free" + (
            f"; retry after {headers['retry-after']} s" if "retry-after" in headers else "")}})
