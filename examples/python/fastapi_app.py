# SPDX-License-Identifier: MIT
"""FastAPI with limits: uvicorn fastapi_app:app --no-proxy-headers"""
from fastapi import Depends, FastAPI, HTTPException, Request

import limits


def user(request):
    """X-User stands for the user of your sessions. Without one the address is the key."""
    name = request.headers.get("X-User")
    return f"user:{name}" if name else f"address:{limits.network(request.client.host)}"


PER_USER = ("100/1m", user)
LOGINS = ("5/1m", lambda request: f"login:{limits.network(request.client.host)}")


def limit(*quotas):
    async def check(request: Request):
        items = [(quota, key(request)) for quota, key in quotas]
        status, request.state.fields = await limits.take_async(items)
        if status != 200:
            raise HTTPException(status, limits.TEXTS[status])

    return Depends(check)


app = FastAPI()


@app.middleware("http")
async def add_fields(request: Request, call_next):
    response = await call_next(request)
    response.headers.update(getattr(request.state, "fields", {}))
    return response


@app.get("/", dependencies=[limit(PER_USER)])
async def home():
    return {"hello": "world"}


@app.post("/login", dependencies=[limit(PER_USER, LOGINS)])
async def login():
    return {"hello": "user"}
