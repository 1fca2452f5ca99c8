# SPDX-License-Identifier: MIT
"""Limits of HTTP requests, for every framework: keys, the rule of a route, replies.

A Rule decides about requests. The modules of the frameworks (asgi, starlette, wsgi, flask, django,
drf, aiohttp) only turn their requests into a Request, and a Verdict into their responses.
Addresses, fields and problem details are those of `stint serve` (/auth in docs/http.md).
"""
from __future__ import annotations

import inspect
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, NamedTuple, Union

import stint

from ._log import BoundedLog, shown

logger = logging.getLogger("stint.http")


# ---- Requests -----------------------------------------------------------------------------------


class Request:
    """A request as keys, costs and exemptions see it.

    method, path: text, the path decoded and without the query. peer: the address of the socket's
    other end, "" for a Unix socket. native: the framework's own request.
    """

    __slots__ = ("native", "method", "path", "peer", "_lines", "_user")

    def __init__(
        self,
        native: Any,
        method: str,
        path: str,
        peer: str,
        lines: Callable[[str], Sequence[str]],
        user: Callable[[], Any],
    ) -> None:
        self.native, self.method, self.path, self.peer = native, method, path, peer
        self._lines, self._user = lines, user

    def lines(self, name: str) -> Sequence[str]:
        """The values of a header field, a text (latin-1) for each of its lines."""
        return self._lines(name)

    def header(self, name: str) -> str | None:
        """The value of a header field, its lines joined with ", "; None if it is absent."""
        lines = self._lines(name)
        return ", ".join(lines) if lines else None

    def user(self) -> Any:
        """The framework's user: a text, a number, or None. Async frameworks: maybe awaitable."""
        return self._user()


# ---- Keys ---------------------------------------------------------------------------------------

Key = Union[str, bytes]
Result = Union[Key, tuple[Any, ...], None]
KeyFunction = Callable[[Request], Union[Result, Awaitable[Result]]]
# A constant, a function, or a tuple of these, all of which have to be there.
KeySpec = Union[Key, KeyFunction, "FirstOf", tuple[Any, ...]]


class FirstOf(NamedTuple):
    keys: tuple[Any, ...]


def first_of(*keys: KeySpec) -> FirstOf:
    """The first key that is not None: first_of(user(), address())."""
    return FirstOf(keys)


def user() -> KeyFunction:
    """`user:ID` of the framework's authenticated user; None for anonymous requests."""

    async def awaited(value: Awaitable[Any]) -> str | None:
        return named(await value)

    def named(value: Any) -> str | None:
        return None if value is None else f"user:{value}"

    def key(request: Request) -> Any:
        value = request.user()
        return awaited(value) if inspect.isawaitable(value) else named(value)

    return key


def header(name: str) -> KeyFunction:
    """`header:NAME:VALUE`, the name in small letters; None where the field is absent."""
    prefix = f"header:{name.lower()}:".encode("ascii")

    def key(request: Request) -> Result:
        value = request.header(name)
        return None if value is None else prefix + value.encode("latin-1", "replace")

    return key


def path() -> KeyFunction:
    """`path:PATH` in one spelling: `//` is `/`, and `..` is followed."""

    def key(request: Request) -> Result:
        kept: list[str] = []
        for part in request.path.split("/"):
            if part == "..":
                del kept[-1:]
            elif part not in ("", "."):
                kept.append(part)
        return ("path:/" + "/".join(kept)).encode("utf-8", "surrogateescape")

    return key


def join(parts: Iterable[Any]) -> bytes | None:
    """One key of several, each with its length: no values of other parts make the same key."""
    joined = []
    for part in parts:
        if part is None:
            return None
        text = part.encode() if isinstance(part, str) else part
        if not isinstance(text, bytes):
            raise TypeError(f"a part of a key is {type(part).__name__}; expected str or bytes")
        joined.append(b"%d:%s," % (len(text), text))
    return b"".join(joined)


# ---- Addresses ----------------------------------------------------------------------------------

ADDRESS_MAX = 128  # characters: an address with a zone, brackets and a port
FIELD_MAX = 8192  # characters of a field that are read, from its end; the server reads no more
HOPS_MAX = 64  # trusted addresses in a row
V4_MAPPED = b"\0" * 10 + b"\xff\xff"


class RequestError(ValueError):
    """A request that contradicts itself: it is refused with 400."""


def parse_address(text: str) -> bytes | None:
    """An address in 16 bytes, IPv4 as mapped; None for anything else.

    Brackets, a port and a zone are dropped.
    """
    if not 0 < len(text) < ADDRESS_MAX:
        return None
    if text[0] == "[":
        text, bracket, port = text[1:].partition("]")
        if not bracket or port and port[0] != ":":
            return None
    elif text.count(":") == 1:
        text = text.partition(":")[0]  # IPv6 has at least two
    text = text.partition("%")[0]
    for family, prefix in ((socket.AF_INET, V4_MAPPED), (socket.AF_INET6, b"")):
        try:
            return prefix + socket.inet_pton(family, text)
        except (OSError, ValueError):
            continue
    return None


def format_address(address: bytes, v4_bits: int = 32, v6_bits: int = 64) -> str:
    """The first bits of an address of 16 bytes in canonical text, the others zero."""
    is_v4 = address.startswith(V4_MAPPED)
    plain, bits = (address[12:], v4_bits) if is_v4 else (address, v6_bits)
    dropped = 8 * len(plain) - bits
    number = int.from_bytes(plain, "big") >> dropped << dropped
    family = socket.AF_INET if is_v4 else socket.AF_INET6
    return socket.inet_ntop(family, number.to_bytes(len(plain), "big"))


class Proxies:
    """Networks whose word about addresses is taken: "10.0.0.0/8", "::1", "unix". Immutable."""

    def __init__(self, networks: str | Iterable[str]) -> None:
        texts = [networks] if isinstance(networks, str) else list(networks)
        self.trusts_unix = "unix" in texts
        self.networks = [self._parse(text) for text in texts if text != "unix"]

    @staticmethod
    def _parse(text: str) -> tuple[int, int]:
        """The network's first bits, and how many bits of an address follow them."""
        address, slash, length = text.partition("/")
        packed = parse_address(address)
        if packed is None:
            raise ValueError(
                f"trusted proxy {text!r}: expected an address, a network like 10.0.0.0/8, or unix"
            )
        most = 32 if packed.startswith(V4_MAPPED) else 128
        if slash and not (length.isascii() and length.isdigit() and int(length) <= most):
            raise ValueError(
                f"trusted proxy {text!r}: expected a length of 0 to {most} after the '/'"
            )
        rest = most - int(length) if slash else 0
        return int.from_bytes(packed, "big") >> rest, rest

    def trust(self, address: bytes) -> bool:
        number = int.from_bytes(address, "big")
        return any(number >> rest == network for network, rest in self.networks)


def _cut_last(text: str, separator: str) -> tuple[str, str]:
    """The text before the last separator outside quotes, and the text after it.

    All of the text is after it where a quote has no pair. Pairs are found from the right, as a
    client's own text may be on the left of what its proxy has added.
    """
    is_quoted = False
    for at in range(len(text) - 1, -1, -1):
        if text[at] == separator and not is_quoted:
            return text[:at], text[at + 1 :]
        if text[at] == '"':
            is_escaped = (at - len(text[:at].rstrip("\\"))) % 2 == 1
            is_quoted = not is_quoted or is_escaped
    return "", text


def _forwarded_for(element: str) -> str:
    """The address in an element of Forwarded (RFC 7239); "" without one."""
    while element:
        element, pair = _cut_last(element, ";")
        pair = pair.strip(" \t")
        if pair[:4].lower() == "for=":
            value = pair[4:]
            return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value
    return ""


def _elements(lines: Sequence[str]) -> Generator[str, None, None]:
    """The elements of a list, the last one first: those that the nearest hosts have written."""
    for line in reversed(lines):
        rest = line[-FIELD_MAX:].rstrip(", \t")
        while rest:
            rest, element = _cut_last(rest, ",")
            yield element.strip(" \t")
            rest = rest.rstrip(", \t")


def address(
    trusted_proxies: str | Iterable[str] = (),
    *,
    field: str | None = None,
    v4_bits: int = 32,
    v6_bits: int = 64,
) -> KeyFunction:
    """`address:TEXT` of the client: its IPv4 address, or the first v6_bits of its IPv6 address.

    X-Forwarded-For or Forwarded is used if the socket's peer is in trusted_proxies ("10.0.0.0/8",
    "::1", "unix"): from the right, the first address that is not trusted is the client. What is no
    address ends the search at the host before it. A request from a proxy with both fields is
    refused with 400, since one of them is the client's: name the one that counts with `field`.
    """
    proxies = Proxies(trusted_proxies)
    if not 0 <= v4_bits <= 32 or not 0 <= v6_bits <= 128:
        raise ValueError(f"v4_bits={v4_bits}, v6_bits={v6_bits}: expected 0 to 32 and 0 to 128")

    def field_of(request: Request) -> str | None:
        if field is not None:
            return field
        names = [name for name in ("X-Forwarded-For", "Forwarded") if request.lines(name)]
        if len(names) > 1:
            raise RequestError(
                "both X-Forwarded-For and Forwarded came: the proxy must send only one of them"
            )
        return names[0] if names else None

    def find(request: Request, peer: bytes | None) -> bytes | None:
        """From the socket towards the client: each host has written the address before it."""
        is_trusted = proxies.trusts_unix if not request.peer else peer and proxies.trust(peer)
        name = field_of(request) if is_trusted else None
        if name is None:
            return peer
        found = peer
        for hop, element in enumerate(_elements(request.lines(name))):
            text = _forwarded_for(element) if name.lower() == "forwarded" else element
            packed = parse_address(text)
            if packed is None or hop == HOPS_MAX:
                break
            found = packed
            if not proxies.trust(packed):
                break
        return found

    def key(request: Request) -> Result:
        found = find(request, parse_address(request.peer))
        if found is None:
            return "address:unknown" if request.peer else "address:unix"
        return "address:" + format_address(found, v4_bits, v6_bits)

    return key


# ---- Fields -------------------------------------------------------------------------------------

NS = 1_000_000_000
NAME_MAX, LIST_MAX = 100, 1024  # bytes of a policy's name, and of a list of policies
STYLES = ("draft-11", "draft-03", "x-ratelimit", "none")
FIELD_NAMES = {  # of the older forms
    "draft-03": ("RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"),
    "x-ratelimit": ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),
}
LISTS = ("RateLimit-Policy", "RateLimit")  # fields that several rules of a request may add to
Fields = tuple[tuple[str, str], ...]


class Policy(NamedTuple):
    """What the fields say of a quota at any time: its name, and both in the form of RFC 9651."""

    name: str
    quoted: str
    item: str


class Standing(NamedTuple):
    """One quota of a request. decision: None if only the quotas beside it are known."""

    policy: Policy
    decision: Any
    grows_after_ns: int  # until `remaining` grows; 0: unknown, or never


def add_fields(headers: Any, fields: Fields) -> None:
    """Adds fields to a response's headers, which have get() and item assignment.

    Lists are continued; of other fields the one that is there stays.
    """
    for name, value in fields:
        present = headers.get(name)
        if present is None:
            headers[name] = value
        elif name in LISTS:
            headers[name] = f"{present}, {value}"


def seconds_up(ns: int) -> int:
    return -(-ns // NS)


def _period_ns(quota: Any) -> int:
    return int(round(quota.period * NS))


def short_name(quota: Any) -> str:
    """`100/1m`"""
    ns = _period_ns(quota)
    units = (("d", 86400 * NS), ("h", 3600 * NS), ("m", 60 * NS), ("s", NS), ("ms", 10**6))
    unit, size = next(((u, s) for u, s in units if ns % s == 0), ("us", 1000))
    return f"{quota.limit}/{ns // size}{unit}"


def _sf_string(text: str) -> str:
    plain = "".join(c if " " <= c <= "~" else "?" for c in text[:NAME_MAX])
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def policy_of(name: str, quota: Any) -> Policy:
    quoted = _sf_string(name)
    seconds = max(1, seconds_up(_period_ns(quota)))
    return Policy(name, quoted, f"{quoted};q={quota.limit};w={seconds}")


def _share(decision: Any) -> float:
    """The part of a limit that is left."""
    return decision.remaining / decision.limit if decision.limit else 0.0


def _binding(standings: Iterable[Standing]) -> Any:
    """The decision that refuses, else the one of which the smallest share is left; or None."""
    known = [standing.decision for standing in standings if standing.decision is not None]
    return min(known, key=lambda d: (bool(d), _share(d)), default=None)


def _draft_11(standings: Sequence[Standing]) -> Fields:
    """Two Lists of RFC 9651 with the same policies. Those that refuse come first."""

    def order(standing: Standing) -> tuple[bool, bool, float]:
        decision = standing.decision
        return (decision is None, bool(decision), 0 if decision is None else _share(decision))

    policies, states, sizes = [], [], [0, 0]
    for (_, state, policy), decision, grows_after_ns in sorted(standings, key=order):
        if decision is not None:
            state += f";r={decision.remaining}"
            state += f";t={seconds_up(grows_after_ns)}" if grows_after_ns else ""
        sizes = [sizes[0] + len(policy) + 2, sizes[1] + len(state) + 2]
        if max(sizes) > LIST_MAX + 2:
            break
        policies.append(policy)
        states += [state] if decision is not None else []
    lists = (("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(states)))
    return tuple((name, value) for name, value in lists if value)


def fields_of(styles: Iterable[str], standings: Sequence[Standing]) -> Fields:
    """The fields of a decided request."""
    fields: Fields = ()
    for style in styles:
        if style == "draft-11":
            fields += _draft_11(standings)
        elif style in FIELD_NAMES and (decision := _binding(standings)) is not None:
            denies = decision.outcome == "deny"
            reset_ns = decision.retry_after_ns if denies else decision.reset_after_ns
            numbers = (decision.limit, decision.remaining, seconds_up(reset_ns))
            fields += tuple(zip(FIELD_NAMES[style], map(str, numbers)))
    return fields


# ---- Verdicts -----------------------------------------------------------------------------------

PROBLEM = "application/problem+json"
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"


@dataclass(frozen=True)
class Verdict:
    """What happens to a request. If it passes, only `fields` matter: they go into its response."""

    passes: bool
    status: int = 200
    fields: Fields = ()
    content_type: str = PROBLEM
    body: bytes = b""
    problem: Mapping[str, Any] = field(default_factory=dict)  # the members of RFC 9457
    response: Any = None  # what Rule(respond=…) returned

    @property
    def headers(self) -> Fields:
        """Content-Type, and the fields: for a framework that sends the body as it is."""
        return (("Content-Type", self.content_type), *self.fields)


PASS = Verdict(passes=True)


def _quality(accept: str, names: Sequence[str]) -> float:
    """The highest weight that Accept gives to one of these media ranges; 0 if none is there."""
    best = 0.0
    for item in accept[:FIELD_MAX].lower().split(","):
        media, *parameters = (part.strip() for part in item.split(";"))
        if media not in names:
            continue
        weight = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            best = max(best, float(weight))
        except ValueError:
            continue
    return best


def _prefers_text(accept: str | None) -> bool:
    """Whether a person reads the reply: a browser asks for text/html before anything else."""
    if not accept:
        return False
    as_json = _quality(accept, (PROBLEM, "application/json", "application/*", "*/*"))
    return as_json == 0 or _quality(accept, ("text/html", "text/plain", "text/*")) > as_json


def _refusal(request: Request, problem: dict[str, Any], fields: Fields = ()) -> Verdict:
    if _prefers_text(request.header("Accept")):
        kind, body = "text/plain; charset=utf-8", f"{problem['title']}. {problem['detail']}\n"
    else:
        kind, body = PROBLEM, json.dumps(problem, separators=(",", ":"))
    text = b"" if request.method == "HEAD" else body.encode()
    return Verdict(False, problem["status"], fields, kind, text, problem)


def _plain_problem(status: int, detail: str) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    return {"type": "about:blank", "title": title, "status": status, "detail": detail}


def _violated(standings: Sequence[Standing]) -> list[str]:
    return [s.policy.name for s in standings if s.decision is not None and not s.decision]


def _denial(status: int, standings: Sequence[Standing], wait_ns: int | None) -> dict[str, Any]:
    binding = _binding(standings)
    return {
        "type": QUOTA_EXCEEDED,
        "title": "Quota exceeded",
        "status": status,
        "detail": "The cost is larger than the quota ever allows."
        if wait_ns is None
        else f"The units are not free now; retry after {max(1, seconds_up(wait_ns))} s.",
        "violated-policies": _violated(standings),
        "outcome": "never" if wait_ns is None else "deny",
        "granted": 0,
        "limit": None if binding is None else binding.limit,
        "remaining": None if binding is None else binding.remaining,
        "retry_after_ms": None if wait_ns is None else -(-wait_ns // 10**6),
        "reset_after_ms": None if binding is None else -(-binding.reset_after_ns // 10**6),
    }


# ---- Rules --------------------------------------------------------------------------------------

Steps = Generator[Any, Any, Any]  # yields values, maybe awaitable, and gets them back awaited


class Limit(NamedTuple):
    """A limiter, the key that it charges, and by how much."""

    limiter: Any
    key: Any
    cost: Any
    policies: tuple[Policy, ...]  # of each quota
    views: tuple[Any, ...]  # of each quota, a limiter with the same states; None: there is none


def _views(limiter: Any) -> tuple[Any, ...]:
    """The decision of a limiter has the figures of one quota. These have those of each.

    Of a limiter in another process only the decision is known. A named limiter has a state for each
    algorithm and period, so that quotas which share both have none to look at alone.
    """
    quotas = limiter.quotas
    if not isinstance(limiter, stint.Limiter):
        return (None,) * len(quotas)
    if len(quotas) == 1:
        return (limiter,)
    kinds = [(quota.algorithm, quota.period) for quota in quotas]
    return tuple(
        stint.Limiter(limiter.table, quota, name=limiter.name)
        if limiter.name is None or kinds.count(kind) == 1
        else None
        for quota, kind in zip(quotas, kinds)
    )


class Charge(NamedTuple):
    """What one request takes of one limit."""

    limit: Limit
    key: Key
    cost: int


def _key_steps(key: KeySpec, request: Request) -> Steps:
    if isinstance(key, FirstOf):
        for choice in key.keys:
            value = yield from _key_steps(choice, request)
            if value is not None:
                return value
        return None
    if isinstance(key, tuple):
        parts = []
        for part in key:
            parts.append((yield from _key_steps(part, request)))
        return join(parts)
    value = (yield key(request)) if callable(key) else key
    if isinstance(value, tuple):
        return join(value)
    if value is None or isinstance(value, (str, bytes)):
        return value
    raise TypeError(
        f"the key function {key!r} returned {type(value).__name__}; expected str, bytes, a tuple "
        "of these, or None (the request is not limited)"
    )


def _check_key(key: Any) -> None:
    if key in (user, header, path, address):
        raise TypeError(f"key={key.__name__}: call it, as in key={key.__name__}(…)")
    if isinstance(key, (tuple, FirstOf)):
        for part in key.keys if isinstance(key, FirstOf) else key:
            _check_key(part)
    elif not callable(key) and not isinstance(key, (str, bytes)):
        raise TypeError(f"key={key!r}: expected a function of the request, a text, or a tuple")


def is_preflight(request: Request) -> bool:
    """For Rule(exempt=…): a preflight request of CORS, which a browser sends without credentials.

    Rules limit these by default: any client can write such a request.
    """
    return (
        request.method == "OPTIONS"
        and request.header("Origin") is not None
        and request.header("Access-Control-Request-Method") is not None
    )


class Rule:
    """What requests take of which limits, and how they are refused. Immutable; any thread.

    limits: a limiter, or a list of limiters, (limiter, key) and (limiter, key, cost); `key` and
    `cost` stand for those that are left out. All limits of a rule are charged, or none; if the
    request is cancelled in between, those of a server that were charged stay charged.
    key: of the client, such as address(), user(), header("X-API-Key"), first_of(user(), address()),
    a function of the Request, a text for one state of all clients, or a tuple of these. A key that
    is None is not limited. An exception of the function is the framework's: the request fails.
    cost: units, or a function of the Request. exempt: a function; true: not limited.
    enforce: False is a dry run: units are charged, refusals only logged, no fields are sent.
    fields: "draft-11", "draft-03", "x-ratelimit", "none", or a list of these.
    status: of refusals, 400 to 599. respond: a function of the Request and the Verdict that returns
    the framework's own response to a refused request; the fields are added to it.
    log_key: whether the log shows the keys of refused requests; they may be secrets, or personal.
    Functions may be async in async frameworks. A limiter that raises stint.Error or OSError makes
    503, also with respond: what else happens without an answer is the choice of its own on_error.
    """

    def __init__(
        self,
        limits: Any,
        key: KeySpec | None = None,
        cost: int | Callable[[Request], Any] = 1,
        *,
        exempt: Callable[[Request], Any] | None = None,
        enforce: bool = True,
        fields: str | Iterable[str] = "draft-11",
        status: int = 429,
        respond: Callable[[Request, Verdict], Any] | None = None,
        log_key: bool = False,
    ) -> None:
        self.log_key, self._log = log_key, BoundedLog(logger)
        self.exempt, self.enforce, self.status, self.respond = exempt, enforce, status, respond
        self.styles = (fields,) if isinstance(fields, str) else tuple(fields)
        for style in self.styles:
            if style not in STYLES:
                raise ValueError(f"fields={style!r}: expected one of {', '.join(STYLES)}")
        if not 400 <= status <= 599:
            raise ValueError(f"status={status}: expected 400 to 599")
        key = address() if key is None else key
        items = limits if isinstance(limits, list) else [limits]
        if not items:
            raise ValueError("a rule needs at least one limiter")
        names: list[str] = []
        self.limits = tuple(self._limit(item, key, cost, names) for item in items)

    @staticmethod
    def _limit(item: Any, key: Any, cost: Any, taken: list[str]) -> Limit:
        limiter, *rest = item if isinstance(item, tuple) else (item,)
        key, cost = (*rest, *(key, cost)[len(rest) :])
        _check_key(key)
        policies = []
        for quota in limiter.quotas:
            if quota.algorithm == "concurrency":
                raise ValueError(
                    f"{quota}: a rule takes units and does not release them; "
                    "use limiter.hold() around the work of the view"
                )
            name = short_name(quota)
            if limiter.name:
                name = limiter.name if len(limiter.quotas) == 1 else f"{limiter.name}:{name}"
            same = sum(1 for other in taken if other.partition(" #")[0] == name)
            taken.append(f"{name} #{same + 1}" if same else name)
            policies.append(policy_of(taken[-1], quota))
        return Limit(limiter, key, cost, tuple(policies), _views(limiter))

    def decide(self, request: Request) -> Verdict:
        """Decides at once, in the caller's thread."""
        steps, value = self._steps(request, False), None
        while True:
            try:
                value = steps.send(value)
            except StopIteration as stop:
                verdict: Verdict = stop.value
                return verdict
            if inspect.isawaitable(value):
                if inspect.iscoroutine(value):
                    value.close()
                raise TypeError(
                    "a function or a limiter of this rule is async, and the framework is not"
                )

    async def decide_async(self, request: Request) -> Verdict:
        """As decide(), for functions and limiters that are async or not."""
        steps = self._steps(request, True)
        resume, value = steps.send, None
        while True:
            try:
                value = resume(value)
            except StopIteration as stop:
                verdict: Verdict = stop.value
                return verdict
            resume = steps.send
            if inspect.isawaitable(value):
                try:
                    value = await value
                except BaseException as error:  # also the end of the task
                    resume, value = steps.throw, error

    def _steps(self, request: Request, is_async: bool) -> Steps:
        if self.exempt is not None and (yield self.exempt(request)):
            return PASS
        try:
            charges = yield from self._charges(request)
        except RequestError as error:
            self._log.write(logging.WARNING, "a request contradicts itself: %s", error)
            verdict = _refusal(request, _plain_problem(400, str(error)))
            return verdict if self.enforce else PASS
        if not charges:
            return PASS
        call = Caller(is_async)
        try:
            decisions = yield from call.take_all(charges)
            self._log_troubles(charges, decisions)
            if self.styles == ("none",) and all(decisions):
                return PASS
            standings = _standings(charges, decisions, "draft-11" in self.styles)
        except (stint.Error, OSError) as error:
            outcome = "refused" if self.enforce else "passed"
            self._log.write(logging.ERROR, f"a limiter failed, and the request is {outcome}: %s",
                            lambda: shown(repr(error)))
            verdict = _refusal(request, _plain_problem(503, "Limits cannot be checked now."))
            return verdict if self.enforce else PASS
        verdict = self._verdict(request, charges, decisions, standings)
        if not verdict.passes and self.respond is not None:
            return replace(verdict, response=(yield self.respond(request, verdict)))
        return verdict

    def _charges(self, request: Request) -> Steps:
        charges = []
        for limit in self.limits:
            key = yield from _key_steps(limit.key, request)
            if key is not None:
                cost = (yield limit.cost(request)) if callable(limit.cost) else limit.cost
                charges.append(Charge(limit, key, cost))
        return charges

    def _log_refusal(
        self,
        request: Request,
        charges: Sequence[Charge],
        decisions: Sequence[Any],
        standings: Sequence[Standing],
    ) -> None:
        """A refusal is what a limit is for: INFO. One of a dry run is what it is made for."""

        def line() -> str:
            return shown(f"{request.method} {request.path}")

        def policies() -> str:
            return ", ".join(_violated(standings))

        def keys() -> str:
            refused = [c.key for c, decision in zip(charges, decisions) if not decision]
            return f", key {', '.join(map(shown, refused))}" if self.log_key else ""

        level, kind = (
            (logging.INFO, "refused: %s by %s%s")
            if self.enforce
            else (logging.WARNING, "would be refused: %s by %s%s")
        )
        self._log.write(level, kind, line, policies, keys)

    def _log_troubles(self, charges: Sequence[Charge], decisions: Sequence[Any]) -> None:
        """What decided in place of a state: the policy of a full table, or on_error."""
        passed = all(decisions)
        for charge, decision in zip(charges, decisions):
            limiter = charge.limit.limiter
            if _is_guess(decision):
                self._log.write(
                    logging.WARNING,
                    f"a server did not decide, and on_error did ({decision.outcome}): %s",
                    lambda: shown(str(decision.error)),
                )
            elif (
                isinstance(limiter, stint.Limiter)
                and not decision.stored
                and decision.outcome != "never"
                and (passed or not decision)  # a peek at a new key finds no state either
            ):
                self._log.write(
                    logging.WARNING,
                    f"the table is full, and when_full decided on a new key ({decision.outcome}); "
                    "make a new file with more keys",
                )

    def _verdict(
        self,
        request: Request,
        charges: Sequence[Charge],
        decisions: Sequence[Any],
        standings: Sequence[Standing],
    ) -> Verdict:
        allowed = all(decisions)
        if not allowed:
            self._log_refusal(request, charges, decisions, standings)
        if not self.enforce:
            return PASS
        fields = fields_of(self.styles, standings)
        if allowed:
            return Verdict(True, fields=fields)
        wait_ns = None
        if all(decision.outcome != "never" for decision in decisions):
            wait_ns = max(decision.retry_after_ns for decision in decisions)
            fields += (("Retry-After", str(max(1, seconds_up(wait_ns)))),)
        return _refusal(request, _denial(self.status, standings, wait_ns), fields)


class Caller:
    """Calls limiters for one request, in steps."""

    def __init__(self, is_async: bool) -> None:
        self.is_async = is_async

    def _call(self, limiter: Any, verb: str, *arguments: Any) -> Steps:
        method = getattr(limiter, f"{verb}_async", None) if self.is_async else None
        return (yield (method or getattr(limiter, verb))(*arguments))

    def take_all(self, charges: Sequence[Charge]) -> Steps:
        """The decision of each charge. If one refuses, none is charged.

        Several limiters are only asked first, so that a refusal leaves their states as they are;
        units are returned only if another request takes the last ones in between.
        """
        decisions = []
        if len(charges) > 1:
            for limit, key, cost in charges:
                decisions.append((yield from self._call(limit.limiter, "peek", key, cost)))
            if not all(decisions):
                self._count_refusals(charges, decisions)
                return decisions
        for n_taken, (limit, key, cost) in enumerate(charges):
            try:
                decision = yield from self._call(limit.limiter, "take", key, cost)
            except Exception:
                yield from self._give_back(charges[:n_taken], decisions)
                raise
            except BaseException:  # cancelled: nothing can be awaited any more
                for refund in self._give_back(charges[:n_taken], decisions):
                    if inspect.iscoroutine(refund):
                        refund.close()
                raise
            decisions[n_taken : n_taken + 1] = [decision]
            if not decision:
                yield from self._give_back(charges[:n_taken], decisions)
                break
        return decisions

    @staticmethod
    def _count_refusals(charges: Sequence[Charge], decisions: Sequence[Any]) -> None:
        """As take() would: Table.decisions() counts no peeks."""
        for charge, decision in zip(charges, decisions):
            if not decision and isinstance(charge.limit.limiter, stint.Limiter):
                charge.limit.limiter._count(decision.outcome)

    def _give_back(self, charges: Sequence[Charge], decisions: Sequence[Any]) -> Steps:
        for (limit, key, cost), decision in zip(charges, decisions):
            if not _is_guess(decision):
                yield from self._call(limit.limiter, "refund", key, cost, decision.at_ns)


def _is_guess(decision: Any) -> bool:
    """Whether on_error decided, since the server did not."""
    return getattr(decision, "error", None) is not None


def _standings(
    charges: Sequence[Charge], decisions: Sequence[Any], wants_growth: bool
) -> list[Standing]:
    """Each quota of a decided request."""
    standings = []
    passed = all(decisions)

    def figures(view: Any, key: Key, cost: int, decision: Any) -> Any:
        """A peek that is allowed has what would be left; of a refused request nothing is taken."""
        if view is None:
            return decision if passed or not decision else None
        if passed:
            return view.peek(key, 0)
        refusal = view.peek(key, cost)
        return view.peek(key, 0) if refusal else refusal

    for (limit, key, cost), decision in zip(charges, decisions):
        for i, (policy, view) in enumerate(zip(limit.policies, limit.views)):
            known = None if i != decision.binding or _is_guess(decision) else decision
            if known is None or len(limit.views) > 1 or (decision and not passed):
                known = figures(view, key, cost, known)
            grows = 0
            if known is not None and wants_growth:
                grows = _grows_after(view, key, known)
            standings.append(Standing(policy, known, grows))
    return standings


def _grows_after(view: Any, key: Key, decision: Any) -> int:
    """The time in ns until more units are free than now; 0 if it is unknown, or never."""
    if decision.outcome == "never" or decision.remaining >= decision.limit:
        return 0
    if view is None:
        # Not worth a request to a server. It is also true that no more than what is left can be
        # used before all is back.
        known: int = decision.retry_after_ns or decision.reset_after_ns
        return known
    more = view.peek(key, decision.remaining + 1)
    wait: int = more.retry_after_ns if more.outcome == "deny" else 0
    return wait
