/* SPDX-License-Identifier: MIT */
/* What is due comes out in the order of time, however it was moved about before. */
#include "net/due.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <setjmp.h>

#include <cmocka.h>

#define MANY 1000

static uint64_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return *state >> 33;
}

static void check_order(struct dues *dues, size_t expected)
{
    uint64_t before_ns = 0;
    struct due *first;
    for (; (first = dues_first(dues)) != NULL; expected--) {
        assert_true(first->at_ns >= before_ns);
        before_ns = first->at_ns;
        due_set(dues, first, STINT_NEVER_NS);
        assert_int_equal(first->place, 0);
    }
    assert_int_equal(expected, 0);
}

static void test_the_earliest_comes_first(void **state)
{
    (void)state;
    static struct due all[MANY];
    struct dues dues = {0};
    uint64_t seed = 7;
    for (size_t i = 0; i < MANY; i++) {
        assert_true(dues_reserve(&dues, dues.n_dues + 1));
        due_set(&dues, &all[i], random_next(&seed) % 500);
    }
    check_order(&dues, MANY);
    dues_deinit(&dues);
}

static void test_moving_and_taking_out_keep_the_order(void **state)
{
    (void)state;
    static struct due all[MANY];
    struct dues dues = {0};
    uint64_t seed = 11;
    assert_true(dues_reserve(&dues, MANY));
    for (size_t step = 0; step < 20 * MANY; step++) {
        struct due *due = &all[random_next(&seed) % MANY];
        due_set(&dues, due, random_next(&seed) % 4 == 0 ? STINT_NEVER_NS : random_next(&seed));
    }
    size_t inside = 0;
    for (size_t i = 0; i < MANY; i++)
        inside += all[i].place != 0;
    assert_int_equal(inside, dues.n_dues);
    assert_true(inside > MANY / 2 && inside < MANY);
    check_order(&dues, inside);
    dues_deinit(&dues);
}

static void test_taking_out_what_is_not_inside_is_nothing(void **state)
{
    (void)state;
    struct dues dues = {0};
    struct due due = {0};
    due_set(&dues, &due, STINT_NEVER_NS);
    assert_null(dues_first(&dues));
    dues_deinit(&dues);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_earliest_comes_first),
        cmocka_unit_test(test_moving_and_taking_out_keep_the_order),
        cmocka_unit_test(test_taking_out_what_is_not_inside_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
