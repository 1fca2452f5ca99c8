/* SPDX-License-Identifier: MIT */
/* Runs the tests that have registered themselves, or those whose names match the arguments. */
#include "unit/test.h"

static struct test_case *cases;
static void (*set_up)(void), (*tear_down)(void);

/* In the order of the file: a compiler may call constructors in any. */
void test_add(struct test_case *test)
{
    struct test_case **after = &cases;
    while (*after != NULL && (*after)->line < test->line)
        after = &(*after)->next;
    test->next = *after;
    *after = test;
}

void test_surround(void (*before)(void), void (*after)(void))
{
    set_up = before != NULL ? before : set_up;
    tear_down = after != NULL ? after : tear_down;
}

static void run_case(void **state)
{
    const struct test_case *test = *state;
    test->run();
}

static int run_set_up(void **state)
{
    (void)state;
    if (set_up != NULL)
        set_up();
    return 0;
}

static int run_tear_down(void **state)
{
    (void)state;
    if (tear_down != NULL)
        tear_down();
    return 0;
}

int main(int argc, char **argv)
{
    size_t n = 0;
    for (const struct test_case *test = cases; test != NULL; test = test->next)
        n++;
    struct CMUnitTest *tests = calloc(n, sizeof(*tests));
    if (n == 0 || tests == NULL || argc > 2) {
        fprintf(stderr, "usage: %s [PATTERN]; %zu tests\n", argv[0], n);
        return 2;
    }
    n = 0;
    for (struct test_case *test = cases; test != NULL; test = test->next)
        tests[n++] = (struct CMUnitTest){.name = test->name,
                                         .test_func = run_case,
                                         .setup_func = run_set_up,
                                         .teardown_func = run_tear_down,
                                         .initial_state = test};
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    int failed = _cmocka_run_group_tests(argv[0], tests, n, NULL, NULL);
    free(tests);
    return failed;
}
