/* SPDX-License-Identifier: MIT */
/* How many may come: in all, and of one address. */
#define _GNU_SOURCE
#include "unit/test.h"

#include "net/listen/connection_limiter.h"

#include "net/listen/endpoint.h"

static enum connection_limiter_answer enter(struct connection_limiter *connection_limiter,
                                            const char *place, struct connection_slot **slot)
{
    struct endpoint peer;
    assert_int_equal(endpoint_parse(&peer, place, NULL), 0);
    return connection_limiter_enter(connection_limiter, (const struct sockaddr *)&peer.address,
                                    slot);
}

TEST(test_in_all)
{
    struct connection_limiter *connection_limiter =
        connection_limiter_new(&(struct connection_limits){.connections = 3});
    struct connection_slot *seats[4];
    assert_int_equal(enter(connection_limiter, "192.0.2.1:1", &seats[0]), CONNECTION_ADMITTED);
    assert_int_equal(enter(connection_limiter, "192.0.2.1:2", &seats[1]), CONNECTION_ADMITTED);
    assert_int_equal(enter(connection_limiter, "unix:/s", &seats[2]), CONNECTION_ADMITTED);
    assert_int_equal(enter(connection_limiter, "192.0.2.2:1", &seats[3]), CONNECTION_LIMIT_TOTAL);
    connection_limiter_leave(connection_limiter, seats[2]);
    assert_int_equal(connection_limiter_connections(connection_limiter), 2);
    assert_int_equal(enter(connection_limiter, "192.0.2.2:1", &seats[2]), CONNECTION_ADMITTED);
    for (size_t i = 0; i < 3; i++)
        connection_limiter_leave(connection_limiter, seats[i]);
    assert_int_equal(connection_limiter_connections(connection_limiter), 0);
    connection_limiter_free(connection_limiter);
}

TEST(test_of_one_address_whatever_its_port_and_form)
{
    struct connection_limiter *connection_limiter =
        connection_limiter_new(&(struct connection_limits){.connections = 100, .per_address = 2});
    struct connection_slot *seats[8];
    assert_int_equal(enter(connection_limiter, "192.0.2.1:1", &seats[0]), CONNECTION_ADMITTED);
    assert_int_equal(enter(connection_limiter, "[::ffff:192.0.2.1]:2", &seats[1]),
                     CONNECTION_ADMITTED);
    assert_int_equal(enter(connection_limiter, "192.0.2.1:3", &seats[2]), CONNECTION_LIMIT_ADDRESS);
    assert_int_equal(enter(connection_limiter, "192.0.2.2:3", &seats[2]), CONNECTION_ADMITTED);
    /* Who has a /64 has 2^64 addresses: they count as one. */
    assert_int_equal(enter(connection_limiter, "[2001:db8::1]:1", &seats[3]), CONNECTION_ADMITTED);
    assert_int_equal(enter(connection_limiter, "[2001:db8::2]:1", &seats[4]), CONNECTION_ADMITTED);
    assert_int_equal(enter(connection_limiter, "[2001:db8::3]:1", &seats[5]),
                     CONNECTION_LIMIT_ADDRESS);
    assert_int_equal(enter(connection_limiter, "[2001:db8:0:1::3]:1", &seats[5]),
                     CONNECTION_ADMITTED);
    connection_limiter_leave(connection_limiter, seats[0]);
    assert_int_equal(enter(connection_limiter, "192.0.2.1:3", &seats[0]), CONNECTION_ADMITTED);
    for (size_t i = 0; i < 6; i++)
        connection_limiter_leave(connection_limiter, seats[i]);
    connection_limiter_free(connection_limiter);
}

TEST(test_unix_sockets_have_no_address)
{
    struct connection_limiter *connection_limiter =
        connection_limiter_new(&(struct connection_limits){.connections = 100, .per_address = 1});
    struct connection_slot *seats[50];
    for (size_t i = 0; i < 50; i++)
        assert_int_equal(enter(connection_limiter, "unix:/s", &seats[i]), CONNECTION_ADMITTED);
    for (size_t i = 0; i < 50; i++)
        connection_limiter_leave(connection_limiter, seats[i]);
    connection_limiter_free(connection_limiter);
}

TEST(test_many_addresses)
{
    enum { MANY = 20000 };
    static struct connection_slot *seats[MANY];
    struct connection_limiter *connection_limiter =
        connection_limiter_new(&(struct connection_limits){.connections = MANY, .per_address = 1});
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < MANY; i++) {
            char place[32];
            snprintf(place, sizeof(place), "10.0.%u.%u:9", i >> 8, i & 255);
            assert_int_equal(enter(connection_limiter, place, &seats[i]), CONNECTION_ADMITTED);
        }
        struct connection_slot *another;
        assert_int_equal(enter(connection_limiter, "10.1.0.0:9", &another), CONNECTION_LIMIT_TOTAL);
        for (unsigned i = 0; i < MANY; i++)
            connection_limiter_leave(connection_limiter, seats[i]);
    }
    connection_limiter_free(connection_limiter);
}
