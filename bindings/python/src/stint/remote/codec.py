# SPDX-License-Identifier: MIT
"""The questions that a server is asked, as RESP and as HTTP, and what its replies mean."""
from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

from .._core import Quota
from .address import Address
from .errors import ServerError, gone_error, quota_error
from .replies import digits, read_count, read_decision, read_lease, read_statuses
from .wire import ErrorReply, HttpReader, HttpReply, RespReader, WireError, shown

REPLY_MAX: Final = 16384  # bytes of a reply; a decision on 32 quotas has less than half
STATUSES_MAX: Final = 65536  # of one on descriptors, which has the path of each rule
COMMAND_MAX: Final = 1 << 20  # of a command: what servers take by default
BODY_MAX: Final = 65536  # of a body
STATUS_MAX: Final = 1 << 24  # of STINT.POOL STATUS: a pool has up to 65,536 keys

Reader = RespReader | HttpReader
Value = int | str | bytes | list[str]
Descriptor = tuple[tuple[str, str], ...]


class Verb:
    """A row of the table of verbs.

    `resp`: the command. `path`: of HTTP; {} stands for the pool. `first`: options that are
    arguments of RESP without a word, in this order, before all others. `last`: a word of RESP after
    them. `reply`: its kind. `is_repeatable`: asking twice changes nothing. `takes_id`: asked twice
    with one id, it charges once.
    """

    __slots__ = (
        "first",
        "is_repeatable",
        "last",
        "limit",
        "method",
        "name",
        "path",
        "reply",
        "resp",
        "takes_id",
    )

    def __init__(self, name: str, resp: str, path: str = "", first: tuple[str, ...] = (), *,
                 reply: str = "decision", repeatable: bool = False, takes_id: bool = False,
                 method: str = "POST", limit: int = REPLY_MAX,
                 last: tuple[bytes, ...] = ()) -> None:
        self.name, self.first, self.last, self.reply = name, first, last, reply
        self.method, self.limit = method, limit
        self.resp = tuple(word.encode() for word in resp.split())
        self.path = path or f"/v1/{name}"
        self.is_repeatable, self.takes_id = repeatable, takes_id


VERBS: Final = {
    verb.name: verb
    for verb in (
        Verb("take", "STINT.TAKE", takes_id=True),
        Verb("take_upto", "STINT.TAKEUPTO", takes_id=True),
        Verb("peek", "STINT.PEEK", repeatable=True),
        Verb("charge", "STINT.CHARGE", takes_id=True),
        Verb("refund", "STINT.REFUND", takes_id=True),
        Verb("reserve", "STINT.RESERVE", takes_id=True),
        Verb("settle", "STINT.SETTLE", first=("ticket", "cost"), takes_id=True),
        Verb("cancel", "STINT.CANCEL", first=("ticket",), takes_id=True),
        Verb("renew", "STINT.RENEW", first=("ticket",), reply="ok", repeatable=True),
        Verb("block", "STINT.BLOCK", reply="ok", repeatable=True),
        Verb("reset", "STINT.RESET", reply="ok", repeatable=True),
        Verb("count", "STINT.COUNT", first=("key", "amount", "expiry_ms"), reply="count"),
        Verb("counter", "STINT.COUNT", "/v1/count", ("key",), reply="count", repeatable=True),
        Verb("reset_counter", "STINT.COUNT", "/v1/count_reset", ("key",), last=(b"RESET",),
             reply="ok", repeatable=True),
        Verb("clock", "STINT.CLOCK", method="GET", reply="clock", repeatable=True),
        Verb("pool_next", "STINT.POOL NEXT", "/v1/pools/{}/next", ("pool",), reply="lease",
             takes_id=True),
        Verb("pool_give_back", "STINT.POOL GIVEBACK", "/v1/pools/{}/give_back", ("pool", "key"),
             reply="given_back", takes_id=True),
        Verb("pool_report", "STINT.POOL REPORT", "/v1/pools/{}/report",
             ("pool", "key", "outcome"), reply="ok", repeatable=True),
        Verb("pool_status", "STINT.POOL STATUS", "/v1/pools/{}/status", ("pool",), method="GET",
             reply="keys", repeatable=True, limit=STATUS_MAX),
        Verb("pool_add", "STINT.POOL ADD", "/v1/pools/{}/add", ("pool", "key"), reply="ok"),
        Verb("pool_remove", "STINT.POOL REMOVE", "/v1/pools/{}/remove", ("pool", "key"),
             reply="ok"),
    )
}

# Options by their names in HTTP: the words of RESP.
_WORDS: Final[dict[str, tuple[bytes, ...]]] = {
    "cost": (b"COST",),
    "request_id": (b"ID",),
    "granted_at": (b"AT",),
    "lifetime_ms": (b"LIFETIME",),
    "for_ms": (b"FOR",),
    "probe": (b"PROBE",),
    "cooldown_ms": (),
    "weight": (b"WEIGHT",),
    "quotas": (b"QUOTA",),
}
_OUTCOMES: Final = {"ok": b"OK", "cool": b"COOL", "back_off": b"BACKOFF", "out": b"OUT"}


class Question:
    """One question: a verb, its target, and options by their HTTP names.

    The target is quotas and a key, or descriptors of a domain; some verbs have none.
    """

    __slots__ = ("descriptors", "domain", "key", "options", "quotas", "specs", "verb")

    def __init__(self, verb: str, quotas: tuple[Quota, ...] = (), specs: tuple[str, ...] = (),
                 key: bytes = b"", /, **options: Value) -> None:
        self.verb, self.quotas, self.specs, self.key = VERBS[verb], quotas, specs, key
        self.domain = ""
        self.descriptors: tuple[Descriptor, ...] = ()
        self.options = options

    @property
    def limit(self) -> int:
        """The most bytes of the reply."""
        return STATUSES_MAX if self.descriptors else self.verb.limit

    @property
    def may_repeat(self) -> bool:
        return self.verb.is_repeatable or "request_id" in self.options


def checked(data: bytes, top: int) -> bytes:
    """What is sent. A server ends the connection of a longer request: on_error must not decide
    then, since keys are often of the client's choice."""
    if len(data) > top:
        raise quota_error("RANGE", f"the key is too long: a request has {len(data)} bytes with it; "
                          f"expected at most {top}")
    return data


def _bytes(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    assert isinstance(value, int)
    return b"%d" % value


def utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class RespCodec:
    """RESP2. Questions may be sent before earlier ones have been answered."""

    depth: Final = 128  # questions on their way on one connection

    def __init__(self, address: Address) -> None:
        self._address = address

    def reader(self) -> Reader:
        return RespReader()

    def greeting(self) -> bytes | None:
        """What is sent first on a connection; decode() reads its reply."""
        if self._address.secret is None:
            return None
        user = [self._address.user.encode()] if self._address.user else []
        return self._command([b"AUTH", *user, self._address.secret.encode()])

    @staticmethod
    def _command(words: list[bytes]) -> bytes:
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            parts.append(b"$%d\r\n" % len(word))
            parts.append(word)
            parts.append(b"\r\n")
        return b"".join(parts)

    def encode(self, question: Question) -> bytes:
        verb, options = question.verb, question.options
        words = [*verb.resp]
        words += [
            _OUTCOMES[str(options[name])] if name == "outcome" else _bytes(options[name])
            for name in verb.first
            if name in options
        ]
        words += verb.last
        # Options come before the target: a COST after a QUOTA is of that quota alone.
        for name, value in options.items():
            if name in verb.first:
                continue
            if isinstance(value, bool):
                words += _WORDS[name] if value else ()
            elif isinstance(value, list):
                for each in value:
                    words += (*_WORDS[name], each.encode())
            else:
                words += (*_WORDS[name], _bytes(value))
        for spec in question.specs:
            words += (b"QUOTA", spec.encode(), question.key)
        if question.descriptors:
            words += (b"DOMAIN", utf8(question.domain))
        for descriptor in question.descriptors:
            words += (b"DESCRIPTOR", b"%d" % len(descriptor))
            words += (utf8(text) for entry in descriptor for text in entry)
        return checked(self._command(words), COMMAND_MAX)

    def decode(self, question: Question | None, reply: Any) -> Any:
        """The value of a reply, or the exception that it is. WireError if it is neither.

        The question is None for the greeting.
        """
        if isinstance(reply, ErrorReply):
            return self._error(reply)
        kind = question.verb.reply if question else "ok"
        if kind == "ok":
            if reply != "OK":
                raise WireError(f"expected OK, found {_shown(reply)}")
            return None
        if kind == "keys":
            if not isinstance(reply, list):
                raise WireError(f"expected an array of keys, found {_shown(reply)}")
            return read_statuses([_map_of(each) for each in reply])
        if kind == "given_back":
            return value_of(kind, {"given_back": reply}, question)
        return value_of(kind, _map_of(reply), question)

    def closes(self, reply: Any) -> bool:
        return isinstance(reply, ErrorReply) and reply.text.startswith("Protocol error")

    def _error(self, reply: ErrorReply) -> Exception:
        where, said = self._address, f"{reply.word} {reply.text}"
        if reply.word == "ERR" and reply.text.lower().startswith("unknown command"):
            return ServerError(
                "PROTOCOL", f"{where}: the server replied {said!r}; "
                "check that this is the RESP port of a stint server that has this command")
        return reply_error(where, reply.word, reply.text)

    @staticmethod
    def explain(error: WireError) -> str:
        """The error, and what to do about the wrong port."""
        if "found 'HTTP/" in str(error):
            return f"{error}; this port speaks HTTP: use http://, or the RESP port of the server"
        return f"{error}{_tls_hint(error)}"


def _map_of(reply: Any) -> dict[str, Any]:
    """The map of RESP2: an array of names and values."""
    if not isinstance(reply, list) or len(reply) % 2:
        raise WireError(f"expected names and values, found {_shown(reply)}")
    names = reply[::2]
    if not all(isinstance(name, bytes) for name in names):
        raise WireError(f"expected names and values, found {_shown(reply)}")
    return {
        name.decode("utf-8", "replace"): (
            value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        )
        for name, value in zip(names, reply[1::2])
    }


def value_of(kind: str, values: dict[str, Any], question: Question | None) -> Any:
    """The value of a map that is a reply of this kind."""
    if kind == "decision":
        return read_decision(values, question.quotas if question else ())
    if kind == "clock":
        return digits(values, "now")
    if kind == "given_back":
        units = values.get("given_back")
        if type(units) is not int:
            raise WireError(f"expected a number of units, found {_shown(units)}")
        return units
    if kind == "count":
        return read_count(values)
    assert kind == "lease", kind
    return read_lease(values)


def _shown(reply: Any) -> str:
    return shown(repr(reply).encode("utf-8", "replace"))


def reply_error(where: Address, word: str, text: str) -> Exception:
    """The exception for the error of a server: its words, and what to do."""
    if word == "ERR":
        return quota_error("SYNTAX", f"{where}: the server refused the request: {text}")
    if word == "GONE":
        return gone_error(f"{where}: {text}")
    if word in ("NOAUTH", "WRONGPASS"):
        return ServerError(
            "AUTH", f"{where}: the server refused the token: {word} {text}; "
            "pass a token of the server's token file: token=…, or a URL with :SECRET@")
    if word == "NOPERM":
        return ServerError(
            "AUTH", f"{where}: {text}; the token needs that role in the server's token file")
    if word == "CONFLICT":
        return quota_error("MISMATCH", f"{where}: {text}")
    code = word if word in ("FULL", "UNAVAILABLE", "BUSY") else "PROTOCOL"
    return ServerError(code, f"{where}: the server could not decide: {word} {text}")


class HttpCodec:
    """HTTP/1.1 with JSON. One question at a time on a connection: proxies may be in between."""

    depth: Final = 1
    _words: Final = {
        401: "NOAUTH", 403: "NOPERM", 409: "CONFLICT", 410: "GONE", 503: "UNAVAILABLE",
        507: "FULL",
    }

    def __init__(self, address: Address) -> None:
        self._address = address
        is_default = address.port == (443 if address.is_tls else 80)
        host = address.host_port.rpartition(":")[0] if is_default else address.host_port
        fields = [f"Host: {host}", "Accept: application/json"]
        if address.secret is not None:
            fields.append(f"Authorization: Bearer {address.secret}")
        self._fields = "\r\n".join(fields)

    def reader(self) -> Reader:
        return HttpReader()

    def greeting(self) -> bytes | None:
        return None

    def encode(self, question: Question) -> bytes:
        verb, options = question.verb, question.options
        members: dict[str, Any] = {}
        if len(question.specs) == 1:
            members["quota"], members["key"] = question.specs[0], _text(question.key)
        elif question.specs:
            key = _text(question.key)
            members["items"] = [{"quota": spec, "key": key} for spec in question.specs]
        if question.descriptors:
            members["domain"] = question.domain
            members["descriptors"] = [
                {"entries": [{"key": key, "value": value} for key, value in descriptor]}
                for descriptor in question.descriptors
            ]
        for name, value in options.items():
            if name != "pool":
                members[name] = _text(value) if isinstance(value, bytes) else value
        path = self._address.path + verb.path.format(quote(str(options.get("pool", "")), safe=""))
        head = f"{verb.method} {path} HTTP/1.1\r\n{self._fields}\r\n"
        if verb.method == "GET":
            return f"{head}\r\n".encode()
        body = json.dumps(members).encode()
        return (
            f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + checked(body, BODY_MAX)
        )

    def decode(self, question: Question | None, reply: HttpReply) -> Any:
        assert question is not None
        body, status = reply.body, reply.status
        is_map = isinstance(body, dict)
        is_denied = status == 429 and is_map and ("outcome" in body or "wait_ms" in body)
        if status != 200 and not is_denied:
            detail = str(body.get("detail") or body.get("title") or "") if is_map else ""
            return self._error(question, status, detail[:1000])
        if not is_map:
            raise WireError(f"expected an object of JSON, found {_shown(body)}")
        if question.verb.reply == "keys":
            keys = body.get("keys")
            if not isinstance(keys, list) or not all(isinstance(each, dict) for each in keys):
                raise WireError(f"expected an array of keys, found {_shown(body)}")
            return read_statuses(keys)
        return None if question.verb.reply == "ok" else value_of(
            question.verb.reply, body, question)

    def _error(self, question: Question, status: int, detail: str) -> Exception:
        word = self._words.get(status)
        if status == 404 and "pool" in question.options and detail:
            word = "GONE"
        if status in (400, 413, 414, 415, 417, 422, 431) and detail:
            word = "ERR"
        if word is not None:
            return reply_error(self._address, word, detail or f"status {status}")
        return ServerError(
            "PROTOCOL", f"{self._address}: status {status} for {question.verb.path}: {detail}; "
            "check that this is the HTTP port of a stint server")

    def closes(self, reply: HttpReply) -> bool:
        return reply.closes

    @staticmethod
    def explain(error: WireError) -> str:
        """The error, and what to do about the wrong port."""
        if "found '-" in str(error):
            return f"{error}; this port speaks RESP: use stint://, or the HTTP port of the server"
        return f"{error}{_tls_hint(error)}"


def _text(key: Value) -> str:
    """A key as JSON has it: text alone."""
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            raise ValueError(
                f"key {shown(key)}: over HTTP a key is UTF-8; use stint:// for other bytes"
            ) from None
    return str(key)


def _tls_hint(error: WireError) -> str:
    is_alert = r"found '\x15\x03" in str(error)
    return "; this port has TLS: use stints:// or https://" if is_alert else ""


Codec = RespCodec | HttpCodec


def codec_for(address: Address) -> Codec:
    return HttpCodec(address) if address.is_http else RespCodec(address)

