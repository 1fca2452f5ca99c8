# SPDX-License-Identifier: MIT
"""What replies of a server say: decisions, keys of pools."""
from __future__ import annotations

import math
from typing import Any, Final

from .._core import Quota
from ..pool import KeyStatus, Lease
from .errors import ServerError
from .wire import WireError

NEVER_NS: Final = 2**64 - 1
UNITS_MAX: Final = 2**32 - 1
TARGETS_MAX: Final = 32  # quotas or descriptors of a request
_MS: Final = 1_000_000
_MS_MAX: Final = 2**53


class RemoteDecision:
    """What a limiter answered: the attributes of stint.Decision, and two more.

    from_server: False if the server did not decide, and on_error did. error: why, a ServerError;
    None otherwise. Times are those of the reply, whole milliseconds, rounded up.

    Of descriptors, quota is None and binding the index of a descriptor. is_limited: False if no
    rule limits them; limit and remaining are then the largest cost.
    """

    __slots__ = (
        "at_ns",
        "binding",
        "error",
        "from_server",
        "granted",
        "is_limited",
        "limit",
        "outcome",
        "quota",
        "remaining",
        "reset_after_ns",
        "retry_after_ns",
        "ticket",
    )

    outcome: str
    granted: int
    limit: int
    remaining: int
    retry_after_ns: int
    reset_after_ns: int
    binding: int
    quota: Quota | None
    at_ns: int
    is_limited: bool
    from_server: bool
    error: ServerError | None
    ticket: str | None

    def __init__(self, outcome: str, granted: int = 0, limit: int = 0, remaining: int = 0,
                 retry_after_ns: int = 0, reset_after_ns: int = 0, binding: int = 0,
                 quotas: tuple[Quota, ...] = (), at_ns: int = 0, *,
                 error: ServerError | None = None, ticket: str | None = None,
                 is_limited: bool = True) -> None:
        self.outcome = outcome
        self.granted = granted
        self.limit = limit
        self.remaining = remaining
        self.retry_after_ns = retry_after_ns
        self.reset_after_ns = reset_after_ns
        self.binding = binding
        self.quota = quotas[binding] if binding < len(quotas) else None
        self.at_ns = at_ns
        self.is_limited = is_limited
        self.from_server = error is None
        self.error = error
        self.ticket = ticket

    def __bool__(self) -> bool:
        return self.outcome == "allow"

    @property
    def allowed(self) -> bool:
        """Whether the units were granted; so is the decision's truth."""
        return self.outcome == "allow"

    @property
    def retry_after(self) -> float:
        """Seconds after which this cost is allowed; 0.0 when allowed, math.inf for "never"."""
        return math.inf if self.retry_after_ns == NEVER_NS else self.retry_after_ns / 1e9

    @property
    def reset_after(self) -> float:
        """Seconds until the key is as never used."""
        return math.inf if self.reset_after_ns == NEVER_NS else self.reset_after_ns / 1e9

    def __repr__(self) -> str:
        made = "" if self.error is None else f" error={self.error.code}"
        return (f"<stint.RemoteDecision {self.outcome}: granted={self.granted} limit={self.limit} "
                f"remaining={self.remaining} retry_after={self.retry_after!r}{made}>")


def _number(values: dict[str, Any], name: str, top: int) -> int:
    value = values.get(name)
    if type(value) is not int or not 0 <= value <= top:
        raise WireError(f"expected 0 to {top} as {name}, found {str(value)[:80]!r}")
    return value


def wait_ns(values: dict[str, Any], name: str) -> int:
    """A time: milliseconds; −1 (RESP) or null (HTTP) is never."""
    value = values.get(name, 0)
    if value is None or value == -1:
        return NEVER_NS
    return _number(values, name, _MS_MAX) * _MS


def digits(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    if not isinstance(value, str) or not (value.isascii() and value.isdigit()) or len(value) > 20:
        raise WireError(f"expected digits as {name}, found {str(value)[:80]!r}")
    return int(value)


def text(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str):
        raise WireError(f"expected a text as {name}, found {str(value)[:80]!r}")
    return value


def read_decision(values: dict[str, Any], quotas: tuple[Quota, ...]) -> RemoteDecision:
    """The decision of a reply; WireError unless each of its members is as documented."""
    outcome = values.get("outcome")
    if outcome not in ("allow", "deny", "never"):
        raise WireError(f"expected a decision, found {str(values)[:80]!r}")
    # Without quotas the rules of the server decided, on up to 32 descriptors.
    is_limited = bool(quotas) or values.get("limit", 0) not in (None, -1)
    return RemoteDecision(
        outcome,
        _number(values, "granted", UNITS_MAX),
        _number(values, "limit", UNITS_MAX) if is_limited else UNITS_MAX,
        _number(values, "remaining", UNITS_MAX) if is_limited else UNITS_MAX,
        wait_ns(values, "retry_after_ms"),
        wait_ns(values, "reset_after_ms"),
        _number(values, "binding", (len(quotas) or TARGETS_MAX) - 1),
        quotas,
        digits(values, "at"),
        ticket=text(values, "ticket") if "ticket" in values else None,
        is_limited=is_limited,
    )


class RemoteCount:
    """A counter of a server: the attributes of stint.Count."""

    __slots__ = ("count", "expires_after_ns")

    def __init__(self, count: int, expires_after_ns: int) -> None:
        self.count, self.expires_after_ns = count, expires_after_ns

    @property
    def expires_after(self) -> float:
        """Seconds until the counter expires; 0.0 where there is none."""
        return self.expires_after_ns / 1e9

    def __repr__(self) -> str:
        return f"<stint.RemoteCount {self.count}: expires_after={self.expires_after}>"


def read_count(values: dict[str, Any]) -> RemoteCount:
    """The counter of a reply; WireError unless it is as documented."""
    return RemoteCount(_number(values, "count", 2**52 - 1), wait_ns(values, "expires_after_ms"))


_STANDINGS: Final = {"free": 0, "used_up": 1, "cooling": 2, "backing_off": 3, "out": 4}


def read_lease(values: dict[str, Any]) -> Lease:
    """What next() returned; WireError unless it is as documented."""
    name = values.get("key")
    if name is not None and not isinstance(name, str):
        raise WireError(f"expected a key or null, found {str(name)[:80]!r}")
    numbers = [values.get("limit"), values.get("remaining")]
    if any(type(number) is not int for number in numbers):
        raise WireError(f"expected a key of a pool, found {str(values)[:80]!r}")
    wait = wait_ns(values, "wait_ms")
    decision = RemoteDecision(
        "allow" if name is not None else "never" if wait == NEVER_NS else "deny",
        limit=values["limit"], remaining=values["remaining"],
        retry_after_ns=0 if name is not None else wait,
        reset_after_ns=wait_ns(values, "reset_after_ms"), at_ns=digits(values, "at"))
    return Lease(name, 0 if name is not None else wait, decision.at_ns,
                 bool(values.get("probe")), decision)  # type: ignore[arg-type]


def read_statuses(keys: list[dict[str, Any]]) -> list[KeyStatus]:
    """What status() returned; WireError unless it is as documented."""
    statuses = []
    for values in keys:
        standing = _STANDINGS.get(text(values, "standing"))
        numbers = [values.get(name) for name in ("weight", "failures", "limit", "remaining")]
        if standing is None or any(type(number) is not int for number in numbers):
            raise WireError(f"expected the status of a key, found {str(values)[:80]!r}")
        weight, failures, limit, remaining = numbers
        returns = wait_ns(values, "returns_after_ms")
        decision = RemoteDecision(
            "never" if returns == NEVER_NS else "deny" if returns else "allow",
            limit=limit or 0, remaining=remaining or 0, retry_after_ns=returns)
        statuses.append(KeyStatus(text(values, "key"), weight or 0, standing, failures or 0,
                                  returns, decision))  # type: ignore[arg-type]
    return statuses
