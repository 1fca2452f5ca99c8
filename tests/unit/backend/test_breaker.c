/* SPDX-License-Identifier: MIT */
/* The circuit breaker in virtual time: when it opens, whom it probes with, and when it closes. */
#include "unit/test.h"

#include "backend/breakers.h"

#include "base/ns.h"

#define MS NS_PER_MS
#define SERVER 1u

/* Whether a request to the one server may pass, and as what. */
enum pass { STOP, GO, PROBE };

static enum pass ask(struct breakers *breakers, uint64_t now_ns)
{
    if (breakers_stopped(breakers, now_ns) != 0)
        return STOP;
    return breakers_ask(breakers, SERVER, now_ns).probes != 0 ? PROBE : GO;
}

static void tell(struct breakers *breakers, enum pass pass, bool went_well, uint64_t now_ns)
{
    const struct breakers_pass passed = {.servers = SERVER, .probes = pass == PROBE ? SERVER : 0};
    breakers_tell(breakers, &passed, went_well ? 0 : SERVER, now_ns);
}

static void drop(struct breakers *breakers, enum pass pass)
{
    const struct breakers_pass passed = {.servers = SERVER, .probes = pass == PROBE ? SERVER : 0};
    breakers_drop(breakers, &passed);
}

static const struct breaker_options options = {
    .failures_max = 3, .probes = 2, .open_ns = 100 * MS, .open_max_ns = 300 * MS};

static void fail_times(struct breakers *breakers, int times, uint64_t now_ns)
{
    for (int i = 0; i < times; i++) {
        assert_int_equal(ask(breakers, now_ns), GO);
        tell(breakers, GO, false, now_ns);
    }
}

TEST(failures_in_a_row_open_it)
{
    struct breakers breakers;
    breakers_init(&breakers, &options);
    fail_times(&breakers, 2, 0);
    tell(&breakers, GO, true, 0);
    fail_times(&breakers, 2, 0);
    assert_int_equal(breakers_state(&breakers), BREAKER_CLOSED);
    fail_times(&breakers, 1, 7 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_OPEN);
    assert_int_equal(ask(&breakers, 107 * MS - 1), STOP);
    assert_int_equal(ask(&breakers, 107 * MS), PROBE);
}

TEST(rows_of_failures_beside_what_goes_well_do_not_open_it)
{
    struct breakers breakers;
    struct breaker_options patient = options;
    patient.quiet_ns = 50 * MS;
    breakers_init(&breakers, &patient);
    uint64_t now_ns = 1;
    for (; now_ns < 1000 * MS; now_ns += 20 * MS) {
        assert_int_equal(ask(&breakers, now_ns), GO);
        tell(&breakers, GO, true, now_ns);
        fail_times(&breakers, 9, now_ns);
    }
    now_ns -= 20 * MS;
    fail_times(&breakers, 3, now_ns + 50 * MS - 1);
    assert_int_equal(breakers_state(&breakers), BREAKER_CLOSED);
    tell(&breakers, GO, false, now_ns + 50 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_OPEN);
    /* Where nothing ever went well, nothing is waited for. */
    breakers_init(&breakers, &patient);
    fail_times(&breakers, 3, 2 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_OPEN);
}

TEST(one_probe_at_a_time_closes_it)
{
    struct breakers breakers;
    breakers_init(&breakers, &options);
    fail_times(&breakers, 3, 0);
    assert_int_equal(ask(&breakers, 100 * MS), PROBE);
    assert_int_equal(ask(&breakers, 5000 * MS), STOP);
    tell(&breakers, PROBE, true, 5000 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_HALF_OPEN);
    assert_int_equal(ask(&breakers, 5000 * MS), PROBE);
    tell(&breakers, PROBE, true, 5000 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_CLOSED);
    fail_times(&breakers, 2, 5000 * MS); /* counted anew */
    assert_int_equal(breakers_state(&breakers), BREAKER_CLOSED);
}

TEST(a_failed_probe_opens_it_for_longer_up_to_a_limit)
{
    struct breakers breakers;
    uint64_t now_ns = 0;
    static const uint64_t waits_ms[] = {100, 200, 300, 300};
    breakers_init(&breakers, &options);
    fail_times(&breakers, 3, 0);
    for (size_t i = 0; i < N(waits_ms); i++) {
        now_ns += waits_ms[i] * MS;
        assert_int_equal(ask(&breakers, now_ns - 1), STOP);
        assert_int_equal(ask(&breakers, now_ns), PROBE);
        tell(&breakers, PROBE, false, now_ns);
    }
    now_ns += 300 * MS;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(&breakers, now_ns), PROBE);
        tell(&breakers, PROBE, true, now_ns);
    }
    fail_times(&breakers, 3, now_ns); /* and once it has been closed, begins with the shortest */
    assert_int_equal(ask(&breakers, now_ns + 100 * MS), PROBE);
}

TEST(those_who_passed_before_it_opened_move_nothing)
{
    struct breakers breakers;
    breakers_init(&breakers, &options);
    fail_times(&breakers, 3, 0);
    tell(&breakers, GO, true, 1);
    assert_int_equal(breakers_state(&breakers), BREAKER_OPEN);
    assert_int_equal(ask(&breakers, 100 * MS), PROBE);
    tell(&breakers, GO, false, 100 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_HALF_OPEN);
    assert_true(breakers.each[0].is_probing);
}

TEST(a_probe_of_which_nothing_is_heard_makes_space_for_another)
{
    struct breakers breakers;
    breakers_init(&breakers, &options);
    fail_times(&breakers, 3, 0);
    assert_int_equal(ask(&breakers, 100 * MS), PROBE);
    drop(&breakers, GO);
    assert_int_equal(ask(&breakers, 100 * MS), STOP);
    drop(&breakers, PROBE);
    assert_int_equal(ask(&breakers, 100 * MS), PROBE);
    tell(&breakers, PROBE, false, 100 * MS);
    assert_int_equal(breakers_state(&breakers), BREAKER_OPEN);
}
