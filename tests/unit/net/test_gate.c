/* SPDX-License-Identifier: MIT */
/* How many may come: in all, and of one address. */
#define _GNU_SOURCE
#include "net/listen/gate.h"

#include "net/listen/endpoint.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <setjmp.h>

#include <cmocka.h>

static enum gate_answer enter(struct gate *gate, const char *place, struct gate_seat **seat)
{
    struct endpoint peer;
    assert_int_equal(endpoint_parse(&peer, place, NULL), 0);
    return gate_enter(gate, (const struct sockaddr *)&peer.address, seat);
}

static void test_in_all(void **state)
{
    (void)state;
    struct gate *gate = gate_new(&(struct gate_limits){.connections = 3});
    struct gate_seat *seats[4];
    assert_int_equal(enter(gate, "192.0.2.1:1", &seats[0]), GATE_OPEN);
    assert_int_equal(enter(gate, "192.0.2.1:2", &seats[1]), GATE_OPEN);
    assert_int_equal(enter(gate, "unix:/s", &seats[2]), GATE_OPEN);
    assert_int_equal(enter(gate, "192.0.2.2:1", &seats[3]), GATE_FULL);
    gate_leave(gate, seats[2]);
    assert_int_equal(gate_connections(gate), 2);
    assert_int_equal(enter(gate, "192.0.2.2:1", &seats[2]), GATE_OPEN);
    for (size_t i = 0; i < 3; i++)
        gate_leave(gate, seats[i]);
    assert_int_equal(gate_connections(gate), 0);
    gate_free(gate);
}

static void test_of_one_address_whatever_its_port_and_form(void **state)
{
    (void)state;
    struct gate *gate = gate_new(&(struct gate_limits){.connections = 100, .per_address = 2});
    struct gate_seat *seats[8];
    assert_int_equal(enter(gate, "192.0.2.1:1", &seats[0]), GATE_OPEN);
    assert_int_equal(enter(gate, "[::ffff:192.0.2.1]:2", &seats[1]), GATE_OPEN);
    assert_int_equal(enter(gate, "192.0.2.1:3", &seats[2]), GATE_ADDRESS_FULL);
    assert_int_equal(enter(gate, "192.0.2.2:3", &seats[2]), GATE_OPEN);
    /* Who has a /64 has 2^64 addresses: they count as one. */
    assert_int_equal(enter(gate, "[2001:db8::1]:1", &seats[3]), GATE_OPEN);
    assert_int_equal(enter(gate, "[2001:db8::2]:1", &seats[4]), GATE_OPEN);
    assert_int_equal(enter(gate, "[2001:db8::3]:1", &seats[5]), GATE_ADDRESS_FULL);
    assert_int_equal(enter(gate, "[2001:db8:0:1::3]:1", &seats[5]), GATE_OPEN);
    gate_leave(gate, seats[0]);
    assert_int_equal(enter(gate, "192.0.2.1:3", &seats[0]), GATE_OPEN);
    for (size_t i = 0; i < 6; i++)
        gate_leave(gate, seats[i]);
    gate_free(gate);
}

static void test_unix_sockets_have_no_address(void **state)
{
    (void)state;
    struct gate *gate = gate_new(&(struct gate_limits){.connections = 100, .per_address = 1});
    struct gate_seat *seats[50];
    for (size_t i = 0; i < 50; i++)
        assert_int_equal(enter(gate, "unix:/s", &seats[i]), GATE_OPEN);
    for (size_t i = 0; i < 50; i++)
        gate_leave(gate, seats[i]);
    gate_free(gate);
}

static void test_many_addresses(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    static struct gate_seat *seats[MANY];
    struct gate *gate = gate_new(&(struct gate_limits){.connections = MANY, .per_address = 1});
    for (unsigned turn = 0; turn < 2; turn++) {
        for (unsigned i = 0; i < MANY; i++) {
            char place[32];
            snprintf(place, sizeof(place), "10.0.%u.%u:9", i >> 8, i & 255);
            assert_int_equal(enter(gate, place, &seats[i]), GATE_OPEN);
        }
        struct gate_seat *another;
        assert_int_equal(enter(gate, "10.1.0.0:9", &another), GATE_FULL);
        for (unsigned i = 0; i < MANY; i++)
            gate_leave(gate, seats[i]);
    }
    gate_free(gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_all),
        cmocka_unit_test(test_of_one_address_whatever_its_port_and_form),
        cmocka_unit_test(test_unix_sockets_have_no_address),
        cmocka_unit_test(test_many_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
