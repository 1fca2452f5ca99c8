/* SPDX-License-Identifier: MIT */
/* Cells of 8 and 16 bytes against bytes of the caller's: the same units, and the same answers. */
#include "unit/test_quota.h"

#define STEPS 2000

static const char *const specs[] = {
    "gcra 20/1m",         "window 20/1m resolution=12", "window 20/1m", "window 23/1m initial=5",
    "fixed_window 20/1m", "sliding_counter 20/1m",
};

/* Either cell, by the size of the quota's state. */
struct cell {
    struct stint_cell8 small;
    struct stint_cell16 large;
};

static bool is_small(const struct stint_quota *quota)
{
    size_t size = stint_state_size(quota);
    assert_true(size == 8 || size == 16);
    return size == 8;
}

static void cell_init(const struct stint_quota *quota, struct cell *cell, uint64_t now_ns)
{
    if (is_small(quota))
        stint_cell8_init(quota, &cell->small, now_ns);
    else
        stint_cell16_init(quota, &cell->large, now_ns);
}

static struct stint_decision cell_ask(const struct stint_quota *quota, struct cell *cell,
                                      const struct stint_ask *ask)
{
    return is_small(quota) ? stint_cell8_ask(quota, &cell->small, ask)
                           : stint_cell16_ask(quota, &cell->large, ask);
}

static struct stint_decision cell_take(const struct stint_quota *quota, struct cell *cell,
                                       uint64_t now_ns, uint32_t cost)
{
    return is_small(quota) ? stint_cell8_take(quota, &cell->small, now_ns, cost)
                           : stint_cell16_take(quota, &cell->large, now_ns, cost);
}

/* A cell is made over what its memory had before, and has the units free that `initial` says. */
TEST(test_a_new_cell_has_its_initial_units)
{
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        for (uint32_t initial = 0; initial <= quota.limit; initial += 5) {
            struct cell cell;
            quota.initial_set = true;
            quota.initial = initial;
            assert_int_equal(stint_quota_check(&quota, NULL), STINT_OK);
            memset(&cell, 0xff, sizeof(cell));
            cell_init(&quota, &cell, 7 * MINUTE);
            assert_int_equal(cell_take(&quota, &cell, 7 * MINUTE, initial).outcome, STINT_ALLOW);
            assert_int_equal(cell_take(&quota, &cell, 7 * MINUTE, 1).outcome, STINT_DENY);
        }
    }
}

TEST(test_a_zeroed_cell_is_new)
{
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct cell cell = {0};
        assert_int_equal(cell_take(&quota, &cell, 7 * MINUTE, quota.limit).outcome, STINT_ALLOW);
        assert_int_equal(cell_take(&quota, &cell, 7 * MINUTE, 1).outcome, STINT_DENY);
    }
}

static struct stint_ask any_ask(uint64_t *seed, uint64_t now_ns)
{
    static const uint8_t verbs[] = {STINT_TAKE, STINT_TAKE, STINT_PEEK, STINT_TAKE_UPTO,
                                    STINT_CHARGE};
    return (struct stint_ask){
        .now_ns = now_ns,
        .cost = (uint32_t)(next_random(seed) % 8),
        .verb = verbs[next_random(seed) % N(verbs)],
    };
}

TEST(test_cells_decide_as_bytes_do)
{
    uint64_t seed = 1;
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct small_state state;
        struct cell cell;
        uint64_t now_ns = 7 * MINUTE;
        stint_state_init(&quota, &state, now_ns);
        cell_init(&quota, &cell, now_ns);
        for (unsigned step = 0; step < STEPS; step++) {
            now_ns += next_random(&seed) % (6 * S);
            struct stint_ask ask = any_ask(&seed, now_ns);
            struct stint_decision expected = ask_at(&quota, &state, 0, ask);
            struct stint_decision decision = ask.verb == STINT_TAKE
                                                 ? cell_take(&quota, &cell, now_ns, ask.cost)
                                                 : cell_ask(&quota, &cell, &ask);
            assert_int_equal(decision.stored, 1);
            expected.stored = 1;
            assert_same_decision(&decision, &expected);
        }
    }
}

/* What a cell cannot be asked is denied for ever, and changes nothing. */
TEST(test_times_beyond_the_last_are_refused)
{
    for (size_t i = 0; i < N(specs); i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct cell cell = {0}, before = cell;
        struct stint_ask ask = {.now_ns = STINT_NOW_MAX + 1, .cost = 1, .verb = STINT_TAKE};
        assert_int_equal(cell_take(&quota, &cell, STINT_NOW_MAX + 1, 1).outcome, STINT_NEVER);
        assert_int_equal(cell_ask(&quota, &cell, &ask).outcome, STINT_NEVER);
        assert_memory_equal(&cell, &before, sizeof(cell));
    }
}
