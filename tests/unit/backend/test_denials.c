/* SPDX-License-Identifier: MIT */
/*
 * What makes a cache of denials right, algorithm by algorithm, and the cache itself: bounded,
 * forgetful on request, and never remembering what was said before it forgot.
 */
#include "unit/test_quota.h"

#include "backend/front/denials.h"
#include "base/wide_int.h"

/* ---- The algorithms
 * -------------------------------------------------------------------------------- */

static uint64_t random_of(uint64_t *seed)
{
    uint64_t mixed = (*seed += UINT64_C(0x9E3779B97F4A7C15));
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94D049BB133111EB);
    return mixed ^ (mixed >> 31);
}

static uint32_t below(uint64_t *seed, uint64_t n)
{
    return (uint32_t)(random_of(seed) % n);
}

struct run {
    struct stint_quota quota;
    uint64_t seed, now_ns;
    _Alignas(16) unsigned char state[65536];
    unsigned long denials, probes;
};

static struct stint_decision ask(struct run *run, uint8_t verb, uint32_t cost)
{
    const struct stint_ask what = {.now_ns = run->now_ns, .cost = cost, .verb = verb};
    return stint_state_ask(&run->quota, run->state, &what);
}

/* Others take, best effort too, and charge; at instants as close to the end as can be. */
static void others_ask(struct run *run, uint32_t capacity)
{
    static const uint8_t verbs[] = {STINT_TAKE, STINT_TAKE, STINT_TAKE_UPTO, STINT_CHARGE};
    uint32_t cost = 1 + below(&run->seed, below(&run->seed, 3) == 0 ? capacity : 3);
    ask(run, verbs[below(&run->seed, 4)], cost);
}

/*
 * After a denial of `cost` with retry_after r, no take of that cost or more is allowed before r has
 * passed, whatever others take or charge in between.
 */
static void check_denial(struct run *run, uint32_t cost, uint64_t ends_ns, uint32_t capacity)
{
    unsigned char before[sizeof(run->state)];
    size_t size = stint_state_size(&run->quota);
    uint64_t began_ns = run->now_ns;
    memcpy(before, run->state, size);
    run->denials++;
    while (run->now_ns < ends_ns) {
        uint32_t more = cost + below(&run->seed, capacity - cost + 1);
        assert_int_not_equal(ask(run, STINT_PEEK, cost).outcome, STINT_ALLOW);
        assert_int_not_equal(ask(run, STINT_PEEK, more).outcome, STINT_ALLOW);
        run->probes += 2;
        others_ask(run, capacity);
        uint64_t left = ends_ns - run->now_ns;
        run->now_ns += below(&run->seed, 4) == 0 ? left - (left > 1) : 1 + left / 3;
    }
    /* With others gone, it is exact: so the bound is worth something. */
    if (below(&run->seed, 2) == 0) {
        memcpy(run->state, before, size);
        run->now_ns = ends_ns;
        assert_int_equal(ask(run, STINT_PEEK, cost).outcome, STINT_ALLOW);
        run->now_ns = began_ns;
    }
}

static void check_algorithm(const char *spec, uint64_t seed)
{
    struct run *run = calloc(1, sizeof(*run));
    struct stint_error error;
    assert_non_null(run);
    if (stint_quota_parse(&run->quota, spec, &error) != 0)
        fail_msg("%s", error.message);
    run->seed = seed;
    run->now_ns = 1000 * S;
    uint32_t capacity = run->quota.algorithm == STINT_GCRA ? run->quota.burst : run->quota.limit;
    stint_state_init(&run->quota, run->state, run->now_ns);
    for (int step = 0; step < 6000; step++) {
        uint32_t cost = 1 + below(&run->seed, below(&run->seed, 2) == 0 ? capacity : 2);
        struct stint_decision decision = ask(run, STINT_TAKE, cost);
        if (decision.outcome == STINT_DENY)
            check_denial(run, cost, run->now_ns + decision.retry_after_ns, capacity);
        else
            run->now_ns += random_of(&run->seed) % (run->quota.period_ns / capacity + 1);
    }
    assert_true(run->denials > 100 && run->probes > run->denials);
    free(run);
}

TEST(nobody_is_allowed_before_the_wait_of_a_denial_is_over)
{
    static const char *const specs[] = {
        "window 10/1s",
        "window 100/1m resolution=12",
        "window 1000/10s",
        "window 7/1s resolution=10",
        "buckets 50/10s time_slack=1s count_slack=5",
        "buckets 50/10s time_slack=2s",
        "buckets 50/10s count_slack=7",
        "log 20/1s",
        "gcra 10/1s burst=3",
        "gcra 100/7s",
        "fixed_window 10/1s",
        "fixed_window 10/1s align=first_use",
        "sliding_counter 10/1s",
        "sliding_counter 333/7s",
    };
    for (size_t i = 0; i < N(specs); i++)
        for (uint64_t seed = 1; seed <= 4; seed++)
            check_algorithm(specs[i], 1000 * i + seed);
}

/* Why `concurrency` is not kept: a holder leaves, and the place is free before its deadline. */
TEST(a_place_may_be_free_before_its_deadline)
{
    struct stint_quota quota;
    _Alignas(16) unsigned char bytes[64] = {0};
    uint64_t holder;
    assert_int_equal(stint_quota_parse(&quota, "concurrency 1 lease=10s", NULL), 0);
    assert_int_equal(stint_state_hold(&quota, bytes, S, 1, &holder).outcome, STINT_ALLOW);
    const struct stint_ask peek = {.now_ns = 2 * S, .cost = 1, .verb = STINT_PEEK};
    struct stint_decision denied = stint_state_ask(&quota, bytes, &peek);
    assert_int_equal(denied.outcome, STINT_DENY);
    assert_true(denied.retry_after_ns == 9 * S);
    assert_int_equal(stint_state_release(&quota, bytes, 2 * S, holder), 0);
    assert_int_equal(stint_state_ask(&quota, bytes, &peek).outcome, STINT_ALLOW);
}

/* ---- The cache ------------------------------------------------------------------------------- */

static const uint64_t secret[2] = {1, 2};

static struct denial_name name_of(const struct denials *denials, const char *spec, const char *name,
                                  const char *key)
{
    struct stint_quota quota;
    assert_int_equal(stint_quota_parse(&quota, spec, NULL), 0);
    const struct backend_item item = {
        .quota = &quota, .name = span_of_text(name), .key = span_of_text(key), .cost = 1};
    return denials_name(denials, &item);
}

TEST(a_key_is_known_by_its_name_and_its_quota)
{
    struct denials *denials = denials_new(64, secret);
    struct denial_name name = name_of(denials, "10/1s", "rule", "key");
    denials_put(denials, &name, &(struct denial){.ends_ns = 2 * S, .cost = 3}, S);
    assert_int_equal(denials_find(denials, &name, S)->cost, 3);
    static const char *const others[][3] = {{"11/1s", "rule", "key"},
                                            {"10/2s", "rule", "key"},
                                            {"gcra 10/1s", "rule", "key"},
                                            {"10/1s", "rul", "ekey"},
                                            {"10/1s", "rule", "key2"}};
    for (size_t i = 0; i < N(others); i++) {
        struct denial_name other = name_of(denials, others[i][0], others[i][1], others[i][2]);
        assert_false(denials_same(&name, &other));
        assert_null(denials_find(denials, &other, S));
    }
    assert_non_null(denials_find(denials, &name, 2 * S - 1));
    assert_null(denials_find(denials, &name, 2 * S));
    denials_free(denials);
}

/* A refund overtakes the answer to a take that was denied before it. */
TEST(what_was_said_before_it_was_dropped_is_not_kept)
{
    struct denials *denials = denials_new(64, secret);
    const struct denial denial = {.ends_ns = 2 * S, .cost = 1};
    struct denial_name asked = name_of(denials, "10/1s", "rule", "key");
    struct denial_name refunded = name_of(denials, "10/1s", "rule", "key");
    denials_drop(denials, &refunded);
    denials_put(denials, &asked, &denial, S);
    assert_null(denials_find(denials, &asked, S));
    asked = name_of(denials, "10/1s", "rule", "key");
    denials_put(denials, &asked, &denial, S);
    assert_non_null(denials_find(denials, &asked, S));
    denials_drop(denials, &asked);
    assert_null(denials_find(denials, &asked, S));
    denials_free(denials);
}

/* Room is taken from who would go first; what has gone is nobody's room. */
TEST(it_keeps_no_more_than_it_has_space_for)
{
    struct denials *denials = denials_new(8, secret);
    struct denial_name names[20];
    char key[16];
    for (unsigned i = 0; i < 20; i++) {
        snprintf(key, sizeof(key), "key %u", i);
        names[i] = name_of(denials, "10/1s", "rule", key);
        denials_put(denials, &names[i], &(struct denial){.ends_ns = (2 + i) * S, .cost = 1}, S);
    }
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(denials_find(denials, &names[i], S) != NULL, i >= 12);
    denials_put(denials, &names[0], &(struct denial){.ends_ns = S, .cost = 1}, S);
    assert_non_null(denials_find(denials, &names[12], S));
    denials_free(denials);
    denials_free(NULL);
}
