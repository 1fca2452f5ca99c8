/* SPDX-License-Identifier: MIT */
/*
 * The words of a pool are made once: after the few words of a request come the same ones for every
 * request. There are two orders of keys, by turns and by age, and each key alone.
 */
#include "backend/redis/pool_backend.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_WORDS 10 /* EVALSHA hash 1 KEY verb now cost at order probe */
#define GROUP_WORDS_MAX (1 + STINT_POOL_QUOTAS_MAX * SCRIPT_QUOTA_WORDS)

/* Keys that have the same quotas: their number, and six words for each. */
struct group {
    struct span words[GROUP_WORDS_MAX];
    size_t n_words;
    uint64_t params[STINT_POOL_QUOTAS_MAX][2];
    size_t n_quotas;
    char digits[STINT_POOL_QUOTAS_MAX][SCRIPT_QUOTA_WORDS * SCRIPT_DIGITS_MAX];
};

struct key {
    char *name;
    uint32_t weight, group; /* group: from 0 */
};

/* One order of all keys. */
struct view {
    const struct key **keys;
    char *weights, *groups; /* numbers, with commas; "" where all are 1 */
};

struct pool_backend {
    struct key *keys; /* by age */
    size_t n_keys;
    struct group *groups;
    size_t n_groups;
    struct view by_turn, by_age;
    uint8_t order;
    char n_groups_word[SCRIPT_DIGITS_MAX];
    size_t key_len;
    char *key;
};

/* ---- Making ---------------------------------------------------------------------------------- */

static int compare_turns(const void *a, const void *b)
{
    const struct key *left = *(const struct key *const *)a, *right = *(const struct key *const *)b;
    if (left->weight != right->weight)
        return left->weight > right->weight ? -1 : 1;
    return strcmp(left->name, right->name);
}

static bool is_group_of(const struct group *group, const struct stint_pool_key *key)
{
    if (group->n_quotas != key->n_quotas)
        return false;
    for (size_t i = 0; i < key->n_quotas; i++)
        if (memcmp(group->params[i], key->quotas[i].derived.params_hash,
                   sizeof(group->params[i])) != 0)
            return false;
    return true;
}

static void fill_group(struct group *group, const struct stint_pool_key *key)
{
    static const char *const counts[] = {"0", "1", "2", "3", "4"};
    group->n_quotas = key->n_quotas;
    group->words[group->n_words++] = span_of_text(counts[key->n_quotas]);
    for (size_t i = 0; i < key->n_quotas; i++) {
        memcpy(group->params[i], key->quotas[i].derived.params_hash, sizeof(group->params[i]));
        script_quota_words(&key->quotas[i], &group->words[group->n_words], group->digits[i]);
        group->n_words += SCRIPT_QUOTA_WORDS;
    }
}

static uint32_t group_of(struct pool_backend *store, const struct stint_pool_key *key)
{
    for (size_t i = 0; i < store->n_groups; i++)
        if (is_group_of(&store->groups[i], key))
            return (uint32_t)i;
    fill_group(&store->groups[store->n_groups], key);
    return (uint32_t)store->n_groups++;
}

static int check_key(const struct stint_pool_key *key, struct stint_error *error)
{
    assert(key->n_quotas >= 1 && key->n_quotas <= STINT_POOL_QUOTAS_MAX &&
           key->weight <= STINT_POOL_WEIGHT_MAX);
    for (size_t i = 0; i < key->n_quotas; i++) {
        if (key->quotas[i].algorithm == STINT_CONCURRENCY)
            return err_set(error, STINT_E_MISMATCH, "concurrency is not for the keys of a pool");
        int code = script_accepts(&key->quotas[i], error);
        if (code != 0)
            return code;
    }
    return 0;
}

static int add_keys(struct pool_backend *store, const struct pool_backend_options *options,
                    struct stint_error *error)
{
    for (size_t i = 0; i < options->n_keys; i++) {
        const struct stint_pool_key *given = &options->keys[i];
        struct key *key = &store->keys[i];
        int code = check_key(given, error);
        if (code != 0)
            return code;
        size_t name_size = strlen(given->name) + 1;
        key->name = malloc(name_size);
        if (key->name == NULL)
            return err_set(error, STINT_E_SYSTEM, "no memory for the keys of a pool");
        memcpy(key->name, given->name, name_size);
        key->weight = given->weight > 0 ? given->weight : 1;
        key->group = group_of(store, given);
        store->by_turn.keys[i] = store->by_age.keys[i] = key;
        store->n_keys++;
    }
    return 0;
}

/* Names are compared in name order, not in that of turns: weights differ. */
static int compare_names(const void *a, const void *b)
{
    const struct key *left = *(const struct key *const *)a, *right = *(const struct key *const *)b;
    return strcmp(left->name, right->name);
}

static int check_names(struct pool_backend *store, struct stint_error *error)
{
    const struct key **keys = store->by_turn.keys; /* not sorted by turns yet */
    qsort(keys, store->n_keys, sizeof(struct key *), compare_names);
    for (size_t i = 1; i < store->n_keys; i++)
        if (strcmp(keys[i - 1]->name, keys[i]->name) == 0)
            return err_set(error, STINT_E_MISMATCH, "key %s is in the pool twice", keys[i]->name);
    return 0;
}

#define NUMBER_LEN 5 /* a number up to 1,024, and a comma */

static bool write_numbers(const struct pool_backend *store, struct view *view)
{
    size_t size = NUMBER_LEN * store->n_keys + 1;
    bool even = true;
    view->weights = calloc(size, 1);
    view->groups = calloc(size, 1);
    if (view->weights == NULL || view->groups == NULL)
        return false;
    struct buf weights = buf_of(view->weights, size), groups = buf_of(view->groups, size);
    for (size_t i = 0; i < store->n_keys; i++) {
        const char *comma = i > 0 ? "," : "";
        even = even && view->keys[i]->weight == 1;
        buf_add(&weights, "%s%u", comma, view->keys[i]->weight);
        buf_add(&groups, "%s%u", comma, view->keys[i]->group + 1);
    }
    if (even)
        view->weights[0] = '\0';
    if (store->n_groups <= 1)
        view->groups[0] = '\0';
    return true;
}

static bool name_key(struct pool_backend *store, const struct pool_backend_options *options)
{
    static const char tail[] = "pool";
    size_t len = script_tag(options->prefix, options->name, NULL, 0);
    store->key = malloc(len + sizeof(tail));
    if (store->key == NULL)
        return false;
    script_tag(options->prefix, options->name, store->key, len);
    memcpy(store->key + len, tail, sizeof(tail));
    store->key_len = len + sizeof(tail) - 1;
    return true;
}

static bool allocate(struct pool_backend *store, size_t n_keys)
{
    size_t n = n_keys > 0 ? n_keys : 1;
    store->keys = calloc(n, sizeof(*store->keys));
    store->groups = calloc(n, sizeof(*store->groups));
    store->by_turn.keys = calloc(n, sizeof(struct key *));
    store->by_age.keys = calloc(n, sizeof(struct key *));
    return store->keys != NULL && store->groups != NULL && store->by_turn.keys != NULL &&
           store->by_age.keys != NULL;
}

static int fill(struct pool_backend *store, const struct pool_backend_options *options,
                struct stint_error *error)
{
    if (!allocate(store, options->n_keys))
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool of %zu keys", options->n_keys);
    int code = add_keys(store, options, error);
    if (code == 0)
        code = check_names(store, error);
    if (code != 0)
        return code;
    qsort(store->by_turn.keys, store->n_keys, sizeof(struct key *), compare_turns);
    struct buf word = buf_of(store->n_groups_word, sizeof(store->n_groups_word));
    buf_add(&word, "%zu", store->n_groups);
    if (!name_key(store, options) || !write_numbers(store, &store->by_turn) ||
        !write_numbers(store, &store->by_age))
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool of %zu keys", options->n_keys);
    return 0;
}

int pool_backend_new(struct pool_backend **store, const struct pool_backend_options *options,
                     struct stint_error *error)
{
    if (options->n_keys > POOL_STORE_KEYS_MAX)
        return err_set(error, STINT_E_RANGE, "a pool on a store has at most %d keys",
                       POOL_STORE_KEYS_MAX);
    struct pool_backend *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool");
    made->order = options->order;
    int code = fill(made, options, error);
    if (code != 0) {
        pool_backend_free(made);
        return code;
    }
    *store = made;
    return 0;
}

static void free_view(struct view *view)
{
    free(view->keys);
    free(view->weights);
    free(view->groups);
}

void pool_backend_free(struct pool_backend *store)
{
    if (store == NULL)
        return;
    for (size_t i = 0; i < store->n_keys; i++)
        free(store->keys[i].name);
    free(store->keys);
    free(store->groups);
    free_view(&store->by_turn);
    free_view(&store->by_age);
    free(store->key);
    free(store);
}

size_t pool_backend_n_keys(const struct pool_backend *store)
{
    return store->n_keys;
}

struct span pool_backend_key(const struct pool_backend *store)
{
    return span_of(store->key, store->key_len);
}

/* ---- Words ----------------------------------------------------------------------------------- */

static bool reserve(struct pool_command *command, size_t n_words)
{
    if (n_words <= command->words_max)
        return true;
    struct span *words = realloc(command->words, n_words * sizeof(*words));
    if (words == NULL)
        return false;
    command->words = words;
    command->words_max = n_words;
    return true;
}

void pool_command_deinit(struct pool_command *command)
{
    free(command->words);
    *command = (struct pool_command){0};
}

static void add(struct pool_command *command, struct span word)
{
    assert(command->n_words < command->words_max);
    command->words[command->n_words++] = word;
}

static void add_number(struct pool_command *command, unsigned place, const char *sign,
                       uint64_t number)
{
    char *digits = command->digits + (size_t)place * SCRIPT_DIGITS_MAX;
    struct buf text = buf_of(digits, SCRIPT_DIGITS_MAX);
    buf_add(&text, "%s%llu", sign, (unsigned long long)number);
    add(command, span_of(digits, text.len));
}

/* The words before the quotas. */
struct head {
    const char *verb;
    uint32_t cost;
    uint64_t at_ns; /* STINT_NEVER_NS is -1 */
    bool probe;
    struct pool_time time;
};

static void begin(struct pool_command *command, const struct pool_backend *store,
                  const struct head *head)
{
    static const char *const orders[] = {"0", "1", "2"};
    command->n_words = 0;
    command->script = &lua_script_pool;
    add(command, span_of_text("EVALSHA"));
    add(command, span_of(lua_script_pool.sha1, sizeof(lua_script_pool.sha1) - 1));
    add(command, span_of_text("1"));
    add(command, pool_backend_key(store));
    add(command, span_of_text(head->verb));
    if (head->time.is_virtual)
        add_number(command, 0, "+", head->time.now_ns / NS_PER_US);
    else
        add(command, span_of_text("0"));
    add_number(command, 1, "", head->cost);
    if (head->at_ns == STINT_NEVER_NS)
        add(command, span_of_text("-1"));
    else
        add_number(command, 2, "", head->at_ns / NS_PER_US);
    add(command, span_of_text(orders[store->order]));
    add(command, span_of_text(head->probe ? "1" : "0"));
}

static void add_group(struct pool_command *command, const struct group *group)
{
    for (size_t i = 0; i < group->n_words; i++)
        add(command, group->words[i]);
}

static bool ask_all(struct pool_command *command, const struct pool_backend *store,
                    const struct view *view, const struct head *head)
{
    size_t most = HEAD_WORDS + 3 + store->n_groups * GROUP_WORDS_MAX + store->n_keys;
    if (!reserve(command, most))
        return false;
    begin(command, store, head);
    add(command, span_of_text(view->weights));
    add(command, span_of_text(view->groups));
    add(command, span_of_text(store->n_groups_word));
    for (size_t i = 0; i < store->n_groups; i++)
        add_group(command, &store->groups[i]);
    for (size_t i = 0; i < store->n_keys; i++)
        add(command, span_of_text(view->keys[i]->name));
    return true;
}

static bool ask_key(struct pool_command *command, const struct pool_backend *store,
                    struct span name, const struct head *head)
{
    const struct key *key = NULL;
    for (size_t i = 0; i < store->n_keys && key == NULL; i++)
        if (span_equals(name, store->keys[i].name))
            key = &store->keys[i];
    if (key == NULL || !reserve(command, HEAD_WORDS + 3 + GROUP_WORDS_MAX + 1))
        return false;
    begin(command, store, head);
    add(command, span_of_text(""));
    add(command, span_of_text(""));
    add(command, span_of_text("1"));
    add_group(command, &store->groups[key->group]);
    add(command, span_of_text(key->name));
    return true;
}

/* Keys come in the order of turns only where they take turns. */
static const struct view *view_of(const struct pool_backend *store)
{
    return store->order == STINT_ROUND_ROBIN ? &store->by_turn : &store->by_age;
}

bool pool_command_next(struct pool_command *command, const struct pool_backend *store,
                       uint32_t cost, bool probe, struct pool_time time)
{
    const struct head head = {.verb = "next", .cost = cost, .probe = probe, .time = time};
    return ask_all(command, store, view_of(store), &head);
}

bool pool_command_status(struct pool_command *command, const struct pool_backend *store,
                         struct pool_time time)
{
    const struct head head = {.verb = "status", .time = time};
    return ask_all(command, store, &store->by_age, &head);
}

bool pool_command_give_back(struct pool_command *command, const struct pool_backend *store,
                            struct span name, uint32_t cost, uint64_t granted_at_ns,
                            struct pool_time time)
{
    const struct head head = {
        .verb = "give_back", .cost = cost, .at_ns = granted_at_ns, .time = time};
    return ask_key(command, store, name, &head);
}

/* A cooldown of less than a microsecond counts as one. */
bool pool_command_report(struct pool_command *command, const struct pool_backend *store,
                         struct span name, uint8_t outcome, uint64_t cooldown_ns,
                         struct pool_time time)
{
    assert((cooldown_ns > 0) == (outcome == STINT_POOL_COOL));
    const struct head head = {.verb = "report",
                              .cost = outcome,
                              .at_ns = (cooldown_ns + NS_PER_US - 1) / NS_PER_US * NS_PER_US,
                              .time = time};
    return ask_key(command, store, name, &head);
}

bool pool_command_let_in(struct pool_command *command, const struct pool_backend *store,
                         struct span name, struct pool_time time)
{
    const struct head head = {.verb = "let_in", .time = time};
    return ask_key(command, store, name, &head);
}

/* ---- Answers --------------------------------------------------------------------------------- */

#define EXACT_MAX (INT64_C(1) << 53)
#define NEXT_VALUES 11

static bool is_within(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most;
}

static uint64_t wait_ns_of(int64_t wait_us)
{
    return wait_us < 0 ? STINT_NEVER_NS : (uint64_t)wait_us * NS_PER_US;
}

bool pool_backend_read_next(const struct pool_backend *store, const int64_t *values,
                            size_t n_values, struct stint_pool_answer *answer)
{
    struct stint_decision decision;
    /* index wait now probe binding, then the decision */
    if (n_values != NEXT_VALUES || !is_within(values[0], -1, (int64_t)store->n_keys - 1) ||
        !is_within(values[1], -1, values[0] < 0 ? EXACT_MAX : 0) ||
        !is_within(values[2], 0, EXACT_MAX) || !is_within(values[3], 0, values[0] < 0 ? 0 : 1) ||
        !is_within(values[4], 0, STINT_POOL_QUOTAS_MAX - 1) ||
        !script_metrics_read(&decision, values + 5) ||
        (decision.outcome == STINT_ALLOW) != (values[0] >= 0) ||
        (values[1] < 0) != (decision.outcome == STINT_NEVER))
        return false;
    decision.binding = (uint8_t)values[4];
    *answer = (struct stint_pool_answer){
        .name = values[0] >= 0 ? view_of(store)->keys[values[0]]->name : NULL,
        .wait_ns = wait_ns_of(values[1]),
        .granted_at_ns = (uint64_t)values[2] * NS_PER_US,
        .probe = values[3] == 1,
        .decision = decision,
    };
    return true;
}

bool pool_backend_read_status(const struct pool_backend *store, const int64_t *values,
                              size_t n_values, struct stint_pool_status *statuses)
{
    if (n_values != POOL_STORE_STATUS * store->n_keys)
        return false;
    for (size_t i = 0; i < store->n_keys; i++, values += POOL_STORE_STATUS) {
        /* standing failures returns, then the decision, which grants nothing */
        const int64_t metrics[] = {values[3], 0, values[4], values[5], values[6], values[7]};
        struct stint_pool_status *status = &statuses[i];
        *status = (struct stint_pool_status){.name = store->keys[i].name,
                                             .weight = store->keys[i].weight,
                                             .standing = (uint8_t)values[0],
                                             .failures = (uint8_t)values[1],
                                             .returns_after_ns = wait_ns_of(values[2])};
        if (!is_within(values[0], STINT_POOL_FREE, STINT_POOL_IS_OUT) ||
            !is_within(values[1], 0, UINT8_MAX) || !is_within(values[2], -1, EXACT_MAX) ||
            !script_metrics_read(&status->decision, metrics))
            return false;
    }
    return true;
}

bool pool_backend_read_given_back(const int64_t *values, size_t n_values, uint32_t *given_back)
{
    if (n_values != 1 || !is_within(values[0], 0, UINT32_MAX))
        return false;
    *given_back = (uint32_t)values[0];
    return true;
}
