/* SPDX-License-Identifier: MIT */
/* A pool whose keys are alike, as one pair of words; and the change-over to a state for each. */
#include "limiter/pool.h"

#include "base/wide_int.h"

#define NAMES_TWEAK UINT64_C(0x736e727574)

static bool same_quota(const struct pool_key *a, const struct pool_key *b)
{
    return a->n_quotas == 1 && b->n_quotas == 1 && a->quotas[0].rule == b->quotas[0].rule &&
           intern_same_params(&a->quotas[0], &b->quotas[0]);
}

static bool all_alike(const struct stint_pool *pool)
{
    if (pool->n_keys < 2 || pool->n_keys > TURNS_KEYS_MAX)
        return false;
    for (size_t i = 1; i < pool->n_keys; i++)
        if (!same_quota(pool->by_name[i - 1], pool->by_name[i]))
            return false;
    return true;
}

void pool_turns_refresh(struct stint_pool *pool)
{
    struct turns *turns = &pool->turns;
    turns->quota.derived.checked = 0;
    turns->by_turns = false;
    turns->keys = (uint32_t)pool->n_keys;
    turns->id = 0;
    if (!all_alike(pool))
        return;
    const struct stint_quota *each = &pool->by_name[0]->quotas[0];
    if (!turns_quota(each, turns->keys, &turns->quota))
        return;
    /* A sum of hashes: who lists the same keys in another order has the same pool. */
    const uint64_t list[] = {
        pool->names_sum.lo,           pool->names_sum.hi,           pool->n_keys,
        each->derived.params_hash[0], each->derived.params_hash[1], each->rule};
    turns->names = turns_names(
        siphash13_128(pool->table->region.fixed.hash_key, NAMES_TWEAK, list, sizeof(list)));
    turns->by_turns = pool->order == STINT_ROUND_ROBIN &&
                      pool->by_turn[0]->weight == pool->by_turn[pool->n_keys - 1]->weight;
}

/* The quota of all is among the table's only once it is used: a list that grows passes many. */
static bool has_id(struct stint_pool *pool)
{
    uint32_t *id = &pool->turns.id;
    /* relaxed: all who work it out find the same. */
    uint32_t known = __atomic_load_n(id, __ATOMIC_RELAXED);
    if (known == 0) {
        known = intern_id(&pool->table->intern, &pool->turns.quota);
        __atomic_store_n(id, known, __ATOMIC_RELAXED);
    }
    return known != 0;
}

static void close_pair(struct stint_pool *pool, const struct turns_step *step, uint64_t now_ns)
{
    bool all_charged = true;
    for (size_t i = 0; i < pool->n_keys && step->each > 0 && all_charged; i++) {
        if (!turns_is_closing(&pool->turns, step))
            return;
        all_charged =
            pool_key_ask(pool, pool->by_name[i], STINT_CHARGE, step->each, 0, step->charge_ns)
                .stored != 0;
    }
    turns_closed(pool->table, &pool->turns, step, all_charged, now_ns);
}

struct turns_step pool_turns_step(struct stint_pool *pool, enum turns_wish wish, uint64_t now_ns)
{
    if (wish != TURNS_WISH_LEAVE && (!pool->turns.by_turns || !has_id(pool)))
        wish = TURNS_WISH_LEAVE;
    for (;;) {
        struct turns_step step = turns_step(pool->table, &pool->turns, wish, now_ns);
        if (step.phase != TURNS_CLOSING)
            return step;
        close_pair(pool, &step, now_ns);
    }
}

void pool_turns_leave_own(struct stint_pool *pool, uint64_t now_ns)
{
    struct turns_view view = turns_look(&pool->turns);
    uint64_t grace_ns = table_grace_ns(pool->table);
    bool is_dead = view.phase == TURNS_LIVE &&
                   add_sat(law8_dies_at(&pool->turns.quota, view.state), grace_ns) <= now_ns;
    if ((view.phase == TURNS_LIVE && !is_dead) || view.phase == TURNS_CLOSING)
        pool_turns_step(pool, TURNS_WISH_LEAVE, now_ns);
}

/* What is left in all goes to the keys by turns. */
static struct stint_decision share(const struct stint_pool *pool, struct stint_decision all,
                                   uint32_t ahead)
{
    uint32_t keys = pool->turns.keys;
    all.limit = pool->turns.quota.limit / keys;
    all.remaining = all.remaining > ahead ? (all.remaining - ahead - 1) / keys + 1 : 0;
    return all;
}

struct stint_decision pool_turns_share(const struct stint_pool *pool, uint64_t state,
                                       uint32_t ahead, uint64_t now_ns)
{
    struct stint_ask ask = {.now_ns = now_ns, .cost = ahead + 1, .verb = STINT_PEEK};
    struct stint_decision all = law8_ask(&pool->turns.quota, &state, &ask);
    ask.cost = 0;
    all.remaining = law8_ask(&pool->turns.quota, &state, &ask).remaining;
    all.stored = 1;
    all.granted = 0;
    return share(pool, all, ahead);
}

/* The key has just had its turn, and is last in line. */
struct stint_decision pool_turns_decision(const struct stint_pool *pool,
                                          const struct stint_decision *all)
{
    return share(pool, *all, all->outcome == STINT_ALLOW ? pool->turns.keys - 1 : 0);
}
