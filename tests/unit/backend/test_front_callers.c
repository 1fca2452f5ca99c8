/* SPDX-License-Identifier: MIT */
/*
 * Many callers of one front at random in virtual time: they go away while they wait, and ask again
 * from within their answers, while the store is late, fails, or answers at once, and fails over.
 * Nobody is answered from within an ask, nor twice, nor after going away; what is denied here the
 * store would deny; and no breaker stays open once the store answers.
 */
#include "unit/fake_store.h"

#include "backend/front/front.h"

#define CALLERS 64
#define KEYS 5
#define ITEMS_MAX 6
#define SPECS 3

static const char *const names[KEYS] = {"0a", "1a", "2a", "0b", "1b"}; /* of three servers */
static const char *const specs[SPECS] = {"window 10/1s", "gcra 8/1s", "concurrency 3 lease=1s"};

enum caller_state { FREE, WAITS, GONE };

struct caller {
    struct backend_op op;
    struct stint_decision each[ITEMS_MAX];
    enum caller_state state;
};

static struct fake_store fake;
static struct backend *front;
static struct stint_quota quotas[SPECS];
static struct caller callers[CALLERS];
static uint64_t now_ns, seed, failovers;
static bool is_asking, is_quiet;
static size_t first_waiting; /* of fake.asks */
static unsigned answers, nested, gone, denied_here, failures;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static void ask_something(void);
static void forget_someone(void);

static uint64_t failovers_of(void *arg)
{
    return *(const uint64_t *)arg;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* A denial from here waits no longer than one of the store, which all else has reached. */
static void check_denial(const struct caller *caller, const struct backend_request *asked)
{
    denied_here++;
    for (size_t i = 0; i < asked->n_items; i++) {
        const struct backend_item *item = &asked->items[i];
        bool takes_any = asked->verb == REQUEST_TAKE_UPTO && item->cost > 1;
        char name[FAKE_NAME_MAX];
        int len = snprintf(name, sizeof(name), "rule:%.*s", (int)item->key.len,
                           (const char *)item->key.ptr);
        const struct stint_item stored = {item->quota, name, (size_t)len,
                                          takes_any ? 1 : item->cost};
        struct stint_decision decision = stint_peek(fake.table, &stored, 1, now_ns);
        if (caller->each[i].outcome != STINT_DENY)
            continue;
        assert_int_equal(decision.outcome, STINT_DENY);
        assert_true(caller->each[i].retry_after_ns <= decision.retry_after_ns);
    }
}

static void take_answer(struct caller *caller)
{
    caller->state = FREE;
    answers++;
    failures += caller->op.answer.outcome == BACKEND_FAILED;
}

static void on_answer(struct backend_op *op, uint64_t at_ns)
{
    (void)at_ns;
    struct caller *caller = op->arg;
    assert_false(is_asking);
    assert_int_equal(caller->state, WAITS);
    assert_ptr_equal(op->answer.each, caller->each);
    take_answer(caller);
    if (is_quiet)
        return;
    for (unsigned i = 0; i < 2 && draw(2) == 0; i++, nested++)
        ask_something();
    if (draw(4) == 0)
        forget_someone();
}

/* ---- Requests -------------------------------------------------------------------------------- */

static void send_items(uint8_t verb, const struct backend_item *items, size_t n_items)
{
    size_t i = 0;
    while (i < CALLERS && callers[i].state != FREE)
        i++;
    if (i == CALLERS)
        return;
    struct caller *caller = &callers[i];
    *caller = (struct caller){.state = WAITS};
    caller->op =
        (struct backend_op){.answered = on_answer, .arg = caller, .answer = {.each = caller->each}};
    const struct backend_request asked = {.verb = verb,
                                          .items = items,
                                          .n_items = n_items,
                                          .at_ns = STINT_NEVER_NS,
                                          .now_ns = now_ns,
                                          .deadline_ns = now_ns + 50 * MS,
                                          .is_ahead = draw(16) == 0};
    is_asking = true;
    front->ops->ask(front, &asked, &caller->op);
    is_asking = false;
    if (caller->op.answer.outcome == BACKEND_WAITS)
        return;
    if (caller->op.answer.outcome == BACKEND_DECIDED && caller->op.answer.is_local)
        check_denial(caller, &asked);
    take_answer(caller);
}

static void ask_something(void)
{
    static const uint8_t verbs[] = {REQUEST_TAKE,   REQUEST_TAKE,   REQUEST_TAKE_UPTO,
                                    REQUEST_TAKE,   REQUEST_PEEK,   REQUEST_CHARGE,
                                    REQUEST_REFUND, REQUEST_REFUND, REQUEST_RESET};
    struct backend_item items[ITEMS_MAX];
    uint8_t verb = verbs[draw(draw(8) == 0 ? N(verbs) : N(verbs) - 3)];
    size_t n_items = draw(3) == 0 ? 1 + draw(ITEMS_MAX) : 1;
    for (size_t i = 0; i < n_items; i++)
        items[i] = (struct backend_item){.quota = &quotas[draw(SPECS)],
                                         .name = span_of_text("rule"),
                                         .key = span_of_text(names[draw(KEYS)]),
                                         .cost = (uint32_t)draw(draw(4) == 0 ? 13 : 4)};
    send_items(verb, items, n_items);
}

/* The memory of a request whose caller has gone is not the backend's any more. */
static void forget_someone(void)
{
    struct caller *caller = &callers[draw(CALLERS)];
    if (caller->state != WAITS)
        return;
    front->ops->forget(front, &caller->op);
    caller->state = GONE;
    memset(&caller->op, 0xa5, sizeof(caller->op));
    memset(caller->each, 0xa5, sizeof(caller->each));
    gone++;
}

static void check_gone(void)
{
    struct caller untouched;
    memset(&untouched, 0xa5, sizeof(untouched));
    for (size_t i = 0; i < CALLERS; i++) {
        assert_int_not_equal(callers[i].state, WAITS);
        if (callers[i].state == FREE)
            continue;
        assert_memory_equal(&callers[i].op, &untouched.op, sizeof(untouched.op));
        assert_memory_equal(callers[i].each, untouched.each, sizeof(untouched.each));
        callers[i].state = FREE;
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* The store decides when it answers; `waits_in` 1: all of them. */
static void let_some(unsigned waits_in, unsigned fails_in)
{
    while (first_waiting < fake.n_asks && fake.asks[first_waiting].op == NULL)
        first_waiting++;
    for (size_t i = first_waiting; i < fake.n_asks; i++) {
        if (fake.asks[i].op == NULL || draw(waits_in) != 0)
            continue;
        fake.asks[i].now_ns = now_ns;
        if (draw(fails_in) == 0)
            fake_fail(&fake, i, now_ns);
        else
            fake_let(&fake, i, now_ns);
    }
}

/* Whatever has happened, the store answers again. */
static void settle(void)
{
    fake.is_prompt = fake.is_failing = false;
    is_quiet = true;
    let_some(1, UINT32_MAX);
    check_gone();
    for (unsigned i = 0; i < 3 * KEYS; i++) {
        now_ns += NS_PER_S;
        const struct backend_item item = {.quota = &quotas[0],
                                          .name = span_of_text("rule"),
                                          .key = span_of_text(names[i % KEYS]),
                                          .cost = 1};
        send_items(REQUEST_CHARGE, &item, 1);
        for (unsigned step = 0; step < 3; step++)
            let_some(1, UINT32_MAX);
    }
    assert_true(front->ops->unavailable_since_ns(front) == 0);
    check_gone();
    is_quiet = false;
}

static void play(enum failover_policy policy, uint64_t number)
{
    struct stint_error error;
    fake_store_begin(&fake);
    fake.has_servers = true;
    seed = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    now_ns = 1000 * NS_PER_S;
    first_waiting = 0;
    memset(callers, 0, sizeof(callers));
    for (size_t i = 0; i < SPECS; i++) {
        assert_int_equal(stint_quota_parse(&quotas[i], specs[i], &error), 0);
        quotas[i].rule = i + 1; /* the same key is another one under another quota */
    }
    front = front_new(&(struct front_options){
        .inner = &fake.store,
        .denials = 64,
        .secret = {1, 2},
        .breaker = {.failures_max = 3, .open_ns = 100 * MS, .open_max_ns = 400 * MS},
        .failover_policy = policy,
        .failovers = failovers_of,
        .arg = &failovers});
    assert_non_null(front);
    for (unsigned turn = 0; turn < 300; turn++) {
        now_ns += 1 + draw(20 * MS);
        fake.is_prompt = draw(6) == 0;
        fake.is_failing = draw(20) == 0;
        failovers += draw(100) == 0;
        let_some(2, turn / 50 % 2 == 0 ? 3 : 50);
        for (uint64_t i = draw(5); i > 0; i--)
            ask_something();
        if (draw(3) == 0)
            forget_someone();
        if (draw(10) == 0)
            front_tick(front, now_ns);
        if (draw(100) == 0)
            settle();
    }
    if (number % 2 == 0)
        settle();
    is_quiet = true;
    front->ops->free(front);
    is_quiet = false;
    check_gone();
    fake_store_end(&fake);
}

TEST(each_caller_is_answered_once_and_denied_as_by_the_store)
{
    for (uint64_t number = 1; number <= 240; number++)
        play(FAILOVER_TRUSTS + (enum failover_policy)(number % 3), number);
    print_message("%u answers, %u failed, %u denied here, %u nested, %u gone\n", answers, failures,
                  denied_here, nested, gone);
    assert_true(nested > 0 && gone > 0 && denied_here > 0 && failures > 0);
}
