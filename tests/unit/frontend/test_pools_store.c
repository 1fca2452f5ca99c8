/* SPDX-License-Identifier: MIT */
/*
 * Key pools whose states are in a store, through the frontend of RESP: who waits and for how long,
 * what is told where no answer comes, and what of a pool is asked only once.
 */
#include "unit/fake_store.h"
#include "unit/test_resp_client.h"

#include "service/pools/pools.h"

#define FAKE_KEYS 8

struct backend_pool_list {
    char names[FAKE_KEYS][16];
    size_t n_keys;
};

/* Pools that answer when they are told to: the last ask is in `asked`. */
struct fake_pools {
    struct backend_pools pools;
    struct backend_pool_request asked;
    struct backend_pool_op *op; /* that waits */
    unsigned n_asks, n_lists, n_forgotten;
    bool is_failing;
};

static struct fake_pools fake;

static int new_list(void *arg, size_t store, const struct backend_pool_definition *given,
                    struct backend_pool_list **list, struct stint_error *error)
{
    (void)arg;
    if (store == 1)
        return err_set(error, STINT_E_MISMATCH, "it keeps no pools");
    struct backend_pool_list *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    assert_true(given->n_keys <= FAKE_KEYS);
    for (; made->n_keys < given->n_keys; made->n_keys++)
        snprintf(made->names[made->n_keys], sizeof(made->names[0]), "%s",
                 given->keys[made->n_keys].name);
    fake.n_lists++;
    *list = made;
    return 0;
}

static void free_list(struct backend_pool_list *list)
{
    fake.n_lists -= list != NULL;
    free(list);
}

static void op_ask(struct backend_pools *pools, const struct backend_pool_request *ask,
                   struct backend_pool_op *op)
{
    (void)pools;
    assert_null(fake.op);
    fake.n_asks++;
    fake.asked = *ask;
    op->answer.outcome = fake.is_failing ? BACKEND_FAILED : BACKEND_WAITS;
    op->answer.error = "nobody is there";
    fake.op = fake.is_failing ? NULL : op;
}

static void op_forget(struct backend_pools *pools, struct backend_pool_op *op)
{
    (void)pools;
    assert_ptr_equal(op, fake.op);
    fake.op = NULL;
    fake.n_forgotten++;
}

static const struct backend_pools_ops fake_ops = {.ask = op_ask, .forget = op_forget};

static struct fake_store fake_store;

static int define(const char *name, const char *store, const char *keys, struct stint_error *error)
{
    const struct span quota = span_of_text("5/1s");
    struct pools_key made[FAKE_KEYS];
    size_t n = strlen(keys);
    for (size_t i = 0; i < n; i++)
        made[i] = (struct pools_key){.name = span_of(&keys[i], 1), .quotas = &quota, .n_quotas = 1};
    const struct pools_definition definition = {
        .name = span_of_text(name), .store = span_of_text(store), .keys = made, .n_keys = n};
    return pools_define(server_state_pools(resp.server_state), &definition, resp.now_ns, error);
}

SETUP
{
    static const char *const names[] = {"default", "mem"};
    static const struct pools_stores stores = {
        .names = names, .n_names = 2, .list_new = new_list, .list_free = free_list};
    static struct backend *const asked[2] = {&fake_store.store, &fake_store.store};
    static struct backend_pools *const pools[2] = {&fake.pools};
    fake = (struct fake_pools){.pools.ops = &fake_ops};
    fake_store_begin(&fake_store);
    resp_open();
    pools_set_stores(server_state_pools(resp.server_state), &stores);
    resp_use_stores(asked, pools, 2);
    open_frontend(NULL, NULL);
    assert_int_equal(define("p", "default", "ab", NULL), 0);
}

TEARDOWN
{
    hang_up();
    assert_null(fake.op);
    resp_close();
    fake_store_end(&fake_store);
    assert_int_equal(fake.n_lists, 0);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

/* What was sent, and takes it. */
static const char *sent(void)
{
    static char text[4096];
    struct span all = output();
    assert_true(all.len < sizeof(text));
    if (all.len > 0)
        memcpy(text, all.ptr, all.len);
    text[all.len] = '\0';
    resp.conn->ops->sent(resp.conn, all.len, resp.now_ns);
    return text;
}

static void assert_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("not in %s: %s", text, part);
}

static struct backend_pool_answer *waiting(void)
{
    assert_non_null(fake.op);
    return &fake.op->answer;
}

static void let(uint8_t outcome)
{
    struct backend_pool_op *op = fake.op;
    op->answer.outcome = outcome;
    fake.op = NULL;
    op->answered(op, resp.now_ns);
}

static void let_next(size_t key)
{
    waiting()->next = (struct stint_pool_answer){.name = fake.asked.list->names[key],
                                                 .granted_at_ns = 77,
                                                 .decision = {.outcome = STINT_ALLOW, .limit = 5}};
    let(BACKEND_DECIDED);
}

static void let_none(uint64_t wait_ns)
{
    waiting()->next = (struct stint_pool_answer){.wait_ns = wait_ns,
                                                 .granted_at_ns = 500 * S,
                                                 .decision = {.outcome = STINT_DENY, .limit = 5}};
    let(BACKEND_DECIDED);
}

#define NEXT "STINT.POOL NEXT p\r\n"

TEST(a_key_comes_with_the_answer)
{
    feed(NEXT "PING\r\n");
    assert_string_equal(sent(), "");
    assert_int_equal(fake.asked.verb, BACKEND_POOL_NEXT);
    assert_int_equal(fake.asked.cost, 1);
    assert_int_equal(fake.asked.deadline_ns, resp.now_ns + 50 * MS);
    let_next(1);
    const char *text = sent();
    assert_has(text, "$1\r\nb\r\n");
    assert_has(text, "$2\r\n77\r\n");
    assert_has(text, "+PONG\r\n");
}

TEST(without_an_answer_there_is_no_key)
{
    feed(NEXT);
    waiting()->error = "no answer in time";
    let(BACKEND_FAILED);
    assert_string_equal(sent(), "-UNAVAILABLE no answer in time\r\n");
    fake.is_failing = true;
    feed("STINT.POOL REMOVE p a\r\n");
    assert_string_equal(sent(), "-UNAVAILABLE nobody is there\r\n");
    fake.is_failing = false;
    feed("STINT.POOL REPORT p c OK\r\n");
    waiting()->error = "the pool has no such key";
    let(BACKEND_REFUSED);
    assert_string_equal(sent(), "-GONE the pool has no such key\r\n");
    feed("STINT.POOL REPORT p a COOL 0\r\n");
    assert_has(sent(), "-ERR COOL must be a whole number from 1 to 31536000000, not '0'");
    assert_int_equal(fake.n_asks, 3);
}

TEST(who_is_told_to_wait_does_not_ask_again_before)
{
    feed(NEXT);
    let_none(300 * MS);
    assert_has(sent(), "wait_ms\r\n:300\r\n");
    resp.now_ns += 100 * MS;
    feed(NEXT);
    const char *text = sent();
    assert_has(text, "wait_ms\r\n:200\r\n");
    assert_has(text, "500100000000"); /* the store's time goes on */
    assert_int_equal(fake.n_asks, 1);
    feed("STINT.POOL NEXT p COST 2\r\n");
    assert_int_equal(fake.n_asks, 2); /* another question */
    let_none(STINT_NEVER_NS);
    sent();
    resp.now_ns += S - 1;
    feed("STINT.POOL NEXT p COST 2\r\n");
    assert_int_equal(fake.n_asks, 2);
    resp.now_ns += 1; /* others may have given back */
    feed("STINT.POOL NEXT p COST 2\r\n");
    let_next(0);
    assert_int_equal(fake.n_asks, 3);
}

/* The store decided at some time after it was asked: by then others may have a key. */
TEST(a_wait_counts_from_the_question)
{
    feed(NEXT);
    resp.now_ns += 40 * MS;
    let_none(300 * MS);
    sent();
    resp.now_ns += 60 * MS;
    feed(NEXT);
    assert_has(sent(), "wait_ms\r\n:200\r\n");
    assert_int_equal(fake.n_asks, 1);
    resp.now_ns += 200 * MS;
    feed(NEXT);
    let_next(0);
}

TEST(what_is_given_back_here_is_asked_for_at_once)
{
    feed(NEXT);
    let_none(S);
    sent();
    feed("STINT.POOL GIVEBACK p a COST 2 AT 1795316512076437000\r\n");
    assert_int_equal(fake.asked.verb, BACKEND_POOL_GIVE_BACK);
    assert_int_equal(fake.asked.at_ns, UINT64_C(1795316512076437000));
    waiting()->given_back = 2;
    let(BACKEND_DECIDED);
    assert_string_equal(sent(), ":2\r\n");
    feed(NEXT);
    let_next(0);
    assert_has(sent(), "$1\r\na\r\n");
}

TEST(a_wait_ends_with_a_key)
{
    /* Behind it waits what was begun ahead: its answer stays its own. */
    feed("STINT.POOL NEXT p WAIT 5000\r\nCL.THROTTLE k 1 60 60\r\n");
    assert_int_equal(fake_store.n_asks, 1);
    let_none(300 * MS);
    assert_string_equal(sent(), "");
    fake_let(&fake_store, 0, resp.now_ns);
    assert_string_equal(sent(), "");
    uint64_t at_ns = resp.conn->ops->deadline(resp.conn);
    assert_int_equal(at_ns, resp.now_ns + 300 * MS);
    resp.now_ns = at_ns;
    resp.conn->ops->wake(resp.conn, resp.now_ns);
    let_next(0);
    const char *text = sent();
    assert_has(text, "$1\r\na\r\n");
    assert_has(text, "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:1\r\n");
    assert_int_equal(fake_store.n_asks, 1);
}

TEST(a_connection_that_ends_forgets)
{
    feed(NEXT);
    hang_up();
    assert_int_equal(fake.n_forgotten, 1);
    dial();
}

TEST(times_of_stores_are_none_of_a_table)
{
    assert_int_equal(define("t", "", "k", NULL), 0);
    feed("STINT.POOL GIVEBACK t k AT 1795316512076437000\r\n");
    assert_string_equal(sent(), "-ERR at is later than any time of this pool\r\n");
    assert_int_equal(fake.n_asks, 0);
}

TEST(a_pool_in_a_store_takes_no_id)
{
    feed("STINT.POOL NEXT p ID i\r\n");
    assert_string_equal(sent(), "-ERR pool p is in a store: send no id\r\n");
    feed("STINT.POOL GIVEBACK p a ID i\r\n");
    assert_string_equal(sent(), "-ERR pool p is in a store: send no id\r\n");
    assert_int_equal(fake.n_asks, 0);
}

/* ---- Keys ------------------------------------------------------------------------------------ */

TEST(keys_come_and_go_while_others_wait)
{
    struct stint_error error;
    feed(NEXT);
    struct backend_pool_op *op = fake.op; /* its list stays until it is answered */
    const struct backend_pool_list *list = fake.asked.list;
    assert_int_equal(define("p", "default", "xy", &error), 0);
    assert_int_equal(fake.n_lists, 2);
    fake.op = op;
    assert_string_equal(list->names[0], "a");
    let_next(0);
    assert_has(sent(), "$1\r\na\r\n");
    assert_int_equal(fake.n_lists, 1);
    feed("STINT.POOL ADD p z QUOTA 1/1s\r\n");
    assert_string_equal(sent(), "+OK\r\n");
    feed("STINT.POOL ADD p z QUOTA 1/1s\r\n");
    assert_string_equal(sent(), "-CONFLICT key z is in the pool already\r\n");
    feed("STINT.POOL ADD p w QUOTA \"concurrency 5 lease=1m\"\r\n");
    assert_string_equal(sent(),
                        "-ERR concurrency is not for the keys of a pool: a place needs a ticket, "
                        "which `reserve` gives\r\n");
    feed("STINT.POOL REMOVE p y\r\n");
    assert_int_equal(fake.asked.verb, BACKEND_POOL_LET_IN);
    let(BACKEND_DECIDED);
    assert_string_equal(sent(), "+OK\r\n");
    feed("STINT.POOL STATUS p\r\n");
    assert_int_equal(fake.asked.list->n_keys, 2);
    for (size_t i = 0; i < 2; i++)
        waiting()->statuses[i] = (struct stint_pool_status){.name = fake.asked.list->names[i]};
    let(BACKEND_DECIDED);
    const char *text = sent();
    assert_has(text, "$1\r\nx\r\n");
    assert_has(text, "$1\r\nz\r\n");
}

TEST(a_definition_that_cannot_be_changes_nothing)
{
    struct stint_error error;
    assert_int_equal(define("q", "other", "a", &error), STINT_E_MISMATCH);
    assert_has(error.message, "there is no store `other`");
    assert_int_equal(define("q", "mem", "a", &error), STINT_E_MISMATCH);
    assert_string_equal(error.message, "it keeps no pools");
    assert_int_equal(define("p", "", "a", &error), STINT_E_MISMATCH);
    assert_has(error.message, "the store of pool p cannot be changed");
    assert_int_equal(pools_count(server_state_pools(resp.server_state)), 1);
    assert_int_equal(define("p", "default", "ab", &error), 0);
    assert_int_equal(fake.n_lists, 1);
}
