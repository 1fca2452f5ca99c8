# SPDX-License-Identifier: MIT
"""Limits of Django REST framework.

    class PerUser(Throttle):
        rule = Rule(limiter, first_of(user(), address()))

in throttle_classes of a view, or as DEFAULT_THROTTLE_CLASSES for all of them.
"""
from __future__ import annotations

from typing import Any

from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from .django import django_request
from .http import Rule, Verdict, add_fields


class Refused(Throttled):
    """A refusal, with the members of RFC 9457 as its data, in the renderer of the view."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.status_code = verdict.status
        self.detail = dict(verdict.problem) if verdict.response is None else verdict.response
        self.wait = next((int(v) for name, v in verdict.fields if name == "Retry-After"), None)


class Throttle(BaseThrottle):
    """A throttle of a view, with the `rule` of its class. user() is the user of REST framework.

    It raises the refusal itself, so that throttles after it do not charge a refused request. What
    Rule(respond=…) returns is the data of the response.
    """

    rule: Rule

    def allow_request(self, request: Request, view: Any) -> bool:
        verdict = self.rule.decide(django_request(request._request, request))
        add_fields(view.headers, verdict.fields)
        if not verdict.passes:
            raise Refused(verdict)
        return True
