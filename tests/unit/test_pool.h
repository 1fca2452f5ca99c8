/* SPDX-License-Identifier: MIT */
/* Short words for tests of key pools: a table with a pool of keys a, b, …, and what it answers. */
#ifndef STINT_TESTS_TEST_POOL_H
#define STINT_TESTS_TEST_POOL_H

#include "unit/test_quota.h"

#define HOUR (60 * MINUTE)
#define NOW (1000 * HOUR)

struct fixture {
    struct stint_table *table;
    struct stint_pool *pool;
};

static inline struct stint_table *open_table(uint32_t blocks)
{
    const struct stint_table_options options = {.keys = 512,
                                                .keys16 = 512,
                                                .keys_wide = 64,
                                                .wide_size = 512,
                                                .blocks = blocks,
                                                .clock = STINT_CLOCK_VIRTUAL};
    return must_open_table(&options);
}

static struct fixture fixture[1];

SETUP
{
    *fixture = (struct fixture){.table = open_table(64)};
}

TEARDOWN
{
    stint_pool_close(fixture->pool);
    stint_table_close(fixture->table);
}

/* A pool of the keys a, b, … with the same quotas each, `weights` each its own. */
static inline struct stint_pool *pool_of(struct stint_table *table, int order, size_t n_keys,
                                         const struct stint_quota *quotas, size_t n_quotas,
                                         const uint32_t *weights)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    const struct stint_pool_options options = {.order = (uint8_t)order};
    struct stint_pool *pool;
    struct stint_error error;
    assert_int_equal(stint_pool_open(&pool, table, &options, NULL), 0);
    for (size_t i = 0; i < n_keys; i++) {
        struct stint_pool_key key = {.name = names[i],
                                     .quotas = quotas,
                                     .n_quotas = n_quotas,
                                     .weight = weights != NULL ? weights[i] : 0};
        if (stint_pool_add(pool, &key, 0, &error) != 0)
            fail_msg("%s", error.message);
    }
    return pool;
}

static inline struct stint_pool_answer next(struct stint_pool *pool, uint64_t now_ns, uint32_t cost)
{
    const struct stint_pool_ask ask = {.now_ns = now_ns, .cost = cost};
    return stint_pool_next(pool, &ask);
}

/* Takes one unit after another and expects the keys of `names`, one letter each; '-' is none. */
static inline void expect(struct stint_pool *pool, uint64_t now_ns, const char *names)
{
    for (size_t i = 0; names[i] != '\0'; i++) {
        struct stint_pool_answer answer = next(pool, now_ns, 1);
        char got = answer.name != NULL ? answer.name[0] : '-';
        if (got != names[i])
            fail_msg("answer %zu of \"%s\" is %c", i, names, got);
        assert_int_equal(answer.decision.outcome, got == '-' ? STINT_DENY : STINT_ALLOW);
    }
}

/* With nobody else asking: none until now + wait, and one then. The units are taken. */
static inline void expect_wait(struct stint_pool *pool, uint64_t now_ns, uint32_t cost,
                               uint64_t wait_ns)
{
    struct stint_pool_answer none = next(pool, now_ns, cost);
    assert_null(none.name);
    assert_int_equal(none.wait_ns, wait_ns);
    assert_int_equal(none.decision.retry_after_ns, wait_ns);
    none = next(pool, now_ns + wait_ns - 1, cost);
    assert_null(none.name);
    assert_int_equal(none.wait_ns, 1);
    assert_non_null(next(pool, now_ns + wait_ns, cost).name);
}

static inline int report(struct stint_pool *pool, const char *name, int outcome,
                         uint64_t cooldown_ns, uint64_t now_ns)
{
    return stint_pool_report(pool, name, outcome, cooldown_ns, now_ns, NULL);
}

struct looking {
    const char *name;
    struct stint_pool_status status;
    char names[16];
    size_t n;
};

static inline bool look_at(const struct stint_pool_status *status, void *arg)
{
    struct looking *looking = arg;
    looking->names[looking->n++] = status->name[0];
    if (looking->name != NULL && strcmp(status->name, looking->name) == 0)
        looking->status = *status;
    return true;
}

static inline struct stint_pool_status status_of(struct stint_pool *pool, const char *name,
                                                 uint64_t now_ns)
{
    struct looking looking = {.name = name};
    stint_pool_each(pool, now_ns, look_at, &looking);
    assert_non_null(looking.status.name);
    return looking.status;
}

#endif
