/* SPDX-License-Identifier: MIT */
/*
 * `stint rules explain`: which rules a request would match, the state of each, and which would
 * deny. A --state file is read in a copy, so that nothing in it is ever charged.
 */
#define _GNU_SOURCE
#include "cmd/rules/rules_explain_print.h"

#include "backend/redis/redis_backend.h"
#include "backend/script/script.h"
#include "backend/store_key.h"
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/print.h"
#include "cmd/rules/rules_files.h"
#include "cmd/store/shared_session.h"
#include "cmd/store/store.h"
#include "decide/pending.h"
#include "net/upstream/backends.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- The shared store ------------------------------------------------------------------------ */

/*
 * The request is peeked as by a server, with the scripts; the content of its keys is read in
 * addition from the server that has them. Neither writes.
 */

struct explain_store_options {
    const struct store_given *given;
    const char *prefix; /* of its keys. NULL: "stint:" */
};

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

/*
 * Loads the rules again, with this store instead of every store that they name, and as the default.
 * False: an error has been reported.
 */
static bool explain_store_load(const struct rules_args *args, struct rules_loaded *loaded)
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

/* NULL is fine */
static void explain_store_close(struct explain_store *store)
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

/* STINT_E_GONE: it cannot be queried. */
static int explain_store_open(struct explain_store **store,
                              const struct explain_store_options *options,
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
        return memcached_key_write(&short_key, prefix, item, stores_digest, NULL)
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

/*
 * Fills the request, peeks, and finds the keys of the states that were peeked. STINT_E_GONE: the
 * store did not answer.
 */
static int explain_store_ask(struct explain_store *store, struct evaluation *evaluation,
                             const struct evaluation_ask *ask, struct stint_decision *decision,
                             struct stint_error *error)
{
    int code = peek(store, evaluation, ask, decision, error);
    return code != 0 ? code : look(store, evaluation, error);
}

/* ---- The command ----------------------------------------------------------------------------- */

#define DESCRIPTORS_NEXT "," /* the word between two descriptors */

struct explain_options {
    struct rules_args rules;
    struct store_given store;
    const char *prefix; /* of the store's keys; NULL: the default */
    const char *state, *domain;
    uint64_t cost;
    bool json, begun; /* a descriptor was begun */
    struct descriptor_entry entries[DESCRIPTORS_MAX][ENTRIES_MAX];
    struct descriptor descriptors[DESCRIPTORS_MAX];
    size_t n_descriptors;
};

static const char doc[] =
    "Prints which rules a request matches, the state of each, and which would deny; "
    "charges nothing. A request has one or more descriptors, each a list of KEY=VALUE, "
    "with a word `,` between two of them.\v    stint rules explain --rules limits.yaml "
    "api ip=203.0.113.9 , user=42\n\n"
    "Of a --state FILE a copy is made in $TMPDIR, and read: a server may continue to use "
    "it.\n\n"
    "With --store URL it also prints the name of each rule's key there, quoted for "
    "redis-cli, the server that has it, its content and its state.\n\n"
    "Exit codes: 0 it would be allowed, 3 denied, 1 bad input, 2 bad usage.";

/* ---- The command line ------------------------------------------------------------------------ */

static const struct args_option options_known[] = {
    {"state", "FILE", 2, "Table with the states (default: all unused)",
     ARGS_TEXT(struct explain_options, state)},
    {"prefix", "TEXT", 2, "With --store: prefix of its keys, as in servers (default stint:)",
     ARGS_TEXT(struct explain_options, prefix)},
    {"cost", "N", 2, "Units of the request (default 1)",
     ARGS_NUMBER(struct explain_options, cost, UINT32_MAX)},
    {"json", NULL, 3, "The same as one JSON object", ARGS_FLAG(struct explain_options, json)},
    {0},
};

static void add_word(struct argp_state *state, void *input, char *word)
{
    struct explain_options *options = input;
    if (options->domain == NULL) {
        options->domain = word;
        return;
    }
    if (strcmp(word, DESCRIPTORS_NEXT) == 0) {
        if (!options->begun)
            argp_error(state, "expected KEY=VALUE before `%s`", DESCRIPTORS_NEXT);
        options->begun = false;
        return;
    }
    if (!options->begun && options->n_descriptors == DESCRIPTORS_MAX)
        argp_error(state, "a request has at most %d descriptors", DESCRIPTORS_MAX);
    if (!options->begun) {
        size_t i = options->n_descriptors++;
        options->descriptors[i].entries = options->entries[i];
        options->begun = true;
    }
    struct descriptor *descriptor = &options->descriptors[options->n_descriptors - 1];
    if (descriptor->n_entries == ENTRIES_MAX)
        argp_error(state, "a descriptor has at most %d entries", ENTRIES_MAX);
    const char *equals = strchr(word, '=');
    if (equals == word)
        argp_error(state, "expected KEY=VALUE, not '%s'", word);
    size_t key_len = equals != NULL ? (size_t)(equals - word) : strlen(word);
    options->entries[options->n_descriptors - 1][descriptor->n_entries++] =
        (struct descriptor_entry){span_of(word, key_len),
                                  span_of_text(equals != NULL ? equals + 1 : "")};
}

static void check(struct argp_state *state, void *input)
{
    const struct explain_options *options = input;
    if (options->rules.n_paths == 0)
        argp_error(state, "expected --rules PATH");
    if (options->domain == NULL || options->n_descriptors == 0)
        argp_error(state, "expected DOMAIN KEY=VALUE, for example: api ip=203.0.113.9");
    if (!options->begun)
        argp_error(state, "expected KEY=VALUE after `%s`", DESCRIPTORS_NEXT);
    if (options->state != NULL && options->store.text != NULL)
        argp_error(state, "states are in --state or in --store, not in both");
    if (options->prefix != NULL && options->store.text == NULL)
        argp_error(state, "--prefix is of the keys of --store");
}

static void read_options(struct explain_options *options, int argc, char **argv)
{
    static const struct args_command command = {
        .set = {options_known, .word = add_word, .end = check},
        .children = {{&rules_given_set, offsetof(struct explain_options, rules), NULL, 0},
                     {&store_given_set, offsetof(struct explain_options, store), NULL, 0}},
        .arguments = "DOMAIN KEY=VALUE... [, KEY=VALUE...]",
        .doc = doc,
    };
    options->cost = 1;
    args_parse(&command, argc, argv, options);
}

/* ---- The table ------------------------------------------------------------------------------- */

static void widen(struct stint_table_options *options, const struct stint_quota *quota)
{
    size_t size = stint_state_size(quota);
    if (size > 16)
        options->wide_size = (uint32_t)max_u64(options->wide_size, size);
}

/* A table of unused states, with capacity for one request under any of the rules. */
static int open_unused(struct stint_table **table, const struct rules *rules,
                       struct stint_error *error)
{
    struct stint_table_options options = {
        .keys = 256, .keys16 = 256, .tickets = 1, .quotas = 256, .blocks = 64, .pools = 1};
    for (size_t i = 0; i < rules_count(rules); i++) {
        const struct rule *rule = rules_at(rules, i);
        if (!rule->unlimited)
            widen(&options, &rule->quota);
        if (rule->has_shadow)
            widen(&options, &rule->shadow);
    }
    options.keys_wide = options.wide_size > 0 ? 64 : 0;
    return stint_table_open(table, &options, error);
}

/* Opens a copy, and unlinks it at once: it is removed with the last process that has it open. */
static int open_copy(struct stint_table **table, const struct stint_table *original,
                     struct stint_error *error)
{
    char path[4096];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof(path), "%s/stint-explain-%ld",
             folder != NULL && folder[0] != '\0' ? folder : "/tmp", (long)getpid());
    const struct stint_table_options copy = {
        .path = path, .must_exist = true, .clock = STINT_CLOCK_REAL};
    struct stint_table_options virtual_copy = copy;
    virtual_copy.clock = STINT_CLOCK_VIRTUAL;
    struct stint_table_info info;
    stint_table_info(original, stint_now(original), &info);
    int code = stint_table_snapshot(original, path, error);
    if (code != 0)
        return code;
    code =
        stint_table_open(table, info.clock == STINT_CLOCK_VIRTUAL ? &virtual_copy : &copy, error);
    unlink(path);
    return code;
}

static int open_state(struct stint_table **table, const char *path, uint64_t *now_ns,
                      struct stint_error *error)
{
    struct stint_table *original;
    const struct stint_table_options options = {
        .path = path, .must_exist = true, .read_only = true};
    int code = stint_table_open(&original, &options, error);
    if (code != 0)
        return code;
    *now_ns = stint_now(original);
    code = open_copy(table, original, error);
    stint_table_close(original);
    return code;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static int print_all(const struct explain_options *options, const struct rules *rules,
                     const struct evaluation *evaluation, const struct explained_key *keys,
                     const struct stint_decision *decision)
{
    const struct explained explained = {
        .domain = options->domain,
        .has_domain = rules_has_domain(rules, span_of_text(options->domain)),
        .descriptors = options->descriptors,
        .evaluation = evaluation,
        .keys = keys,
        .decision = *decision,
    };
    if (rules_explain_print(&explained, options->json) != 0)
        return CMD_BAD_INPUT;
    return decision->outcome == STINT_ALLOW ? CMD_DONE : CMD_DENIED;
}

static struct evaluation_ask ask_of(const struct explain_options *options,
                                    const struct rules *rules)
{
    return (struct evaluation_ask){.rules = rules,
                                   .domain = span_of_text(options->domain),
                                   .descriptors = options->descriptors,
                                   .n_descriptors = options->n_descriptors,
                                   .cost = (uint32_t)options->cost};
}

static int explain_table(const struct explain_options *options, const struct rules *rules,
                         struct evaluation *evaluation, uint64_t now_ns, struct stint_error *error)
{
    const struct evaluation_ask ask = ask_of(options, rules);
    evaluation_begin(evaluation, now_ns);
    if (evaluation_add_descriptors(evaluation, &ask, error) != 0)
        return CMD_BAD_INPUT;
    struct stint_decision decision = evaluation_peek(evaluation);
    return print_all(options, rules, evaluation, NULL, &decision);
}

static int explain_store(const struct explain_options *options, const struct rules *rules,
                         struct evaluation *evaluation, struct stint_error *error)
{
    struct explain_store *store = NULL;
    const struct explain_store_options opened = {&options->store, options->prefix};
    const struct evaluation_ask ask = ask_of(options, rules);
    struct stint_decision decision = {0};
    int code = explain_store_open(&store, &opened, error);
    if (code == 0)
        code = explain_store_ask(store, evaluation, &ask, &decision, error);
    code =
        code != 0 ? CMD_BAD_INPUT : print_all(options, rules, evaluation, store->keys, &decision);
    explain_store_close(store);
    return code;
}

static int explain(const struct explain_options *options, const struct rules *rules,
                   struct stint_table *table, uint64_t now_ns)
{
    struct stint_error error = {0};
    struct evaluation *evaluation = calloc(1, sizeof(*evaluation));
    if (evaluation == NULL || evaluation_init(evaluation, table, &error) != 0) {
        print_message("out of memory");
        free(evaluation);
        return CMD_BAD_INPUT;
    }
    int code = options->store.text != NULL
                   ? explain_store(options, rules, evaluation, &error)
                   : explain_table(options, rules, evaluation, now_ns, &error);
    if (error.code != 0)
        print_message("%s", error.message);
    evaluation_deinit(evaluation);
    free(evaluation);
    return code;
}

static int explain_with(const struct explain_options *options, const struct rules *rules)
{
    struct stint_error error;
    struct stint_table *table = NULL;
    uint64_t now_ns = 0;
    int code = options->state != NULL ? open_state(&table, options->state, &now_ns, &error)
                                      : open_unused(&table, rules, &error);
    if (code != 0) {
        print_message("%s", error.message);
        return CMD_BAD_INPUT;
    }
    if (options->state == NULL)
        now_ns = stint_now(table);
    code = explain(options, rules, table, now_ns);
    stint_table_close(table);
    return code;
}

static bool load(const struct explain_options *options, struct rules_loaded *loaded)
{
    return options->store.text != NULL ? explain_store_load(&options->rules, loaded)
                                       : rules_given_load(&options->rules, loaded);
}

int rules_explain_main(int argc, char **argv)
{
    struct rules_loaded loaded;
    struct explain_options *options = calloc(1, sizeof(*options));
    if (options == NULL) {
        print_message("out of memory");
        return CMD_BAD_INPUT;
    }
    read_options(options, argc, argv);
    int code = CMD_BAD_INPUT;
    if (load(options, &loaded)) {
        code = explain_with(options, loaded.rules);
        rules_loaded_free(&loaded);
    }
    rules_args_free(&options->rules);
    free(options);
    return code;
}
