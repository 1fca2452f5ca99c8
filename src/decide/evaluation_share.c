/* SPDX-License-Identifier: MIT */
/*
 * The share of a node, for on_store_error: local: a quota of its own, and until when it counts as
 * used up. Each algorithm's numbers are divided so that the shares of all nodes together admit no
 * more than the whole quota. Its times are made longer, so that this holds on a clock that is fast,
 * too.
 */
#include "decide/evaluation.h"

#include "algorithm/algorithm.h"
#include "algorithm/gcra.h"
#include "base/ns.h"
#include "base/siphash.h"
#include "base/wide_int.h"

#include <assert.h>
#include <string.h>

#define LOCAL_FOR_NS NS_PER_MIN /* of a quota without a rule */

/* Public on purpose: all nodes must agree on their order for a key. */
static const uint64_t order_secret[2] = {UINT64_C(0x72656d61696e64), UINT64_C(0x65726e6f646573)};

static const uint64_t name_secret[2] = {UINT64_C(0x6c6f63616c2071), UINT64_C(0x756f7461206964)};

struct place_in_line {
    struct hash128 hash;
    const char *name;
};

static struct place_in_line in_line(const struct target *target, const char *name)
{
    assert(target->quota != NULL && name != NULL);
    struct hash128 key =
        siphash13_128(order_secret, target->quota->rule, target->key.ptr, target->key.len);
    const uint64_t secret[2] = {key.lo, key.hi};
    return (struct place_in_line){siphash13_128(secret, 0, name, strlen(name)), name};
}

static bool is_before(const struct place_in_line *a, const struct place_in_line *b)
{
    if (a->hash.lo != b->hash.lo)
        return a->hash.lo < b->hash.lo;
    return a->hash.hi != b->hash.hi ? a->hash.hi < b->hash.hi : strcmp(a->name, b->name) < 0;
}

/*
 * How many nodes come before this one for the key (rendezvous hashing); all of them if the nodes
 * are not known.
 */
static unsigned rank_of(const struct evaluation_stores *stores, const struct target *target)
{
    unsigned rank = 0;
    bool is_known = false;
    if (stores->node == NULL || stores->node_names == NULL)
        return UINT32_MAX;
    struct place_in_line own = in_line(target, stores->node);
    for (unsigned i = 0; i < stores->nodes; i++) {
        struct place_in_line other = in_line(target, stores->node_names[i]);
        is_known |= strcmp(stores->node, stores->node_names[i]) == 0;
        rank += is_before(&other, &own);
    }
    return is_known ? rank : UINT32_MAX;
}

/* One of n shares; the first ones in order have one unit more where division leaves a remainder. */
struct share {
    unsigned of, rank;
};

static uint32_t share_of(const struct share *share, uint32_t units)
{
    assert(share->of > 0);
    return units / share->of + (share->rank < units % share->of);
}

/*
 * Windows that are aligned to a clock stay as they are: their bound is that of each window by that
 * clock.
 */
static void stretch_times(struct stint_quota *local)
{
    bool is_aligned =
        local->algorithm == STINT_FIXED_WINDOW && local->align != STINT_ALIGN_FIRST_USE;
    if (!is_aligned)
        local->period_ns = ns_on_fast_clock(local->period_ns);
    /* As much as the period: else there were more buckets than in a state of the whole. */
    local->time_slack_ns = ns_on_fast_clock(local->time_slack_ns);
    local->lease_ns = ns_on_fast_clock(local->lease_ns);
}

/* A quota whose T is exactly this many ticks, or a little more where units are in months. */
static void set_interval(struct stint_quota *local, uint64_t ticks)
{
    assert(ticks > 0);
    uint32_t times = ticks < NS_PER_US ? (uint32_t)(NS_PER_US / ticks) + 1 : 1;
    local->limit = times << GCRA_TICKS_PER_NS_LOG2;
    local->period_ns = ticks * times;
    if (local->period_ns > PERIOD_MAX_NS) {
        local->limit = 1;
        local->period_ns = gcra_ns_up(ticks);
    }
}

/*
 * T of a share is N·T/N', stretched and rounded up: so the rates of all shares together are at most
 * 1/T. With fewer units of burst than nodes, only the first nodes have burst and rate.
 */
static void divide_gcra(struct stint_quota *local, const struct share *share)
{
    assert(local->algorithm == STINT_GCRA && share->of > 0);
    struct share among = *share;
    if (local->burst < among.of && among.rank != UINT32_MAX)
        among.of = local->burst;
    bool has_part = among.of > 0 && (among.rank < among.of || among.rank == UINT32_MAX);
    uint32_t limit = has_part ? share_of(&among, local->limit) : 0;
    uint32_t burst = has_part ? share_of(&among, local->burst) : 0;
    if (limit == 0 || burst == 0) {
        local->limit = 0;
        return;
    }
    struct wide ticks = wide_mul(local->limit, local->derived.interval_ticks);
    set_interval(local, ns_on_fast_clock(ticks.lo / limit + (ticks.lo % limit > 0)));
    local->burst = burst;
}

/*
 * The count of a bucket is divided as the limit is, and rounded up: so there are no more buckets
 * than in a state of the whole, and the state is no wider.
 */
static void divide_buckets(struct stint_quota *local, const struct share *share)
{
    assert(local->algorithm == STINT_BUCKETS && share->of > 0);
    uint32_t slack = local->count_slack;
    local->limit = share_of(share, local->limit);
    if (slack > 0)
        slack = slack / share->of + (slack % share->of > 0);
    local->count_slack = (uint32_t)min_u64(slack, local->limit);
}

/* Denies everything. */
static void be_nothing(struct stint_quota *local)
{
    struct stint_error ignored;
    uint64_t rule = local->rule;
    *local = (struct stint_quota){.algorithm = STINT_WINDOW, .period_ns = NS_PER_S, .rule = rule};
    stint_quota_check(local, &ignored);
}

static void divide(struct stint_quota *local, const struct share *share)
{
    struct stint_error ignored;
    struct hash128 id = siphash13_128(name_secret, local->rule, NULL, 0);
    local->rule = id.lo != 0 ? id.lo : 1;
    stretch_times(local);
    if (local->algorithm == STINT_GCRA)
        divide_gcra(local, share);
    else if (local->algorithm == STINT_BUCKETS)
        divide_buckets(local, share);
    else
        local->limit = share_of(share, local->limit);
    if (local->limit == 0 || stint_quota_check(local, &ignored) != STINT_OK)
        be_nothing(local);
}

static unsigned nodes_of(const struct evaluation_stores *stores)
{
    return stores->nodes > 0 ? stores->nodes : 1;
}

/* Whether a remainder is left, which goes by the order of nodes. */
static bool divides_evenly(const struct stint_quota *quota, unsigned nodes)
{
    assert(nodes > 0);
    return quota->limit % nodes == 0 &&
           (quota->algorithm != STINT_GCRA || quota->burst % nodes == 0);
}

bool evaluation_local_quota(const struct evaluation_stores *stores, const struct target *target,
                            uint64_t unavailable_since_ns, uint64_t now_ns,
                            struct stint_quota *local)
{
    assert(target->quota != NULL && target->quota->derived.checked == 1);
    struct share share = {.of = nodes_of(stores), .rank = UINT32_MAX};
    uint64_t for_ns = target->rule != NULL ? target->rule->store.local_for_ns : LOCAL_FOR_NS;
    if (sub_floor(now_ns, unavailable_since_ns) >= for_ns)
        return false;
    if (!divides_evenly(target->quota, share.of))
        share.rank = rank_of(stores, target);
    *local = *target->quota;
    divide(local, &share);
    assert(local->derived.checked == 1);
    return true;
}

uint64_t evaluation_local_full_until(const struct target *target, uint64_t unavailable_since_ns)
{
    assert(target->quota != NULL);
    const struct rule_store *store = target->rule != NULL ? &target->rule->store : NULL;
    if (store != NULL && store->local_empty)
        return 0;
    return add_sat(unavailable_since_ns, rule_full_locally_ns(target->quota, store));
}

int evaluation_local_accepts(struct stint_table *table, const struct evaluation_stores *stores,
                             const struct rule *rule, struct stint_error *error)
{
    const struct share least = {nodes_of(stores), UINT32_MAX}, most = {nodes_of(stores), 0};
    const struct share *const shares[] = {&least, &most};
    struct stint_error why;
    if (rule->unlimited || rule->store.on_error != RULE_STORE_ERROR_LOCAL)
        return 0;
    for (size_t i = 0; i < 2; i++) {
        struct stint_quota local = rule->quota;
        divide(&local, shares[i]);
        int code = table_keeps(table, &local, &why);
        if (code != 0)
            return err_set(error, code, "on_store_error: local: %s", why.message);
    }
    return 0;
}
