# SPDX-License-Identifier: MIT
"""A site of Django: its middleware, its URLs and its views, with the rule that handler() sets."""

from __future__ import annotations

import os

from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import clear_url_caches, re_path
from django.utils.decorators import sync_and_async_middleware
from rest_framework.response import Response
from rest_framework.views import APIView

import stint.django
import stint.drf

def hello(request):
    return HttpResponse("hello")


async def hello_async(request):
    return HttpResponse("hello")


def rest_view(rule):
    class RuleThrottle(stint.drf.Throttle):
        pass

    RuleThrottle.rule = rule

    class View(APIView):
        throttle_classes = [RuleThrottle]

        def get(self, request):
            return Response("hello")

        head = post = options = get

    return View.as_view()


@sync_and_async_middleware
def unlimited(get_response):
    return get_response


def served(request):
    return HttpResponse(str(os.getpid()) if request.path == "/pid" else "hello")


KINDS = {
    "middleware": lambda rule: (stint.django.middleware(rule), hello),
    "served": lambda rule: (stint.django.middleware(rule), served),
    "decorator": lambda rule: (unlimited, stint.django.limit(rule)(hello)),
    "async_decorator": lambda rule: (unlimited, stint.django.limit(rule)(hello_async)),
    "drf": lambda rule: (unlimited, rest_view(rule)),
}
chosen = None


@sync_and_async_middleware
def limit_site(get_response):
    return chosen[0](get_response)


def handler(rule, kind, is_async):
    global chosen, urlpatterns
    chosen = KINDS[kind](rule)
    urlpatterns = [re_path("", chosen[1])]
    clear_url_caches()
    return ASGIHandler() if is_async else WSGIHandler()


urlpatterns = []
