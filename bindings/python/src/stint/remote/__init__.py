# SPDX-License-Identifier: MIT
"""Limiters of a server, with the methods of those of a table.

    limiter = stint.Limiter.connect("stint://limits:7379", "100/1m", on_error="allow")
    decision = limiter.take("203.0.113.9")

    limiter = stint.remote.AsyncLimiter.connect("stint://limits:7379", "100/1m")
    decision = await limiter.take("203.0.113.9")

    rules = stint.remote.RemoteRules.connect("stint://limits:7379", "shop")  # those of the server
    decision = rules.take({"user": "42"})

A question costs at most `timeout` seconds (0.05), whatever the server does: one deadline is for
the connection, TLS, the reply, and the retry if a connection that had been idle has just ended.
After three errors in a row the server is not asked for 0.1 s, twice as long after each further
error, up to 2 s; on_error decides meanwhile.
"""
from __future__ import annotations

import ssl

from ..quota import Quota
from .errors import ServerError
from .limiter import (
    TIMEOUT,
    RemoteHold,
    RemoteLimiter,
    RemotePool,
    RemoteReservation,
    RemoteRules,
    RemoteTable,
)
from .replies import RemoteCount, RemoteDecision
from .tasks import (
    AsyncHold,
    AsyncLimiter,
    AsyncRemotePool,
    AsyncReservation,
    AsyncRules,
    AsyncTable,
)

__all__ = [
    "AsyncHold",
    "AsyncLimiter",
    "AsyncRemotePool",
    "AsyncReservation",
    "AsyncRules",
    "AsyncTable",
    "RemoteCount",
    "RemoteDecision",
    "RemoteHold",
    "RemoteLimiter",
    "RemotePool",
    "RemoteReservation",
    "RemoteRules",
    "RemoteTable",
    "ServerError",
    "connect",
]


def connect(url: str, *quotas: str | Quota, name: str | None = None, on_error: str = "raise",
            token: str | None = None, timeout: float = TIMEOUT, tls: ssl.SSLContext | None = None,
            connections: int = 8, request_ids: bool = True) -> RemoteLimiter:
    """A limiter with a table of its own; nothing is sent before the first question.

    The parameters are those of RemoteTable and RemoteLimiter. Several limiters of one server share
    its connections as RemoteTable(url).limiter(…).
    """
    table = RemoteTable(url, token=token, timeout=timeout, tls=tls, connections=connections,
                        request_ids=request_ids)
    return RemoteLimiter(table, *quotas, name=name, on_error=on_error)
