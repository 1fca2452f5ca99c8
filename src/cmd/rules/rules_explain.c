/* SPDX-License-Identifier: MIT */
/*
 * `stint rules explain`: which rules a request would match, the state of each, and which would
 * deny. A --state file is read in a copy, so that nothing in it is ever charged. With --store the
 * request is peeked as by a server, with the scripts; the content of its keys is read in addition
 * from the server that has them. Neither writes.
 */
#define _GNU_SOURCE
#include "algorithm/label.h"
#include "algorithm/spec.h"
#include "backend/redis/redis_backend.h"
#include "backend/script/script.h"
#include "backend/store_key.h"
#include "base/ns.h"
#include "cmd/lib/args.h"
#include "cmd/lib/cmd.h"
#include "cmd/lib/file_at.h"
#include "cmd/lib/print.h"
#include "cmd/rules/rules_files.h"
#include "cmd/store/shared_session.h"
#include "cmd/store/store.h"
#include "decide/pending.h"
#include "net/upstream/backends.h"
#include "table/handle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES_MAX 4096 /* of a state that are shown */
#define NO_TTL (-1)

/* The keys that one rule may have. */
enum { KEY_STATE, KEY_SHADOW, KEY_LEASES, KEYS };

/* A state in a shared store. */
struct explained_key {
    char *name;                    /* NULL: there is none */
    char node[STORE_ADDRESS_SIZE]; /* the server that has it */
    int slot;                      /* in a cluster; below 0: no cluster */
    bool is_looked_at, exists;
    uint8_t *bytes;
    size_t len, n_shown;
    int64_t ttl_ms; /* NO_TTL; below that: just expired */
    char fault[200];
};

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

struct explained {
    struct explain_options options;
    struct rules_loaded loaded;
    struct stint_table *table;
    uint64_t now_ns; /* of the table */
    struct evaluation evaluation;
    struct stint_decision decision; /* of the request as a whole */
    /* With --store. */
    struct shared_session *session; /* NULL: no store is queried */
    struct store_nodes *nodes;      /* NULL: memcached, which has no listing of keys */
    struct backend *all[RULES_STORES_MAX];
    char *prefix; /* of its keys, escaped */
    struct explained_key keys[KEYS * TARGETS_MAX];
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
static bool load_for_store(const struct rules_args *args, struct rules_loaded *loaded)
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

static bool load(struct explained *explained)
{
    return explained->options.store.text != NULL
               ? load_for_store(&explained->options.rules, &explained->loaded)
               : rules_given_load(&explained->options.rules, &explained->loaded);
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

/* Opens a copy without a name, so that none is left behind. */
static int open_copy(struct stint_table **table, const struct stint_table *original,
                     struct stint_error *error)
{
    char path[32];
    struct stint_table_info info;
    stint_table_info(original, stint_now(original), &info);
    int fd = file_unnamed("/tmp");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const struct stint_table_options copy = {.path = path, .must_exist = true, .clock = info.clock};
    int code = fd >= 0 && table_write(original, fd) == 0
                   ? stint_table_open(table, &copy, error)
                   : err_set(error, STINT_E_SYSTEM, "cannot copy the table to a file in %s: %s",
                             folder_temporary("/tmp"), strerror(errno));
    if (fd >= 0)
        close(fd);
    return code;
}

/* Of --state: its time is that of the file. */
static int open_table(struct explained *explained, struct stint_error *error)
{
    struct stint_table *original;
    const struct stint_table_options options = {
        .path = explained->options.state, .must_exist = true, .read_only = true};
    int code = options.path == NULL ? open_unused(&explained->table, explained->loaded.rules, error)
                                    : stint_table_open(&original, &options, error);
    if (code != 0)
        return code;
    explained->now_ns = stint_now(options.path == NULL ? explained->table : original);
    if (options.path != NULL) {
        code = open_copy(&explained->table, original, error);
        stint_table_close(original);
    }
    return code != 0 ? code : evaluation_init(&explained->evaluation, explained->table, error);
}

/* ---- The store ------------------------------------------------------------------------------- */

/* NULL: no memory. */
static char *escape_prefix(const char *prefix)
{
    struct span text = span_of_text(prefix != NULL ? prefix : REDIS_STORE_PREFIX_DEFAULT);
    size_t len = store_key_escape(text, NULL, 0);
    char *escaped = malloc(len + 1);
    if (escaped == NULL)
        return NULL;
    store_key_escape(text, escaped, len);
    escaped[len] = '\0';
    return escaped;
}

/* STINT_E_GONE: it cannot be queried. */
static int open_store(struct explained *explained, struct stint_error *error)
{
    const struct store_given *given = &explained->options.store;
    const char *prefix = explained->options.prefix;
    struct stint_error why;
    int code = 0;
    explained->prefix = escape_prefix(prefix);
    if (explained->prefix == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the prefix of keys");
    if (given->url.kind != STORE_MEMCACHED)
        code = store_nodes_open(&explained->nodes, given, &why);
    if (code != 0)
        return err_set(error, code, "--store: %s%s", why.message,
                       code == STINT_E_GONE ? "; `stint store check URL` tests it" : "");
    code = shared_session_open(&explained->session, given, prefix, SHARED_SESSION_REAL_TIME, error);
    for (size_t i = 0; code == 0 && i < RULES_STORES_MAX; i++)
        explained->all[i] = &explained->session->blocking;
    return code;
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

/* Requests the state of this one again: by now it may be known why there was no answer. */
static int find_fault(struct explained *explained, const struct target *target,
                      struct stint_error *error)
{
    struct backend *blocking = &explained->session->blocking;
    const struct backend_item item = item_of(target, false);
    uint64_t now_ns = uv_hrtime();
    const struct backend_request ask = {.verb = REQUEST_PEEK,
                                        .items = &item,
                                        .n_items = 1,
                                        .now_ns = now_ns,
                                        .deadline_ns = now_ns + explained->session->timeout_ns};
    struct stint_decision each;
    struct backend_op op = {.answer.each = &each};
    blocking->ops->ask(blocking, &ask, &op);
    const char *why = op.answer.error != NULL ? op.answer.error : explained->session->why;
    return err_set(error, STINT_E_GONE, "--store: %s; `stint store check URL` tests it",
                   why != NULL ? why : "it did not answer in time");
}

/* The fallback of a store that fails is no answer here. */
static int check_answers(struct explained *explained, struct stint_error *error)
{
    const struct evaluation *evaluation = &explained->evaluation;
    if (evaluation->fault != 0)
        return err_set(error, STINT_E_GONE, "--store: %s",
                       evaluation->fault_message != NULL ? evaluation->fault_message
                                                         : "it does not answer");
    for (size_t i = 0; i < evaluation->n_targets; i++)
        if (evaluation->targets[i].fallback != FALLBACK_NONE)
            return find_fault(explained, &evaluation->targets[i], error);
    return 0;
}

/* ---- The request ----------------------------------------------------------------------------- */

static int peek_store(struct explained *explained, struct stint_error *error)
{
    struct evaluation *evaluation = &explained->evaluation;
    struct pending_requests pending_requests = {0};
    evaluation->pending =
        pending_new(&pending_requests, evaluation->now_ns, explained->session->timeout_ns);
    if (evaluation->pending == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory to ask the store");
    explained->decision = evaluation_peek(evaluation);
    int code = check_answers(explained, error);
    pending_free(evaluation->pending);
    evaluation->pending = NULL;
    pending_requests_deinit(&pending_requests);
    return code;
}

static int peek(struct explained *explained, struct stint_error *error)
{
    const struct explain_options *options = &explained->options;
    struct evaluation *evaluation = &explained->evaluation;
    const struct evaluation_ask ask = {.rules = explained->loaded.rules,
                                       .domain = span_of_text(options->domain),
                                       .descriptors = options->descriptors,
                                       .n_descriptors = options->n_descriptors,
                                       .cost = (uint32_t)options->cost};
    const struct evaluation_stores stores = {.stores = explained->all,
                                             .n_stores = RULES_STORES_MAX,
                                             .timeout_ns = options->store.timeout_ns};
    uint64_t now_ns = explained->session != NULL ? uv_hrtime() : explained->now_ns;
    if (explained->session != NULL)
        evaluation->stores = &stores;
    evaluation_begin(evaluation, now_ns);
    int code = evaluation_add_descriptors(evaluation, &ask, error);
    if (code == 0 && explained->session == NULL) {
        explained->decision = evaluation_peek(evaluation);
    } else if (code == 0) {
        evaluation->now_ns = evaluation->at_ns = now_ns;
        code = peek_store(explained, error);
    }
    evaluation->stores = NULL;
    return code;
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
    size_t len = reply->text.len < BYTES_MAX ? reply->text.len : BYTES_MAX;
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

static int look_at(struct store_nodes *nodes, struct explained_key *key, struct stint_error *error)
{
    const char *address;
    if (nodes == NULL)
        return 0;
    int code = store_nodes_find(nodes, span_of_text(key->name), &address, &key->slot, error);
    if (code != 0)
        return code;
    snprintf(key->node, sizeof(key->node), "%s", address);
    key->is_looked_at = true;
    code = store_nodes_ask(nodes, (const char *[]){"GET", key->name, NULL}, keep_bytes, key, error);
    if (code == 0 && key->exists)
        code =
            store_nodes_ask(nodes, (const char *[]){"PTTL", key->name, NULL}, keep_ttl, key, error);
    return code;
}

/* With `more` appended; NULL: no memory. */
static char *name_of(const struct explained *explained, const struct backend_item *item,
                     const char *more)
{
    struct span prefix = span_of_text(explained->prefix);
    struct memcached_key short_key;
    size_t tag_len;
    if (explained->options.store.url.kind == STORE_MEMCACHED)
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
static int look_at_key(struct explained *explained, const struct target *target, size_t which,
                       struct explained_key *key, struct stint_error *error)
{
    const struct backend_item item = item_of(target, which == KEY_SHADOW);
    const char *more = which == KEY_LEASES ? SCRIPT_LEASES_SUFFIX : "";
    key->name = name_of(explained, &item, more);
    if (key->name == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for the name of a key");
    key->slot = STORE_NODE_NO_SLOT;
    return look_at(explained->nodes, key, error);
}

static int look(struct explained *explained, struct stint_error *error)
{
    const struct evaluation *evaluation = &explained->evaluation;
    int code = 0;
    for (size_t i = 0; i < evaluation->n_targets && code == 0; i++) {
        const struct target *target = &evaluation->targets[i];
        if (target->part == TARGET_FREE || target->store == 0)
            continue;
        const bool has[KEYS] = {true, target->rule->has_shadow,
                                target->rule->store.lease == RULE_LEASE_STRICT};
        for (size_t which = 0; which < KEYS && code == 0; which++)
            if (has[which])
                code = look_at_key(explained, target, which, &explained->keys[KEYS * i + which],
                                   error);
    }
    return code;
}

/* ---- The content of a key in a shared store -------------------------------------------------- */

#define LEASES_FIRST 0x81
#define LEASE_LEN 11 /* its end, and its units in the last four */

static void print_ttl(const struct explained_key *key)
{
    struct formatted formatted;
    if (key->ttl_ms >= 0)
        printf("%s s", format_wait(&formatted, (uint64_t)key->ttl_ms * 1000000));
    else
        fputs(key->ttl_ms == NO_TTL ? "none" : "it has just ended", stdout);
}

/* docs/store-scripts.md describes their format. */
static void print_leases(const struct explained_key *key)
{
    uint64_t units = 0;
    size_t n = 0;
    for (size_t at = 1; at + LEASE_LEN <= key->n_shown; at += LEASE_LEN, n++)
        for (uint64_t i = 0, number = 0; i < 4; i++) {
            number = number << 8 | key->bytes[at + LEASE_LEN - 4 + i];
            units += i == 3 ? number : 0;
        }
    printf("   units   %" PRIu64 " in %zu lease%s\n", units, n, n == 1 ? "" : "s");
}

/* Names of keys contain no quotes, but braces, which a shell would expand. */
static void print_key(const struct explained_key *key, const char *title)
{
    printf("   %-7s '", title);
    print_escaped(stdout, span_of_text(key->name));
    fputs("'\n", stdout);
    if (!key->is_looked_at)
        return;
    printf("   node    %s", key->node);
    if (key->slot >= 0)
        printf(", slot %d", key->slot);
    putchar('\n');
    if (key->fault[0] != '\0') {
        print_between("   bytes   cannot be read: ", span_of_text(key->fault), "\n");
        return;
    }
    if (!key->exists) {
        puts("   bytes   none");
        return;
    }
    printf("   bytes   %zu: ", key->len);
    for (size_t i = 0; i < key->n_shown; i++)
        printf("%02x", key->bytes[i]);
    puts(key->n_shown < key->len ? "..." : "");
    if (key->n_shown > 0 && key->bytes[0] == LEASES_FIRST)
        print_leases(key);
    fputs("   expiry  ", stdout);
    print_ttl(key);
    putchar('\n');
}

static json_t *bytes_json(const struct explained_key *key)
{
    char text[2 * BYTES_MAX + 1];
    for (size_t i = 0; i < key->n_shown; i++)
        snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
    text[2 * key->n_shown] = '\0';
    return key->exists ? json_string(text) : json_null();
}

static json_t *key_json(const struct explained_key *key)
{
    if (key->name == NULL)
        return json_null();
    bool is_told = key->is_looked_at;
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o}", "name", key->name, "node",
        is_told ? json_text_key(span_of_text(key->node)) : json_null(), "slot",
        key->slot >= 0 ? json_integer(key->slot) : json_null(), "bytes", bytes_json(key), "ttl_ms",
        key->exists && key->ttl_ms >= 0 ? json_integer((json_int_t)key->ttl_ms) : json_null(),
        "fault", key->fault[0] != '\0' ? json_text_key(span_of_text(key->fault)) : json_null());
}

/* ---- The output ------------------------------------------------------------------------------ */

/* ---- Text ---- */

static void print_descriptor(const struct descriptor *descriptor)
{
    for (size_t i = 0; i < descriptor->n_entries; i++) {
        print_between(" ", descriptor->entries[i].key, "=");
        print_escaped(stdout, descriptor->entries[i].value);
    }
    putchar('\n');
}

/* is_asked: the store was queried. */
static void print_rule(const struct target *target, bool is_asked)
{
    char spec[SPEC_SIZE];
    print_between("   rule    ", span_of_text(target->rule->path), "  (");
    print_escaped(stdout, span_of_text(target->rule->file));
    printf(":%u)\n", (unsigned)target->rule->line);
    if (target->quota == NULL || target->is_replaced)
        return;
    stint_quota_format(target->quota, spec, sizeof(spec));
    printf("   limit   %s%s\n", spec, target->has_own_quota ? "  (of this key's own)" : "");
    if (target->rule->store.label == NULL)
        return;
    print_between("   store   ", span_of_text(target->rule->store.label), "");
    puts(is_asked ? "" : ", which was not asked");
}

/* The result for a caller if this were the only one. */
static void print_wait(uint64_t wait_ns)
{
    struct formatted formatted;
    if (wait_ns == STINT_NEVER_NS) {
        fputs("never fits", stdout);
        return;
    }
    printf("denies for %s s", format_wait(&formatted, wait_ns));
    if (wait_ns >= NS_PER_HOUR)
        printf(" (%s)", format_duration(&formatted, wait_ns));
}

/* For a calendar budget that was used: when the next one begins. */
static void print_next(const struct target *target)
{
    struct formatted formatted;
    const struct stint_decision *decision = &target->decision;
    bool is_calendar =
        target->quota->algorithm == STINT_FIXED_WINDOW && target->quota->align >= STINT_ALIGN_DAY;
    if (is_calendar && decision->reset_after_ns > 0)
        printf("; all of it again in %s", format_duration(&formatted, decision->reset_after_ns));
}

/* Why a wait may be longer than the period of the limit. */
static void print_slack(const struct target *target)
{
    char text[256] = "";
    struct buf buf = buf_of(text, sizeof(text));
    label_wait(&buf, target->quota);
    if (text[0] != '\0' && target->decision.retry_after_ns != STINT_NEVER_NS)
        printf("   slack   %s\n", text);
}

static void print_state(const struct target *target)
{
    const struct stint_decision *decision = &target->decision;
    struct formatted left, limit;
    fputs("   state   ", stdout);
    if (target->over && target->part == TARGET_SHADOW)
        fputs("over, and allowed: shadow_mode", stdout);
    else if (target->over)
        print_wait(decision->retry_after_ns);
    else {
        printf("allows; leaves %s of %s", format_count(&left, decision->remaining),
               format_count(&limit, decision->limit));
        print_next(target);
    }
    printf("%s%s\n", target->banned ? " (its key is blocked)" : "",
           target->excluded ? " (quota_mode: the request does without it)" : "");
    if (target->over)
        print_slack(target);
}

static void print_target(const struct target *target, const struct explained_key *keys)
{
    struct formatted formatted;
    if (target->rule == NULL) {
        puts("   no rule: allowed");
        return;
    }
    print_rule(target, keys != NULL);
    if (target->is_replaced)
        puts("   state   replaced by another rule of this request");
    else if (target->quota == NULL)
        puts("   state   unlimited");
    else
        print_state(target);
    if (keys != NULL && keys[KEY_STATE].name != NULL) {
        printf("   reset   as never used after %s s\n",
               format_wait(&formatted, target->decision.reset_after_ns));
        print_key(&keys[KEY_STATE], "key");
        if (keys[KEY_LEASES].name != NULL)
            print_key(&keys[KEY_LEASES], "leases");
    }
    if (target->part == TARGET_FREE || !target->rule->has_shadow)
        return;
    char spec[SPEC_SIZE];
    stint_quota_format(&target->rule->shadow, spec, sizeof(spec));
    printf("   shadow  %s: ", spec);
    if (target->shadow_over)
        print_wait(target->shadow_retry_after_ns);
    else
        fputs("allows", stdout);
    putchar('\n');
    if (keys != NULL && keys[KEY_SHADOW].name != NULL)
        print_key(&keys[KEY_SHADOW], "its key");
}

static void print_whole(const struct explained *explained)
{
    const struct stint_decision *decision = &explained->decision;
    if (decision->outcome == STINT_ALLOW) {
        puts("allowed");
        return;
    }
    printf("denied by %u: ", decision->binding + 1u);
    print_wait(decision->retry_after_ns);
    putchar('\n');
}

static void print_text(const struct explained *explained)
{
    struct span domain = span_of_text(explained->options.domain);
    bool has_domain = rules_has_domain(explained->loaded.rules, domain);
    print_between("domain ", span_of_text(explained->options.domain), "");
    puts(has_domain ? "" : ": no file of rules has it");
    for (size_t i = 0; i < explained->evaluation.n_targets; i++) {
        printf("%zu.", i + 1);
        print_descriptor(&explained->options.descriptors[i]);
        print_target(&explained->evaluation.targets[i],
                     explained->session != NULL ? &explained->keys[KEYS * i] : NULL);
    }
    print_whole(explained);
}

/* ---- JSON ---- */

static json_t *entries_json(const struct descriptor *descriptor)
{
    json_t *list = json_array();
    for (size_t i = 0; i < descriptor->n_entries; i++)
        json_array_append_new(list, json_pack("{s:o, s:o}", "key",
                                              json_text_key(descriptor->entries[i].key), "value",
                                              json_text_key(descriptor->entries[i].value)));
    return list;
}

static json_t *quota_json(const struct stint_quota *quota)
{
    char spec[SPEC_SIZE];
    stint_quota_format(quota, spec, sizeof(spec));
    return json_string(spec);
}

static json_t *rule_json(const struct target *target)
{
    if (target->rule == NULL)
        return json_null();
    const char *store = target->rule->store.label;
    return json_pack("{s:o, s:o, s:I, s:b, s:b, s:o}", "path",
                     json_text_key(span_of_text(target->rule->path)), "file",
                     json_text_key(span_of_text(target->rule->file)), "line",
                     (json_int_t)target->rule->line, "shadow_mode", target->part == TARGET_SHADOW,
                     "quota_mode", target->is_quota_mode, "store",
                     store != NULL ? json_text_key(span_of_text(store)) : json_null());
}

static json_t *shadow_json(const struct target *target)
{
    if (target->rule == NULL || !target->rule->has_shadow || target->part == TARGET_FREE)
        return json_null();
    return json_pack("{s:o, s:b, s:o}", "quota", quota_json(&target->rule->shadow), "over",
                     target->shadow_over, "retry_after_ns",
                     json_text_ns(target->shadow_retry_after_ns));
}

static json_t *target_json(const struct explained *explained, size_t i)
{
    const struct target *target = &explained->evaluation.targets[i];
    const struct stint_decision *decision = &target->decision;
    bool is_limited = target->part != TARGET_FREE;
    json_t *object =
        json_pack("{s:o, s:o, s:o, s:b, s:b, s:b, s:s, s:b, s:I, s:I, s:o, s:o, s:o}", "entries",
                  entries_json(&explained->options.descriptors[i]), "rule", rule_json(target),
                  "quota", is_limited ? quota_json(target->quota) : json_null(), "own_quota",
                  target->has_own_quota, "replaced", target->is_replaced, "blocked", target->banned,
                  "outcome", outcome_names[decision->outcome], "over", target->over, "limit",
                  (json_int_t)decision->limit, "remaining", (json_int_t)decision->remaining,
                  "retry_after_ns", json_text_ns(decision->retry_after_ns), "reset_after_ns",
                  json_text_ns(decision->reset_after_ns), "shadow", shadow_json(target));
    if (object != NULL && explained->session != NULL) {
        const struct explained_key *keys = &explained->keys[KEYS * i];
        json_object_set_new(object, "key", key_json(&keys[KEY_STATE]));
        json_object_set_new(object, "shadow_key", key_json(&keys[KEY_SHADOW]));
        json_object_set_new(object, "leases_key", key_json(&keys[KEY_LEASES]));
    }
    return object;
}

static int print_json(const struct explained *explained)
{
    const struct stint_decision *decision = &explained->decision;
    json_t *list = json_array();
    for (size_t i = 0; i < explained->evaluation.n_targets; i++)
        json_array_append_new(list, target_json(explained, i));
    return json_text_print(json_pack("{s:o, s:s, s:I, s:o, s:o}", "domain",
                                     json_text_key(span_of_text(explained->options.domain)),
                                     "outcome", outcome_names[decision->outcome], "binding",
                                     (json_int_t)decision->binding, "retry_after_ns",
                                     json_text_ns(decision->retry_after_ns), "descriptors", list),
                           true);
}

/* ---- The command ----------------------------------------------------------------------------- */

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

static int explain(struct explained *explained)
{
    bool has_store = explained->options.store.text != NULL;
    struct stint_error error;
    int code = open_table(explained, &error), failed = 0;
    if (code == 0 && has_store)
        code = open_store(explained, &error);
    if (code == 0)
        code = peek(explained, &error);
    if (code == 0 && has_store)
        code = look(explained, &error);
    if (code != 0)
        print_message("%s", error.message);
    else if (explained->options.json)
        failed = print_json(explained);
    else
        print_text(explained);
    if (code != 0 || failed != 0)
        return CMD_BAD_INPUT;
    return explained->decision.outcome == STINT_ALLOW ? CMD_DONE : CMD_DENIED;
}

int rules_explain_main(int argc, char **argv)
{
    int code = CMD_BAD_INPUT;
    struct explained *explained = calloc(1, sizeof(*explained));
    if (explained == NULL) {
        print_message("out of memory");
        return code;
    }
    read_options(&explained->options, argc, argv);
    if (load(explained)) {
        code = explain(explained);
        rules_loaded_free(&explained->loaded);
    }
    for (size_t i = 0; i < KEYS * TARGETS_MAX; i++) {
        free(explained->keys[i].name);
        free(explained->keys[i].bytes);
    }
    store_nodes_close(explained->nodes);
    shared_session_close(explained->session);
    free(explained->prefix);
    evaluation_deinit(&explained->evaluation);
    stint_table_close(explained->table);
    rules_args_free(&explained->options.rules);
    free(explained);
    return code;
}

/* ---- stint rules ----------------------------------------------------------------------------- */

const struct cmd rules_commands[] = {
    {"check", "check files of rules; print every error with its line and column",
     .run = rules_check_main},
    {"show", "print the rules as parsed, with their bounds", .run = rules_show_main},
    {"explain", "which rules a request matches, and which would deny it",
     .run = rules_explain_main},
    {.name = NULL},
};
