/* SPDX-License-Identifier: MIT */
/* Breakers of several servers in virtual time: who is shut off, and what is told of all. */
#include "unit/test.h"

#include "backend/breakers.h"

#include "base/ns.h"

#define MS NS_PER_MS
#define A 1u
#define B 2u
#define C 4u

static const struct breaker_options options = {
    .failures_max = 3, .probes = 2, .open_ns = 100 * MS, .open_max_ns = 400 * MS};

/* One ask of these servers, of which some fail. */
static void ask(struct breakers *breakers, uint64_t servers, uint64_t failed, uint64_t now_ns)
{
    assert_int_equal(breakers_stopped(breakers, now_ns) & servers, 0);
    struct breakers_pass pass = breakers_ask(breakers, servers, now_ns);
    assert_int_equal(pass.servers, servers);
    breakers_tell(breakers, &pass, failed, now_ns);
}

static void ask_times(struct breakers *breakers, int times, uint64_t servers, uint64_t failed,
                      uint64_t now_ns)
{
    for (int i = 0; i < times; i++)
        ask(breakers, servers, failed, now_ns);
}

TEST(a_server_that_fails_is_shut_off_and_no_other)
{
    struct breakers breakers;
    breakers_init(&breakers, &options);
    ask_times(&breakers, 3, B, B, 10 * MS);
    assert_int_equal(breakers_stopped(&breakers, 10 * MS), B);
    assert_int_equal(breakers_state(&breakers), BREAKER_OPEN);
    ask_times(&breakers, 9, A | C, 0, 10 * MS);
    /* Its turn has come: one probe, and nobody beside it. */
    assert_int_equal(breakers_stopped(&breakers, 110 * MS), 0);
    struct breakers_pass probe = breakers_ask(&breakers, A | B, 110 * MS);
    assert_int_equal(probe.probes, B);
    assert_int_equal(breakers_stopped(&breakers, 110 * MS), B);
    assert_int_equal(breakers_state(&breakers), BREAKER_HALF_OPEN);
    breakers_drop(&breakers, &probe);
    assert_int_equal(breakers_stopped(&breakers, 110 * MS), 0);
    ask_times(&breakers, 2, B, 0, 111 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_CLOSED);
}

TEST(of_a_list_those_fail_that_failed)
{
    struct breakers breakers;
    breakers_init(&breakers, &options);
    ask_times(&breakers, 3, A | B | C, B, 10 * MS);
    assert_int_equal(breakers_stopped(&breakers, 10 * MS), B);
    /* Asks that were on their way to it when it was shut off change nothing. */
    struct breakers_pass late = {.servers = A | B};
    breakers_tell(&breakers, &late, 0, 11 * MS);
    assert_int_equal(breakers_stopped(&breakers, 11 * MS), B);
}

TEST(a_store_is_unavailable_when_nothing_goes_well_any_more)
{
    struct breakers breakers;
    breakers_init(&breakers, &options);
    assert_true(breakers_failing_since(&breakers, 0) == 0);
    ask(&breakers, A, 0, 5 * MS);
    ask_times(&breakers, 3, B, B, 10 * MS);
    assert_true(breakers_failing_since(&breakers, 0) == 10 * MS);
    ask(&breakers, A, 0, 20 * MS);
    assert_true(breakers_failing_since(&breakers, 0) == 0);
    ask_times(&breakers, 3, A, A, 30 * MS);
    assert_true(breakers_failing_since(&breakers, 0) == 30 * MS);
    assert_true(breakers_failing_since(&breakers, 109 * MS) == 30 * MS);
    /* Nobody has come to probe the one, nor the other. */
    assert_true(breakers_failing_since(&breakers, 110 * MS) == 30 * MS);
    assert_true(breakers_failing_since(&breakers, 130 * MS) == 0);
    /* A probe that goes well is not enough. */
    ask(&breakers, A, 0, 131 * MS);
    assert_true(breakers_failing_since(&breakers, 0) == 30 * MS);
    /* But it is enough while no second one is sent. */
    assert_true(breakers_failing_since(&breakers, 131 * MS) == 0);
    struct breakers_pass second = breakers_ask(&breakers, A, 132 * MS);
    assert_true(breakers_failing_since(&breakers, 132 * MS) == 30 * MS);
    breakers_drop(&breakers, &second);
    ask(&breakers, A, 0, 132 * MS);
    assert_true(breakers_failing_since(&breakers, 0) == 0);
}

TEST(a_server_that_nobody_asks_any_more_is_forgotten)
{
    struct breakers breakers;
    breakers_init(&breakers, &options);
    ask_times(&breakers, 3, A | B, A | B, 10 * MS);
    struct breakers_pass probe = breakers_ask(&breakers, A, 110 * MS);
    breakers_rest(&breakers, 509 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_OPEN);
    breakers_rest(&breakers, 510 * MS); /* the probe is waited for */
    assert_int_equal(breakers_state(&breakers), BREAKER_HALF_OPEN);
    breakers_tell(&breakers, &probe, 0, 510 * MS);
    breakers_rest(&breakers, 511 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_CLOSED);
    assert_true(breakers_failing_since(&breakers, 0) == 0);
}

TEST(the_last_bit_is_a_server_as_well)
{
    struct breakers breakers;
    const uint64_t last = UINT64_C(1) << 63;
    breakers_init(&breakers, &options);
    ask_times(&breakers, 3, last | A, last, 10 * MS);
    assert_true(breakers_stopped(&breakers, 10 * MS) == last);
}
