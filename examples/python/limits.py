# SPDX-License-Identifier: MIT
"""Limits of a web application, decided by a server of stint. For any framework of Python.

All limits of a route are one request to stint: if one denies, none is charged. The request is
plain HTTP, because its reply has the header fields that clients of the application get.
"""
import ipaddress
import logging
import os

import httpx

# What happens to requests that stint does not decide: they pass (open), or are refused with 503.
FAIL_OPEN = os.environ.get("STINT_FAIL", "open") == "open"
TEXTS = {429: "Too many requests.", 503: "Limits cannot be checked now."}
FIELDS = ("RateLimit-Policy", "RateLimit", "Retry-After")

OPTIONS = {
    "base_url": os.environ.get("STINT_URL", "http://127.0.0.1:8080"),
    "timeout": 0.25,  # seconds, for each step: to connect, to send, to receive
    "trust_env": False,  # no proxy on the way to stint
}
if "STINT_TOKEN_FILE" in os.environ:
    with open(os.environ["STINT_TOKEN_FILE"], encoding="ascii") as file:
        OPTIONS["headers"] = {"Authorization": "Bearer " + file.readline().strip()}
client, async_client = httpx.Client(**OPTIONS), httpx.AsyncClient(**OPTIONS)


def network(text):
    """A client's address as a key: of IPv6 the /64, since a client may use all addresses in it."""
    address = ipaddress.ip_address(text.partition("%")[0])
    address = getattr(address, "ipv4_mapped", None) or address
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


def body(items):
    return {"items": [{"quota": quota, "key": key} for quota, key in items]}


def take(items):
    """Charges one unit of each (quota, key): 200, 429 or 503, and the fields for the reply."""
    try:
        return decided(client.post("/v1/take", json=body(items)))
    except httpx.RequestError as error:
        return undecided(repr(error), FAIL_OPEN)


async def take_async(items):
    try:
        return decided(await async_client.post("/v1/take", json=body(items)))
    except httpx.RequestError as error:
        return undecided(repr(error), FAIL_OPEN)


def decided(reply):
    if reply.status_code in (200, 429):
        return reply.status_code, {name: reply.headers[name] for name in FIELDS
                                   if name in reply.headers}
    # 4xx is a request that stint refuses. No client may pass by causing one.
    return undecided(reply.text, FAIL_OPEN and reply.status_code >= 500)


def undecided(reason, passes):
    logging.getLogger("stint").warning("%s: %s", "not limited" if passes else "refused", reason)
    return (200 if passes else 503), {}
