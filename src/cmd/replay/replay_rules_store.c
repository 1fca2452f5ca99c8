/* SPDX-License-Identifier: MIT */
/* The engine's request, with its targets moved to the store. */
#define _GNU_SOURCE
#include "cmd/replay/replay_rules_store.h"

#include "cmd/replay/replay_store.h"
#include "cmd/store/virtual_store.h"
#include "decide/pending.h"

#include <stdlib.h>

struct replay_rules_store {
    char prefix[REPLAY_STORE_PREFIX_SIZE];
    struct virtual_store *store;
    struct backend *stores[1];
    struct evaluation_stores given;
    struct pending_requests pending_requests;
    struct stint_table *table; /* of bans, and of rules with store: none */
    struct evaluation evaluation;
};

/* ---- Opening and closing --------------------------------------------------------------------- */

static int accepts(const struct replay_rules_store *store, const struct rule *rule,
                   const struct stint_quota *quota, struct stint_error *error)
{
    struct stint_error why;
    int code = store->stores[0]->ops->accepts(store->stores[0], quota, &why);
    return code == 0 ? 0 : err_set(error, code, "%s: %s", rule->path, why.message);
}

static int check_rules(const struct replay_rules_store *store, const struct rules *rules,
                       struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < rules_count(rules) && code == 0; i++) {
        const struct rule *rule = rules_at(rules, i);
        if (rule->store.label == NULL)
            continue;
        if (!rule->unlimited)
            code = accepts(store, rule, &rule->quota, error);
        if (code == 0 && rule->has_shadow)
            code = accepts(store, rule, &rule->shadow, error);
    }
    return code;
}

int replay_rules_store_open(struct replay_rules_store **store, struct replay_rules *rules,
                            const struct store_given *given,
                            const struct stint_table_options *table, struct stint_error *error)
{
    struct stint_table_options own = *table;
    struct replay_rules_store *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a store");
    own.path = NULL;
    int code = replay_store_name_run(made->prefix, error);
    if (code == 0)
        code = virtual_store_open(&made->store, given, made->prefix, (uint64_t)own.epoch_ns, error);
    if (code == 0) {
        made->stores[0] = virtual_store_shared(made->store);
        made->given = (struct evaluation_stores){.stores = made->stores,
                                                 .n_stores = 1,
                                                 .timeout_ns = given->timeout_ns,
                                                 .items_on_error = RULE_STORE_ERROR_ERROR};
        code = check_rules(made, rules->loaded.rules, error);
    }
    if (code == 0)
        code = stint_table_open(&made->table, &own, error);
    if (code == 0)
        code = evaluation_init(&made->evaluation, made->table, error);
    if (code != 0) {
        replay_rules_store_close(made);
        return code;
    }
    made->evaluation.stores = &made->given;
    *store = made;
    return 0;
}

void replay_rules_store_close(struct replay_rules_store *store)
{
    if (store == NULL)
        return;
    evaluation_deinit(&store->evaluation);
    stint_table_close(store->table);
    pending_requests_deinit(&store->pending_requests);
    virtual_store_close(store->store);
    free(store);
}

/* ---- Deciding -------------------------------------------------------------------------------- */

/* The targets as rules have them; those of any store are in this store. */
static int begin(struct replay_rules_store *store, struct replay_rules *rules,
                 const struct replay_rules_event *event, struct stint_error *error)
{
    struct evaluation *evaluation = &store->evaluation;
    int code = replay_rules_ask(rules, event, evaluation, error);
    for (size_t i = 0; code == 0 && i < evaluation->n_targets; i++) {
        struct target *target = &evaluation->targets[i];
        target->store = target->rule != NULL && target->rule->store.label != NULL;
        target->on_error = RULE_STORE_ERROR_ERROR;
    }
    if (code == 0)
        evaluation->pending =
            pending_new(&store->pending_requests, event->now_ns, store->given.timeout_ns);
    return code == 0 && evaluation->pending == NULL
               ? err_set(error, STINT_E_SYSTEM, "out of memory for a request to the store")
               : code;
}

static int end(struct replay_rules_store *store, struct stint_error *error)
{
    struct evaluation *evaluation = &store->evaluation;
    const char *why = evaluation->fault_message;
    pending_free(evaluation->pending);
    evaluation->pending = NULL;
    if (evaluation->fault == 0)
        return 0;
    return err_set(error, evaluation->fault == BACKEND_REFUSED ? STINT_E_MISMATCH : STINT_E_GONE,
                   "--store: %s", why != NULL ? why : "no answer came in time");
}

int replay_rules_store_decide(struct replay_rules_store *store, struct replay_rules *rules,
                              const struct replay_rules_event *event,
                              struct stint_decision *decision, struct stint_error *error)
{
    int code = begin(store, rules, event, error);
    if (code != 0)
        return code;
    *decision = replay_rules_verb(&store->evaluation, event->verb);
    return end(store, error);
}

const struct evaluation *replay_rules_store_evaluation(const struct replay_rules_store *store)
{
    return &store->evaluation;
}

/* ---- Cleaning up ----------------------------------------------------------------------------- */

int replay_rules_store_clean(struct replay_rules_store *store, struct replay_rules *rules,
                             const struct key_set *names, struct stint_error *error)
{
    int code = 0;
    if (!virtual_store_may_have_keys(store->store))
        return 0;
    for (size_t i = 0; i < names->n_keys && code == 0; i++) {
        const struct replay_rules_event event = {.key = key_set_name(names, (uint32_t)i)};
        code = begin(store, rules, &event, error);
        if (code != 0)
            return code;
        evaluation_reset(&store->evaluation);
        code = end(store, error);
    }
    return code;
}

/* ---- Results --------------------------------------------------------------------------------- */

const char *replay_rules_store_prefix(const struct replay_rules_store *store)
{
    return store->prefix;
}

uint64_t replay_rules_store_ns(const struct replay_rules_store *store)
{
    return virtual_store_ns(store->store);
}

bool replay_rules_store_has_detoured(const struct replay_rules_store *store)
{
    return virtual_store_detours(store->store) > 0;
}
