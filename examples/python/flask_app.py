# SPDX-License-Identifier: MIT
"""Flask with limits: flask --app flask_app run"""
import functools

from flask import Flask, after_this_request, request

import limits


def user():
    """X-User stands for the user of your sessions. Without one the address is the key."""
    name = request.headers.get("X-User")
    return f"user:{name}" if name else f"address:{limits.network(request.remote_addr)}"


PER_USER = ("100/1m", user)
LOGINS = ("5/1m", lambda: f"login:{limits.network(request.remote_addr)}")


def limit(*quotas):
    def around(view):
        @functools.wraps(view)
        def limited(*args, **kwargs):
            status, fields = limits.take([(quota, key()) for quota, key in quotas])

            @after_this_request
            def add_fields(response):
                response.headers.update(fields)
                return response

            if status != 200:
                return {"detail": limits.TEXTS[status]}, status
            return view(*args, **kwargs)

        return limited

    return around


app = Flask(__name__)


@app.get("/")
@limit(PER_USER)
def home():
    return {"hello": "world"}


@app.post("/login")
@limit(PER_USER, LOGINS)
def login():
    return {"hello": "user"}
