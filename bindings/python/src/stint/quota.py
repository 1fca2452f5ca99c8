# SPDX-License-Identifier: MIT
"""Quotas, and what they guarantee."""

from __future__ import annotations

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Self

NS_PER_S = 1_000_000_000
_TITLES = ("What is allowed", "The most in any window", "When it denies early",
           "How long a denial lasts", "Bytes per key")


def quota_error(code: str, message: str) -> _core.QuotaError:
    """An error of the same form as those of the engine."""
    made = _core.QuotaError(message)
    made.code = code
    return made


def _duration(value: float | str) -> str:
    """Seconds, or a duration of a SPEC as it is."""
    if isinstance(value, str):
        return value
    try:
        return f"{round(value * NS_PER_S)}ns"
    except (OverflowError, ValueError):
        raise quota_error("RANGE", f"{value} s is not a finite duration") from None


def _option(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _duration(value) if isinstance(value, float) else str(value)


class Quota(_core.Quota):
    """At most `limit` units per period.

    Quota("100/1m")                     from a SPEC: [ALGORITHM] LIMIT/PERIOD [name=value …]
    Quota(limit=100, period=60)         the same by keywords

    period: seconds, or a duration such as "1mo". algorithm: window, buckets, log, gcra,
    fixed_window, sliding_counter, concurrency. burst: of gcra. options: those of the SPEC, such as
    resolution=12, lease=30.0; a float is in seconds. concurrency has a lease and no period.

    Immutable and hashable; str() is the SPEC. Raises QuotaError for a SPEC that cannot be parsed,
    and for a quota that cannot be enforced exactly.
    """

    __slots__ = ()

    def __new__(cls, spec: str | None = None, *, limit: int | None = None,
                period: float | str | None = None, algorithm: str = "window",
                burst: int | None = None, **options: object) -> Self:
        if spec is None:
            if limit is None:
                raise TypeError("Quota() needs a SPEC, such as \"100/1m\", or limit and period")
            amount = str(limit) if period is None else f"{limit}/{_duration(period)}"
            if burst is not None:
                options["burst"] = burst
            spec = " ".join([algorithm, amount,
                             *(f"{name}={_option(value)}" for name, value in options.items())])
        elif limit is not None or period is not None or burst is not None or options:
            raise TypeError("Quota() takes a SPEC or keywords, not both")
        return super().__new__(cls, spec)

    def explain(self) -> str:
        """What the quota allows, its worst case, when it denies early, and its memory."""
        texts = zip(_TITLES, self._texts())
        return "\n".join([str(self), *(f"\n{title}\n  {text}" for title, text in texts if text)])


def explain(spec: str) -> str:
    """What the quota of a SPEC guarantees, as text: Quota(spec).explain()."""
    return Quota(spec).explain()
