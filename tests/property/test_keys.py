# SPDX-License-Identifier: MIT
"""B18, B19: keys are bytes, all of them; addresses are brought into one form to be keys."""

import ctypes as c
import ipaddress

import pytest
from hypothesis import given, strategies as st

import stint_abi as abi
from stint_table import Table
from strategies import MINUTE, S

K = abi.K


@given(first=st.binary(max_size=40), second=st.binary(max_size=40))
def test_different_bytes_are_different_keys(first, second):
    """NUL inside, one a prefix of the other, empty: only equal keys share a state."""
    quota = abi.parse("window 5/10s")
    with Table() as table:
        table.take(quota, first, 5)
        expected = "deny" if first == second else "allow"
        assert table.take(quota, second).outcome == expected


def test_keys_that_are_easily_confused_are_not():
    quota = abi.parse("window 5/10s")
    names = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0b", b"a_b", b"a b", b"a" * 65535, b"a" * 65536,
             b"a" * 65535 + b"b", b"b" + b"a" * 65535]
    with Table() as table:
        for name in names:
            assert table.take(quota, name, 5).outcome == "allow", name[:10]
            assert table.take(quota, name).outcome == "deny"


def test_a_key_too_long_is_refused_and_never_cut_short():
    quota = abi.parse("window 5/10s")
    with Table() as table:
        longest = b"k" * K.STINT_KEY_MAX
        assert table.take(quota, longest + b"x", 1).outcome == "never"
        assert table.take_all((quota, b"ok", 1), (quota, longest + b"x", 1)).outcome == "never"
        assert table.peek((quota, b"ok", 0)).remaining == 5
        assert table.take(quota, longest, 5).outcome == "allow"
        assert table.block(longest + b"x", S) < 0


def test_the_quota_is_part_of_the_key():
    """Two limits on one key do not share a counter: a defect of the services."""
    with Table() as table:
        for n in range(1, 20):
            quota = abi.parse(f"window {n}/10s")
            assert table.take(quota, b"same", n).outcome == "allow"
            assert table.take(quota, b"same").outcome == "deny"


def test_a_blocked_key_is_denied_under_every_quota_until_its_time():
    """B15: whatever its state, through a flood of other keys; reset lifts it."""
    quotas = [abi.parse(spec) for spec in (
        "window 5/10s", "gcra 5/10s", "log 5/10s", "sliding_counter 5/10s", "fixed_window 5/10s",
        "window 20/10s resolution=12")]
    with Table(keys=16, keys16=16, keys_wide=16, wide_size=256) as table:
        assert table.at(S).block(b"bad", MINUTE) == K.STINT_OK
        for n in range(3000):
            table.take(quotas[n % 2], b"flood %d" % n)
        for quota in quotas:
            answer = table.take(quota, b"bad")
            assert (answer.outcome, answer.retry_after) == ("deny", MINUTE - S)
            assert table.peek((quota, b"bad", 1)).outcome == "deny"
            assert table.take_upto((quota, b"bad", 1)).granted == 0
            assert table.take_all((quota, b"bad", 1), (quota, b"good", 1)).outcome == "deny"
            assert table.at(MINUTE - 1).take(quota, b"bad").outcome == "deny"
            table.at(S)
        assert table.at(MINUTE).take(quotas[0], b"bad").outcome != "never"
    with Table() as table:
        table.block(b"bad", MINUTE)
        table.reset(quotas[0], b"bad")
        assert table.take(quotas[0], b"bad", 5).outcome == "allow"
        table.reset(quotas[0], b"bad")
        assert table.take(quotas[0], b"bad", 5).outcome == "allow"


def test_blocks_have_a_maximum_that_is_told():
    with Table(blocks=4) as table:
        codes = [table.block(b"%d" % n, MINUTE) for n in range(4000)]
        assert K.STINT_OK in codes and K.STINT_E_FULL in codes
        assert set(codes) == {K.STINT_OK, K.STINT_E_FULL}
        full = codes.index(K.STINT_E_FULL)
        assert table.take(abi.parse("window 5/10s"), b"%d" % (full - 1)).outcome == "deny"
        assert table.at(MINUTE + S).block(b"late", 2 * MINUTE) == K.STINT_OK


def address_key(text, v4_bits=32, v6_bits=128):
    raw, room = text.encode() if isinstance(text, str) else text, c.create_string_buffer(46)
    given_ = c.create_string_buffer(raw, len(raw) + 1)
    length = abi.lib.stint_address_key(room, 46, given_, len(raw), v4_bits, v6_bits)
    return room.value.decode() if length >= 0 else length


@pytest.mark.parametrize("text, v4_bits, v6_bits, key", [
    ("203.0.113.9", 32, 128, "203.0.113.9"), ("203.0.113.9", 24, 64, "203.0.113.0"),
    ("203.0.113.9", 0, 0, "0.0.0.0"), ("203.0.113.255", 25, 64, "203.0.113.128"),
    ("203.0.113.9:8080", 32, 64, "203.0.113.9"), ("::ffff:203.0.113.9", 32, 64, "203.0.113.9"),
    ("::ffff:cb00:7109", 32, 64, "203.0.113.9"), ("[::ffff:203.0.113.9]:80", 24, 64, "203.0.113.0"),
    ("2001:db8::1", 32, 128, "2001:db8::1"), ("2001:0DB8:0:0:0:0:0:1", 32, 128, "2001:db8::1"),
    ("[2001:db8::1]:443", 32, 128, "2001:db8::1"), ("[2001:db8::1]", 32, 64, "2001:db8::"),
    ("fe80::1%eth0", 32, 128, "fe80::1"), ("[fe80::1%25eth0]:80", 32, 128, "fe80::1"),
    ("2001:db8:1:2:3:4:5:6", 32, 64, "2001:db8:1:2::"),
    ("2001:db8:1:2:3:4:5:6", 32, 56, "2001:db8:1::"),
    ("2001:db8:1:2:3:4:5:6", 32, 61, "2001:db8:1::"),
    ("::", 32, 128, "::"), ("::1", 32, 128, "::1"),
    ("::1", 32, 0, "::"), ("1::", 32, 128, "1::"), ("1:0:0:2:0:0:0:3", 32, 128, "1:0:0:2::3"),
])
def test_addresses_become_one_key_per_prefix(text, v4_bits, v6_bits, key):
    assert address_key(text, v4_bits, v6_bits) == key


@pytest.mark.parametrize("text", ["", "1.2.3", "1.2.3.4.5", "256.1.1.1", "x", "1:2:3", ":::",
                                  "1::2::3", "[::1", "::1]", "12345::", "1.2.3.4\0",
                                  "203.0.113.9 "])
def test_what_is_no_address_is_refused(text):
    assert address_key(text) == K.STINT_E_SYNTAX


@given(number=st.integers(0, 2**128 - 1), bits=st.integers(0, 128), zeros=st.integers(0, 128))
def test_ipv6_prefixes_are_those_of_ipaddress(number, bits, zeros):
    address = ipaddress.IPv6Address(number >> zeros << zeros)
    if address.ipv4_mapped is None:
        network = ipaddress.IPv6Network((address, bits), strict=False)
        for text in (str(address), address.exploded, f"[{address}]:65535"):
            key = address_key(text, 32, bits)
            assert ipaddress.IPv6Address(key) == network.network_address
            assert key == str(network.network_address) or "." in key or ":0:" in key


@given(number=st.integers(0, 2**32 - 1), bits=st.integers(0, 32))
def test_ipv4_prefixes_are_those_of_ipaddress(number, bits):
    address = ipaddress.IPv4Address(number)
    network = str(ipaddress.IPv4Network((address, bits), strict=False).network_address)
    for text in (str(address), f"{address}:1", f"::ffff:{address}", f"[::ffff:{address}]:65535"):
        assert address_key(text, bits, 64) == network
