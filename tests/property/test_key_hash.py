# SPDX-License-Identifier: MIT
"""The hash of a table's keys, in integers of Python, against the known answers of the unit test.

tests/unit/base/test_key_hash.c holds the C code to the same answers. Written from the decision on
the hash and from the papers, not from the C code.
"""
import re
from pathlib import Path

M64, M192 = 2**64 - 1, 2**192 - 1
STARTS = 66  # one for each length to 64, and one for all longer keys
SECRET = (0x0706050403020100, 0x0f0e0d0c0b0a0908)
LENGTHS = [0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 56, 57, 63, 64, 65, 66, 72, 255, 1000,
           65536]
UNIT = Path(__file__).parents[1] / "unit/base/test_key_hash.c"


def siphash(secret, tweak, data):
    """SipHash-1-3 with 128 bits of result: the low half, and the high one."""
    v = [secret[0] ^ 0x736f6d6570736575, secret[1] ^ 0x646f72616e646f6d ^ 0xee,
         secret[0] ^ 0x6c7967656e657261, secret[1] ^ 0x7465646279746573]

    def left(x, by):
        return (x << by | x >> (64 - by)) & M64

    def turn(times=1):
        for _ in range(times):
            v[0] = (v[0] + v[1]) & M64
            v[1] = left(v[1], 13) ^ v[0]
            v[0] = left(v[0], 32)
            v[2] = (v[2] + v[3]) & M64
            v[3] = left(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & M64
            v[3] = left(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & M64
            v[1] = left(v[1], 17) ^ v[2]
            v[2] = left(v[2], 32)

    message = tweak.to_bytes(8, "little") + data
    message += bytes(-(len(message) + 1) % 8) + bytes([len(message) & 255])
    for at in range(0, len(message), 8):
        word = int.from_bytes(message[at:at + 8], "little")
        v[3] ^= word
        turn()
        v[0] ^= word
    v[2] ^= 0xee
    turn(3)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    turn(3)
    return low, v[0] ^ v[1] ^ v[2] ^ v[3]


def number(i):
    """The i-th random number below 2^192."""
    return sum(siphash(SECRET, int.from_bytes(b"expand", "little"), bytes([i, j]))[0] << (64 * j)
               for j in range(3))


def message(tweak, key):
    """The number with which the sum begins, by the length, and the words that are hashed."""
    if len(key) > 64:
        own = siphash(SECRET, int.from_bytes(b"compress", "little"), b"")
        return STARTS - 1, [tweak, *siphash(own, len(key), key)]
    parts = [key[at:at + 8] for at in range(0, len(key), 8)] or [b""]
    if len(key) >= 8:
        parts[-1] = key[-8:]
    return len(key), [tweak, *(int.from_bytes(part, "little") for part in parts)]


def key_hash(tweak, key):
    start, words = message(tweak, key)
    total = number(start)
    for i, word in enumerate(words):
        total += number(STARTS + i) * word
    high, low = (total & M192) >> 128, total >> 64 & M64
    square = low * (low ^ 0x9e3779b97f4a7c15)
    return low, high ^ square >> 64 ^ square & M64


def answers():
    """As the unit test makes keys: bytes 7 i, and a tweak for each length."""
    for length in LENGTHS:
        key = bytes(i * 7 & 255 for i in range(length))
        yield length, *key_hash(0x0123456789abcdef ^ length, key)


def test_the_unit_test_has_the_answers_of_these_integers():
    found = re.findall(r"\{(\d+), UINT64_C\(0x(\w{16})\), UINT64_C\(0x(\w{16})\)\}",
                       UNIT.read_text())
    assert [(int(n), int(low, 16), int(high, 16)) for n, low, high in found] == list(answers())


def test_messages_of_different_keys_differ():
    """Two keys of one message would always share a state."""
    keys = [bytes([byte]) * n for n in range(70) for byte in (0, 1)]
    keys += [b"\0" * n + b"\1" + b"\0" * (length - n - 1) for length in (7, 8, 9, 13, 16, 63, 64)
             for n in range(length)]
    assert len({str(message(1, key)) for key in keys}) == len(set(keys))
