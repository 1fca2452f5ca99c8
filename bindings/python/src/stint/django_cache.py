# SPDX-License-Identifier: MIT
"""
A cache of Django for counters, in a stint table: what limiters such as django-ratelimit need.

    CACHES = {
        "default": {
            "BACKEND": "stint.django_cache.StintCache",
            "LOCATION": "/dev/shm/app.stint",
            "OPTIONS": {"keys": 100_000},       # counters at the same time, of a new file
        }
    }

Values are integers between -2**30 and 2**30. Every process that opens the file shares the counters;
`add`, `incr` and `decr` are atomic.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.cache.backends.base import (  # type: ignore[import-untyped, unused-ignore]
    DEFAULT_TIMEOUT,
    BaseCache,
)
from django.core.exceptions import (  # type: ignore[import-untyped, unused-ignore]
    ImproperlyConfigured,
)

from ._namespace import Namespace, open_shared

_VALUE_MAX = 2**30
_BIAS = 2 * _VALUE_MAX  # is added to each value: a counter below _VALUE_MAX is no value
_NEVER_S = 3650 * 24 * 3600  # the longest expiry of a counter
_AT_ONCE_S = 1e-9
_LEASE_S = 1.0
_LOCK = b"lock\0"


class StintCache(BaseCache):  # type: ignore[misc, unused-ignore]
    """
    A cache of integers. LOCATION is the path of the table. Any thread.

    `set` and `touch` replace the counter: an `incr` at the same time counts before or after a
    `set`, and may be lost in a `touch`.
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        if not location:
            raise ImproperlyConfigured(
                "StintCache needs LOCATION, the path of its table: every process opens it, such as "
                '"LOCATION": "/dev/shm/app.stint"'
            )
        options = params.get("OPTIONS", {})
        for name in options.keys() - {"keys"}:
            raise ImproperlyConfigured(f"OPTIONS of StintCache has {name}; it knows keys alone")
        self._table = open_shared(str(location), **options)
        self._names = Namespace(self._table, "django")

    def _name(self, key: str, version: int | None) -> bytes:
        return self._names.key(self.make_and_validate_key(key, version=version))

    def _expiry(self, timeout: object) -> float:
        """Seconds; 0 for a value that expires at once."""
        if timeout is DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        return _NEVER_S if timeout is None else min(max(float(str(timeout)), 0), _NEVER_S)

    @staticmethod
    def _stored(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _VALUE_MAX:
            return value + _BIAS
        raise TypeError(
            f"StintCache holds integers from -2**30 to 2**30, not {value!r:.100}: it is a cache of "
            "counters, for limiters. Keep other values in another entry of CACHES, and name this "
            "one in the limiter's setting (RATELIMIT_USE_CACHE of django-ratelimit)"
        )

    @contextmanager
    def _alone(self, name: bytes) -> Iterator[None]:
        """
        Runs a change that is more than one step alone. The first to count in the lock's counter
        has it. If its process is killed, the counter expires.
        """
        lock = _LOCK + name
        while self._table.count(lock, 1, _LEASE_S).count != 1:
            time.sleep(0)
        try:
            yield
        finally:
            self._table.reset_counter(lock)

    def _begin(self, name: bytes, stored: int, expiry: float) -> None:
        self._table.reset_counter(name)
        if expiry > 0:
            self._table.count(name, stored, expiry)

    def _read(self, name: bytes) -> int | None:
        stored = self._table.counter(name).count
        return stored - _BIAS if stored >= _VALUE_MAX else None

    def add(
        self, key: str, value: int, timeout: object = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Sets a value that is not there. Of callers at once, one gets True."""
        name, stored = self._name(key, version), self._stored(value)
        if self._read(name) is not None:
            return False
        with self._alone(name):
            if self._read(name) is not None:
                return False
            self._begin(name, stored, self._expiry(timeout))
            return True

    def get(self, key: str, default: Any = None, version: int | None = None) -> Any:
        """The value, or the default."""
        value = self._read(self._name(key, version))
        return default if value is None else value

    def set(
        self, key: str, value: int, timeout: object = DEFAULT_TIMEOUT, version: int | None = None
    ) -> None:
        """Sets a value. TypeError for what is no integer in the range."""
        name, stored = self._name(key, version), self._stored(value)
        with self._alone(name):
            self._begin(name, stored, self._expiry(timeout))

    def touch(
        self, key: str, timeout: object = DEFAULT_TIMEOUT, version: int | None = None
    ) -> bool:
        """Sets when a value expires. False if there is none."""
        name = self._name(key, version)
        with self._alone(name):
            value = self._read(name)
            if value is not None:
                self._begin(name, value + _BIAS, self._expiry(timeout))
        return value is not None

    def delete(self, key: str, version: int | None = None) -> bool:
        """Forgets a value. False if there is none."""
        name = self._name(key, version)
        with self._alone(name):
            value = self._read(name)
            self._table.reset_counter(name)
        return value is not None

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """Adds to a value, in one step. ValueError if there is none."""
        if abs(delta) > _VALUE_MAX:
            raise ValueError(f"delta {delta} is beyond 2**30")
        name = self._name(key, version)
        while True:
            # A counter that begins here expires at once: only a value that is there is changed.
            stored = self._table.count(name, delta, _AT_ONCE_S).count
            if stored >= _VALUE_MAX:
                return stored - _BIAS
            if not self._table.counter(_LOCK + name).count:
                raise ValueError(f"Key {key!r} not found")
            time.sleep(0)  # a set or a touch is between its steps

    def clear(self) -> None:
        """Forgets the values of this cache, in one step; other users of the table keep theirs."""
        self._names.forget()
