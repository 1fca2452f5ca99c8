# SPDX-License-Identifier: MIT
"""A small HTTP server that answers as OpenAI (/chat/completions) and Anthropic (/messages) do.

It counts tokens by words, enforces a limit of requests per API key of its own, and records what
each request really used. `faults[model]` lists what the next requests of a model meet:

    500, 400, 401, 429      that status, with `refusal_headers`
    "no response"           the connection ends before a status line
    "break"                 a stream ends after half of its words, without its end
    "break first"           the same before its first word
    "break later"           the same as "break", once release() is called
    "hang"                  no response until the client gives up or release() is called
    "http://…"              a redirect there
"""
from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass
class Call:
    key: str
    model: str
    at: float
    status: int
    prompt: int = 0
    completion: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


@dataclass
class FakeProvider:
    """Use as a context manager. `limits`: requests per `period` seconds, by API key."""

    limits: dict[str, int] = field(default_factory=dict)
    period: float = 60.0
    words: int = 8                  # of an answer, unless max_tokens is smaller
    faults: dict[str, list[int | str]] = field(default_factory=lambda: defaultdict(list))
    refusal_headers: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    def __enter__(self) -> FakeProvider:
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.server = _Server(("127.0.0.1", 0), _Handler)
        self.server.provider = self
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()
        self.server.shutdown()
        self.server.server_close()

    def release(self) -> None:
        """Ends every "hang" and "break later"."""
        self.released.set()

    def served(self, key: str | None = None) -> list[Call]:
        with self.lock:
            return [c for c in self.calls if c.status == 200 and key in (None, c.key)]

    def statuses(self) -> list[int]:
        with self.lock:
            return [c.status for c in self.calls]

    def admit(self, key: str, model: str) -> tuple[Call, float, int | str | None]:
        """The record of a request; the seconds that its key has to wait; its fault."""
        with self.lock:
            now = time.monotonic()
            recent = [c.at for c in self.calls
                      if c.key == key and c.status == 200 and c.at > now - self.period]
            limit = self.limits.get(key)
            wait = recent[-limit] + self.period - now if limit and len(recent) >= limit else 0.0
            fault = None if wait or not self.faults[model] else self.faults[model].pop(0)
            status = 429 if wait else fault if isinstance(fault, int) else 200
            call = Call(key, model, now, status)
            self.calls.append(call)
            return call, wait, fault


class _Server(ThreadingHTTPServer):
    provider: FakeProvider
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle of a response is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        provider = self.server.provider
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        key = self.headers.get("x-api-key") or bearer
        call, wait, fault = provider.admit(key, body["model"])
        if fault == "hang":
            provider.released.wait(30)
        if fault in ("hang", "no response"):
            self.close_connection = True
            return
        if str(fault).startswith("http"):
            self.reply(307, {}, {"location": f"{fault}{self.path}"})
            return
        if call.status != 200:
            self.refuse(call.status, wait)
            return
        call.prompt = sum(len(_text(m["content"]).split()) for m in body["messages"])
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or provider.words
        words = [f"word{i} " for i in range(min(limit, provider.words))]
        is_broken = str(fault).startswith("break")
        if is_broken:
            words = [] if fault == "break first" else words[:len(words) // 2]
        form = _Anthropic if self.path.endswith("/messages") else _OpenAI
        if body.get("stream"):
            self.stream(form, call, body, words, is_broken)
            if fault == "break later":
                provider.released.wait(30)
        else:
            call.completion = len(words)
            self.reply(200, form.whole(call, "".join(words)))

    def refuse(self, status: int, wait: float) -> None:
        headers = dict(self.server.provider.refusal_headers)
        if wait:
            headers.setdefault("retry-after", f"{wait:.3f}")
        self.reply(status, {"type": "error", "error": {
            "type": "refused", "code": "refused", "message": f"refused with {status}"}}, headers)

    def reply(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, content in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, content)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, form: type[_OpenAI] | type[_Anthropic], call: Call, body: dict[str, Any],
               words: list[str], broken: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in form.start(call):
            self.chunk(event)
        for word in words:
            call.completion += 1
            self.chunk(form.word(call, word))
        if broken:
            self.close_connection = True
            return
        for event in form.end(call, bool((body.get("stream_options") or {}).get("include_usage"))):
            self.chunk(event)
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def _text(content: Any) -> str:
    return content if isinstance(content, str) else " ".join(p.get("text", "") for p in content)


class _OpenAI:
    @staticmethod
    def usage(call: Call) -> dict[str, int]:
        return {"prompt_tokens": call.prompt, "completion_tokens": call.completion,
                "total_tokens": call.tokens}

    @staticmethod
    def envelope(call: Call, kind: str, **more: Any) -> dict[str, Any]:
        return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": call.model, **more}

    @classmethod
    def whole(cls, call: Call, text: str) -> dict[str, Any]:
        return cls.envelope(call, "chat.completion", usage=cls.usage(call), choices=[
            {"index": 0, "message": {"role": "assistant", "content": text},
             "finish_reason": "stop"}])

    @classmethod
    def event(cls, call: Call, choices: list[Any], **more: Any) -> str:
        value = cls.envelope(call, "chat.completion.chunk", choices=choices, **more)
        return f"data: {json.dumps(value)}\n\n"

    @classmethod
    def start(cls, call: Call) -> list[str]:
        return []

    @classmethod
    def word(cls, call: Call, word: str) -> str:
        return cls.event(call, [{"index": 0, "delta": {"role": "assistant", "content": word},
                                 "finish_reason": None}])

    @classmethod
    def end(cls, call: Call, with_usage: bool) -> list[str]:
        last = [cls.event(call, [{"index": 0, "delta": {}, "finish_reason": "stop"}])]
        if with_usage:
            last.append(cls.event(call, [], usage=cls.usage(call)))
        return [*last, "data: [DONE]\n\n"]


class _Anthropic:
    @staticmethod
    def event(kind: str, **more: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"

    @staticmethod
    def message(call: Call, content: list[Any], reason: str | None) -> dict[str, Any]:
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": call.model,
                "content": content, "stop_reason": reason, "stop_sequence": None,
                "usage": {"input_tokens": call.prompt, "output_tokens": call.completion}}

    @classmethod
    def whole(cls, call: Call, text: str) -> dict[str, Any]:
        return cls.message(call, [{"type": "text", "text": text}], "end_turn")

    @classmethod
    def start(cls, call: Call) -> list[str]:
        return [cls.event("message_start", message=cls.message(call, [], None)),
                cls.event("content_block_start", index=0,
                          content_block={"type": "text", "text": ""})]

    @classmethod
    def word(cls, call: Call, word: str) -> str:
        return cls.event("content_block_delta", index=0,
                         delta={"type": "text_delta", "text": word})

    @classmethod
    def end(cls, call: Call, with_usage: bool) -> list[str]:
        return [cls.event("content_block_stop", index=0),
                cls.event("message_delta", usage={"output_tokens": call.completion},
                          delta={"stop_reason": "end_turn", "stop_sequence": None}),
                cls.event("message_stop")]
