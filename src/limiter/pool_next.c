/* SPDX-License-Identifier: MIT */
/*
 * Which key may be used now, or when. Choosing is trying: keys are tried in the pool's order, each
 * once, with one take over all its quotas; the first that is charged is the answer. So a key is
 * never chosen without being charged.
 *
 * Turns of a round: pass 1 has every key, pass 2 those of weight 2 and more, and so on; within a
 * pass the heaviest come first, then names decide. So a pass is the beginning of `by_turn`, and
 * `round[w]` is how many turns the first w passes have. A key that is passed over for want of units
 * loses the turn.
 *
 * A take of one unit that failed returns when the next one will succeed: until then the key is
 * passed over, and once all have failed the pool as a whole, unless something returns (struct
 * pool_wait). So a request to a pool that is used up costs no more than reading one key.
 */
#include "limiter/pool.h"

#include "base/wide_int.h"
#include "table/cooldown.h"

#include <assert.h>
#include <string.h>

#define CLAIMS_MAX 64 /* lost races for a turn; after as many, any turn is good */

struct choice {
    struct stint_pool *pool;
    const struct stint_pool_ask *ask;
    uint64_t now_ns;            /* the effective time */
    const struct pool_key *key; /* the answer; NULL: none so far */
    struct stint_decision decision;
    uint64_t wait_ns; /* if none: the least of all that were tried */
    bool probe;
    bool some_serve;  /* a key that is not cooling down could serve this cost, only later */
    bool uses_waits;  /* one unit, and no report about cooling down keys is needed */
    uint64_t returns; /* as counted before the first key was tried */
    const struct pool_key *least;   /* whose wait is wait_ns */
    bool is_known;                  /* of that key, which was not tried */
    const struct pool_key *nearest; /* the cooling down key that has units and is back first */
    uint64_t nearest_ns;
};

/* ---- One key --------------------------------------------------------------------------------- */

/* One decision of all the key's quotas, all or nothing; the verbs are those of list.h. */
static struct stint_decision key_ask(struct stint_pool *pool, const struct pool_key *key,
                                     uint8_t verb, uint32_t cost, uint64_t at_ns, uint64_t now_ns)
{
    assert(pool_is_valid(pool));
    assert(pool_key_is_valid(key));
    struct list list;
    if (key->n_quotas == 1 && verb == STINT_TAKE)
        return table_take_hash(pool->table, &key->quotas[0], key->states[0], cost, now_ns);
    if (key->n_quotas == 1) {
        struct stint_ask ask = {.now_ns = now_ns, .at_ns = at_ns, .cost = cost, .verb = verb};
        return table_ask_hash(pool->table, &key->quotas[0], key->states[0], &ask, NULL, NULL);
    }
    list_init_hashed(&list, pool->table, now_ns);
    for (uint32_t i = 0; i < key->n_quotas; i++)
        list_add_hashed(&list, &key->quotas[i], key->states[i], cost);
    return verb == STINT_TAKE ? list_take(&list) : list_ask(&list, verb, at_ns);
}

static struct stint_decision key_try(const struct choice *choice, const struct pool_key *key,
                                     uint8_t verb)
{
    return key_ask(choice->pool, key, verb, choice->ask->cost, 0, choice->now_ns);
}

/* A decision of `ahead_ns` later, as the caller sees it. */
static void put_off(struct stint_decision *decision, uint64_t ahead_ns)
{
    if (decision->retry_after_ns > 0)
        decision->retry_after_ns = add_sat(decision->retry_after_ns, ahead_ns);
    if (decision->reset_after_ns > 0)
        decision->reset_after_ns = add_sat(decision->reset_after_ns, ahead_ns);
}

/* ---- Waits that are known -------------------------------------------------------------------- */

/* The wait of a key or of the pool that holds now; until_ns of 0: none is known. */
static struct pool_wait wait_of(const struct choice *choice, const struct pool_wait *wait)
{
    /* relaxed: words that do not belong together do not match. */
    struct pool_wait seen = {.until_ns = __atomic_load_n(&wait->until_ns, __ATOMIC_RELAXED),
                             .reset_ns = __atomic_load_n(&wait->reset_ns, __ATOMIC_RELAXED),
                             .sum = __atomic_load_n(&wait->sum, __ATOMIC_RELAXED)};
    if (seen.sum != choice->returns + seen.until_ns + seen.reset_ns ||
        seen.until_ns <= choice->now_ns)
        seen.until_ns = 0;
    return seen;
}

static void set_wait(const struct choice *choice, struct pool_wait *wait, uint64_t until_ns,
                     uint64_t reset_ns)
{
    assert(until_ns >= choice->now_ns);
    __atomic_store_n(&wait->until_ns, until_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&wait->reset_ns, reset_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&wait->sum, choice->returns + until_ns + reset_ns, __ATOMIC_RELAXED);
}

static void keep_wait(struct choice *choice, const struct pool_key *key, uint64_t wait_ns,
                      const struct stint_decision *decision)
{
    assert(pool_key_is_valid(key));
    if (choice->uses_waits && decision->stored)
        set_wait(choice, &((struct pool_key *)(uintptr_t)key)->wait,
                 add_sat(choice->now_ns, wait_ns),
                 add_sat(choice->now_ns, decision->reset_after_ns));
    if (wait_ns >= choice->wait_ns)
        return;
    choice->wait_ns = wait_ns;
    choice->least = key;
    choice->is_known = false;
    choice->decision = *decision;
    choice->decision.outcome = STINT_DENY;
    choice->decision.granted = 0;
    choice->decision.retry_after_ns = wait_ns;
}

/* Whether the key is known to have no unit now. */
static bool pass_waiting(struct choice *choice, const struct pool_key *key)
{
    assert(pool_key_is_valid(key));
    if (!choice->uses_waits)
        return false;
    struct pool_wait wait = wait_of(choice, &key->wait);
    if (wait.until_ns != 0 && wait.until_ns - choice->now_ns < choice->wait_ns) {
        choice->wait_ns = wait.until_ns - choice->now_ns;
        choice->least = key;
        choice->is_known = true;
    }
    return wait.until_ns != 0;
}

/* Returns, for a pool that is used up, the decision of the key that is back first. */
static void tell_wait(struct choice *choice)
{
    assert(choice->least != NULL);
    const struct pool_key *key = choice->least;
    struct pool_wait wait = wait_of(choice, &key->wait);
    bool is_plain = key->n_quotas == 1 && wait.until_ns != 0 &&
                    !cooldown_any(choice->pool->table, choice->now_ns);
    if (is_plain) /* a key without one unit has none */
        choice->decision = (struct stint_decision){
            .stored = 1,
            .limit = most_units(&key->quotas[0]),
            .reset_after_ns = sub_floor(wait.reset_ns, choice->now_ns),
        };
    else
        choice->decision = key_try(choice, key, STINT_PEEK);
    choice->decision.outcome = STINT_DENY;
    choice->decision.granted = 0;
    choice->decision.retry_after_ns = choice->wait_ns;
}

/* Whether all keys are known to have no unit now. */
static bool all_wait(struct choice *choice)
{
    assert(choice->pool->n_keys > 0);
    const struct stint_pool *pool = choice->pool;
    if (!choice->uses_waits)
        return false;
    struct pool_wait all = wait_of(choice, &pool->wait);
    uint32_t first = __atomic_load_n(&pool->first_back, __ATOMIC_RELAXED);
    return all.until_ns != 0 && first < pool->n_keys &&
           wait_of(choice, &pool->by_age[first]->wait).until_ns == all.until_ns &&
           pass_waiting(choice, pool->by_age[first]);
}

static void keep_all_waiting(struct choice *choice)
{
    assert(choice->key == NULL);
    struct stint_pool *pool = choice->pool;
    if (!choice->uses_waits || choice->least == NULL)
        return;
    size_t at = pool_age_index(pool, choice->least->age);
    __atomic_store_n(&pool->first_back, (uint32_t)at, __ATOMIC_RELAXED);
    set_wait(choice, &pool->wait, add_sat(choice->now_ns, choice->wait_ns), 0);
}

/* ---- One key --------------------------------------------------------------------------------- */

/* A cooling down key is not charged, but it may be the first to be back. */
static void pass_cooling_down(struct choice *choice, const struct pool_key *key, uint64_t ends_ns)
{
    assert(ends_ns > choice->now_ns);
    if (ends_ns == STINT_NEVER_NS)
        return;
    struct stint_decision peek = key_try(choice, key, STINT_PEEK);
    if (peek.outcome == STINT_NEVER)
        return;
    keep_wait(choice, key, max_u64(peek.retry_after_ns, ends_ns - choice->now_ns), &peek);
    if (peek.outcome == STINT_ALLOW && (choice->nearest == NULL || ends_ns < choice->nearest_ns)) {
        choice->nearest = key;
        choice->nearest_ns = ends_ns;
    }
}

static bool try_key(struct choice *choice, const struct pool_key *key)
{
    assert(pool_key_is_valid(key));
    assert(choice->key == NULL);
    if (pass_waiting(choice, key))
        return false;
    uint64_t ends_ns = pool_cooldown_of(choice->pool, key, choice->now_ns).ends_ns;
    if (ends_ns > choice->now_ns) {
        pass_cooling_down(choice, key, ends_ns);
        return false;
    }
    struct stint_decision decision = key_try(choice, key, STINT_TAKE);
    if (decision.outcome == STINT_ALLOW) {
        choice->key = key;
        choice->decision = decision;
        return true;
    }
    if (decision.outcome == STINT_DENY) {
        choice->some_serve = true;
        keep_wait(choice, key, decision.retry_after_ns, &decision);
    }
    return false;
}

/* ---- Orders ---------------------------------------------------------------------------------- */

static bool try_from(struct choice *choice, size_t from, size_t to, size_t *at)
{
    assert(from > to || to <= choice->pool->n_keys);
    for (*at = from; *at < to; ++*at)
        if (try_key(choice, choice->pool->by_turn[*at]))
            return true;
    return false;
}

/* The pass of turn `turn` of a round: the first that ends after it. */
static uint32_t pass_of(const struct stint_pool *pool, uint64_t turn)
{
    assert(turn < pool->round[STINT_POOL_WEIGHT_MAX]);
    uint32_t low = 1, high = STINT_POOL_WEIGHT_MAX;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pool->round[middle] <= turn)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * From the current turn to the end of its pass; then the keys of the next pass that were not tried;
 * then, as the next round begins with all keys, the rest. Returns the turn after the one taken.
 */
static uint64_t try_turns(struct choice *choice, uint64_t turn)
{
    assert(turn < choice->pool->round[STINT_POOL_WEIGHT_MAX]);
    const struct stint_pool *pool = choice->pool;
    uint32_t pass = pass_of(pool, turn);
    size_t begin = (size_t)(turn - pool->round[pass - 1]), at;
    size_t end = (size_t)(pool->round[pass] - pool->round[pass - 1]);
    if (try_from(choice, begin, end, &at))
        return pool->round[pass - 1] + at + 1;
    size_t next = 0;
    if (pass < STINT_POOL_WEIGHT_MAX)
        next = (size_t)min_u64(begin, pool->round[pass + 1] - pool->round[pass]);
    if (try_from(choice, 0, next, &at))
        return pool->round[pass] + at + 1;
    if (try_from(choice, next, begin, &at) || try_from(choice, end, pool->n_keys, &at))
        return at + 1;
    return turn;
}

/*
 * A turn is claimed first, so that callers that come at the same time begin at different keys; it
 * is put back if no key has a unit. A caller that loses a race there loses an order of turns, not a
 * unit.
 */
static void choose_by_turns(struct choice *choice)
{
    assert(choice->pool->n_keys > 0);
    const struct stint_pool *pool = choice->pool;
    uint64_t turns = pool->round[STINT_POOL_WEIGHT_MAX];
    uint64_t seen, turn, claimed;
    bool claims = choice->ask->cost > 0;
    unsigned tries = 0;
    do {
        seen = pool_record_turn(pool->record);
        turn = seen % turns;
        claimed = turn + 1 < turns ? turn + 1 : 0;
    } while (claims && !pool_record_turn_on(pool->record, seen, claimed) && ++tries < CLAIMS_MAX);
    uint64_t next = try_turns(choice, turn) % turns;
    if (claims && choice->key == NULL)
        pool_record_turn_on(pool->record, claimed, seen);
    else if (claims && next != claimed)
        pool_record_turn_on(pool->record, claimed, next);
}

static void choose_first(struct choice *choice)
{
    assert(choice->pool->n_keys > 0);
    const struct stint_pool *pool = choice->pool;
    for (size_t i = 0; i < pool->n_keys; i++)
        if (try_key(choice, pool->by_age[i]))
            return;
}

/* The used share of the quota with the least left, in 1/2^32; the peek is of after the take. */
static uint64_t used_share(const struct stint_decision *peek, uint32_t cost)
{
    uint64_t left = min_u64((uint64_t)peek->remaining + cost, peek->limit);
    return ((peek->limit - left) << 32) / (peek->limit > 0 ? peek->limit : 1);
}

/* All are peeked at, one is charged. If another caller was faster there, the first with units. */
static void choose_least_used(struct choice *choice)
{
    assert(choice->pool->n_keys > 0);
    const struct stint_pool *pool = choice->pool;
    const struct pool_key *best = NULL;
    uint64_t best_share = 0;
    for (size_t i = 0; i < pool->n_keys; i++) {
        const struct pool_key *key = pool->by_age[i];
        if (pass_waiting(choice, key))
            continue;
        struct stint_decision peek = key_try(choice, key, STINT_PEEK);
        uint64_t share = used_share(&peek, choice->ask->cost);
        if (peek.outcome != STINT_ALLOW ||
            (best != NULL && share * best->weight >= best_share * key->weight) ||
            pool_cooldown_of(choice->pool, key, choice->now_ns).ends_ns > choice->now_ns)
            continue;
        best = key;
        best_share = share;
    }
    if (best == NULL || !try_key(choice, best))
        choose_first(choice);
}

/* ---- The result ------------------------------------------------------------------------------ */

static void choose_key(struct choice *choice)
{
    assert(choice->pool->n_keys > 0);
    if (choice->pool->order == STINT_FILL_FIRST)
        choose_first(choice);
    else if (choice->pool->order == STINT_LEAST_USED)
        choose_least_used(choice);
    else
        choose_by_turns(choice);
    if (choice->key == NULL)
        keep_all_waiting(choice);
    if (choice->key != NULL || !choice->ask->probe || choice->some_serve || choice->nearest == NULL)
        return;
    struct stint_decision decision = key_try(choice, choice->nearest, STINT_TAKE);
    if (decision.outcome != STINT_ALLOW)
        return;
    choice->key = choice->nearest;
    choice->decision = decision;
    choice->probe = true;
    /* Its known wait is for the end of its cooldown; with this unit taken it may be longer. */
    pool_record_count_return(choice->pool->record);
}

static bool could_serve(const struct pool_key *key, uint32_t cost)
{
    assert(pool_key_is_valid(key));
    for (uint32_t i = 0; i < key->n_quotas; i++)
        if (cost > most_units(&key->quotas[i]))
            return false;
    return true;
}

static bool any_could_serve(const struct stint_pool *pool, uint32_t cost)
{
    for (size_t i = 0; i < pool->n_keys; i++)
        if (could_serve(pool->by_age[i], cost))
            return true;
    return false;
}

static void choose(struct choice *choice)
{
    assert(pool_is_valid(choice->pool));
    struct stint_pool *pool = choice->pool;
    uint32_t cost = choice->ask->cost;
    /* A cost that no key can ever serve moves no turn. */
    if (cost > 1 && !any_could_serve(pool, cost))
        return;
    choice->uses_waits = cost == 1 && !choice->ask->probe;
    choice->returns = pool_record_returns(pool->record);
    if (!all_wait(choice))
        choose_key(choice);
    if (choice->key == NULL && choice->is_known)
        tell_wait(choice);
}

struct stint_pool_answer stint_pool_next(struct stint_pool *pool, const struct stint_pool_ask *ask)
{
    assert(pool != NULL && ask != NULL);
    struct choice choice = {
        .pool = pool, .ask = ask, .wait_ns = STINT_NEVER_NS, .decision = algorithm_never(0)};
    struct stint_pool_answer answer = {.wait_ns = STINT_NEVER_NS, .decision = algorithm_never(0)};
    if (ask->now_ns > STINT_NOW_MAX)
        return answer;
    pool_lock_shared(pool);
    choice.now_ns = table_effective_now(pool->table, ask->now_ns);
    if (pool->n_keys > 0)
        choose(&choice);
    answer.name = choice.key != NULL ? choice.key->name : NULL;
    pool_unlock_shared(pool);
    uint64_t ahead_ns = choice.now_ns - ask->now_ns;
    assert((answer.name != NULL) == (choice.key != NULL) && choice.now_ns >= ask->now_ns);
    answer.decision = choice.decision;
    answer.probe = choice.probe;
    answer.granted_at_ns = choice.now_ns;
    answer.wait_ns = answer.name != NULL ? 0 : add_sat(choice.wait_ns, ahead_ns);
    put_off(&answer.decision, ahead_ns);
    return answer;
}

/* ---- Giving back ----------------------------------------------------------------------------- */

int stint_pool_give_back(struct stint_pool *pool, const char *name, uint32_t cost,
                         uint64_t granted_at_ns, uint64_t now_ns, uint32_t *given_back)
{
    assert(pool != NULL);
    uint32_t returned = 0;
    if (now_ns > STINT_NOW_MAX)
        return STINT_E_RANGE;
    pool_lock_shared(pool);
    const struct pool_key *key = pool_find(pool, name, NULL);
    if (key != NULL && cost > 0) {
        uint64_t effective_ns = table_effective_now(pool->table, now_ns);
        returned = key_ask(pool, key, STINT_REFUND, cost, granted_at_ns, effective_ns).granted;
        pool_record_count_return(pool->record);
    }
    pool_unlock_shared(pool);
    if (given_back != NULL)
        *given_back = returned;
    return key != NULL ? 0 : STINT_E_GONE;
}

/* ---- The status of each key: nothing is taken, and no caller waits meanwhile ---------------- */

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
    struct stint_decision one = key_ask(pool, key, STINT_PEEK, 1, 0, now_ns);
    struct stint_decision none = key_ask(pool, key, STINT_PEEK, 0, 0, now_ns);
    none.outcome = one.outcome;
    none.retry_after_ns = one.retry_after_ns;
    return none;
}

static void describe(struct stint_pool *pool, const struct pool_key *key, uint64_t now_ns,
                     struct stint_pool_status *status)
{
    assert(pool_key_is_valid(key));
    uint64_t effective_ns = table_effective_peek(pool->table, now_ns);
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
    put_off(&status->decision, ahead_ns);
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
