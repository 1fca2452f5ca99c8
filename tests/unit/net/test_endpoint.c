/* SPDX-License-Identifier: MIT */
/* Places to listen, from text and back; and which of them other machines reach. */
#define _GNU_SOURCE
#include "unit/test.h"

#include "net/listen/endpoint.h"

static const struct sockaddr *address_of(const struct endpoint *endpoint)
{
    return (const struct sockaddr *)&endpoint->address;
}

TEST(test_places_read_back)
{
    static const struct {
        const char *text, *back;
        bool is_local;
    } places[] = {
        {"127.0.0.1:7379", "127.0.0.1:7379", true},
        {"localhost:7379", "127.0.0.1:7379", true},
        {"127.8.9.10:0", "127.8.9.10:0", true},
        {"0.0.0.0:65535", "0.0.0.0:65535", false},
        {"192.0.2.1:80", "192.0.2.1:80", false},
        {"[::1]:7379", "[::1]:7379", true},
        {"[2001:DB8::1]:7379", "[2001:db8::1]:7379", false},
        {":7379", "[::]:7379", false},
        {"unix:/run/a b.sock", "unix:/run/a b.sock", true},
        {"unix:/run/s,mode=0600", "unix:/run/s", true},
    };
    for (size_t i = 0; i < N(places); i++) {
        struct endpoint endpoint;
        char text[ENDPOINT_TEXT_SIZE];
        assert_int_equal(endpoint_parse(&endpoint, places[i].text, NULL), 0);
        assert_false(endpoint_is_off(&endpoint));
        assert_string_equal(endpoint_text(address_of(&endpoint), text), places[i].back);
        assert_int_equal(endpoint_is_local(address_of(&endpoint)), places[i].is_local);
    }
}

TEST(test_modes_are_octal)
{
    struct endpoint endpoint;
    assert_int_equal(endpoint_parse(&endpoint, "unix:/s,mode=0606", NULL), 0);
    assert_int_equal(endpoint.mode, 0606);
    assert_int_equal(endpoint_parse(&endpoint, "unix:/s", NULL), 0);
    assert_int_equal(endpoint.mode, ENDPOINT_MODE_DEFAULT);
}

TEST(test_off_is_no_place)
{
    struct endpoint endpoint;
    assert_int_equal(endpoint_parse(&endpoint, "off", NULL), 0);
    assert_true(endpoint_is_off(&endpoint));
}

TEST(test_a_path_as_long_as_a_socket_may_have)
{
    struct endpoint endpoint;
    struct sockaddr_un local;
    char text[sizeof(local.sun_path) + 8];
    memset(text, 'x', sizeof(text));
    memcpy(text, "unix:/", 6);
    text[5 + sizeof(local.sun_path) - 1] = '\0';
    assert_int_equal(endpoint_parse(&endpoint, text, NULL), 0);
    text[5 + sizeof(local.sun_path) - 1] = 'x';
    text[5 + sizeof(local.sun_path)] = '\0';
    assert_int_equal(endpoint_parse(&endpoint, text, NULL), STINT_E_RANGE);
}

TEST(test_what_is_no_place_is_refused_with_its_text)
{
    static const char *const texts[] = {
        "",
        "7379",
        "localhost",
        "Localhost:1",
        "localhost.example:1",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:+1",
        "127.0.0.1: 1",
        "127.0.0.1:1x",
        "127.0.0.256:1",
        "1.2.3:1",
        "::1:7379",
        "[::1:7379",
        "[::1]7379",
        "[]:1",
        "[127.0.0.1]:1",
        "[fe80::1%eth0]:1",
        "unix:",
        "unix:relative",
        "unix:/s,mode=",
        "unix:/s,mode=0888",
        "unix:/s,mode=1777",
        "OFF",
        "11111111111111111111111111111111111111111111111111111111111111111111:1",
    };
    for (size_t i = 0; i < N(texts); i++) {
        struct endpoint endpoint;
        struct stint_error error;
        assert_int_equal(endpoint_parse(&endpoint, texts[i], &error), STINT_E_SYNTAX);
        assert_non_null(strstr(error.message, texts[i]));
    }
}
