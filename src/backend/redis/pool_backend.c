/* SPDX-License-Identifier: MIT */
/*
 * The words of a pool are made once: after the few words of a request come the same ones for every
 * request. There are two orders of keys, by turns and by age, and each key alone.
 */
#include "backend/redis/pool_backend.h"

#include "backend/redis/cluster.h"
#include "backend/redis/redis_backend_parts.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/ns.h"
#include "base/wide_int.h"
#include "limiter/pool.h"
#include "rules/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define EXACT_MAX (INT64_C(1) << 53) /* a Lua number is a double */
#define HEAD_WORDS 10                /* EVALSHA hash 1 KEY verb now cost at order probe */
#define GROUP_WORDS_MAX (1 + STINT_POOL_QUOTAS_MAX * (1 + SCRIPT_QUOTA_WORDS))

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

struct backend_pool_list {
    struct arena arena; /* what follows */
    struct key *keys;   /* by age */
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
        group->words[group->n_words++] =
            span_of_text(stint_algorithm_name(key->quotas[i].algorithm));
        script_quota_words(&key->quotas[i], &group->words[group->n_words], group->digits[i]);
        group->n_words += SCRIPT_QUOTA_WORDS;
    }
}

static uint32_t group_of(struct backend_pool_list *pool, const struct stint_pool_key *key)
{
    for (size_t i = 0; i < pool->n_groups; i++)
        if (is_group_of(&pool->groups[i], key))
            return (uint32_t)i;
    fill_group(&pool->groups[pool->n_groups], key);
    return (uint32_t)pool->n_groups++;
}

static int check_key(const struct stint_pool_key *key, struct stint_error *error)
{
    assert(key->n_quotas >= 1 && key->n_quotas <= STINT_POOL_QUOTAS_MAX &&
           key->weight <= STINT_POOL_WEIGHT_MAX);
    for (size_t i = 0; i < key->n_quotas; i++) {
        int code = pool_check_quota(&key->quotas[i], error);
        if (code == 0)
            code = script_accepts(&key->quotas[i], error);
        if (code != 0)
            return code;
    }
    return 0;
}

static int add_keys(struct backend_pool_list *pool, const struct backend_pool_definition *given,
                    struct stint_error *error)
{
    for (size_t i = 0; i < given->n_keys; i++) {
        const struct stint_pool_key *asked = &given->keys[i];
        struct key *key = &pool->keys[i];
        int code = check_key(asked, error);
        if (code != 0)
            return code;
        key->name = arena_text(&pool->arena, span_of_text(asked->name));
        if (key->name == NULL)
            return err_set(error, STINT_E_SYSTEM, "no memory for the keys of a pool");
        key->weight = asked->weight > 0 ? asked->weight : 1;
        key->group = group_of(pool, asked);
        pool->by_turn.keys[i] = pool->by_age.keys[i] = key;
        pool->n_keys++;
    }
    return 0;
}

/* Names are compared in name order, not in that of turns: weights differ. */
static int compare_names(const void *a, const void *b)
{
    const struct key *left = *(const struct key *const *)a, *right = *(const struct key *const *)b;
    return strcmp(left->name, right->name);
}

static int check_names(struct backend_pool_list *pool, struct stint_error *error)
{
    const struct key **keys = pool->by_turn.keys; /* not sorted by turns yet */
    qsort(keys, pool->n_keys, sizeof(struct key *), compare_names);
    for (size_t i = 1; i < pool->n_keys; i++)
        if (strcmp(keys[i - 1]->name, keys[i]->name) == 0)
            return err_set(error, STINT_E_MISMATCH, "key %s is in the pool twice", keys[i]->name);
    return 0;
}

#define NUMBER_LEN 5 /* a number up to 1,024, and a comma */

static bool write_numbers(struct backend_pool_list *pool, struct view *view)
{
    size_t size = NUMBER_LEN * pool->n_keys + 1;
    bool even = true;
    view->weights = arena_take(&pool->arena, size);
    view->groups = arena_take(&pool->arena, size);
    if (view->weights == NULL || view->groups == NULL)
        return false;
    struct buf weights = buf_of(view->weights, size), groups = buf_of(view->groups, size);
    for (size_t i = 0; i < pool->n_keys; i++) {
        const char *comma = i > 0 ? "," : "";
        even = even && view->keys[i]->weight == 1;
        buf_add(&weights, "%s%u", comma, view->keys[i]->weight);
        buf_add(&groups, "%s%u", comma, view->keys[i]->group + 1);
    }
    if (even)
        view->weights[0] = '\0';
    if (pool->n_groups <= 1)
        view->groups[0] = '\0';
    return true;
}

static bool name_key(struct backend_pool_list *pool, struct span prefix, struct span name)
{
    static const char tail[] = "pool";
    size_t len = script_tag(prefix, name, NULL, 0);
    pool->key = arena_take(&pool->arena, len + sizeof(tail));
    if (pool->key == NULL)
        return false;
    script_tag(prefix, name, pool->key, len);
    memcpy(pool->key + len, tail, sizeof(tail));
    pool->key_len = len + sizeof(tail) - 1;
    return true;
}

static bool allocate(struct backend_pool_list *pool, size_t n_keys)
{
    struct arena *arena = &pool->arena;
    pool->keys = arena_take(arena, n_keys * sizeof(*pool->keys));
    pool->groups = arena_take(arena, n_keys * sizeof(*pool->groups));
    pool->by_turn.keys = arena_take(arena, n_keys * sizeof(struct key *));
    pool->by_age.keys = arena_take(arena, n_keys * sizeof(struct key *));
    return pool->keys != NULL && pool->groups != NULL && pool->by_turn.keys != NULL &&
           pool->by_age.keys != NULL;
}

static int fill(struct backend_pool_list *pool, struct span prefix,
                const struct backend_pool_definition *given, struct stint_error *error)
{
    if (!allocate(pool, given->n_keys))
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool of %zu keys", given->n_keys);
    int code = add_keys(pool, given, error);
    if (code == 0)
        code = check_names(pool, error);
    if (code != 0)
        return code;
    qsort(pool->by_turn.keys, pool->n_keys, sizeof(struct key *), compare_turns);
    struct buf word = buf_of(pool->n_groups_word, sizeof(pool->n_groups_word));
    buf_add(&word, "%zu", pool->n_groups);
    if (!name_key(pool, prefix, given->name) || !write_numbers(pool, &pool->by_turn) ||
        !write_numbers(pool, &pool->by_age))
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool of %zu keys", given->n_keys);
    return 0;
}

int pool_backend_new(struct backend_pool_list **pool, struct span prefix,
                     const struct backend_pool_definition *given, struct stint_error *error)
{
    if (given->n_keys > POOL_STORE_KEYS_MAX)
        return err_set(error, STINT_E_RANGE, "a pool on a store has at most %d keys",
                       POOL_STORE_KEYS_MAX);
    struct backend_pool_list *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a pool");
    made->order = given->order;
    int code = fill(made, prefix, given, error);
    if (code != 0) {
        pool_backend_free(made);
        return code;
    }
    *pool = made;
    return 0;
}

void pool_backend_free(struct backend_pool_list *pool)
{
    if (pool != NULL)
        arena_free(&pool->arena);
    free(pool);
}

size_t pool_backend_n_keys(const struct backend_pool_list *pool)
{
    return pool->n_keys;
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
static void begin(struct pool_command *command, const struct backend_pool_request *ask,
                  struct pool_time time)
{
    static const char *const orders[] = {"0", "1", "2"};
    static const char *const verbs[] = {
        [BACKEND_POOL_NEXT] = "next",           [BACKEND_POOL_STATUS] = "status",
        [BACKEND_POOL_GIVE_BACK] = "give_back", [BACKEND_POOL_REPORT] = "report",
        [BACKEND_POOL_LET_IN] = "let_in",
    };
    bool is_next = ask->verb == BACKEND_POOL_NEXT, reports = ask->verb == BACKEND_POOL_REPORT;
    bool gives_back = ask->verb == BACKEND_POOL_GIVE_BACK;
    assert(!reports || (ask->cooldown_ns > 0) == (ask->outcome == STINT_POOL_COOL));
    command->n_words = 0;
    command->script = &lua_script_pool;
    add(command, span_of_text("EVALSHA"));
    add(command, span_of(lua_script_pool.sha1, sizeof(lua_script_pool.sha1) - 1));
    add(command, span_of_text("1"));
    add(command, span_of(ask->list->key, ask->list->key_len));
    add(command, span_of_text(verbs[ask->verb]));
    if (time.is_virtual)
        add_number(command, 0, "+", time.now_ns / NS_PER_US);
    else
        add(command, span_of_text("0"));
    add_number(command, 1, "", is_next || gives_back ? ask->cost : reports ? ask->outcome : 0);
    if (gives_back && ask->at_ns == STINT_NEVER_NS)
        add(command, span_of_text("-1"));
    else if (gives_back)
        add_number(command, 2, "", min_u64(ask->at_ns / NS_PER_US, EXACT_MAX - 1));
    else /* a cooldown of less than a microsecond counts as one */
        add_number(command, 2, "", reports ? (ask->cooldown_ns + NS_PER_US - 1) / NS_PER_US : 0);
    add(command, span_of_text(orders[ask->list->order]));
    add(command, span_of_text(is_next && ask->probe ? "1" : "0"));
}

/* Keys come in the order of turns only where they take turns. */
static const struct view *view_of(const struct backend_pool_list *pool)
{
    return pool->order == STINT_ROUND_ROBIN ? &pool->by_turn : &pool->by_age;
}

bool pool_command_make(struct pool_command *command, const struct backend_pool_request *ask,
                       struct pool_time time)
{
    const struct backend_pool_list *pool = ask->list;
    bool is_all = ask->verb == BACKEND_POOL_NEXT || ask->verb == BACKEND_POOL_STATUS;
    const struct view *view = ask->verb == BACKEND_POOL_NEXT ? view_of(pool) : &pool->by_age;
    const struct key *only = NULL;
    for (size_t i = 0; i < pool->n_keys && !is_all && only == NULL; i++)
        if (span_equals(ask->key, pool->keys[i].name))
            only = &pool->keys[i];
    if (!is_all && only == NULL)
        return false;
    const struct group *groups = is_all ? pool->groups : &pool->groups[only->group];
    size_t n_groups = is_all ? pool->n_groups : 1, n_keys = is_all ? pool->n_keys : 1;
    if (!reserve(command, HEAD_WORDS + 3 + n_groups * GROUP_WORDS_MAX + n_keys))
        return false;
    begin(command, ask, time);
    add(command, span_of_text(is_all ? view->weights : ""));
    add(command, span_of_text(is_all ? view->groups : ""));
    add(command, span_of_text(is_all ? pool->n_groups_word : "1"));
    for (size_t i = 0; i < n_groups; i++)
        for (size_t j = 0; j < groups[i].n_words; j++)
            add(command, groups[i].words[j]);
    for (size_t i = 0; i < n_keys; i++)
        add(command, span_of_text(is_all ? view->keys[i]->name : only->name));
    return true;
}

/* ---- Answers --------------------------------------------------------------------------------- */

#define NEXT_VALUES 11

static bool is_within(int64_t value, int64_t least, int64_t most)
{
    return value >= least && value <= most;
}

static uint64_t wait_ns_of(int64_t wait_us)
{
    return wait_us < 0 ? STINT_NEVER_NS : (uint64_t)wait_us * NS_PER_US;
}

static bool read_next(const struct backend_pool_list *pool, const int64_t *values, size_t n_values,
                      struct stint_pool_answer *answer)
{
    struct stint_decision decision;
    /* index wait now probe binding, then the decision */
    if (n_values != NEXT_VALUES || !is_within(values[0], -1, (int64_t)pool->n_keys - 1) ||
        !is_within(values[1], -1, values[0] < 0 ? EXACT_MAX : 0) ||
        !is_within(values[2], 0, EXACT_MAX) || !is_within(values[3], 0, values[0] < 0 ? 0 : 1) ||
        !is_within(values[4], 0, STINT_POOL_QUOTAS_MAX - 1) ||
        !script_metrics_read(&decision, values + 5) ||
        (decision.outcome == STINT_ALLOW) != (values[0] >= 0) ||
        (values[1] < 0) != (decision.outcome == STINT_NEVER))
        return false;
    decision.binding = (uint8_t)values[4];
    *answer = (struct stint_pool_answer){
        .name = values[0] >= 0 ? view_of(pool)->keys[values[0]]->name : NULL,
        .wait_ns = wait_ns_of(values[1]),
        .granted_at_ns = (uint64_t)values[2] * NS_PER_US,
        .probe = values[3] == 1,
        .decision = decision,
    };
    return true;
}

static bool read_status(const struct backend_pool_list *pool, const int64_t *values,
                        size_t n_values, struct stint_pool_status *statuses)
{
    if (n_values != POOL_STORE_STATUS * pool->n_keys)
        return false;
    for (size_t i = 0; i < pool->n_keys; i++, values += POOL_STORE_STATUS) {
        /* standing failures returns, then the decision, which grants nothing */
        const int64_t metrics[] = {values[3], 0, values[4], values[5], values[6], values[7]};
        struct stint_pool_status *status = &statuses[i];
        *status = (struct stint_pool_status){.name = pool->keys[i].name,
                                             .weight = pool->keys[i].weight,
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

bool pool_backend_read(const struct backend_pool_list *pool, uint8_t verb, const int64_t *values,
                       size_t n_values, struct backend_pool_answer *answer)
{
    switch (verb) {
    case BACKEND_POOL_NEXT:
        return read_next(pool, values, n_values, &answer->next);
    case BACKEND_POOL_STATUS:
        return read_status(pool, values, n_values, answer->statuses);
    case BACKEND_POOL_GIVE_BACK:
        if (n_values != 1 || !is_within(values[0], 0, UINT32_MAX))
            return false;
        answer->given_back = (uint32_t)values[0];
        return true;
    default:
        return n_values == 1 && values[0] == 0;
    }
}

/* ---- Over a router --------------------------------------------------------------------------- */

/*
 * One script on one key, so nothing has to be given back. If the answer is lost, a key may be
 * charged, but no caller uses it, and no limit is passed.
 */
struct pool_job {
    struct redis_backend *store;
    struct backend_pool_op *op;
    const struct backend_pool_list *list;
    struct router_ask *ask;
    uint64_t offset_ns; /* from the router's clock to the caller's */
    uint8_t verb;
};

static struct redis_backend *of(const struct backend_pools *pools)
{
    return (struct redis_backend *)(void *)((uint8_t *)(uintptr_t)pools -
                                            offsetof(struct redis_backend, pools));
}

static bool take_reply(const struct pool_job *job, const struct redis_reply *reply)
{
    int64_t *values = calloc(reply->n_items + 1, sizeof(*values));
    bool is_read =
        values != NULL && redis_reply_integers(reply, values, reply->n_items) &&
        pool_backend_read(job->list, job->verb, values, reply->n_items, &job->op->answer);
    free(values);
    return is_read;
}

static void answered(void *arg, enum link_outcome outcome, const struct redis_reply *reply,
                     uint64_t now_ns)
{
    struct pool_job *job = arg;
    struct redis_backend *store = job->store;
    struct backend_pool_op *op = job->op;
    struct backend_pool_answer *answer = &op->answer;
    uint64_t offset_ns = job->offset_ns;
    if (outcome == LINK_DONE && take_reply(job, reply)) {
        answer->outcome = BACKEND_DECIDED;
    } else {
        answer->outcome = BACKEND_FAILED;
        answer->error = redis_backend_reason(store, outcome, reply, &answer->fault);
    }
    op->at_work = NULL;
    free(job);
    store->n_pending--;
    op->answered(op, now_ns + offset_ns);
    redis_backend_settle(store);
}

int redis_backend_pool_list(const char *prefix, const struct backend_pool_definition *given,
                            struct backend_pool_list **list, struct stint_error *error)
{
    return pool_backend_new(
        list, span_of_text(prefix != NULL ? prefix : REDIS_STORE_PREFIX_DEFAULT), given, error);
}

static int op_list_new(const struct backend_pools *pools,
                       const struct backend_pool_definition *given, struct backend_pool_list **list,
                       struct stint_error *error)
{
    return redis_backend_pool_list(of(pools)->plain_prefix, given, list, error);
}

/* A verb that moves no unit may be sent twice. */
static bool is_repeatable(const struct backend_pool_request *ask)
{
    return ask->verb == BACKEND_POOL_STATUS || (ask->verb == BACKEND_POOL_NEXT && ask->cost == 0) ||
           ask->verb == BACKEND_POOL_LET_IN;
}

static struct pool_job *pool_send(struct redis_backend *store,
                                  const struct backend_pool_request *ask,
                                  struct backend_pool_op *op, unsigned slot)
{
    struct pool_job *job = malloc(sizeof(*job));
    if (job == NULL)
        return NULL;
    uint64_t now_ns = store->dialer->ops->now(store->dialer);
    uint64_t left_ns = sub_floor(ask->deadline_ns, ask->now_ns);
    *job = (struct pool_job){.store = store,
                             .op = op,
                             .list = ask->list,
                             .offset_ns = ask->now_ns - now_ns,
                             .verb = ask->verb};
    const struct router_command command = {
        .slot = slot,
        .words = store->pool_command.words,
        .n_words = store->pool_command.n_words,
        .script = store->pool_command.script->text,
        .deadline_ns = add_sat(now_ns, left_ns),
        .is_repeatable = is_repeatable(ask),
        .answered = answered,
        .arg = job,
    };
    job->ask = store->is_ending ? NULL : router_ask(store->router, &command, now_ns);
    if (job->ask != NULL)
        return job;
    free(job);
    return NULL;
}

static void op_ask(struct backend_pools *pools, const struct backend_pool_request *ask,
                   struct backend_pool_op *op)
{
    struct redis_backend *store = of(pools);
    struct backend_pool_answer *answer = &op->answer;
    if (!pool_command_make(&store->pool_command, ask, (struct pool_time){0})) {
        bool has_key = ask->verb != BACKEND_POOL_NEXT && ask->verb != BACKEND_POOL_STATUS;
        answer->outcome = has_key ? BACKEND_REFUSED : BACKEND_FAILED;
        answer->error =
            has_key ? "the pool has no such key" : "no memory for a request to the store";
        return;
    }
    bool has_slots = router_has_slots(store->router);
    unsigned slot = has_slots ? cluster_slot_of(span_of(ask->list->key, ask->list->key_len)) : 0;
    uint64_t now_ns = store->dialer->ops->now(store->dialer);
    uint64_t server = router_server_bit(store->router, slot, now_ns);
    if ((server & ask->stopped) != 0) {
        answer->outcome = BACKEND_FAILED;
        answer->fault = BACKEND_ERROR_STOPPED;
        answer->error = "requests to the server of the pool are stopped now";
        return;
    }
    struct pool_job *job = pool_send(store, ask, op, slot);
    if (job == NULL) {
        answer->outcome = BACKEND_FAILED;
        answer->fault = BACKEND_ERROR_OVERLOAD;
        answer->error = "too many requests wait for the store";
        return;
    }
    store->n_pending++;
    op->at_work = job;
    answer->servers = server;
    answer->outcome = BACKEND_WAITS;
}

static void op_forget(struct backend_pools *pools, struct backend_pool_op *op)
{
    struct redis_backend *store = of(pools);
    struct pool_job *job = op->at_work;
    assert(job != NULL && job->op == op);
    op->at_work = NULL;
    router_forget(job->ask);
    free(job);
    store->n_pending--;
    redis_backend_settle(store);
}

static const struct backend_pools_ops pools_ops = {
    .list_new = op_list_new,
    .list_free = pool_backend_free,
    .list_len = pool_backend_n_keys,
    .ask = op_ask,
    .forget = op_forget,
};

struct backend_pools *redis_backend_pools(struct backend *store)
{
    struct backend_pools *pools = &((struct redis_backend *)store)->pools;
    pools->ops = &pools_ops;
    return pools;
}
