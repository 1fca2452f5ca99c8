/* SPDX-License-Identifier: MIT */
/* What is due comes out in the order of time, however it was moved about before. */
#include "unit/test.h"

#include "base/splitmix.h"
#include "service/timer_queue.h"

#define MANY 1000

static uint64_t random_next(uint64_t *state)
{
    return splitmix_next(state) >> 33;
}

static void check_order(struct timer_queue *timer_queue, size_t expected)
{
    uint64_t before_ns = 0;
    struct timer *first;
    for (; (first = timer_queue_first(timer_queue)) != NULL; expected--) {
        assert_true(first->at_ns >= before_ns);
        before_ns = first->at_ns;
        timer_queue_set(timer_queue, first, STINT_NEVER_NS);
        assert_int_equal(first->place, 0);
    }
    assert_int_equal(expected, 0);
}

TEST(test_the_earliest_comes_first)
{
    static struct timer all[MANY];
    struct timer_queue timer_queue = {0};
    uint64_t seed = 7;
    for (size_t i = 0; i < MANY; i++) {
        assert_true(timer_queue_reserve(&timer_queue, timer_queue.n_timers + 1));
        timer_queue_set(&timer_queue, &all[i], random_next(&seed) % 500);
    }
    check_order(&timer_queue, MANY);
    timer_queue_deinit(&timer_queue);
}

TEST(test_moving_and_taking_out_keep_the_order)
{
    static struct timer all[MANY];
    struct timer_queue timer_queue = {0};
    uint64_t seed = 11;
    assert_true(timer_queue_reserve(&timer_queue, MANY));
    for (size_t step = 0; step < 20 * MANY; step++) {
        struct timer *timer = &all[random_next(&seed) % MANY];
        timer_queue_set(&timer_queue, timer,
                        random_next(&seed) % 4 == 0 ? STINT_NEVER_NS : random_next(&seed));
    }
    size_t inside = 0;
    for (size_t i = 0; i < MANY; i++)
        inside += all[i].place != 0;
    assert_int_equal(inside, timer_queue.n_timers);
    assert_true(inside > MANY / 2 && inside < MANY);
    check_order(&timer_queue, inside);
    timer_queue_deinit(&timer_queue);
}

TEST(test_taking_out_what_is_not_inside_is_nothing)
{
    struct timer_queue timer_queue = {0};
    struct timer timer = {0};
    timer_queue_set(&timer_queue, &timer, STINT_NEVER_NS);
    assert_null(timer_queue_first(&timer_queue));
    timer_queue_deinit(&timer_queue);
}
