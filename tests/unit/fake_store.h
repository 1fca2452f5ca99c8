/* SPDX-License-Identifier: MIT */
/*
 * A shared store for tests that answers when it is told to: later, out of order, not at all. It
 * decides in a table of its own, with its own clock, and remembers all that it was asked.
 */
#ifndef STINT_TESTS_FAKE_STORE_H
#define STINT_TESTS_FAKE_STORE_H

#include "unit/test_quota.h"

#include "decide/backend.h"

#define FAKE_NAME_MAX 512

struct fake_item {
    struct stint_quota quota;
    const struct rule *rule;
    char name[FAKE_NAME_MAX]; /* "NAME:KEY" */
    size_t name_len;
    bool is_values;
    uint32_t cost;
};

/* One ask, copied. */
struct fake_ask {
    uint8_t verb;
    bool is_virtual, has_id;
    uint8_t id[BACKEND_ID_LEN];
    uint64_t body, at_ns, now_ns, deadline_ns;
    struct fake_item *items;
    size_t n_items;
    struct backend_op *op; /* NULL: answered, or nobody wants the answer any more */
    bool is_forgotten;
    bool is_allowed; /* it was answered so */
    struct stint_decision sum;
    uint64_t decided_ns;
};

struct fake_store {
    struct backend store;      /* ask it through this one */
    struct stint_table *table; /* the states */
    struct fake_ask *asks;     /* all that came, in their order */
    size_t n_asks, size;
    size_t n_forgotten;
    bool is_prompt;                /* answers from within ask() */
    bool is_failing;               /* the same, with FAILED */
    bool has_servers;              /* a key lies on the server that its first byte names: '0' … */
    uint64_t ahead_ns;             /* its clock is so much ahead of the asker's */
    uint64_t unavailable_since_ns; /* as it tells it */
    int accepts_code;              /* of accepts() */
    bool is_freed;
};

/* ---- Answers --------------------------------------------------------------------------------- */

/* Equal items stand as one. Who takes what there is waits for one unit of each. */
static inline uint32_t fake_cost(const struct fake_ask *ask, size_t i)
{
    const struct fake_item *item = &ask->items[i];
    uint32_t cost = 0;
    for (size_t j = 0; j < ask->n_items; j++) {
        const struct fake_item *other = &ask->items[j];
        if (other->name_len == item->name_len && other->quota.rule == item->quota.rule &&
            memcmp(other->name, item->name, item->name_len) == 0)
            cost += ask->verb == REQUEST_TAKE_UPTO && other->cost > 1 ? 1 : other->cost;
    }
    return cost;
}

static inline void fake_count(struct fake_store *fake, const struct fake_ask *ask, uint64_t now_ns,
                              struct backend_answer *answer)
{
    const struct fake_item *item = &ask->items[0];
    struct stint_counter counter = {0, 0};
    int64_t sign = ask->verb == REQUEST_CHARGE ? 1 : ask->verb == REQUEST_REFUND ? -1 : 0;
    if (ask->verb == REQUEST_RESET)
        stint_count_reset(fake->table, item->name, item->name_len, NULL);
    else
        assert_int_equal(stint_count(fake->table, item->name, item->name_len, sign * item->cost,
                                     item->quota.period_ns, now_ns, &counter, NULL),
                         0);
    answer->count = counter.count;
    answer->sum = answer->each[0] = (struct stint_decision){
        .outcome = STINT_ALLOW, .stored = 1, .reset_after_ns = counter.expires_after_ns};
}

static inline void fake_decide(struct fake_store *fake, const struct fake_ask *ask,
                               struct backend_answer *answer)
{
    struct stint_item items[BACKEND_ITEMS_MAX];
    uint64_t now_ns = ask->now_ns + (ask->is_virtual ? 0 : fake->ahead_ns);
    for (size_t i = 0; i < ask->n_items; i++)
        items[i] = (struct stint_item){&ask->items[i].quota, ask->items[i].name,
                                       ask->items[i].name_len, ask->items[i].cost};
    answer->outcome = BACKEND_DECIDED;
    answer->at_ns = now_ns;
    if (ask->items[0].quota.algorithm == STINT_COUNTER) {
        fake_count(fake, ask, now_ns, answer);
        return;
    }
    switch (ask->verb) {
    case REQUEST_TAKE:
        answer->sum = stint_take_all(fake->table, items, ask->n_items, now_ns);
        break;
    case REQUEST_TAKE_UPTO:
        answer->sum = stint_take_upto(fake->table, items, ask->n_items, now_ns);
        break;
    case REQUEST_CHARGE:
        answer->sum = stint_charge(fake->table, items, ask->n_items, now_ns);
        break;
    case REQUEST_REFUND:
        answer->sum = stint_refund(fake->table, items, ask->n_items, ask->at_ns, now_ns);
        break;
    case REQUEST_RESET:
        for (size_t i = 0; i < ask->n_items; i++)
            stint_reset(fake->table, items[i].quota, items[i].key, items[i].key_len, now_ns);
        answer->sum = (struct stint_decision){.outcome = STINT_ALLOW, .stored = 1};
        break;
    default:
        answer->sum = stint_peek(fake->table, items, ask->n_items, now_ns);
    }
    bool is_taken = answer->sum.outcome == STINT_ALLOW && ask->verb != REQUEST_PEEK;
    for (size_t i = 0; i < ask->n_items; i++) {
        struct stint_item item = items[i];
        item.cost = is_taken ? 0 : fake_cost(ask, i);
        answer->each[i] = stint_peek(fake->table, &item, 1, now_ns);
        bool is_not_taken = !is_taken && ask->verb != REQUEST_PEEK;
        if (is_not_taken && answer->each[i].outcome == STINT_ALLOW) {
            item.cost = 0; /* as it stands, not as it would */
            answer->each[i] = stint_peek(fake->table, &item, 1, now_ns);
        }
        if (is_taken) {
            answer->each[i].outcome = STINT_ALLOW; /* also where a charge has made a debt */
            answer->each[i].retry_after_ns = 0;
            answer->each[i].granted =
                ask->verb == REQUEST_TAKE ? items[i].cost : answer->sum.granted;
        }
    }
}

/* An id that was answered ALLOW is answered so again; false: it is a new one. */
static inline bool fake_replay(struct fake_store *fake, const struct fake_ask *ask,
                               struct backend_answer *answer)
{
    for (size_t i = 0; ask->has_id && i < fake->n_asks; i++) {
        const struct fake_ask *before = &fake->asks[i];
        if (before == ask || !before->has_id || !before->is_allowed ||
            memcmp(before->id, ask->id, BACKEND_ID_LEN) != 0)
            continue;
        answer->outcome = before->body == ask->body ? BACKEND_DECIDED : BACKEND_CONFLICT;
        answer->is_replayed = true;
        answer->at_ns = before->decided_ns;
        answer->sum = before->sum;
        for (size_t j = 0; j < ask->n_items; j++)
            answer->each[j] = before->sum;
        return true;
    }
    return false;
}

static inline void fake_fill(struct fake_store *fake, struct fake_ask *ask,
                             struct backend_answer *answer)
{
    if (fake_replay(fake, ask, answer))
        return;
    fake_decide(fake, ask, answer);
    ask->is_allowed = answer->sum.outcome == STINT_ALLOW;
    ask->sum = answer->sum;
    ask->decided_ns = answer->at_ns;
}

static inline struct backend_op *fake_op(struct fake_store *fake, size_t i)
{
    assert_true(i < fake->n_asks);
    struct backend_op *op = fake->asks[i].op;
    assert_non_null(op);
    fake->asks[i].op = NULL;
    op->at_work = NULL;
    return op;
}

/* Decides the ith ask of all, from 0, and answers it. */
static inline void fake_let(struct fake_store *fake, size_t i, uint64_t now_ns)
{
    struct backend_op *op = fake_op(fake, i);
    fake_fill(fake, &fake->asks[i], &op->answer);
    op->answered(op, now_ns);
}

/* Answers it with these figures, for the list and for each of it. */
static inline void fake_answer(struct fake_store *fake, size_t i, struct stint_decision decision,
                               uint64_t now_ns)
{
    struct backend_op *op = fake_op(fake, i);
    op->answer.outcome = BACKEND_DECIDED;
    op->answer.at_ns = now_ns;
    op->answer.sum = decision;
    for (size_t j = 0; j < fake->asks[i].n_items; j++)
        op->answer.each[j] = decision;
    op->answered(op, now_ns);
}

static inline void fake_fail_as(struct fake_store *fake, size_t i, enum backend_outcome outcome,
                                const char *error, uint64_t now_ns)
{
    struct backend_op *op = fake_op(fake, i);
    op->answer.outcome = (uint8_t)outcome;
    op->answer.error = error;
    op->answered(op, now_ns);
}

/* The store was not there, or was too slow. */
static inline void fake_fail(struct fake_store *fake, size_t i, uint64_t now_ns)
{
    fake_fail_as(fake, i, BACKEND_FAILED, "the store did not answer in time", now_ns);
}

/* How many wait for their answers. */
static inline size_t fake_waiting(const struct fake_store *fake)
{
    size_t n = 0;
    for (size_t i = 0; i < fake->n_asks; i++)
        n += fake->asks[i].op != NULL;
    return n;
}

/* All that wait, in their order; also what they ask on the way. */
static inline void fake_let_all(struct fake_store *fake, uint64_t now_ns)
{
    for (size_t i = 0; i < fake->n_asks; i++)
        if (fake->asks[i].op != NULL)
            fake_let(fake, i, now_ns);
}

/* ---- As a store ------------------------------------------------------------------------------ */

static inline uint64_t fake_servers(const struct fake_store *fake,
                                    const struct backend_request *ask)
{
    uint64_t servers = 0;
    for (size_t i = 0; i < ask->n_items; i++)
        servers |= UINT64_C(1) << (fake->has_servers ? ask->items[i].key.ptr[0] - '0' : 0);
    return servers;
}

static inline struct fake_ask *fake_keep(struct fake_store *fake, const struct backend_request *ask)
{
    if (fake->n_asks == fake->size) {
        fake->size = fake->size > 0 ? 2 * fake->size : 64;
        fake->asks = realloc(fake->asks, fake->size * sizeof(*fake->asks));
        assert_non_null(fake->asks);
    }
    struct fake_ask *kept = &fake->asks[fake->n_asks++];
    *kept = (struct fake_ask){.verb = ask->verb,
                              .is_virtual = ask->is_virtual,
                              .has_id = ask->id != NULL,
                              .body = ask->body,
                              .at_ns = ask->at_ns,
                              .now_ns = ask->now_ns,
                              .deadline_ns = ask->deadline_ns,
                              .n_items = ask->n_items};
    if (ask->id != NULL)
        memcpy(kept->id, ask->id, BACKEND_ID_LEN);
    kept->items = calloc(ask->n_items, sizeof(*kept->items));
    assert_non_null(kept->items);
    assert_true(ask->n_items >= 1 && ask->n_items <= BACKEND_ITEMS_MAX);
    for (size_t i = 0; i < ask->n_items; i++) {
        const struct backend_item *item = &ask->items[i];
        struct fake_item *to = &kept->items[i];
        int len = snprintf(to->name, FAKE_NAME_MAX, "%.*s:", (int)item->name.len,
                           item->name.len > 0 ? (const char *)item->name.ptr : "");
        assert_true(len > 0 && (size_t)len + item->key.len <= FAKE_NAME_MAX);
        if (item->key.len > 0) /* any bytes may be in it */
            memcpy(to->name + len, item->key.ptr, item->key.len);
        to->name_len = (size_t)len + item->key.len;
        to->quota = *item->quota;
        to->rule = item->rule;
        to->is_values = item->is_values;
        to->cost = item->cost;
    }
    return kept;
}

static inline void fake_take_ask(struct backend *store, const struct backend_request *ask,
                                 struct backend_op *op)
{
    struct fake_store *fake = (struct fake_store *)(void *)store;
    if (ask->is_ahead && (fake->is_prompt || fake->is_failing)) {
        op->answer.outcome = BACKEND_AHEAD;
        return;
    }
    op->answer.servers = fake_servers(fake, ask);
    if ((op->answer.servers & ask->stopped) != 0) {
        op->answer.outcome = ask->is_ahead ? BACKEND_AHEAD : BACKEND_FAILED;
        op->answer.fault = BACKEND_ERROR_STOPPED;
        return;
    }
    struct fake_ask *kept = fake_keep(fake, ask);
    op->answer.outcome = BACKEND_WAITS;
    if (fake->is_failing) {
        op->answer.outcome = BACKEND_FAILED;
        op->answer.error = "the store is unavailable";
    } else if (fake->is_prompt) {
        fake_fill(fake, kept, &op->answer);
    } else {
        kept->op = op;
        op->at_work = fake;
    }
}

static inline void fake_forget(struct backend *store, struct backend_op *op)
{
    struct fake_store *fake = (struct fake_store *)(void *)store;
    for (size_t i = 0; i < fake->n_asks; i++) {
        if (fake->asks[i].op != op)
            continue;
        fake->asks[i].op = NULL;
        fake->asks[i].is_forgotten = true;
        fake->n_forgotten++;
        return;
    }
    fail_msg("what does not wait is forgotten");
}

static inline int fake_accepts(const struct backend *store, const struct stint_quota *quota,
                               struct stint_error *error)
{
    const struct fake_store *fake = (const struct fake_store *)(const void *)store;
    (void)quota;
    if (fake->accepts_code != 0 && error != NULL)
        *error = (struct stint_error){.code = fake->accepts_code,
                                      .message = "the store does not take this quota"};
    return fake->accepts_code;
}

static inline uint64_t fake_unavailable_since(const struct backend *store)
{
    return ((const struct fake_store *)(const void *)store)->unavailable_since_ns;
}

static inline void fake_drain(struct backend *store, uint64_t deadline_ns, void (*done)(void *arg),
                              void *arg)
{
    (void)store, (void)deadline_ns;
    done(arg);
}

/* Its memory is the test's: fake_store_end(). */
static inline void fake_free(struct backend *store)
{
    struct fake_store *fake = (struct fake_store *)(void *)store;
    fake->is_freed = true;
    for (size_t i = 0; i < fake->n_asks; i++)
        if (fake->asks[i].op != NULL)
            fake_fail(fake, i, fake->asks[i].now_ns);
}

static inline void fake_store_begin(struct fake_store *fake)
{
    static const struct backend_ops ops = {
        .ask = fake_take_ask,
        .forget = fake_forget,
        .accepts = fake_accepts,
        .unavailable_since_ns = fake_unavailable_since,
        .drain = fake_drain,
        .free = fake_free,
    };
    const struct stint_table_options options = {.keys = 1024,
                                                .keys16 = 1024,
                                                .keys_wide = 64,
                                                .wide_size = 1024,
                                                .tickets = 1,
                                                .blocks = 1,
                                                .clock = STINT_CLOCK_VIRTUAL};
    *fake = (struct fake_store){.store = {.ops = &ops}};
    assert_int_equal(stint_table_open(&fake->table, &options, NULL), 0);
}

static inline void fake_store_end(struct fake_store *fake)
{
    for (size_t i = 0; i < fake->n_asks; i++)
        free(fake->asks[i].items);
    free(fake->asks);
    stint_table_close(fake->table);
}

#endif
