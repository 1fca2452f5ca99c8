#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A provider of language models that answers at once: POST /v1/chat/completions.

A word is a token. The answer has as many words as max_completion_tokens says. With `"stream": true`
it comes as events, of which the last has the usage.
"""
import http.server
import json
import sys


def usage(request):
    prompt = sum(len(message["content"].split()) for message in request["messages"])
    answer = request.get("max_completion_tokens", 16)
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        used = usage(request)
        words = ["word"] * used["completion_tokens"]
        if request.get("stream"):
            self.answer("text/event-stream", self.events(words, used))
        else:
            message = {"role": "assistant", "content": " ".join(words)}
            whole = {"object": "chat.completion", "model": request["model"], "usage": used,
                     "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
            self.answer("application/json", [json.dumps(whole)])

    @staticmethod
    def events(words, used):
        for begin in range(0, len(words), 100):
            delta = {"content": " ".join(words[begin:begin + 100])}
            yield f'data: {json.dumps({"choices": [{"index": 0, "delta": delta}]})}\n\n'
        yield f'data: {json.dumps({"choices": [], "usage": used})}\n\ndata: [DONE]\n\n'

    def answer(self, kind, parts):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part.encode()), part.encode()))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


def serve(port):
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    serve(int(sys.argv[1]) if len(sys.argv) > 1 else 9000).serve_forever()
