/* SPDX-License-Identifier: MIT */
/*
 * What passes for a state: all that an algorithm leaves behind, and of all else only what the
 * algorithm can go on with, whatever is asked of it. Run under the sanitizers this is what keeps
 * damaged files harmless.
 */
#include "algorithm/expiring_counter.h"

#include "unit/test_quota.h"

#define REACHED_STATES 200
#define ASKS_BETWEEN 25

static const char *const specs[] = {
    "window 20/1m resolution=12",
    "window 23/1m resolution=10",
    "window 1000/1d resolution=11",
    "window 1/1s resolution=10",
    "window 20/1m",
    "window 101/1m resolution=13",
    "window 4000000000/1h",
    "window 100/2us resolution=16",
    "window 20/1m resolution=25",
    "window 101/1m resolution=100",
    "window 100/1m resolution=111",
    "window 4000000000/1us resolution=82",
    "gcra 20/1m burst=7",
    "gcra 1000000/1s",
    "gcra 1/3650d burst=1",
    "fixed_window 20/1m",
    "fixed_window 20/1m align=first_use",
    "fixed_window 4000000000/1h align=first_use",
    "fixed_window 20/1mo align=calendar utc_offset=+05:30",
    "sliding_counter 20/1m",
    "sliding_counter 4000000000/1h",
    "sliding_counter 3/1us",
    "buckets 20/1m time_slack=6s count_slack=5",
    "buckets 20/1m time_slack=6s count_slack=1",
    "buckets 500/10m time_slack=1m count_slack=50",
    "buckets 60/1m time_slack=7s",
    "buckets 30/1m count_slack=4",
    "buckets 4000000000/1s time_slack=100ms",
    "log 20/1m",
    "log 1/1s",
    "log 100/1us",
    "concurrency 6 lease=30s",
    "concurrency 1 lease=1us",
    "counter", /* no SPEC, see subject_of() */
};
#define N_SPECS (N(specs))

/* A state in memory of exactly its size, so that the sanitizer sees every step past its end. */
struct subject {
    struct stint_quota quota;
    uint64_t *words;
    size_t size;
    uint64_t now_ns; /* the latest asked at */
    uint64_t booked_ns, holder;
    uint64_t seed;
};

static bool is_valid(const struct subject *subject, uint64_t now_ns)
{
    return algorithm_is_valid(&subject->quota, subject->words, now_ns);
}

static uint64_t expires_at(const struct subject *subject)
{
    return algorithm_expires_at(&subject->quota, subject->words);
}

static size_t held(const struct subject *subject, uint64_t now_ns, struct held_run *runs)
{
    return algorithm_held(&subject->quota, subject->words, now_ns, UINT64_MAX, runs);
}

static void fill(struct subject *subject, uint64_t until_ns)
{
    algorithm_fill(&subject->quota, subject->words, until_ns);
}

static struct stint_decision ask(struct subject *subject, const struct stint_ask *asked)
{
    return algorithm_ask(&subject->quota, subject->words, asked);
}

static void carry(struct subject *subject, const struct held_run *runs, size_t n_runs)
{
    algorithm_carry(&subject->quota, subject->words, runs, n_runs);
}

static struct subject subject_of(const char *spec)
{
    bool is_counter = strcmp(spec, "counter") == 0;
    struct subject subject = {.quota = is_counter ? counter_quota() : quota_of(spec)};
    subject.quota.epoch_ns = INT64_C(1700000000) * (int64_t)S;
    subject.size = stint_state_size(&subject.quota);
    subject.words = aligned_alloc(16, (subject.size + 15) / 16 * 16);
    assert_non_null(subject.words);
    memset(subject.words, 0, subject.size);
    subject.seed = subject.quota.derived.params_hash[0];
    return subject;
}

static struct subject copy_of(const struct subject *subject)
{
    struct subject copy = *subject;
    copy.words = malloc(subject->size);
    assert_non_null(copy.words);
    memcpy(copy.words, subject->words, subject->size);
    return copy;
}

static uint64_t draw(struct subject *subject, uint64_t below)
{
    return next_random(&subject->seed) % below;
}

/* Mostly a small part of the period; now and then several; now and then back a little. */
static uint64_t next_time(struct subject *subject)
{
    uint64_t period_ns = subject->quota.period_ns, step_ns;
    switch (draw(subject, 8)) {
    case 0:
        return subject->now_ns;
    case 1:
        return subject->now_ns - min_u64(subject->now_ns, draw(subject, period_ns));
    case 2:
        step_ns = draw(subject, 3 * period_ns);
        break;
    default:
        step_ns = draw(subject, period_ns / 8 + 2);
    }
    subject->now_ns = min_u64(subject->now_ns + step_ns, STINT_NOW_MAX);
    return subject->now_ns;
}

static uint32_t next_cost(struct subject *subject)
{
    uint32_t limit = subject->quota.limit;
    uint64_t most = draw(subject, 4) == 0 ? (uint64_t)limit + 2 : limit / 8 + 2;
    return (uint32_t)min_u64(draw(subject, most), UINT32_MAX);
}

static void hold_or_let_go(struct subject *subject, uint64_t now_ns)
{
    struct stint_ask asked = {.now_ns = now_ns, .cost = next_cost(subject), .verb = STINT_TAKE};
    uint64_t holder;
    uint32_t units;
    switch (draw(subject, 3)) {
    case 0:
        concurrency_hold(&subject->quota, subject->words, &asked, &holder);
        subject->holder = holder != 0 ? holder : subject->holder;
        break;
    case 1:
        concurrency_holder(&subject->quota, subject->words, now_ns, &subject->holder, &units);
        break;
    default:
        concurrency_holder(&subject->quota, subject->words, now_ns, &subject->holder, NULL);
    }
}

/* Anything that may be asked of a state. What is booked is booked as a table would. */
static void ask_anything(struct subject *subject)
{
    static const uint8_t verbs[] = {STINT_TAKE,   STINT_TAKE, STINT_TAKE_UPTO, STINT_CHARGE,
                                    STINT_REFUND, STINT_BOOK, STINT_UNBOOK,    STINT_PEEK};
    uint64_t now_ns = next_time(subject), period_ns = subject->quota.period_ns;
    struct stint_ask asked = {
        .now_ns = now_ns, .cost = next_cost(subject), .verb = verbs[draw(subject, sizeof(verbs))]};
    if (subject->quota.algorithm == STINT_CONCURRENCY && draw(subject, 2) == 0) {
        hold_or_let_go(subject, now_ns);
        return;
    }
    if (asked.verb == STINT_REFUND)
        asked.at_ns = draw(subject, 4) == 0
                          ? STINT_NEVER_NS
                          : now_ns - min_u64(now_ns, draw(subject, period_ns + 2));
    else if (asked.verb == STINT_BOOK)
        asked.at_ns = min_u64(draw(subject, 3 * period_ns), BOOK_WAIT_MAX_NS);
    else if (asked.verb == STINT_CHARGE && subject->quota.algorithm == STINT_COUNTER)
        asked.at_ns = draw(subject, 3 * period_ns);
    else
        asked.at_ns = subject->booked_ns;
    struct stint_decision decision = ask(subject, &asked);
    assert_true(decision.remaining <= decision.limit);
    assert_true(decision.granted <= asked.cost);
    if (asked.verb == STINT_BOOK && decision.outcome == STINT_ALLOW)
        subject->booked_ns = now_ns + decision.retry_after_ns;
}

static void assert_expires_in_time(const struct subject *subject, uint64_t now_ns)
{
    const struct stint_quota *quota = &subject->quota;
    uint64_t capacities_ns = quota->derived.capacity_ticks / 32 * 2;
    bool is_counter = quota->algorithm == STINT_COUNTER;
    uint64_t later_ns = is_counter ? STINT_COUNT_EXPIRY_MAX_NS : BOOK_WAIT_MAX_NS;
    uint64_t latest_ns = now_ns + 3 * quota->period_ns + later_ns;
    assert_true(expires_at(subject) <= latest_ns + capacities_ns);
}

/* Whatever an algorithm does, it leaves a state behind that is valid at that time, and later. */
TEST(test_every_state_that_is_reached_is_valid)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        struct subject subject = subject_of(specs[i]);
        subject.now_ns = i % 2 == 0 ? 0 : 3 * YEAR;
        assert_true(is_valid(&subject, 0));
        for (int round = 0; round < REPEATS(20000, 5000); round++) {
            if (round % 1000 == 999)
                fill(&subject, subject.now_ns + subject.quota.period_ns);
            else
                ask_anything(&subject);
            if (!is_valid(&subject, subject.now_ns))
                fail_msg("%s: round %d", specs[i], round);
            assert_true(is_valid(&subject, subject.now_ns + YEAR));
            assert_true(is_valid(&subject, UINT64_MAX));
            assert_expires_in_time(&subject, subject.now_ns);
        }
        free(subject.words);
    }
}

/* Carrying what one state holds to another quota, or to its own, leaves a valid state too. */
TEST(test_states_that_were_carried_over_are_valid)
{
    struct held_run runs[HELD_RUNS_MAX];
    for (size_t from = 0; from < N_SPECS; from++) {
        for (size_t to = 0; to < N_SPECS; to++) {
            struct subject old = subject_of(specs[from]), new = subject_of(specs[to]);
            new.now_ns = old.now_ns = YEAR;
            for (int round = 0; round < 50; round++)
                ask_anything(&old);
            new.now_ns = old.now_ns;
            size_t n_runs = held(&old, old.now_ns, runs);
            carry(&new, runs, n_runs);
            /* A unit may be as late as the end of its slot; a booked one, as a period ahead. */
            assert_true(is_valid(&new, new.now_ns + old.quota.period_ns));
            free(old.words);
            free(new.words);
        }
    }
}

/* A state that passes for valid is one the algorithm can go on with, and what comes of it is valid.
 */
static void assert_can_go_on(const struct subject *damaged, uint64_t now_ns)
{
    struct held_run runs[HELD_RUNS_MAX];
    struct subject copy = copy_of(damaged);
    copy.now_ns = now_ns;
    assert_expires_in_time(&copy, now_ns);
    for (uint64_t at_ns = 0; at_ns <= now_ns; at_ns += now_ns / 3 + 1) {
        size_t n_runs = held(&copy, at_ns, runs);
        assert_true(n_runs <= HELD_RUNS_MAX);
        for (size_t i = 0; i < n_runs; i++)
            assert_true(runs[i].units > 0);
    }
    for (int round = 0; round < 10; round++) {
        ask_anything(&copy);
        assert_true(is_valid(&copy, copy.now_ns));
    }
    struct stint_ask last = {.now_ns = STINT_NOW_MAX, .cost = 1};
    ask(&copy, &last);
    free(copy.words);
}

TEST(test_flipped_bits_are_refused_or_harmless)
{
    uint64_t flips = 0, refused = 0;
    for (size_t i = 0; i < N_SPECS; i++) {
        struct subject subject = subject_of(specs[i]);
        size_t bits = 8 * subject.size;
        subject.now_ns = 2 * YEAR;
        for (int state = 0; state < REACHED_STATES; state++) {
            for (int round = 0; round < ASKS_BETWEEN; round++)
                ask_anything(&subject);
            size_t step = bits / 512 + 1, first = (size_t)state % step;
            for (size_t bit = first; bit < bits; bit += step, flips++) {
                uint8_t *byte = (uint8_t *)subject.words + bit / 8, mask = (uint8_t)(1u << bit % 8);
                *byte ^= mask;
                if (is_valid(&subject, subject.now_ns))
                    assert_can_go_on(&subject, subject.now_ns);
                else
                    refused++;
                *byte ^= mask;
            }
        }
        free(subject.words);
    }
    /* The rest are counts and times that might as well be so. */
    assert_true(refused > flips / 4);
    assert_true(refused < flips);
}

/* Not one bit but any number, and bytes that never were a state. */
TEST(test_noise_is_refused_or_harmless)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        struct subject subject = subject_of(specs[i]);
        subject.now_ns = 2 * YEAR;
        for (int round = 0; round < REPEATS(20000, 5000); round++) {
            struct subject noise = copy_of(&subject);
            size_t n_words = noise.size / 8;
            uint64_t n_changes = 1 + draw(&subject, 4);
            for (uint64_t change = 0; change < n_changes; change++) {
                size_t near = (size_t)min_u64(n_words, 4 + draw(&subject, n_words));
                uint64_t *word = &noise.words[draw(&subject, near)];
                uint64_t bits = next_random(&subject.seed) << draw(&subject, 40);
                *word = draw(&subject, 2) == 0 ? *word ^ bits : bits >> draw(&subject, 64);
            }
            if (subject.size == 16 && draw(&subject, 2) == 0)
                noise.words[1] &= UINT64_MAX >> WORD16_STORE_BITS;
            if (is_valid(&noise, noise.now_ns))
                assert_can_go_on(&noise, noise.now_ns);
            free(noise.words);
            if (round % 10 == 0)
                ask_anything(&subject);
        }
        free(subject.words);
    }
}

/* A state from the far future would lock its key for years. */
TEST(test_states_from_the_future_are_refused)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        struct subject subject = subject_of(specs[i]);
        bool is_counter = subject.quota.algorithm == STINT_COUNTER;
        struct stint_ask asked = {.now_ns = 7 * YEAR, .cost = 1};
        if (is_counter)
            asked = (struct stint_ask){7 * YEAR, STINT_COUNT_EXPIRY_MAX_NS, 1, STINT_CHARGE};
        assert_int_equal(ask(&subject, &asked).outcome, STINT_ALLOW);
        assert_true(is_valid(&subject, 7 * YEAR));
        bool may_be_booked = subject.quota.algorithm == STINT_GCRA;
        bool is_long = subject.quota.period_ns >= YEAR;
        if (!is_long)
            assert_false(is_valid(&subject, may_be_booked ? 5 * YEAR : 7 * YEAR - DAY * 40));
        free(subject.words);
    }
}

/* Damage that the algorithms would get over, but that no use can have done. */
TEST(test_what_no_use_can_have_made_is_refused)
{
    struct subject log = subject_of("log 20/1m");
    for (uint64_t now_ns = 10 * S; now_ns <= 20 * S; now_ns += 10 * S) {
        struct stint_ask asked = {.now_ns = now_ns, .cost = 1};
        assert_int_equal(ask(&log, &asked).outcome, STINT_ALLOW);
    }
    uint64_t *entry = &log.words[3], oldest = entry[0];
    assert_true(is_valid(&log, 20 * S));
    entry[0] = entry[1];
    entry[1] = oldest; /* out of order */
    assert_false(is_valid(&log, 20 * S));
    entry[1] = entry[0];
    entry[0] = oldest | 1 << 4; /* booked in the place of a unit from before time began */
    assert_false(is_valid(&log, 20 * S));
    free(log.words);

    struct subject sliding = subject_of("sliding_counter 20/1m");
    struct stint_ask asked = {.now_ns = YEAR, .cost = 1};
    assert_int_equal(ask(&sliding, &asked).outcome, STINT_ALLOW);
    sliding.words[1] |= UINT64_C(1) << 47; /* of a window's number that 64 bits do not hold */
    assert_false(is_valid(&sliding, YEAR));
    free(sliding.words);
}

TEST(test_under_a_limit_of_0_nothing_is_kept)
{
    static const char *const closed[] = {"window 0/1m",
                                         "gcra 0/1m",
                                         "log 0/1m",
                                         "sliding_counter 0/1m",
                                         "concurrency 0 lease=1s",
                                         "fixed_window 0/1m"};
    for (size_t i = 0; i < N(closed); i++) {
        struct subject subject = subject_of(closed[i]);
        assert_true(is_valid(&subject, 0));
        subject.words[0] = 1;
        assert_false(is_valid(&subject, YEAR));
        stint_state_fill(&subject.quota, subject.words, MINUTE);
        assert_true(is_valid(&subject, YEAR));
        free(subject.words);
    }
}
