/* SPDX-License-Identifier: MIT */
/*
 * The request is peeked as by a server, with the scripts; the content of its keys is read in
 * addition from the server that has them. Neither writes.
 */
#define _GNU_SOURCE
#include "cmd/rules/rules_explain_store.h"

#include "backend/redis/redis_backend.h"
#include "backend/script/script.h"
#include "backend/store_key.h"
#include "cmd/store/shared_session.h"
#include "cmd/store/store.h"
#include "decide/pending.h"
#include "net/upstream/memcached_links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct explain_store {
    struct explain_store_options options;
    struct shared_session *session;
    struct store_nodes *nodes; /* NULL: memcached, which has no listing of keys */
    struct backend *all[RULES_STORES_MAX];
    struct evaluation_stores stores;
    struct pending_requests pending_requests;
    char *prefix; /* escaped */
    struct explained_key keys[EXPLAINED_KEYS * TARGETS_MAX];
};

/* ---- Rules ----------------------------------------------------------------------------------- */

/* The names of stores in the rules, each once; a store that is not kept is one too many. */
static bool find_labels(const struct rules *rules, const char **labels, size_t *n_labels)
{
    for (size_t i = 0; i < rules_count(rules); i++) {
        const char *label = rules_at(rules, i)->store.label;
        size_t at = 0;
        while (label != NULL && at < *n_labels && strcmp(labels[at], label) != 0)
            at++;
        if (label == NULL || at < *n_labels)
            continue;
        if (*n_labels == RULES_STORES_MAX)
            return false;
        labels[(*n_labels)++] = label;
    }
    return true;
}

bool explain_store_load(const struct rules_args *args, struct rules_loaded *loaded)
{
    struct rules_loaded first;
    struct rules_args again = *args;
    const char *labels[RULES_STORES_MAX] = {RULES_STORE_DEFAULT};
    size_t n_labels = 1;
    if (!rules_given_load(args, &first))
        return false;
    bool is_loaded = find_labels(first.rules, labels, &n_labels);
    if (is_loaded) {
        again.load.stores = labels;
        again.load.n_stores = n_labels;
        again.load.default_store = 1;
        is_loaded = rules_given_load(&again, loaded);
    } else {
        fprintf(stderr, "stint: the rules name more than %d stores\n", RULES_STORES_MAX - 1);
    }
    rules_loaded_free(&first);
    return is_loaded;
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static int escape_prefix(struct explain_store *store, struct stint_error *error)
{
    const char *prefix = store->options.prefix;
    struct span text = span_of_text(prefix != NULL ? prefix : REDIS_STORE_PREFIX_DEFAULT);
    size_t len = store_key_escape(text, NULL, 0);
    store->prefix = malloc(len + 1);
    if (store->prefix == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the prefix of keys");
    store_key_escape(text, store->prefix, len);
    store->prefix[len] = '\0';
    return 0;
}

static int open_nodes(struct explain_store *store, struct stint_error *error)
{
    struct stint_error why;
    int code = store_nodes_open(&store->nodes, store->options.given, &why);
    if (code == 0)
        return 0;
    return err_set(error, code, "--store: %s%s", why.message,
                   code == STINT_E_GONE ? "; `stint store check URL` tests it" : "");
}

int explain_store_open(struct explain_store **store, const struct explain_store_options *options,
                       struct stint_error *error)
{
    struct explain_store *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a store");
    made->options = *options;
    int code = escape_prefix(made, error);
    if (code == 0 && options->given->url.kind != STORE_MEMCACHED)
        code = open_nodes(made, error);
    if (code == 0)
        code = shared_session_open(&made->session, options->given, options->prefix, error);
    if (code != 0) {
        explain_store_close(made);
        return code;
    }
    for (size_t i = 0; i < RULES_STORES_MAX; i++)
        made->all[i] = shared_session_store(made->session);
    made->stores = (struct evaluation_stores){.stores = made->all,
                                              .n_stores = RULES_STORES_MAX,
                                              .timeout_ns = options->given->timeout_ns};
    *store = made;
    return 0;
}

void explain_store_close(struct explain_store *store)
{
    if (store == NULL)
        return;
    for (size_t i = 0; i < EXPLAINED_KEYS * TARGETS_MAX; i++) {
        free(store->keys[i].name);
        free(store->keys[i].bytes);
    }
    store_nodes_close(store->nodes);
    shared_session_close(store->session);
    pending_requests_deinit(&store->pending_requests);
    free(store->prefix);
    free(store);
}

const struct explained_key *explain_store_keys(const struct explain_store *store)
{
    return store->keys;
}

/* ---- Peeking --------------------------------------------------------------------------------- */

/* Evaluates the request once; returns if a reply is missing. */
static int peek_once(struct explain_store *store, struct evaluation *evaluation,
                     const struct evaluation_ask *ask, struct pending *pending,
                     struct stint_decision *decision, struct stint_error *error)
{
    evaluation->stores = &store->stores;
    evaluation_begin(evaluation, pending->now_ns);
    int code = evaluation_add_descriptors(evaluation, ask, error);
    if (code != 0)
        return code;
    pending_rewind(pending);
    evaluation->pending = pending;
    evaluation->now_ns = evaluation->at_ns = pending->now_ns;
    *decision = evaluation_peek(evaluation);
    evaluation->pending = NULL;
    return 0;
}

static struct backend_item item_of(const struct target *target, bool is_shadow)
{
    const struct rule *rule = target->rule;
    return (struct backend_item){
        .quota = is_shadow ? &rule->shadow : target->quota,
        .rule = rule,
        .name = span_of_text(is_shadow ? rule->store.shadow_name : rule->store.name),
        .key = target->key,
        .is_values = target->is_values,
        .cost = target->cost,
    };
}

static void take_answer(struct backend_op *op, uint64_t now_ns)
{
    (void)now_ns;
    *(bool *)op->arg = true;
}

/* Requests the state of this one again: a request does not record why it has no answer. */
static int find_fault(struct explain_store *store, const struct target *target,
                      struct stint_error *error)
{
    struct backend *shared = shared_session_store(store->session);
    const struct backend_item item = item_of(target, false);
    uint64_t now_ns = shared_session_now_ns(store->session);
    const struct backend_request ask = {.verb = BACKEND_PEEK,
                                        .items = &item,
                                        .n_items = 1,
                                        .now_ns = now_ns,
                                        .deadline_ns = now_ns + store->options.given->timeout_ns};
    bool is_answered = false;
    struct stint_decision each;
    struct backend_op op = {.answered = take_answer, .arg = &is_answered, .answer.each = &each};
    shared->ops->ask(shared, &ask, &op);
    while (op.answer.outcome == BACKEND_WAITS && !is_answered)
        shared_session_run(store->session);
    return err_set(error, STINT_E_GONE, "--store: %s; `stint store check URL` tests it",
                   op.answer.error != NULL ? op.answer.error : "it did not answer in time");
}

/* The fallback of a store that fails is no answer here. */
static int check_answers(struct explain_store *store, const struct evaluation *evaluation,
                         struct stint_error *error)
{
    if (evaluation->fault != 0)
        return err_set(error, STINT_E_GONE, "--store: %s",
                       evaluation->fault_message != NULL ? evaluation->fault_message
                                                         : "it does not answer");
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].fallback != FALLBACK_NONE)
            return find_fault(store, &evaluation->targets[i], error);
    return 0;
}

static int peek(struct explain_store *store, struct evaluation *evaluation,
                const struct evaluation_ask *ask, struct stint_decision *decision,
                struct stint_error *error)
{
    uint64_t now_ns = shared_session_now_ns(store->session);
    struct pending *pending =
        pending_new(&store->pending_requests, now_ns, store->options.given->timeout_ns);
    if (pending == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory to ask the store");
    int code = peek_once(store, evaluation, ask, pending, decision, error);
    while (code == 0 && pending->n_waiting > 0) {
        while (pending->n_waiting > 0)
            shared_session_run(store->session);
        code = peek_once(store, evaluation, ask, pending, decision, error);
    }
    pending_free(pending);
    return code != 0 ? code : check_answers(store, evaluation, error);
}

/* ---- Reading --------------------------------------------------------------------------------- */

static void keep_bytes(void *arg, const struct redis_reply *reply)
{
    struct explained_key *key = arg;
    if (reply->type == REDIS_ERROR) {
        snprintf(key->fault, sizeof(key->fault), "%.*s", (int)reply->text.len,
                 (const char *)reply->text.ptr);
        return;
    }
    if (reply->type != REDIS_TEXT)
        return;
    size_t len = reply->text.len < EXPLAINED_BYTES_MAX ? reply->text.len : EXPLAINED_BYTES_MAX;
    key->exists = true;
    key->len = reply->text.len;
    key->bytes = malloc(len + 1);
    if (key->bytes != NULL)
        memcpy(key->bytes, reply->text.ptr, len);
    key->n_shown = key->bytes != NULL ? len : 0;
}

static void keep_ttl(void *arg, const struct redis_reply *reply)
{
    struct explained_key *key = arg;
    if (reply->type == REDIS_INTEGER)
        key->ttl_ms = reply->number;
}

static int look_at(struct explain_store *store, struct explained_key *key,
                   struct stint_error *error)
{
    struct store_session *session;
    if (store->nodes == NULL)
        return 0;
    int code = store_nodes_find(store->nodes, span_of_text(key->name), &session, error);
    if (code != 0)
        return code;
    snprintf(key->node, sizeof(key->node), "%s", store_nodes_address(store->nodes));
    key->slot = store_nodes_slot(store->nodes);
    key->is_looked_at = true;
    code = store_session_ask(session, (const char *[]){"GET", key->name, NULL}, keep_bytes, key,
                             error);
    if (code == 0 && key->exists)
        code = store_session_ask(session, (const char *[]){"PTTL", key->name, NULL}, keep_ttl, key,
                                 error);
    return code;
}

/* With `more` appended; NULL: no memory. */
static char *name_of(const struct explain_store *store, const struct backend_item *item,
                     const char *more)
{
    struct span prefix = span_of_text(store->prefix);
    struct memcached_key short_key;
    size_t tag_len;
    if (store->options.given->url.kind == STORE_MEMCACHED)
        return memcached_key_write(&short_key, prefix, item, memcached_links_digest, NULL)
                   ? strndup(short_key.text, short_key.len)
                   : NULL;
    size_t len = store_key(item, prefix, NULL, 0, &tag_len);
    char *name = malloc(len + strlen(more) + 1);
    if (name == NULL)
        return NULL;
    store_key(item, prefix, name, len, &tag_len);
    memcpy(name + len, more, strlen(more) + 1);
    return name;
}

/* One of a rule's keys. */
static int look_at_key(struct explain_store *store, const struct target *target, size_t which,
                       struct explained_key *key, struct stint_error *error)
{
    const struct backend_item item = item_of(target, which == EXPLAINED_SHADOW);
    const char *more = which == EXPLAINED_LEASES ? SCRIPT_LEASES_SUFFIX : "";
    key->name = name_of(store, &item, more);
    if (key->name == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the name of a key");
    key->slot = STORE_NODE_NO_SLOT;
    return look_at(store, key, error);
}

static int look(struct explain_store *store, const struct evaluation *evaluation,
                struct stint_error *error)
{
    int code = 0;
    for (size_t i = 0; i < evaluation->n_targets && code == 0; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_FREE || target->store == 0)
            continue;
        const bool has[EXPLAINED_KEYS] = {true, target->rule->has_shadow,
                                          target->rule->store.lease == RULE_LEASE_STRICT};
        for (size_t which = 0; which < EXPLAINED_KEYS && code == 0; which++)
            if (has[which])
                code = look_at_key(store, target, which, &store->keys[EXPLAINED_KEYS * i + which],
                                   error);
    }
    return code;
}

int explain_store_ask(struct explain_store *store, struct evaluation *evaluation,
                      const struct evaluation_ask *ask, struct stint_decision *decision,
                      struct stint_error *error)
{
    int code = peek(store, evaluation, ask, decision, error);
    return code != 0 ? code : look(store, evaluation, error);
}
