# SPDX-License-Identifier: MIT
"""Readers of replies, without I/O: bytes go in piece by piece, whole replies come out.

A reader trusts nothing that it reads. A reply above its limit, or of a wrong form, is a WireError
before more than the limit has been kept.
"""
from __future__ import annotations

import json
import re
from typing import Any, Final

LINE_MAX: Final = 8192  # bytes of a line of a reply
HEAD_MAX: Final = 32768  # bytes of the status line and fields of an HTTP reply
DEPTH_MAX: Final = 8  # arrays in arrays
SHOWN_MAX: Final = 80  # bytes of a wrong reply that an error shows
_DIGITS_MAX: Final = 20


class WireError(Exception):
    """A reply that is no reply of this protocol; the connection cannot be used any more."""


class ErrorReply:
    """The error of a server: `word` is for programs, `text` for people."""

    __slots__ = ("text", "word")

    def __init__(self, word: str, text: str) -> None:
        self.word, self.text = word, text


MISSING: Final = object()  # what read() returns while the reply is not complete


def shown(data: bytes | bytearray) -> str:
    """The beginning of a reply, for an error."""
    text = repr(bytes(data[:SHOWN_MAX]))[1:]
    return text if len(data) <= SHOWN_MAX else text + "…"


def number(text: bytes, what: str) -> int:
    """A whole number; int() alone also takes blanks, underscores and any number of digits."""
    if text.removeprefix(b"-").isdigit() and len(text) <= _DIGITS_MAX:
        return int(text)
    raise WireError(f"expected {what}, found {shown(text)}")


class RespReader:
    """Replies of RESP2: str, int, bytes, None, list or ErrorReply. One thread at a time."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0  # before this all of the reply has been read
        self._open: list[tuple[int, list[Any]]] = []  # arrays that are not complete

    @property
    def is_between(self) -> bool:
        """Whether all that was fed has been read."""
        return not self._data

    def feed(self, data: bytes) -> None:
        self._data += data

    def read(self, limit: int) -> Any:
        """The next reply, of at most `limit` bytes; MISSING until all of it was fed."""
        data, find = self._data, self._data.find
        while True:
            at = self._at
            end = find(b"\r\n", at, at + LINE_MAX)
            if end < 0:
                self._check_start(limit)
                return MISSING
            kind, text = data[at], bytes(data[at + 1 : end])
            end += 2
            value: Any
            if kind == 0x24:  # $
                n = number(text, "the length of a string")
                if n < 0:
                    value = None
                elif end + n + 2 > limit:
                    raise WireError(f"a string of {n} bytes in a reply of at most {limit}")
                elif len(data) < end + n + 2:
                    return MISSING
                else:
                    value = bytes(data[end : end + n])
                    end += n + 2
                    if data[end - 2 : end] != b"\r\n":
                        raise WireError(f"expected CR LF after {shown(value)}")
            elif kind == 0x3A:  # :
                value = number(text, "a whole number")
            elif kind == 0x2A:  # *
                n = number(text, "the length of an array")
                if n > limit - end:  # each element takes more than a byte
                    raise WireError(f"an array of {n} elements in a reply of at most {limit} bytes")
                if n > 0:
                    self._at = end
                    self._open.append((n, []))
                    if len(self._open) > DEPTH_MAX:
                        raise WireError(f"more than {DEPTH_MAX} arrays in one another")
                    continue
                value = [] if n == 0 else None
            else:
                value = self._simple(kind, text)
            self._at = end
            if end > limit:
                raise WireError(f"a reply of more than {limit} bytes")
            while self._open:
                n, values = self._open[-1]
                values.append(value)
                if len(values) < n:
                    break
                self._open.pop()
                value = values
            else:
                del data[:end]
                self._at = 0
                return value

    def _check_start(self, limit: int) -> None:
        """The beginning of a line whose end is missing."""
        start = self._data[self._at : self._at + LINE_MAX]
        if start and start[0] not in b"+-:$*_":
            raise WireError(f"expected a reply of RESP, found {shown(start)}")
        if len(start) == LINE_MAX:
            raise WireError(f"a line of more than {LINE_MAX} bytes: {shown(start)}")
        if self._at + len(start) > limit:
            raise WireError(f"a reply of more than {limit} bytes")

    @staticmethod
    def _simple(kind: int, text: bytes) -> str | ErrorReply | None:
        if kind == 0x2B:  # +
            return text.decode("utf-8", "replace")
        if kind == 0x2D:  # -
            word, _, rest = text.decode("utf-8", "replace").partition(" ")
            return ErrorReply(word, rest)
        if kind == 0x5F and not text:  # _
            return None
        raise WireError(f"expected a reply of RESP, found {shown(bytes([kind]) + text)}")


class HttpReply:
    """The status and the JSON of a reply; `closes`: the server ends the connection after it."""

    __slots__ = ("body", "closes", "status")

    def __init__(self, status: int, body: Any, closes: bool) -> None:
        self.status, self.body, self.closes = status, body, closes


_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?: [^\r\n]*)?\r\n")


class HttpReader:
    """Replies of HTTP/1.1 with JSON: HttpReply. One thread at a time."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        self._interim = 0  # bytes of replies such as 103 before the one that is read

    @property
    def is_between(self) -> bool:
        return not self._data

    def feed(self, data: bytes) -> None:
        self._data += data

    def read(self, limit: int) -> Any:
        """The next reply, with a body of at most `limit` bytes; MISSING until all was fed."""
        data = self._data
        while True:
            head_end = data.find(b"\r\n\r\n", self._searched)
            if head_end < 0:
                self._check_start()
                if len(data) > HEAD_MAX:
                    raise WireError(f"status line and fields of more than {HEAD_MAX} bytes")
                self._searched = max(0, len(data) - 3)
                return MISSING
            status, minor, fields = self._head(head_end)
            if status >= 200:
                break
            self._interim += head_end + 4
            if self._interim > HEAD_MAX:
                raise WireError(f"interim replies of more than {HEAD_MAX} bytes")
            del data[: head_end + 4]
            self._searched = 0
        self._searched = head_end
        body_at = head_end + 4
        if b"transfer-encoding" in fields:
            body, end = self._chunks(fields, body_at, limit)
        else:
            body, end = self._counted(status, fields, body_at, limit)
        if body is None:
            return MISSING
        options = fields.get(b"connection", b"").lower()
        closes = b"close" in options or (minor == 0 and b"keep-alive" not in options)
        del data[:end]
        self._searched = self._interim = 0
        return HttpReply(status, self._json(body, status), closes)

    def _check_start(self) -> None:
        data = self._data
        if data and not data.startswith(b"HTTP/1.") and not b"HTTP/1.".startswith(data[:7]):
            raise WireError(f"expected a reply of HTTP/1.1, found {shown(data)}")

    def _head(self, end: int) -> tuple[int, int, dict[bytes, bytes]]:
        self._check_start()
        data = bytes(self._data[: end + 2])
        found = _STATUS.match(data)
        if end > HEAD_MAX or found is None:
            raise WireError(f"expected a reply of HTTP/1.1, found {shown(data)}")
        fields: dict[bytes, bytes] = {}
        for line in data[found.end() :].split(b"\r\n")[:-1]:
            name, colon, value = line.partition(b":")
            name = name.lower()
            if not colon or not name or name != name.strip():
                raise WireError(f"expected a field of HTTP, found {shown(line)}")
            if name == b"content-length" and fields.get(name, value.strip()) != value.strip():
                raise WireError("two lengths of one body")
            fields[name] = value.strip()
        return int(found[2]), int(found[1]), fields

    def _counted(
        self, status: int, fields: dict[bytes, bytes], at: int, limit: int
    ) -> tuple[bytes | None, int]:
        if status in (204, 304):
            return b"", at
        if b"content-length" not in fields:
            raise WireError("a body without a length")
        n = number(fields[b"content-length"], "the length of a body")
        if not 0 <= n <= limit:
            raise WireError(f"a body of {n} bytes; at most {limit} were expected")
        if len(self._data) < at + n:
            return None, at
        return bytes(self._data[at : at + n]), at + n

    def _chunks(
        self, fields: dict[bytes, bytes], at: int, limit: int
    ) -> tuple[bytes | None, int]:
        if fields[b"transfer-encoding"].lower() != b"chunked" or b"content-length" in fields:
            raise WireError("a body in another coding than chunked")
        data, body, start = self._data, bytearray(), at
        while True:
            end = data.find(b"\r\n", at, at + LINE_MAX)
            if len(data) - start > 8 * limit + HEAD_MAX:
                raise WireError(f"a body of more than {limit} bytes")
            if end < 0:
                if len(data) - at > LINE_MAX:
                    raise WireError("a chunk without a length")
                return None, at
            size = bytes(data[at:end]).partition(b";")[0].strip()
            if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", size):
                raise WireError(f"expected the length of a chunk, found {shown(size)}")
            n, at = int(size, 16), end + 2
            if n == 0:
                return self._trailer(body, at)
            if len(body) + n > limit:
                raise WireError(f"a body of more than {limit} bytes")
            if len(data) < at + n + 2:
                return None, at
            if data[at + n : at + n + 2] != b"\r\n":
                raise WireError("expected CR LF after a chunk")
            body += data[at : at + n]
            at += n + 2

    def _trailer(self, body: bytearray, at: int) -> tuple[bytes | None, int]:
        while True:
            end = self._data.find(b"\r\n", at, at + LINE_MAX)
            if end < 0:
                return None, at
            if end == at:
                return bytes(body), at + 2
            at = end + 2

    @staticmethod
    def _json(body: bytes, status: int) -> Any:
        try:
            return json.loads(body) if body else None
        except (ValueError, RecursionError):
            if status >= 400:  # of a proxy before the server: its status says enough
                return None
            raise WireError(f"expected JSON, found {shown(body)}") from None
