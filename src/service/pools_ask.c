/* SPDX-License-Identifier: MIT */
/* Calls on pools: the table answers at once, a store through a pending request. */
#include "service/pools_parts.h"

#include "base/err.h"
#include "limiter/pool.h"

int pools_next(struct pools *pools, struct pools_caller *caller, struct span pool,
               const struct stint_pool_ask *ask, struct stint_pool_answer *answer,
               struct stint_error *error)
{
    size_t at;
    int code = pools_find(pools, pool, &at, error);
    if (code != 0)
        return code;
    if (pools->in_store[at] != NULL)
        return pool_in_store_next(pools->in_store[at], caller, ask, answer, error);
    *answer = stint_pool_next(pools->pools[at], ask);
    return 0;
}

static int give_back_in_store(struct pool_in_store *pool, struct pools_caller *caller,
                              const struct pools_return *back, uint64_t now_ns,
                              uint32_t *given_back, struct stint_error *error)
{
    const struct backend_pool_answer *answer;
    struct backend_pool_request ask = {.verb = BACKEND_POOL_GIVE_BACK,
                                       .key = back->key,
                                       .cost = back->cost,
                                       .at_ns = back->granted_at_ns,
                                       .now_ns = now_ns};
    int code = pool_in_store_ask(pool, caller, &ask, &answer, error);
    if (code == 0)
        *given_back = answer->given_back;
    return code;
}

int pools_give_back(struct pools *pools, struct pools_caller *caller, struct span pool,
                    const struct pools_return *back, uint64_t now_ns, uint32_t *given_back,
                    struct stint_error *error)
{
    struct pools_name name;
    size_t at;
    int code = pools_find(pools, pool, &at, error);
    if (code == 0)
        code = pools_copy_name(&name, back->key, "key", error);
    if (code != 0)
        return code;
    if (pools->in_store[at] != NULL)
        return give_back_in_store(pools->in_store[at], caller, back, now_ns, given_back, error);
    if (back->granted_at_ns > STINT_NOW_MAX && back->granted_at_ns != STINT_NEVER_NS)
        return err_set(error, STINT_E_RANGE, "at is later than any time of this pool");
    code = stint_pool_give_back(pools->pools[at], name.text, back->cost, back->granted_at_ns,
                                now_ns, given_back);
    if (code == STINT_E_GONE)
        err_set(error, code, "the pool has no key %s", name.text);
    else if (code != 0)
        err_set(error, code, "now is later than the largest time");
    return code;
}

static int report_in_store(struct pool_in_store *pool, struct pools_caller *caller,
                           const struct pools_report *report, uint64_t now_ns,
                           struct stint_error *error)
{
    const struct backend_pool_answer *answer;
    struct backend_pool_request ask = {.verb = BACKEND_POOL_REPORT,
                                       .key = report->key,
                                       .outcome = (uint8_t)report->outcome,
                                       .cooldown_ns = report->cooldown_ns,
                                       .now_ns = now_ns};
    int code = pool_check_report(report->outcome, report->cooldown_ns, now_ns, error);
    return code != 0 ? code : pool_in_store_ask(pool, caller, &ask, &answer, error);
}

int pools_report(struct pools *pools, struct pools_caller *caller, struct span pool,
                 const struct pools_report *report, uint64_t now_ns, struct stint_error *error)
{
    struct pools_name name;
    size_t at;
    int code = pools_find(pools, pool, &at, error);
    if (code == 0)
        code = pools_copy_name(&name, report->key, "key", error);
    if (code != 0)
        return code;
    return pools->in_store[at] != NULL
               ? report_in_store(pools->in_store[at], caller, report, now_ns, error)
               : stint_pool_report(pools->pools[at], name.text, report->outcome,
                                   report->cooldown_ns, now_ns, error);
}

int pools_each(struct pools *pools, struct pools_caller *caller, struct span pool, uint64_t now_ns,
               bool (*visit)(const struct stint_pool_status *status, void *arg), void *arg,
               struct stint_error *error)
{
    size_t at;
    const struct backend_pool_answer *answer;
    struct backend_pool_request ask = {.verb = BACKEND_POOL_STATUS, .now_ns = now_ns};
    int code = pools_find(pools, pool, &at, error);
    if (code == 0 && pools->in_store[at] == NULL)
        stint_pool_each(pools->pools[at], now_ns, visit, arg);
    if (code != 0 || pools->in_store[at] == NULL)
        return code;
    code = pool_in_store_ask(pools->in_store[at], caller, &ask, &answer, error);
    for (size_t i = 0; code == 0 && i < pool_in_store_count(caller); i++)
        if (!visit(&answer->statuses[i], arg))
            break;
    return code;
}
