/* SPDX-License-Identifier: MIT */
/* The status of each key of a pool; nothing is taken, and no caller waits meanwhile. */
#include "limiter/pool.h"

#include "base/wide_int.h"

#include <assert.h>
#include <string.h>

/* The decision of one unit of the key, with how much it has left. */
static struct stint_decision stands(struct stint_pool *pool, const struct pool_key *key,
                                    uint64_t now_ns)
{
    assert(pool_key_is_valid(key));
    struct stint_decision one = pool_key_ask(pool, key, STINT_PEEK, 1, 0, now_ns);
    struct stint_decision none = pool_key_ask(pool, key, STINT_PEEK, 0, 0, now_ns);
    none.outcome = one.outcome;
    none.retry_after_ns = one.retry_after_ns;
    return none;
}

static void describe(struct stint_pool *pool, const struct pool_key *key, uint64_t now_ns,
                     struct stint_pool_status *status)
{
    assert(pool_key_is_valid(key));
    uint64_t effective_ns = table_effective_now(pool->table, now_ns);
    struct pool_cooldown cooldown = pool_cooldown_of(pool, key, effective_ns);
    uint64_t ahead_ns = effective_ns - now_ns;
    *status = (struct stint_pool_status){.weight = key->weight,
                                         .standing = cooldown.standing,
                                         .failures = (uint8_t)cooldown.failures,
                                         .decision = stands(pool, key, effective_ns)};
    uint64_t wait_ns = status->decision.retry_after_ns;
    if (wait_ns > 0 && cooldown.standing == STINT_POOL_FREE)
        status->standing = STINT_POOL_USED_UP;
    if (cooldown.standing != STINT_POOL_FREE)
        wait_ns = cooldown.ends_ns == STINT_NEVER_NS
                      ? STINT_NEVER_NS
                      : max_u64(wait_ns, cooldown.ends_ns - effective_ns);
    status->returns_after_ns = wait_ns > 0 ? add_sat(wait_ns, ahead_ns) : 0;
    if (status->decision.retry_after_ns > 0)
        status->decision.retry_after_ns = add_sat(status->decision.retry_after_ns, ahead_ns);
    if (status->decision.reset_after_ns > 0)
        status->decision.reset_after_ns = add_sat(status->decision.reset_after_ns, ahead_ns);
}

/* The oldest key that is younger than all before `age`. */
static const struct pool_key *from_age(const struct stint_pool *pool, uint64_t age)
{
    assert(pool_is_valid(pool));
    size_t at = pool_age_index(pool, age);
    return at < pool->n_keys ? pool->by_age[at] : NULL;
}

/* The callback may use the pool: the list is not locked while it runs. */
void stint_pool_each(struct stint_pool *pool, uint64_t now_ns,
                     bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg)
{
    char name[STINT_POOL_NAME_MAX + 1];
    struct stint_pool_status status;
    uint64_t age = 0;
    if (now_ns > STINT_NOW_MAX)
        return;
    for (;;) {
        pool_lock_shared(pool);
        const struct pool_key *key = from_age(pool, age);
        if (key != NULL) {
            describe(pool, key, now_ns, &status);
            memcpy(name, key->name, strlen(key->name) + 1);
            age = key->age + 1;
        }
        pool_unlock_shared(pool);
        status.name = name;
        if (key == NULL || !visit(&status, arg))
            return;
    }
}
