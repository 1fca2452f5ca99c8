# SPDX-License-Identifier: MIT
"""Budgets for language models in LiteLLM: tokens, requests and money per key, user, team or model.

    import litellm, stint, stint.litellm

    table = stint.Table("/dev/shm/llm.stint")
    budget = stint.litellm.Budget(
        tokens=stint.Limiter(table, "100000/1m", name="tokens"),
        requests=stint.Limiter(table, "60/1m", name="requests"),
        money=stint.Limiter(table, "5000000/1d", name="money"),     # micro-dollars: 5 $ a day
        key=stint.litellm.by("user"))
    litellm.callbacks = [budget]

A call is charged as estimated before it is sent, all limiters or none, and corrected to what it
used. Which hook does what:

    reserves   proxy: async_pre_call_hook; SDK, Router: async_pre_call_deployment_hook
    settles    async_log_success_event
    gives back proxy: async_post_call_failure_hook; SDK, Router: …_failure_deployment_hook
    charges    log_success_event: the synchronous completion(), which LiteLLM lets no hook refuse
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import math
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import httpx
import litellm
from litellm.exceptions import BadRequestError, RateLimitError, Timeout
from litellm.integrations.custom_logger import CustomLogger

from . import Decision, Error, GoneError

COST_MAX = 2**32 - 1
_MARK = "stint_call"  # beside what LiteLLM keeps of a request
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_BROKEN = (Timeout, httpx.TransportError, TimeoutError, asyncio.TimeoutError)


class Limiter(Protocol):
    """What a budget needs of a limiter: stint.Limiter, or one of a server."""

    def peek(self, key: str | bytes, cost: int = 1) -> Decision: ...
    def charge(self, key: str | bytes, cost: int) -> Decision: ...
    def reserve(self, key: str | bytes, estimate: int, expires: float | None = None) -> Any: ...


@dataclass(frozen=True)
class Call:
    """A call of a model, for the functions of a Budget.

    model: behind a Router or the proxy the name of the model group, else without its provider.
    key (hashed), user, team: as the proxy authenticated them; in the SDK user is the argument of
    that name. end_user: what the client of the proxy sent as `user`. kind: LiteLLM's call type.
    data: the arguments of the call: messages, max_tokens, metadata …
    """

    model: str
    key: str | None = None
    user: str | None = None
    team: str | None = None
    end_user: str | None = None
    kind: str = "acompletion"
    data: Mapping[str, Any] = field(default_factory=dict)


def by(*names: str) -> Callable[[Call], str]:
    """A key function: calls with equal values of these fields of Call share a budget.

    by("team"), by("key", "model"); by() is one budget for all. Raises ValueError for other names.
    """
    fields = ("model", "key", "user", "team", "end_user")
    for name in names:
        if name not in fields:
            raise ValueError(f"no field {name!r} of a call; expected one of {', '.join(fields)}")
    return lambda call: json.dumps([getattr(call, name) for name in names])


def prompt_tokens(call: Call) -> int:
    """Tokens of all text that a call sends, counted by LiteLLM's tokenizer of the model."""
    data = call.data
    count = sum(_text_tokens(call.model, data.get(name)) for name in
                ("prompt", "input", "system", "instructions", "tools", "functions",
                 "response_format"))
    messages = data.get("messages")
    if not messages:
        return count
    try:
        # The default for images: LiteLLM would else fetch each to learn its size.
        return count + int(litellm.token_counter(model=call.model, messages=messages,
                                                 use_default_image_token_count=True))
    except Exception:  # noqa: BLE001  # a form of message that LiteLLM's counter does not know
        return count + _text_tokens(call.model, messages)


def _text_tokens(model: str, value: object) -> int:
    if not value:
        return 0
    if isinstance(value, list) and all(isinstance(item, int) for item in value):
        return len(value)  # a prompt in tokens
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return int(litellm.token_counter(model=model, text=text))


def completion_tokens(call: Call, default: int) -> int:
    """The most tokens that a call may get back: its limit, else `default`, for each choice."""
    data = call.data
    if "embedding" in call.kind or not any(data.get(n) for n in ("messages", "prompt", "input")):
        return 0
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    most = max((_count(data.get(name)) for name in names), default=0)
    return (most or default) * max(_count(data.get("n")), _count(data.get("best_of")), 1)


def _count(value: object) -> int:
    """A number of a request, which any client writes."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        return 0
    return min(math.ceil(value), COST_MAX)


def dollars(call: Call, prompt: int, completion: int) -> float:
    """The price of a call: of its deployment or model group, else by LiteLLM's list.

    Raises litellm.BadRequestError for a model without a price.
    """
    router = getattr(sys.modules.get("litellm.proxy.proxy_server"), "llm_router", None)
    group = router and router.get_model_group_info(model_group=call.model)
    cost_in = getattr(group, "input_cost_per_token", None)
    cost_out = getattr(group, "output_cost_per_token", None)
    if cost_in is not None and cost_out is not None:
        return float(prompt * cost_in + completion * cost_out)
    deployment = str((call.data.get("model_info") or {}).get("id"))
    names = [deployment] if deployment in litellm.model_cost else []
    for name in [*names, call.data.get("model") or call.model]:
        with suppress(Exception):  # LiteLLM has no class of its own for an unknown model
            return float(sum(litellm.cost_per_token(model=name, prompt_tokens=prompt,
                                                    completion_tokens=completion)))
    raise BadRequestError(
        f"the budget in money has no price for {call.model!r}; set input_cost_per_token and "
        "output_cost_per_token of the model, or give the Budget price=",
        model=call.model, llm_provider="")


@dataclass
class _Held:
    """What a call has reserved: by the name of the unit."""

    call: Call
    reservations: dict[str, Any]
    expires_at: float
    is_of_request: bool  # of the proxy: kept over failed attempts, until the request ends
    is_sent: bool = False  # an attempt has begun, and not ended as one that cost nothing
    depth: object = None  # of LiteLLM's fallbacks


class Budget(CustomLogger):
    """A LiteLLM callback that limits tokens, requests and money.

    tokens, requests, money: limiters, each of any number of quotas; at least one. Processes that
    give them the same table share the budget. money_unit: dollars in one unit of `money`; the
    default allows limits up to 4,294 $, 1e-4 up to 429,496 $.

    key: from a Call to what it is charged to; None: the call is not limited. See by().
    max_tokens: assumed for calls that set no limit of their answer. prompt_tokens, price: how
    to estimate; the latter in dollars of (call, prompt tokens, completion tokens).

    expires: seconds, max_open: calls, that are kept for being settled. A call whose end is not seen
    in time, or for which there is no space left, stays charged as estimated.

    A refused call raises litellm.RateLimitError with Retry-After; the proxy makes it a 429. A call
    that never fits has no Retry-After, and x-should-retry: false. Any thread.
    """

    def __init__(self, *, tokens: Limiter | None = None, requests: Limiter | None = None,
                 money: Limiter | None = None, money_unit: float = 1e-6,
                 key: Callable[[Call], str | bytes | None] = by("key", "user"),
                 max_tokens: int = 1024,
                 prompt_tokens: Callable[[Call], int] = prompt_tokens,
                 price: Callable[[Call, int, int], float] = dollars,
                 expires: float = 3600.0, max_open: int = 16_384) -> None:
        super().__init__()
        given = {"tokens": tokens, "requests": requests, "money": money}
        self.limiters = {name: limiter for name, limiter in given.items() if limiter is not None}
        if not self.limiters:
            raise ValueError("a Budget needs a limiter; give tokens=, requests= or money=")
        for name, limiter in self.limiters.items():
            if inspect.iscoroutinefunction(limiter.peek):
                raise TypeError(f"{name}= is async, and a Budget is not; give one of a table, "
                                "or a RemoteLimiter")
        for name, value in (("money_unit", money_unit), ("expires", expires),
                            ("max_open", max_open)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; expected a number above 0")
        self.money_unit = money_unit
        self.key = key
        self.max_tokens = max_tokens
        self.prompt_tokens = prompt_tokens
        self.price = price
        self.expires = expires
        self.max_open = max_open
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._marks = itertools.count()

    def __init_subclass__(cls, **options: Any) -> None:
        # The proxy runs only a hook that the class itself defines, not one that it inherits.
        super().__init_subclass__(**options)
        if "async_pre_call_hook" not in vars(cls):
            cls.async_pre_call_hook = cls.async_pre_call_hook  # type: ignore[method-assign]

    # ---- Hooks before a call ----

    async def async_pre_call_hook(self, user_api_key_dict: Any, cache: Any, data: dict[str, Any],
                                  call_type: Any) -> None:
        """Proxy: reserves for a request, or refuses it."""
        user = user_api_key_dict
        call = Call(str(data.get("model") or ""), user.api_key, user.user_id, user.team_id,
                    user.end_user_id, _kind(call_type), data)
        # A client may choose the call id: two requests at a time with one id must stay apart.
        mark = f"{_call_id(data)} {next(self._marks)}"
        for place in (getattr(data.get("litellm_logging_obj"), "model_call_details", None),
                      data.get("proxy_server_request")):
            if isinstance(place, dict):
                place[_MARK] = mark
        self._open(mark, call, is_of_request=True)

    async def async_filter_deployments(self, model: str, healthy_deployments: list[Any],
                                       messages: Any, request_kwargs: dict[str, Any] | None = None,
                                       parent_otel_span: Any = None) -> list[Any]:
        """Router: refuses before a deployment is chosen, else its 429 would cool one down."""
        first = healthy_deployments[0] if healthy_deployments else {}
        data = {"messages": messages, **(request_kwargs or {}),
                "model": (first.get("litellm_params") or {}).get("model") or model,
                "model_info": first.get("model_info")}
        held = self._find(_call_id(data))
        if held is None or not held.reservations:
            self._check(replace(_call_of(data, None), model=model))
        return healthy_deployments

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Each attempt: reserves, unless the request holds units for it already."""
        call_id, call = _call_id(kwargs), _call_of(_with_positional(kwargs), call_type)
        depth = kwargs.get("fallback_depth")
        held = self._find(call_id)
        if held is None:
            held = self._open(call_id, call, is_of_request=False)
        elif held.depth != depth or not held.reservations:
            call = replace(held.call, model=call.model, data=call.data)
            if held.is_sent:
                held.reservations = {}  # no answer, or a stream that broke: charged as estimated
                held = self._open(call_id, call, held.is_of_request)
            elif self.key(call) != self.key(held.call):
                self._give_back(call_id)
                held = self._open(call_id, call, held.is_of_request)
        if held is not None:
            # With fallbacks of the SDK each attempt is a call within.
            held.is_sent = held.is_of_request or not kwargs.get("fallbacks")
            held.depth = depth

    # ---- Hooks after a call ----

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any,
                                      start_time: Any, end_time: Any) -> None:
        """Settles what the call used."""
        if kwargs.get("cache_hit") is True:
            self._give_back(_call_id(kwargs))
        else:
            self._settle(_call_id(kwargs), self._used(kwargs, response_obj))

    def log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any,
                          end_time: Any) -> None:
        """Charges what a synchronous call used: LiteLLM runs no hook before it that may refuse."""
        if kwargs.get("cache_hit") is True:
            return
        data = {**(kwargs.get("optional_params") or {}), **{name: kwargs.get(name) for name in
                ("model", "messages", "user", "litellm_params")}}
        call = _call_of(data, kwargs.get("call_type"))
        key = self.key(call)
        if key is None:
            return
        used = self._used(kwargs, response_obj)
        if used.keys() < self.limiters.keys():
            used = {**self._costs(call), **used}
        for name, cost in used.items():
            self.limiters[name].charge(key, cost)

    async def async_post_call_failure_deployment_hook(
            self, request_data: Mapping[str, Any], exception: Exception, call_type: Any,
            fallback_depth: int | None = None) -> None:
        """A failed attempt: gives back what it did not use, or keeps it for the next attempt."""
        call_id = _call_id(request_data)
        held = self._find(call_id)
        if held is None:
            return
        may_be_billed = _may_be_billed(exception)
        if held.is_of_request:
            held.is_sent = may_be_billed
            if may_be_billed:
                held.reservations = {}  # stay charged; a further attempt reserves anew
        elif may_be_billed:
            self._close(call_id)
        else:
            self._give_back(call_id)

    async def async_log_failure_event(self, kwargs: dict[str, Any], response_obj: Any,
                                      start_time: Any, end_time: Any) -> None:
        """SDK and Router: an attempt that failed outside the provider, or a stream that broke."""
        call_id = _call_id(kwargs)
        held = self._find(call_id)
        # The proxy reports here the first attempt only, and maybe during the next one.
        if held is not None and not held.is_of_request:
            self._end_failed(call_id, held, kwargs, kwargs.get("exception"))

    async def async_post_call_failure_hook(self, request_data: dict[str, Any],
                                           original_exception: Exception, user_api_key_dict: Any,
                                           traceback_str: str | None = None) -> None:
        """Proxy: the end of a request that failed or that another callback refused."""
        call_id = _call_id(request_data)
        held = self._find(call_id)
        if held is not None:
            self._end_failed(call_id, held, request_data, original_exception)

    # ---- What is reserved ----

    def _costs(self, call: Call) -> dict[str, int]:
        prompt, completion = 0, 0
        if "tokens" in self.limiters or "money" in self.limiters:
            prompt = self.prompt_tokens(call)
            completion = completion_tokens(call, self.max_tokens)
        price = self.price(call, prompt, completion) if "money" in self.limiters else 0.0
        return self._units(prompt + completion, price)

    def _units(self, tokens: int | None, price: float | None) -> dict[str, int]:
        """Units by the names of limiters; None is left out."""
        units = {"requests": 1}
        if tokens is not None:
            units["tokens"] = tokens
        if price is not None:
            # Rounded first: 6e-05 / 1e-06 is above 60 in binary.
            units["money"] = math.ceil(round(max(price, 0.0) / self.money_unit, 6))
        return {name: min(units[name], COST_MAX) for name in self.limiters if name in units}

    def _used(self, kwargs: Mapping[str, Any], response: Any) -> dict[str, int]:
        """What is known of the use of a call: LiteLLM reports 0 tokens, and no cost, for a stream
        whose provider sent no usage."""
        tokens = getattr(getattr(response, "usage", None), "total_tokens", None) or \
            (kwargs.get("standard_logging_object") or {}).get("total_tokens") or None
        price = kwargs.get("response_cost")
        return self._units(tokens, price if tokens else price or None)

    def _check(self, call: Call) -> tuple[str | bytes, dict[str, int]] | None:
        """The key and costs of a call that all limiters would grant; raises for others."""
        key = self.key(call)
        if key is None:
            return None
        costs = self._costs(call)
        refused = {name: decision for name, cost in costs.items()
                   if not (decision := self.limiters[name].peek(key, cost))}
        if refused:
            raise _refusal(call, refused)
        return key, costs

    def _open(self, call_id: str, call: Call, is_of_request: bool) -> _Held | None:
        checked = self._check(call)
        if checked is None:
            return None
        key, costs = checked
        reservations: dict[str, Any] = {}
        try:
            for name, cost in costs.items():
                reservation = self.limiters[name].reserve(key, cost, expires=self.expires)
                if not reservation:  # another process was faster
                    raise _refusal(call, {name: reservation.decision})
                reservations[name] = reservation
        except BaseException:
            with suppress(Error):  # the refusal is the answer
                _end((reservation, None) for reservation in reservations.values())
            raise
        now = time.monotonic()
        held = _Held(call, reservations, now + self.expires, is_of_request)
        with self._lock:
            self._held[call_id] = held
            self._held.move_to_end(call_id)
            while len(self._held) > self.max_open or \
                    next(iter(self._held.values())).expires_at <= now:
                self._held.popitem(last=False)
        return held

    def _find(self, call_id: str) -> _Held | None:
        with self._lock:
            return self._held.get(call_id)

    def _close(self, call_id: str) -> dict[str, Any]:
        """Forgets what a call holds, which stays charged; returns its reservations."""
        with self._lock:
            held = self._held.pop(call_id, None)
        return held.reservations if held is not None else {}

    def _settle(self, call_id: str, used: Mapping[str, int]) -> None:
        held = self._close(call_id)
        _end((reservation, used[name]) for name, reservation in held.items() if name in used)

    def _give_back(self, call_id: str) -> None:
        _end((reservation, None) for reservation in self._close(call_id).values())

    def _end_failed(self, call_id: str, held: _Held, details: Mapping[str, Any],
                    exception: object) -> None:
        partial = getattr(details.get("combined_usage_object"), "total_tokens", 0)
        if held.is_sent and partial:
            self._settle(call_id, self._units(partial, details.get("response_cost")))
        elif held.is_sent and _may_be_billed(exception):
            self._close(call_id)
        else:
            self._give_back(call_id)


def _end(reservations: Iterable[tuple[Any, int | None]]) -> None:
    """Settles each with the units that were used, or cancels it for None.

    All of them, even if one fails; then raises the first error.
    """
    failure: Error | None = None
    for reservation, used in reservations:
        try:
            reservation.cancel() if used is None else reservation.settle(used)
        except GoneError:
            pass  # expired: stays charged as estimated
        except Error as error:
            failure = failure or error
    if failure is not None:
        raise failure


# ---- What LiteLLM passes to hooks ----

def _kind(call_type: Any) -> str:
    return str(getattr(call_type, "value", call_type) or "")


def _call_id(data: Mapping[str, Any]) -> str:
    """The mark of a request of the proxy, else the id of its log: calls within a call have other
    ids, and one log."""
    logging = data.get("litellm_logging_obj")
    for place in (getattr(logging, "model_call_details", data), data.get("proxy_server_request")):
        if isinstance(place, Mapping) and place.get(_MARK):
            return str(place[_MARK])
    return str(getattr(logging, "litellm_call_id", None) or data.get("litellm_call_id"))


def _with_positional(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """LiteLLM passes hooks the keywords of a call alone; its log has what came before them."""
    logging = data.get("litellm_logging_obj")
    text = "messages" if _kind(getattr(logging, "call_type", "")) == "acompletion" else "input"
    given = {"model": getattr(logging, "model", None)}
    if not any(data.get(name) for name in ("messages", "prompt", "input")):
        given[text] = getattr(logging, "messages", None)
    return {**{name: value for name, value in given.items() if value}, **data}


def _call_of(data: Mapping[str, Any], call_type: Any) -> Call:
    """A call of the SDK, the Router, or an attempt of the proxy."""
    # Where a provider has a field `metadata` of its own, LiteLLM's is the first.
    metadata = data.get("litellm_metadata") or data.get("metadata") or \
        (data.get("litellm_params") or {}).get("metadata")
    if not isinstance(metadata, Mapping):
        metadata = {}
    model = metadata.get("model_group")
    if not model:
        model = str(data.get("model") or "")
        with suppress(Exception):  # a model that LiteLLM does not know
            model = litellm.get_llm_provider(model)[0]

    def proxy(name: str) -> str | None:
        value = metadata.get(f"user_api_key_{name}")
        return None if value is None else str(value)

    user = data.get("user")
    return Call(model, proxy("hash"), proxy("user_id") or (user and str(user)), proxy("team_id"),
                proxy("end_user_id"), _kind(call_type), data)


def _chain(error: object) -> Iterator[BaseException]:
    """An exception with its causes, at most 16: LiteLLM wraps those of HTTP clients."""
    for _ in range(16):
        if not isinstance(error, BaseException):
            return
        yield error
        error = error.__cause__ or error.__context__


def _may_be_billed(error: object) -> bool:
    """Whether a provider may have done work for a call that failed: no answer came from it.

    So a client that gives up early does not get its answers for free.
    """
    chain = list(_chain(error))
    if any(isinstance(e, (httpx.HTTPStatusError, *_NOT_SENT)) for e in chain):
        return False
    status = getattr(error, "status_code", None)
    return any(isinstance(e, _BROKEN) for e in chain) \
        or isinstance(status, int) and status >= 500


def _refusal(call: Call, refused: Mapping[str, Decision]) -> RateLimitError:
    name, decision = max(refused.items(), key=lambda item: item[1].retry_after)
    if decision.outcome == "never":
        headers = {"x-should-retry": "false"}
        text = f"this call needs more {name} at once than the budget ever grants ({decision.quota})"
    else:
        headers = {"retry-after": str(max(1, math.ceil(decision.retry_after)))}
        text = f"the budget of {name} is used up ({decision.quota}); retry after " \
               f"{headers['retry-after']} s"
    response = httpx.Response(429, headers=headers,
                              request=httpx.Request("POST", "https://localhost/"))
    error = RateLimitError(text, llm_provider="stint", model=call.model, response=response)
    error.headers = headers  # those that the proxy passes on to the client
    error.category = "litellm_rate_limit"
    return error
