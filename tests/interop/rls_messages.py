# SPDX-License-Identifier: MIT
"""Envoy's rate limit messages, written and read from their published field numbers.

By hand, so that what the server says is not read by a description that the server was made from.
"""
import struct

PATH = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
HEALTH = "/grpc.health.v1.Health/"
OK, OVER_LIMIT = 1, 2
UNITS = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"]
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def entry(key, value=""):
    return block(1, key) + (block(2, value) if value else b"")


def descriptor(*entries, hits=None, negative=False, override=None):
    """entries: (key, value); override: (requests per unit, unit)."""
    out = b"".join(block(1, entry(*each)) for each in entries)
    if override is not None:
        out += block(2, number(1, override[0]) + number(2, override[1]))
    if hits is not None:
        out += block(3, number(1, hits) if hits else b"")
    if negative:
        out += number(4, 1)
    return out


def request(domain, *descriptors, hits=0):
    out = block(1, domain) + b"".join(block(2, each) for each in descriptors)
    return out + (number(3, hits) if hits else b"")


def fields(message):
    """{field number: [values]}; varints as numbers, the rest as bytes."""
    found, at = {}, 0

    def read():
        nonlocal at
        result = shift = 0
        while True:
            byte = message[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while at < len(message):
        tag = read()
        kind = tag & 7
        if kind == 0:
            value = read()
        elif kind == 2:
            length = read()
            value, at = message[at:at + length], at + length
            assert len(value) == length, "a field that is cut off"
        else:
            assert kind in (1, 5), f"a wire type of {kind}"
            size = 8 if kind == 1 else 4
            value, at = message[at:at + size], at + size
        found.setdefault(tag >> 3, []).append(value)
    return found


def one(found, field, default=0):
    return found.get(field, [default])[-1]


def duration(message):
    found = fields(message)
    return one(found, 1) + one(found, 2) / 1e9


def value_of(message):
    """google.protobuf.Value as Python has it."""
    found = fields(message)
    if 2 in found:
        return struct.unpack("<d", one(found, 2))[0]
    if 3 in found:
        return one(found, 3).decode()
    if 4 in found:
        return bool(one(found, 4))
    if 5 in found:
        return struct_of(one(found, 5))
    if 6 in found:
        return [value_of(each) for each in fields(one(found, 6)).get(1, [])]
    return None


def struct_of(message):
    entries = [fields(each) for each in fields(message).get(1, [])]
    return {one(each, 1, b"").decode(): value_of(one(each, 2, b"")) for each in entries}


class Status:
    def __init__(self, message):
        found = fields(message)
        assert set(found) <= {1, 2, 3, 4}, found
        self.code, self.remaining = one(found, 1), one(found, 3)
        self.limit = self.unit = self.name = None
        self.multiplier = 1
        if 2 in found:
            limit = fields(one(found, 2))
            self.limit, self.unit = one(limit, 1), UNITS[one(limit, 2)]
            self.name = one(limit, 3, b"").decode()
            if 4 in limit:
                self.multiplier = one(fields(one(limit, 4)), 1)
        self.reset = duration(one(found, 4)) if 4 in found else None

    def __repr__(self):
        return f"Status({vars(self)})"


class Response:
    def __init__(self, message):
        found = fields(message)
        self.code = one(found, 1)
        self.statuses = [Status(each) for each in found.get(2, [])]
        self.headers = []
        for each in found.get(3, []):
            header = fields(each)
            assert set(header) <= {1, 2, 3}
            self.headers.append((one(header, 1).decode(), one(header, 2, b"").decode()))
        self.body = one(found, 5, b"")
        self.metadata = struct_of(one(found, 6)) if 6 in found else None

    @property
    def codes(self):
        return [each.code for each in self.statuses]

    def __repr__(self):
        return f"Response(code={self.code}, statuses={self.statuses}, headers={self.headers})"


def ask_with(channel):
    """What asks through a grpc.Channel: takes request(), gives Response()."""
    return channel.unary_unary(PATH, request_serializer=bytes, response_deserializer=Response)
