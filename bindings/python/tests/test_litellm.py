# SPDX-License-Identifier: MIT
"""Budgets in LiteLLM, against a provider that counts what it really serves."""
from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no list of prices from the network

import litellm  # noqa: E402
import pytest  # noqa: E402
from fake_provider import FakeProvider  # noqa: E402

import stint  # noqa: E402
from stint.litellm import Budget, Call, by, completion_tokens, dollars, prompt_tokens  # noqa: E402
from stint.remote import AsyncLimiter  # noqa: E402
from stint.testing import Clock  # noqa: E402

pytestmark = [  # what LiteLLM and its clients leave open or still use
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

MESSAGES = [{"role": "user", "content": "one two three four"}]
litellm.register_model({"big": {"input_cost_per_token": 2.5e-6, "output_cost_per_token": 1e-5,
                                "litellm_provider": "openai", "mode": "chat"}})
WORDS = 4  # of them: the provider counts words, LiteLLM a few tokens more
PATIENCE = 30.0  # s


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


@pytest.fixture(autouse=True)
def _litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("callbacks", "success_callback", "failure_callback", "_async_success_callback",
                 "_async_failure_callback", "input_callback"):
        monkeypatch.setattr(litellm, name, [])
    monkeypatch.setattr(litellm, "suppress_debug_info", True)
    monkeypatch.setattr(litellm, "cache", None)


@pytest.fixture(autouse=True, scope="module")
def _clients() -> Iterator[None]:
    yield
    litellm.in_memory_llm_clients_cache.flush_cache()
    gc.collect()  # what they left open is reported here, where it is ignored


class Used:
    """A Budget of all three limiters for one key, and what they count."""

    def __init__(self, table: stint.Table, tokens: int = 400, requests: int = 100,
                 money: int = 1_000_000, algorithm: str = "log", **options: Any) -> None:
        self.table = table
        self.limiters = {"tokens": stint.Limiter(table, f"{algorithm} {tokens}/1m", name="tokens"),
                         "requests": stint.Limiter(table, f"log {requests}/1m", name="requests"),
                         "money": stint.Limiter(table, f"gcra {money}/1d", name="money")}
        raced = {"requests": options.pop("requests_limiter", self.limiters["requests"])}
        self.budget = Budget(**{"key": by(), **self.limiters, **raced, **options})
        litellm.callbacks = [self.budget]

    def counts(self, key: str = "[]") -> dict[str, int]:
        peeks = {name: limiter.peek(key, 0) for name, limiter in self.limiters.items()}
        return {name: peek.limit - peek.remaining for name, peek in peeks.items()}

    @property
    def tokens(self) -> int:
        return self.counts()["tokens"]

    @property
    def requests(self) -> int:
        return self.counts()["requests"]


async def until(condition: Callable[[], bool]) -> None:
    """LiteLLM runs the hooks after a call in tasks of their own."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    while not condition():
        assert loop.time() < end, "the condition did not come true"
        await asyncio.sleep(0.01)


async def settled(used: Used) -> None:
    await until(lambda: not used.budget._held)


def run(steps: Awaitable[None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(steps, 2 * PATIENCE)

    asyncio.run(bounded())


def ask(provider: FakeProvider, **more: Any) -> Any:
    return litellm.acompletion(**{
        "model": "openai/gpt-4o", "messages": MESSAGES, "max_tokens": 5, "api_key": "k",
        "api_base": provider.url, "max_retries": 0, **more})


def estimate(call: Call) -> int:
    return prompt_tokens(call) + completion_tokens(call, 1024)


ESTIMATE = 11 + 5  # of ask()


# ---- The SDK ----

@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_charged_what_it_used(provider: FakeProvider, table: stint.Table,
                                        stream: bool) -> None:
    used = Used(table)

    async def steps() -> None:
        answer = await ask(provider, stream=stream, stream_options={"include_usage": True}
                           if stream else None)
        assert used.counts()["tokens"] == ESTIMATE or not stream
        if stream:
            assert [chunk async for chunk in answer]
        await settled(used)

    run(steps())
    # 4 and 5 tokens at 2.5 and 10 $ a million.
    assert used.counts() == {"tokens": WORDS + 5, "requests": 1, "money": 60}
    assert [call.tokens for call in provider.calls] == [WORDS + 5]


@pytest.mark.parametrize(("limits", "unit"), [
    ({"tokens": ESTIMATE + 9}, "tokens"), ({"requests": 2}, "requests"),
    ({"money": 197}, "money")])
def test_a_call_over_any_limit_is_refused_and_charged_to_none(
        provider: FakeProvider, table: stint.Table, limits: dict[str, int], unit: str) -> None:
    used = Used(table, **limits)

    async def steps() -> None:
        with pytest.raises(litellm.RateLimitError, match=f"the budget of {unit} is used up") as e:
            for _ in range(5):
                before = used.counts()
                await ask(provider)
                await settled(used)
        assert int(e.value.response.headers["retry-after"]) >= 1
        assert used.counts() == before

    run(steps())
    assert provider.statuses() == [200, 200]


def test_a_call_that_loses_a_race_is_charged_to_none(provider: FakeProvider,
                                                     table: stint.Table) -> None:
    """Another process takes the last units between the look at them and the reservation."""
    free, used_up = stint.Limiter(table, "5/1m"), stint.Limiter(table, "log 1/1m", name="late")
    used_up.take("[]")
    raced = SimpleNamespace(peek=free.peek, reserve=used_up.reserve)
    used = Used(table, requests_limiter=raced)

    async def steps() -> None:
        with pytest.raises(litellm.RateLimitError, match="the budget of requests is used up"):
            await ask(provider)

    run(steps())
    assert used.tokens == 0 and not used.budget._held and provider.calls == []


def test_a_call_above_the_limit_is_not_to_be_retried(provider: FakeProvider,
                                                     table: stint.Table) -> None:
    Used(table, tokens=ESTIMATE - 1)

    async def steps() -> None:
        with pytest.raises(litellm.RateLimitError, match="more tokens at once than") as e:
            await ask(provider)
        assert dict(e.value.response.headers) == {"x-should-retry": "false"}

    run(steps())
    assert provider.calls == []


# The outcome of a call, and the tokens and requests that stay charged.
OUTCOMES: list[tuple[str, list[Any], dict[str, Any], tuple[int, int]]] = [
    ("refused", [400], {}, (0, 0)),
    ("no such key", [401], {}, (0, 0)),
    ("busy", [429], {}, (0, 0)),
    ("failed", [500], {}, (0, 0)),
    ("not sent", [], {"api_base": "http://127.0.0.1:9/v1"}, (0, 0)),
    ("wrong arguments", [], {"custom_llm_provider": "no such provider"}, (0, 0)),
    ("no answer", ["no response"], {}, (ESTIMATE, 1)),
    ("client gave up", ["hang"], {"timeout": 0.3}, (ESTIMATE, 1)),
    ("stream broke", ["break"], {"stream": True}, (11 + 5, 1)),  # as LiteLLM counts its part
    ("stream without usage", [], {"stream": True}, (ESTIMATE, 1)),
    ("retried by the client", [500, 500], {"max_retries": 2}, (WORDS + 5, 1)),
    ("fallback", [500], {"fallbacks": ["openai/gpt-4o-mini"]}, (WORDS + 5, 1)),
    ("fallbacks failed", [500, 500], {"fallbacks": ["openai/gpt-4o"]}, (0, 0)),
]


@pytest.mark.parametrize(("faults", "arguments", "charged"), [o[1:] for o in OUTCOMES],
                         ids=[o[0] for o in OUTCOMES])
def test_outcomes(provider: FakeProvider, table: stint.Table, faults: list[Any],
                  arguments: dict[str, Any], charged: tuple[int, int]) -> None:
    provider.faults["gpt-4o"] = list(faults)
    used = Used(table)

    async def steps() -> None:
        try:
            answer = await ask(provider, **arguments)
            if arguments.get("stream"):
                assert [chunk async for chunk in answer]
        except Exception as error:  # noqa: BLE001  # of many classes
            assert not isinstance(error, AssertionError)
            assert "budget" not in str(error)
        await settled(used)

    run(steps())
    assert (used.tokens, used.requests) == charged
    assert sum(call.tokens for call in provider.served()) <= used.tokens


def test_a_stream_that_is_left_stays_charged_as_estimated(provider: FakeProvider,
                                                          table: stint.Table) -> None:
    used = Used(table)

    async def steps() -> None:
        stream = await ask(provider, stream=True)
        async for _ in stream:
            break
        await stream.aclose()

    run(steps())
    assert used.tokens == ESTIMATE


def test_a_task_that_is_cancelled_stays_charged_as_estimated(provider: FakeProvider,
                                                             table: stint.Table) -> None:
    provider.faults["gpt-4o"] = ["hang"]
    used = Used(table)

    async def steps() -> None:
        task = asyncio.ensure_future(ask(provider))
        await until(lambda: bool(provider.calls))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(steps())
    assert used.tokens == ESTIMATE


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_from_the_cache_costs_nothing(provider: FakeProvider, table: stint.Table,
                                                stream: bool) -> None:
    used = Used(table)
    litellm.cache = litellm.Cache()

    async def steps() -> None:
        for _ in range(3):
            answer = await ask(provider, caching=True, stream=stream)
            if stream:
                assert [chunk async for chunk in answer]
            await settled(used)
            await until(lambda: len(litellm.cache.cache.cache_dict) > 0)

    run(steps())
    assert len(provider.calls) == 1
    assert used.counts()["requests"] == 1
    assert used.tokens == (ESTIMATE if stream else WORDS + 5)


def test_the_hooks_of_an_answer_from_the_cache(table: stint.Table) -> None:
    used = Used(table)
    call = {"model": "openai/gpt-4o", "messages": MESSAGES, "max_tokens": 5,
            "litellm_call_id": "id-1"}

    async def steps() -> None:
        await used.budget.async_pre_call_deployment_hook(call, "acompletion")
        assert used.tokens == ESTIMATE
        await used.budget.async_log_success_event(
            {**call, "cache_hit": True, "response_cost": 0.0},
            SimpleNamespace(usage=SimpleNamespace(total_tokens=9)), None, None)

    run(steps())
    assert used.counts() == {"tokens": 0, "requests": 0, "money": 0}


def test_synchronous_calls_are_charged_afterwards(provider: FakeProvider,
                                                  table: stint.Table) -> None:
    used = Used(table)
    arguments: dict[str, Any] = {"model": "openai/gpt-4o", "messages": MESSAGES, "max_tokens": 5,
                                 "api_key": "k", "api_base": provider.url}
    litellm.completion(**arguments)
    run(until(lambda: used.tokens == WORDS + 5))
    assert list(litellm.completion(**arguments, stream=True))
    run(until(lambda: used.requests == 2))
    assert used.counts() == {"tokens": WORDS + 5 + ESTIMATE, "requests": 2,
                             "money": pytest.approx(60 + 78, abs=2)}


def test_positional_arguments_are_estimated_too(provider: FakeProvider,
                                                table: stint.Table) -> None:
    """LiteLLM passes them to no hook."""
    used = Used(table, tokens=ESTIMATE - 1)
    arguments = {"max_tokens": 5, "api_key": "k", "api_base": provider.url}

    async def steps() -> None:
        with pytest.raises(litellm.RateLimitError, match="more tokens at once"):
            await litellm.acompletion("openai/gpt-4o", MESSAGES, **arguments)
        with pytest.raises(litellm.RateLimitError, match="more tokens at once"):
            await litellm.aembedding("openai/text-embedding-3-small", ["word"] * 20,
                                     api_key="k", api_base=provider.url)

    run(steps())
    assert used.tokens == 0 and provider.calls == []


def test_an_attempt_that_used_more_than_estimated_is_charged_in_full(
        provider: FakeProvider, table: stint.Table) -> None:
    used = Used(table, prompt_tokens=lambda call: 1)

    async def steps() -> None:
        await ask(provider)
        await settled(used)

    run(steps())
    assert used.tokens == WORDS + 5


@pytest.mark.parametrize("algorithm", ["log", "window"])
def test_concurrent_calls_never_use_more_than_the_budget(
        provider: FakeProvider, table: stint.Table, algorithm: str) -> None:
    """Actual use is below the estimate; as the provider counts it, no minute has more."""
    used = Used(table, tokens=200, algorithm=algorithm)
    outcomes: list[str] = []

    async def one(number: int) -> None:
        try:
            answer = await ask(provider, stream=number % 2 == 0, timeout=PATIENCE,
                               stream_options={"include_usage": True} if number % 2 == 0 else None)
            if number % 2 == 0:
                assert [chunk async for chunk in answer]
            outcomes.append("served")
        except litellm.RateLimitError:
            outcomes.append("refused")

    async def steps() -> None:
        served = -1
        while served < outcomes.count("served"):
            served = outcomes.count("served")
            await asyncio.gather(*(one(number) for number in range(50)))
            await settled(used)

    run(steps())
    actual = sum(call.tokens for call in provider.served())
    assert actual <= used.tokens <= 200 and used.tokens > 200 - ESTIMATE
    assert actual == used.tokens or algorithm == "window"  # it gives whole groups back
    assert outcomes.count("served") == len(provider.calls) and "refused" in outcomes


def test_keys_have_budgets_of_their_own(provider: FakeProvider, table: stint.Table) -> None:
    used = Used(table, key=by("user", "model"))

    async def steps() -> None:
        await ask(provider, user="a")
        await ask(provider, user="b")
        await ask(provider, user="a", model="gpt-4o", custom_llm_provider="openai")
        await settled(used)

    run(steps())
    assert used.counts('["a", "gpt-4o"]')["requests"] == 2
    assert used.counts('["b", "gpt-4o"]')["requests"] == 1


def test_without_a_key_a_call_is_not_limited(provider: FakeProvider, table: stint.Table) -> None:
    used = Used(table, tokens=1, key=lambda call: None)
    run(ask(provider))
    assert used.counts() == {"tokens": 0, "requests": 0, "money": 0}


# ---- The Router ----

def router_of(provider: FakeProvider, **more: Any) -> litellm.Router:
    names = (("big", "gpt-4o"), ("big", "gpt-4o"), ("small", "gpt-4o-mini"))
    return litellm.Router(
        [{"model_name": name, "model_info": {"id": str(number)}, "litellm_params": {
            "model": f"openai/{model}", "api_base": provider.url, "api_key": "k",
            "max_retries": 0}} for number, (name, model) in enumerate(names)],
        **{"num_retries": 0, "retry_after": 0, **more})


@pytest.mark.parametrize(("faults", "options", "charged"), [
    ([500], {"num_retries": 1}, {"big": WORDS + 5, "small": 0}),
    ([500], {"fallbacks": [{"big": ["small"]}]}, {"big": 0, "small": WORDS + 5}),
    (["no response"], {"fallbacks": [{"big": ["small"]}]}, {"big": ESTIMATE, "small": WORDS + 5}),
    ([500], {}, {"big": 0, "small": 0}),
])
def test_attempts_of_a_router(provider: FakeProvider, table: stint.Table, faults: list[Any],
                              options: dict[str, Any], charged: dict[str, int]) -> None:
    provider.faults["gpt-4o"] = list(faults)
    used = Used(table, key=by("model"))

    async def steps() -> None:
        try:
            await router_of(provider, **options).acompletion(
                model="big", messages=MESSAGES, max_tokens=5)
        except litellm.InternalServerError:
            assert not options
        await settled(used)

    run(steps())
    assert {name: used.counts(f'["{name}"]')["tokens"] for name in charged} == charged


def test_a_refusal_cools_no_deployment_down(provider: FakeProvider, table: stint.Table) -> None:
    """Else one user without a budget would stop the others."""
    used = Used(table, requests=1, key=by("user"))
    router = router_of(provider)

    async def one(user: str) -> Any:
        return await router.acompletion(model="big", messages=MESSAGES, max_tokens=5, user=user)

    async def steps() -> None:
        await one("a")
        for _ in range(3):
            with pytest.raises(litellm.RateLimitError, match="budget of requests"):
                await one("a")
        assert await router.cooldown_cache.async_get_active_cooldowns(["0", "1"], None) == []
        await one("b")
        await settled(used)

    run(steps())
    assert provider.statuses() == [200, 200]


# ---- The proxy: its hooks in its order, on data as it makes them ----

class Request:
    """A request of the proxy: each attempt calls the wrapper of acompletion, as its router does."""

    def __init__(self, used: Used, provider: FakeProvider, call_id: str = "id-1",
                 user: str = "u") -> None:
        self.used, self.budget = used, used.budget
        self.auth = SimpleNamespace(api_key="hash", user_id=user, team_id=None, end_user_id=None)
        self.data: dict[str, Any] = {
            "model": "big", "messages": MESSAGES, "max_tokens": 5, "litellm_call_id": call_id,
            "proxy_server_request": {"url": "http://proxy/chat/completions"}}
        self.sent = {"api_key": "k", "api_base": provider.url, "max_retries": 0}
        logging, _ = litellm.utils.function_setup("acompletion", litellm.utils.Rules(), None,
                                                  **self.data)
        self.data["litellm_logging_obj"] = logging

    async def begin(self) -> None:
        await self.budget.async_pre_call_hook(self.auth, None, self.data, "acompletion")

    async def attempt(self, model: str = "gpt-4o", group: str = "big", **more: Any) -> Any:
        return await litellm.acompletion(**{
            **self.data, **self.sent, "model": f"openai/{model}",
            "metadata": {"model_group": group, "user_api_key_hash": "hash"}, **more})

    async def fail(self, error: Exception) -> None:
        data = {name: value for name, value in self.data.items() if name != "litellm_logging_obj"}
        await self.budget.async_post_call_failure_hook(data, error, self.auth)


def test_proxy_keeps_a_reservation_over_failed_attempts(provider: FakeProvider,
                                                        table: stint.Table) -> None:
    provider.faults["gpt-4o"] = [500, 500]
    used = Used(table, tokens=ESTIMATE, requests=1, money=1000, key=by("key"))

    async def steps() -> None:
        request, other = Request(used, provider), Request(used, provider, "id-2")
        await request.begin()
        for _ in range(2):
            with pytest.raises(litellm.InternalServerError):
                await request.attempt()
            with pytest.raises(litellm.RateLimitError):  # the units are not free between attempts
                await other.begin()
        await request.attempt("gpt-4o-mini", "small", fallback_depth=1)
        await settled(used)

    run(steps())
    assert used.counts('["hash"]') == {"tokens": WORDS + 5, "requests": 1, "money": 4}


def test_proxy_gives_back_what_a_failed_request_did_not_use(provider: FakeProvider,
                                                            table: stint.Table) -> None:
    provider.faults["gpt-4o"] = [500]
    used = Used(table, key=by("key"))

    async def steps() -> None:
        request = Request(used, provider)
        await request.begin()
        with pytest.raises(litellm.InternalServerError) as raised:
            await request.attempt()
        assert used.counts('["hash"]')["tokens"] == ESTIMATE
        await request.fail(raised.value)
        refused = Request(used, provider, "id-2")
        await refused.begin()
        await refused.fail(ValueError("a guardrail after this callback"))

    run(steps())
    assert used.counts('["hash"]') == {"tokens": 0, "requests": 0, "money": 0}


def test_proxy_charges_a_broken_stream_and_its_fallback(provider: FakeProvider,
                                                        table: stint.Table) -> None:
    provider.faults["gpt-4o"] = ["break"]
    used = Used(table, key=by("key"))

    async def steps() -> None:
        request = Request(used, provider)
        await request.begin()
        stream = await request.attempt(stream=True)
        with pytest.raises(litellm.exceptions.MidStreamFallbackError):
            async for _ in stream:
                pass
        await request.attempt("gpt-4o-mini", "small", fallback_depth=1)
        await settled(used)

    run(steps())
    assert used.counts('["hash"]')["tokens"] == ESTIMATE + WORDS + 5
    assert sum(call.tokens for call in provider.served()) <= ESTIMATE + WORDS + 5


def test_proxy_charges_a_broken_stream_whose_fallback_is_refused(
        provider: FakeProvider, table: stint.Table) -> None:
    provider.faults["gpt-4o"] = ["break"]
    used = Used(table, tokens=ESTIMATE, key=by("key"))

    async def steps() -> None:
        request = Request(used, provider)
        await request.begin()
        stream = await request.attempt(stream=True)
        with pytest.raises(litellm.exceptions.MidStreamFallbackError):
            async for _ in stream:
                pass
        with pytest.raises(litellm.RateLimitError) as raised:
            await request.attempt("gpt-4o-mini", "small", fallback_depth=1)
        await request.fail(raised.value)

    run(steps())
    assert used.counts('["hash"]')["tokens"] == ESTIMATE


@pytest.mark.parametrize("is_first", [False, True])
def test_proxy_keeps_requests_with_one_call_id_apart(provider: FakeProvider, table: stint.Table,
                                                     is_first: bool) -> None:
    """A client chooses the id, and could have a call that fails give back another one's units."""
    used = Used(table, key=by("key"))

    async def steps() -> None:
        requests = [Request(used, provider, "same") for _ in range(2)]
        for request in requests:
            await request.begin()
        failing, other = requests if is_first else reversed(requests)
        await failing.fail(ValueError("refused by another callback"))
        assert used.counts('["hash"]')["tokens"] == ESTIMATE
        await other.attempt()
        await settled(used)

    run(steps())
    assert used.counts('["hash"]') == {"tokens": WORDS + 5, "requests": 1, "money": 60}


def test_proxy_charges_each_attempt_without_an_answer(provider: FakeProvider,
                                                      table: stint.Table) -> None:
    provider.faults["gpt-4o"] = ["hang", "hang"]
    used = Used(table, key=by("user"), tokens=2 * ESTIMATE)

    async def steps() -> None:
        request = Request(used, provider)
        await request.begin()
        for _ in range(2):
            with pytest.raises(litellm.Timeout):
                await request.attempt(timeout=0.3)
        with pytest.raises(litellm.RateLimitError) as raised:
            await request.attempt()
        await request.fail(raised.value)
        assert not used.budget._held

    run(steps())
    assert used.counts('["u"]')["tokens"] == 2 * ESTIMATE


def test_proxy_charges_a_fallback_to_its_own_model(provider: FakeProvider,
                                                   table: stint.Table) -> None:
    provider.faults["gpt-4o"] = [500]
    used = Used(table, key=by("model"), money=1_000_000)

    async def steps() -> None:
        request = Request(used, provider)
        await request.begin()
        with pytest.raises(litellm.InternalServerError):
            await request.attempt()
        await request.attempt("gpt-4o-mini", "small", fallback_depth=1)
        await settled(used)

    run(steps())
    assert used.counts('["big"]')["tokens"] == 0
    assert used.counts('["small"]')["tokens"] == WORDS + 5


def test_proxy_runs_the_hook_of_subclasses() -> None:
    """It looks for the hook among what the class itself defines."""
    class Own(Budget):
        pass

    assert "async_pre_call_hook" in vars(Own)


def test_error_of_the_proxy_has_the_headers(provider: FakeProvider, table: stint.Table) -> None:
    used = Used(table, requests=1, key=by("key"))

    async def steps() -> None:
        await Request(used, provider).begin()
        with pytest.raises(litellm.RateLimitError) as raised:
            await Request(used, provider, "id-2").begin()
        assert raised.value.headers == {"retry-after": "60"}
        assert raised.value.status_code == 429

    run(steps())


# ---- Bounds ----

def test_open_calls_are_bounded(provider: FakeProvider, table: stint.Table) -> None:
    used = Used(table, max_open=3, key=by())

    async def steps() -> None:
        for number in range(10):
            await Request(used, provider, str(number)).begin()
        assert list(used.budget._held) == ["7 7", "8 8", "9 9"]

    run(steps())
    assert used.tokens == 10 * ESTIMATE  # as estimated


def test_open_calls_expire(provider: FakeProvider, table: stint.Table, clock: Clock,
                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stint.litellm.time", SimpleNamespace(monotonic=clock.now))
    used = Used(table, expires=10, key=by())

    async def steps() -> None:
        early = Request(used, provider)
        await early.begin()
        clock.advance(9)
        await Request(used, provider, "id-2").begin()
        assert len(used.budget._held) == 2
        clock.advance(1)
        await Request(used, provider, "id-3").begin()
        assert list(used.budget._held) == ["id-2 1", "id-3 2"]
        await early.fail(ValueError("too late"))

    run(steps())
    assert used.tokens == 3 * ESTIMATE


def test_processes_share_a_table_file(tmp_path: Any, provider: FakeProvider) -> None:
    path = str(tmp_path / "llm.stint")
    with stint.Table(path) as one, stint.Table(path) as two:
        first, second = Used(one, requests=3), Used(two, requests=3)

        async def steps() -> None:
            for used in (first, second, first):
                litellm.callbacks = [used.budget]
                await ask(provider)
            litellm.callbacks = [second.budget]
            with pytest.raises(litellm.RateLimitError):
                await ask(provider)

        run(steps())


class Failing:
    """A limiter of a server that is gone once units are reserved."""

    def __init__(self, limiter: stint.Limiter) -> None:
        self.peek, self._limiter = limiter.peek, limiter

    def reserve(self, key: str, cost: int, expires: float | None = None) -> Any:
        def fail(*_: object) -> None:
            raise stint.Error("no reply in time")

        decision = self._limiter.take(key, cost)
        return SimpleNamespace(settle=fail, cancel=fail, decision=decision)


@pytest.mark.parametrize("ends", ["settle", "give back"])
def test_a_server_that_fails_keeps_no_other_reservation_open(table: stint.Table,
                                                             ends: str) -> None:
    used = Used(table)
    used.budget.limiters["tokens"] = Failing(used.limiters["tokens"])
    used.budget._open("1", Call("gpt-4o", data={"messages": MESSAGES, "max_tokens": 5}), False)
    with pytest.raises(stint.Error, match="no reply in time"):
        if ends == "settle":
            used.budget._settle("1", {"tokens": 9, "requests": 3, "money": 60})
        else:
            used.budget._give_back("1")
    expected = {"requests": 3, "money": 60} if ends == "settle" else {"requests": 0, "money": 0}
    assert used.counts() == {"tokens": ESTIMATE, **expected}


def test_a_refusal_stays_one_if_a_server_fails(table: stint.Table) -> None:
    used_up = stint.Limiter(table, "log 1/1m", name="late")
    used_up.take("[]")
    used = Used(table)
    used.budget.limiters = {
        "requests": used.limiters["requests"], "tokens": Failing(used.limiters["tokens"]),
        "money": SimpleNamespace(peek=used.limiters["money"].peek, reserve=used_up.reserve)}
    with pytest.raises(litellm.RateLimitError):
        used.budget._open("1", Call("gpt-4o", data={"messages": MESSAGES, "max_tokens": 5}), False)
    assert used.requests == 0


# ---- Estimates ----

@pytest.mark.parametrize(("data", "most"), [
    ({"messages": MESSAGES, "max_tokens": 5}, 5),
    ({"messages": MESSAGES, "max_completion_tokens": 7, "max_tokens": 5}, 7),
    ({"input": "x", "max_output_tokens": 9}, 9),
    ({"messages": MESSAGES, "max_tokens": 5, "n": 3}, 15),
    ({"messages": MESSAGES}, 100),
    ({"messages": MESSAGES, "max_tokens": "5"}, 100),
    ({"messages": MESSAGES, "max_tokens": -5}, 100),
    ({"messages": MESSAGES, "max_tokens": True}, 100),
    ({"messages": MESSAGES, "max_tokens": float("inf")}, 100),
    ({"messages": MESSAGES, "max_tokens": float("nan"), "n": "many"}, 100),
    ({"messages": MESSAGES, "max_tokens": 10**30}, 2**32 - 1),
    ({"file": "x"}, 0),
])
def test_completion_tokens(data: dict[str, Any], most: int) -> None:
    assert completion_tokens(Call("gpt-4o", data=data), 100) == most


@pytest.mark.parametrize("data", [
    {"messages": MESSAGES}, {"prompt": "one two three four"}, {"input": ["one two", "three four"]},
    {"prompt": [1, 2, 3, 4]}, {"system": "one two three four"},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "one two three four"}]}]},
    {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/not-fetched.png"}}]}]},
    {"messages": [{"role": "user", "content": {"strange": "one two three four"}}]},
    {"messages": [42, None, "four"]}, {"messages": "one two three four"},
    {"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
])
def test_prompt_tokens_of_any_form(data: dict[str, Any]) -> None:
    assert prompt_tokens(Call("gpt-4o", data=data)) >= 4


def test_an_embedding_has_no_completion() -> None:
    call = Call("m", kind="aembedding", data={"input": "one two"})
    assert completion_tokens(call, 1024) == 0


def test_prices() -> None:
    assert dollars(Call("gpt-4o"), 4, 5) == pytest.approx(60e-6)
    with pytest.raises(litellm.BadRequestError, match="no price for 'my-model'; set input_cost"):
        dollars(Call("my-model"), 1, 1)


def test_price_of_a_group_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    info = SimpleNamespace(input_cost_per_token=1e-6, output_cost_per_token=2e-6)
    router = SimpleNamespace(get_model_group_info=lambda model_group: info)
    monkeypatch.setitem(__import__("sys").modules, "litellm.proxy.proxy_server",
                        SimpleNamespace(llm_router=router))
    assert dollars(Call("my-model"), 10, 20) == pytest.approx(50e-6)


@pytest.mark.parametrize(("unit", "price", "units"), [
    (1e-6, 6e-05, 60), (1e-6, 6.01e-05, 61), (1e-6, 0.1 + 0.2, 300_000), (1e-4, 6e-05, 1),
    (1e-6, 0.0, 0), (1e-6, 1e9, 2**32 - 1)])
def test_money_is_rounded_up_to_units(table: stint.Table, unit: float, price: float,
                                      units: int) -> None:
    budget = Budget(money=stint.Limiter(table, "5/1d"), money_unit=unit)
    assert budget._units(None, price) == {"money": units}


@pytest.mark.parametrize(("options", "text"), [
    ({}, "needs a limiter"), ({"expires": 0}, "expires is 0"), ({"max_open": -1}, "max_open is -1"),
    ({"money_unit": 0}, "money_unit is 0")])
def test_settings(table: stint.Table, options: Mapping[str, Any], text: str) -> None:
    limiters = {"requests": stint.Limiter(table, "1/1s")} if options else {}
    with pytest.raises(ValueError, match=text):
        Budget(**limiters, **options)
    with pytest.raises(ValueError, match="no field 'teams'"):
        by("teams")


def test_a_budget_has_no_async_limiter() -> None:
    """A coroutine is true: it must not pass for units."""
    limiter: Any = AsyncLimiter.connect("stint://127.0.0.1:9", "1/1h")
    with pytest.raises(TypeError, match="tokens= is async"):
        Budget(tokens=limiter)
