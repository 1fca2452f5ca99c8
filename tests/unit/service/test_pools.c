/* SPDX-License-Identifier: MIT */
/* The key pools of a server: definitions that change, names that are none, several threads. */
#include "unit/test_server.h"

#include "service/pools/pools.h"

#include <pthread.h>

static struct stint_error error;

struct fixture {
    struct stint_table *table;
    struct pools *pools;
};

static struct fixture fixture[1];

SETUP
{
    fixture->table = table_for_tests(0);
    fixture->pools = pools_new(fixture->table);
    assert_false(fixture->pools == NULL);
}

TEARDOWN
{
    pools_free(fixture->pools);
    stint_table_close(fixture->table);
}

/* A definition with keys "a", "b", … of one quota each; with `new` it is only checked. */
static int check_or_define(struct pools *pools, const char *name, const char *keys,
                           const char *quota, struct pools_new *new)
{
    struct span quotas[26];
    struct pools_key made[26];
    size_t n = strlen(keys);
    for (size_t i = 0; i < n; i++) {
        quotas[i] = span_of_text(quota);
        made[i] =
            (struct pools_key){.name = span_of(&keys[i], 1), .quotas = &quotas[i], .n_quotas = 1};
    }
    const struct pools_definition definition = {
        .name = span_of_text(name), .keys = made, .n_keys = n};
    return new != NULL ? pools_check(pools, &definition, new, &error)
                       : pools_define(pools, &definition, START, &error);
}

static int define(struct pools *pools, const char *name, const char *keys, const char *quota)
{
    return check_or_define(pools, name, keys, quota, NULL);
}

static struct stint_pool_answer next(struct pools *pools, const char *name, uint64_t now_ns)
{
    const struct stint_pool_ask ask = {.now_ns = now_ns, .cost = 1};
    struct stint_pool_answer answer;
    assert_int_equal(pools_next(pools, NULL, span_of_text(name), &ask, &answer, &error), 0);
    return answer;
}

static bool add_name(const struct stint_pool_status *status, void *arg)
{
    strcat(arg, status->name);
    return true;
}

static const char *names_of(struct pools *pools, const char *name)
{
    static char names[64];
    names[0] = '\0';
    assert_int_equal(pools_each(pools, NULL, span_of_text(name), START, add_name, names, &error),
                     0);
    return names;
}

TEST(test_keys_are_used_by_turns)
{
    assert_int_equal(define(fixture->pools, "p", "abc", "2/1m"), 0);
    assert_string_equal(next(fixture->pools, "p", START).name, "a");
    assert_string_equal(next(fixture->pools, "p", START).name, "b");
    assert_string_equal(next(fixture->pools, "p", START).name, "c");
    for (int i = 0; i < 3; i++)
        assert_non_null(next(fixture->pools, "p", START).name);
    struct stint_pool_answer none = next(fixture->pools, "p", START);
    assert_null(none.name);
    assert_non_null(next(fixture->pools, "p", START + none.wait_ns).name);
}

TEST(test_a_definition_makes_the_keys_its_own)
{
    assert_int_equal(define(fixture->pools, "p", "abc", "5/1m"), 0);
    assert_int_equal(define(fixture->pools, "p", "cde", "5/1m"), 0);
    assert_string_equal(names_of(fixture->pools, "p"), "cde");
    assert_int_equal(pools_count(fixture->pools), 1);
    assert_string_equal(pools_name(fixture->pools, 0), "p");
    assert_null(pools_name(fixture->pools, 1));
    assert_int_equal(define(fixture->pools, "p", "", "5/1m"), 0);
    assert_string_equal(names_of(fixture->pools, "p"), "");
}

TEST(test_what_a_key_has_used_goes_on_under_the_same_quota)
{
    assert_int_equal(define(fixture->pools, "p", "ab", "3/1m"), 0);
    for (int i = 0; i < 6; i++)
        assert_non_null(next(fixture->pools, "p", START).name);
    assert_int_equal(define(fixture->pools, "p", "a", "3/1m"), 0);
    assert_null(next(fixture->pools, "p", START).name);
    assert_int_equal(define(fixture->pools, "p", "abc", "3/1m"), 0);
    assert_string_equal(next(fixture->pools, "p", START).name, "c");
}

/* All pools of a configuration are checked before the first is made: each counts for the next. */
TEST(test_new_pools_are_checked_together)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i",
                                        "j", "k", "l", "m", "n", "o", "p", "q", "r"};
    const size_t most = 16; /* in a table by default */
    struct pools_new new = {0};
    assert_int_equal(define(fixture->pools, names[0], "abc", "5/1m"), 0);
    for (size_t i = 0; i < most; i++)
        assert_int_equal(check_or_define(fixture->pools, names[i], "ab", "5/1m", &new), 0);
    assert_int_equal(check_or_define(fixture->pools, names[most], "ab", "5/1m", &new),
                     STINT_E_FULL);
    assert_string_equal(error.message, "the table knows 16 pools already");
    assert_int_equal(check_or_define(fixture->pools, "", "ab", "5/1m", &new), STINT_E_RANGE);
    assert_int_equal(pools_count(fixture->pools), 1);
    assert_string_equal(names_of(fixture->pools, names[0]), "abc");
    for (size_t i = 1; i < most; i++)
        assert_int_equal(define(fixture->pools, names[i], "ab", "5/1m"), 0);
    new = (struct pools_new){0};
    assert_int_equal(check_or_define(fixture->pools, names[0], "ab", "5/1m", &new), 0);
    assert_int_equal(check_or_define(fixture->pools, names[most], "ab", "5/1m", &new),
                     STINT_E_FULL);
}

TEST(test_a_definition_that_is_refused_changes_nothing)
{
    assert_int_equal(define(fixture->pools, "p", "abc", "5/1m"), 0);
    assert_int_equal(define(fixture->pools, "p", "dd", "5/1m"), STINT_E_MISMATCH);
    assert_int_equal(define(fixture->pools, "p", "de", "nonsense"), STINT_E_SYNTAX);
    assert_int_equal(define(fixture->pools, "p", "de", "concurrency 3 lease=1s"), STINT_E_MISMATCH);
    assert_int_equal(define(fixture->pools, "p", "d ", "5/1m"), STINT_E_SYNTAX);
    assert_string_equal(names_of(fixture->pools, "p"), "abc");
    assert_int_equal(define(fixture->pools, "", "a", "5/1m"), STINT_E_RANGE);
    const struct pools_definition other_order = {.name = span_of_text("p"),
                                                 .order = STINT_FILL_FIRST};
    assert_int_equal(pools_define(fixture->pools, &other_order, START, &error), STINT_E_MISMATCH);
    assert_string_equal(names_of(fixture->pools, "p"), "abc");
    assert_int_equal(pools_count(fixture->pools), 1);
}

TEST(test_keys_come_and_go)
{
    struct span pool = span_of_text("p"), quota = span_of_text("5/1m");
    struct pools_key key = {.name = span_of_text("z"), .quotas = &quota, .n_quotas = 1};
    assert_int_equal(define(fixture->pools, "p", "a", "5/1m"), 0);
    assert_int_equal(pools_add(fixture->pools, pool, &key, START, &error), 0);
    assert_int_equal(pools_add(fixture->pools, pool, &key, START, &error), STINT_E_MISMATCH);
    key.n_quotas = 0;
    assert_int_equal(pools_add(fixture->pools, pool, &key, START, &error), STINT_E_RANGE);
    assert_string_equal(names_of(fixture->pools, "p"), "az");
    assert_int_equal(pools_remove(fixture->pools, NULL, pool, span_of_text("a"), START, &error), 0);
    assert_int_equal(pools_remove(fixture->pools, NULL, pool, span_of_text("a"), START, &error),
                     STINT_E_GONE);
    assert_string_equal(names_of(fixture->pools, "p"), "z");
}

TEST(test_reports_and_what_is_given_back)
{
    struct span pool = span_of_text("p");
    uint32_t given_back = 0;
    assert_int_equal(define(fixture->pools, "p", "a", "2/1m"), 0);
    struct pools_report report = {
        .key = span_of_text("a"), .outcome = STINT_POOL_COOL, .cooldown_ns = 5 * S};
    assert_int_equal(pools_report(fixture->pools, NULL, pool, &report, START, &error), 0);
    assert_int_equal(next(fixture->pools, "p", START).name == NULL, 1);
    report = (struct pools_report){.key = report.key, .outcome = STINT_POOL_OK};
    assert_int_equal(pools_report(fixture->pools, NULL, pool, &report, START, &error), 0);
    assert_non_null(next(fixture->pools, "p", START).name);
    assert_non_null(next(fixture->pools, "p", START).name);
    assert_null(next(fixture->pools, "p", START).name);
    struct pools_return back = {.key = report.key, .cost = 1, .granted_at_ns = START};
    assert_int_equal(pools_give_back(fixture->pools, NULL, pool, &back, START, &given_back, &error),
                     0);
    assert_int_equal(given_back, 1);
    assert_non_null(next(fixture->pools, "p", START).name);
    back.key = span_of_text("nobody");
    assert_int_equal(pools_give_back(fixture->pools, NULL, pool, &back, START, NULL, &error),
                     STINT_E_GONE);
    assert_non_null(strstr(error.message, "nobody"));
}

TEST(test_a_pool_that_is_not_there)
{
    struct span none = span_of_text("none");
    struct stint_pool_answer answer;
    struct pools_key key = {.name = span_of_text("a")};
    const struct stint_pool_ask ask = {.now_ns = START, .cost = 1};
    const struct pools_report report = {.key = span_of_text("a")};
    const struct pools_return back = {.key = span_of_text("a")};
    assert_int_equal(pools_next(fixture->pools, NULL, none, &ask, &answer, &error), STINT_E_GONE);
    assert_non_null(strstr(error.message, "none"));
    assert_int_equal(pools_add(fixture->pools, none, &key, START, &error), STINT_E_GONE);
    assert_int_equal(pools_remove(fixture->pools, NULL, none, none, START, &error), STINT_E_GONE);
    assert_int_equal(pools_report(fixture->pools, NULL, none, &report, START, &error),
                     STINT_E_GONE);
    assert_int_equal(pools_give_back(fixture->pools, NULL, none, &back, START, NULL, &error),
                     STINT_E_GONE);
    assert_int_equal(pools_each(fixture->pools, NULL, none, START, add_name, NULL, &error),
                     STINT_E_GONE);
}

TEST(test_as_many_pools_as_the_table_knows)
{
    char name[16];
    int refused = 0;
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        refused += define(fixture->pools, name, "a", "5/1m") == STINT_E_FULL;
    }
    assert_int_equal(refused, 4); /* 16 names by default */
    assert_int_equal(pools_count(fixture->pools), 16);
}

/* ---- Threads --------------------------------------------------------------------------------- */

TEST(test_replies_are_counted_by_their_result)
{
    struct pools *pools = fixture->pools;
    struct stint_pool_answer answer;
    const struct stint_pool_ask large = {.now_ns = START, .cost = 3};
    assert_int_equal(define(pools, "o", "a", "2/1m"), 0);
    assert_int_equal(define(pools, "p", "a", "2/1m"), 0);
    for (int i = 0; i < 5; i++)
        next(pools, "p", START);
    assert_int_equal(pools_next(pools, NULL, span_of_text("p"), &large, &answer, &error), 0);
    assert_int_not_equal(pools_next(pools, NULL, span_of_text("x"), &large, &answer, &error), 0);
    const uint64_t expected[POOLS_RESULTS] = {[POOLS_KEY] = 2, [POOLS_WAIT] = 3, [POOLS_NEVER] = 1};
    for (unsigned result = 0; result < POOLS_RESULTS; result++) {
        assert_int_equal(pools_results(pools, 0, (enum pools_result)result), 0);
        assert_int_equal(pools_results(pools, 1, (enum pools_result)result), expected[result]);
    }
}

#define THREADS 4
#define ASKS 3000

static struct pools *shared;
static uint64_t granted;

static void *take_all(void *arg)
{
    const struct stint_pool_ask ask = {.now_ns = START, .cost = 1};
    struct stint_pool_answer answer;
    (void)arg;
    for (int i = 0; i < ASKS; i++)
        if (pools_next(shared, NULL, span_of_text("p"), &ask, &answer, NULL) == 0 &&
            answer.name != NULL)
            __atomic_fetch_add(&granted, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void *redefine(void *arg)
{
    (void)arg;
    for (int i = 0; i < 200; i++)
        define(shared, "p", i % 2 == 0 ? "abcd" : "ab", "500/1m");
    return NULL;
}

TEST(test_definitions_change_while_keys_are_used)
{
    pthread_t threads[THREADS + 1];
    shared = fixture->pools;
    granted = 0;
    assert_int_equal(define(shared, "p", "abcd", "500/1m"), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_all, NULL), 0);
    assert_int_equal(pthread_create(&threads[THREADS], NULL, redefine, NULL), 0);
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_in_range(granted, 1, 2000); /* no key passes its quota, whoever came and went */
    assert_int_equal(pools_results(shared, 0, POOLS_KEY), granted);
    assert_int_equal(pools_results(shared, 0, POOLS_WAIT), THREADS * ASKS - granted);
}
