# SPDX-License-Identifier: MIT
"""HTTP/2 frames, written by hand: a library would refuse to send most of what is sent here."""

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = \
    0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW = 4

HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
SERVICE = b"envoy.service.ratelimit.v3.RateLimitService"
FILE_OF_SERVICE = bytes([0x22, len(SERVICE)]) + SERVICE  # file_containing_symbol


def frame(kind, flags=0, stream=0, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + \
        stream.to_bytes(4, "big") + payload


def settings(*pairs):
    """(identifier, value) each."""
    return frame(SETTINGS, payload=b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big")
                                            for key, value in pairs))


def opening(window=None):
    return PREFACE + settings(*([(INITIAL_WINDOW, window)] if window is not None else []))


def text(value):
    """A string of HPACK, without Huffman's code."""
    value = value.encode() if isinstance(value, str) else value
    if len(value) < 127:
        return bytes([len(value)]) + value
    left, size = len(value) - 127, b"\x7f"
    while left > 127:
        size += bytes([left & 127 | 128])
        left >>= 7
    return size + bytes([left]) + value


def fields(*pairs):
    """Literals that are not indexed."""
    return b"".join(b"\0" + text(name) + text(value) for name, value in pairs)


def head_of(path, *more):
    return fields((":method", "POST"), (":scheme", "http"), (":path", path),
                  (":authority", "localhost"), ("content-type", "application/grpc"),
                  ("te", "trailers"), *more)


def begin(stream, path, *more):
    return frame(HEADERS, END_HEADERS, stream, head_of(path, *more))


def message(payload, is_compressed=False):
    return bytes([is_compressed]) + len(payload).to_bytes(4, "big") + payload


def call(stream, path=HEALTH, payload=b"", *more, flags=END_STREAM, is_compressed=False):
    return begin(stream, path, *more) + \
        frame(DATA, flags, stream, message(payload, is_compressed))


def streams(n, first=0):
    """The numbers of so many streams of a client."""
    return range(2 * first + 1, 2 * (first + n) + 1, 2)


def parse(data):
    """(kind, flags, stream, payload) of each whole frame, and what is left."""
    found, at = [], 0
    while len(data) - at >= 9:
        end = at + 9 + int.from_bytes(data[at:at + 3], "big")
        if end > len(data):
            break
        stream = int.from_bytes(data[at + 5:at + 9], "big")
        found.append((data[at + 3], data[at + 4], stream, data[at + 9:end]))
        at = end
    return found, data[at:]
