/* SPDX-License-Identifier: MIT */
/* Keys from addresses: one host is one key, however it is written. */
#include "unit/test.h"

#include "stint.h"

static void expect_key(const char *address, unsigned v4_bits, unsigned v6_bits, const char *key)
{
    char text[46];
    int length = stint_address_key(text, sizeof(text), address, strlen(address), v4_bits, v6_bits);
    assert_string_equal(text, key);
    assert_int_equal(length, strlen(key));
}

static void expect_code(const char *address, size_t len, unsigned v4_bits, unsigned v6_bits,
                        int code)
{
    char text[46];
    assert_int_equal(stint_address_key(text, sizeof(text), address, len, v4_bits, v6_bits), code);
}

/* B19: brackets, a port and a zone say how to reach a host, not which it is. */
TEST(test_notation_does_not_make_a_key)
{
    expect_key("192.0.2.7", 32, 128, "192.0.2.7");
    expect_key("192.0.2.7:8080", 32, 128, "192.0.2.7");
    expect_key("2001:DB8:0:0::1", 32, 128, "2001:db8::1");
    expect_key("[2001:db8::1]", 32, 128, "2001:db8::1");
    expect_key("[2001:db8::1]:443", 32, 128, "2001:db8::1");
    expect_key("fe80::1%eth0", 32, 128, "fe80::1");
    expect_key("[fe80::1%eth0]:65535", 32, 128, "fe80::1");
}

/* B19: an IPv4 address inside IPv6 is that IPv4 address, and cut at the IPv4 prefix. */
TEST(test_mapped_addresses_are_ipv4)
{
    expect_key("::ffff:192.0.2.7", 32, 64, "192.0.2.7");
    expect_key("::ffff:c000:0207", 24, 64, "192.0.2.0");
    expect_key("[::ffff:192.0.2.7]:80", 16, 64, "192.0.0.0");
}

/* B19: who rotates through a /64 is one host; every prefix length cuts exactly. */
TEST(test_a_prefix_is_one_key)
{
    expect_key("2001:db8:1:2:3:4:5:6", 32, 64, "2001:db8:1:2::");
    expect_key("2001:db8:1:2:ffff::", 32, 64, "2001:db8:1:2::");
    expect_key("2001:db8:ffff::1", 32, 33, "2001:db8:8000::");
    expect_key("255.255.255.255", 31, 64, "255.255.255.254");
    expect_key("255.255.255.255", 9, 64, "255.128.0.0");
    expect_key("255.255.255.255", 0, 64, "0.0.0.0");
    expect_key("ffff::1", 32, 0, "::");
}

/* What is no address is an error, never a key that unauthenticated clients share. */
TEST(test_what_is_no_address_is_refused)
{
    static const char nul[] = "192.0.2.7\0evil";
    static const char *const wrong[] = {
        "",
        "example.org",
        "192.0.2",
        "[2001:db8::1",
        "[2001:db8::1]x",
        "192.0.2.7:",
        "192.0.2.7:foo",
        "192.0.2.7:8 0",
        "192.0.2.7:+80",
        "192.0.2.7:8%3",
        "192.0.2.7:123456",
        "192.0.2.7:65536",
        "192.0.2.7:99999",
        "[2001:db8::1]:65536",
        "[2001:db8::1]:",
        "[2001:db8::1]:x",
        "192.0.2.7%eth0",
        "[192.0.2.7%eth0]:1",
        "fe80::1%",
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        expect_code(wrong[i], strlen(wrong[i]), 32, 64, STINT_E_SYNTAX);
    expect_code(nul, sizeof(nul) - 1, 32, 64, STINT_E_SYNTAX);
    expect_code("192.0.2.7", 9, 33, 64, STINT_E_RANGE);
    expect_code("192.0.2.7", 9, 32, 129, STINT_E_RANGE);
}
