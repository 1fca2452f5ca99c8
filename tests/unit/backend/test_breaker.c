/* SPDX-License-Identifier: MIT */
/* The circuit breaker in virtual time: when it opens, whom it probes with, and when it closes. */
#include "unit/test.h"

#include "backend/breaker.h"

#include "base/ns.h"

#define MS NS_PER_MS

static const struct breaker_options options = {
    .failures_max = 3, .probes = 2, .open_ns = 100 * MS, .open_max_ns = 300 * MS};

static void fail_times(struct breaker *breaker, int times, uint64_t now_ns)
{
    for (int i = 0; i < times; i++) {
        assert_int_equal(breaker_ask(breaker, now_ns), BREAKER_GO);
        breaker_tell(breaker, BREAKER_GO, false, now_ns);
    }
}

TEST(failures_in_a_row_open_it)
{
    struct breaker breaker;
    breaker_init(&breaker, &options);
    fail_times(&breaker, 2, 0);
    breaker_tell(&breaker, BREAKER_GO, true, 0);
    fail_times(&breaker, 2, 0);
    assert_int_equal(breaker.state, BREAKER_CLOSED);
    fail_times(&breaker, 1, 7 * MS);
    assert_int_equal(breaker.state, BREAKER_OPEN);
    assert_int_equal(breaker_ask(&breaker, 107 * MS - 1), BREAKER_STOP);
    assert_int_equal(breaker_ask(&breaker, 107 * MS), BREAKER_PROBE);
}

TEST(rows_of_failures_beside_what_goes_well_do_not_open_it)
{
    struct breaker breaker;
    struct breaker_options patient = options;
    patient.quiet_ns = 50 * MS;
    breaker_init(&breaker, &patient);
    uint64_t now_ns = 1;
    for (; now_ns < 1000 * MS; now_ns += 20 * MS) {
        assert_int_equal(breaker_ask(&breaker, now_ns), BREAKER_GO);
        breaker_tell(&breaker, BREAKER_GO, true, now_ns);
        fail_times(&breaker, 9, now_ns);
    }
    now_ns -= 20 * MS;
    fail_times(&breaker, 3, now_ns + 50 * MS - 1);
    assert_int_equal(breaker.state, BREAKER_CLOSED);
    breaker_tell(&breaker, BREAKER_GO, false, now_ns + 50 * MS);
    assert_int_equal(breaker.state, BREAKER_OPEN);
    /* Where nothing ever went well, nothing is waited for. */
    breaker_init(&breaker, &patient);
    fail_times(&breaker, 3, 2 * MS);
    assert_int_equal(breaker.state, BREAKER_OPEN);
}

TEST(one_probe_at_a_time_closes_it)
{
    struct breaker breaker;
    breaker_init(&breaker, &options);
    fail_times(&breaker, 3, 0);
    assert_int_equal(breaker_ask(&breaker, 100 * MS), BREAKER_PROBE);
    assert_int_equal(breaker_ask(&breaker, 5000 * MS), BREAKER_STOP);
    breaker_tell(&breaker, BREAKER_PROBE, true, 5000 * MS);
    assert_int_equal(breaker.state, BREAKER_HALF_OPEN);
    assert_int_equal(breaker_ask(&breaker, 5000 * MS), BREAKER_PROBE);
    breaker_tell(&breaker, BREAKER_PROBE, true, 5000 * MS);
    assert_int_equal(breaker.state, BREAKER_CLOSED);
    fail_times(&breaker, 2, 5000 * MS); /* counted anew */
    assert_int_equal(breaker.state, BREAKER_CLOSED);
}

TEST(a_failed_probe_opens_it_for_longer_up_to_a_limit)
{
    struct breaker breaker;
    uint64_t now_ns = 0;
    static const uint64_t waits_ms[] = {100, 200, 300, 300};
    breaker_init(&breaker, &options);
    fail_times(&breaker, 3, 0);
    for (size_t i = 0; i < N(waits_ms); i++) {
        now_ns += waits_ms[i] * MS;
        assert_int_equal(breaker_ask(&breaker, now_ns - 1), BREAKER_STOP);
        assert_int_equal(breaker_ask(&breaker, now_ns), BREAKER_PROBE);
        breaker_tell(&breaker, BREAKER_PROBE, false, now_ns);
    }
    now_ns += 300 * MS;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(breaker_ask(&breaker, now_ns), BREAKER_PROBE);
        breaker_tell(&breaker, BREAKER_PROBE, true, now_ns);
    }
    fail_times(&breaker, 3, now_ns); /* and once it has been closed, begins with the shortest */
    assert_int_equal(breaker_ask(&breaker, now_ns + 100 * MS), BREAKER_PROBE);
}

TEST(those_who_passed_before_it_opened_move_nothing)
{
    struct breaker breaker;
    breaker_init(&breaker, &options);
    fail_times(&breaker, 3, 0);
    breaker_tell(&breaker, BREAKER_GO, true, 1);
    assert_int_equal(breaker.state, BREAKER_OPEN);
    assert_int_equal(breaker_ask(&breaker, 100 * MS), BREAKER_PROBE);
    breaker_tell(&breaker, BREAKER_GO, false, 100 * MS);
    assert_int_equal(breaker.state, BREAKER_HALF_OPEN);
    assert_true(breaker.is_probing);
}

TEST(a_probe_of_which_nothing_is_heard_makes_space_for_another)
{
    struct breaker breaker;
    breaker_init(&breaker, &options);
    fail_times(&breaker, 3, 0);
    assert_int_equal(breaker_ask(&breaker, 100 * MS), BREAKER_PROBE);
    breaker_drop(&breaker, BREAKER_GO);
    assert_int_equal(breaker_ask(&breaker, 100 * MS), BREAKER_STOP);
    breaker_drop(&breaker, BREAKER_PROBE);
    assert_int_equal(breaker_ask(&breaker, 100 * MS), BREAKER_PROBE);
    breaker_tell(&breaker, BREAKER_PROBE, false, 100 * MS);
    assert_int_equal(breaker.state, BREAKER_OPEN);
}
