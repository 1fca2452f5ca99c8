/* SPDX-License-Identifier: MIT */
/*
 * Many callers of one worker's leases, at random in virtual time: they take, refund, reset, go away
 * while they wait, and do so again from within their answers, while the store is slow, is not
 * reached, or answers at once. Nobody is answered from within an ask, nor twice, nor after going
 * away; and units granted and held are those that the store gave.
 */
#include "backend/front/front.h"
#include "backend/front/lease_waiter.h"
#include "unit/lease_world.h"
#include "unit/test.h"

#define MS NS_PER_MS
#define CALLERS 128
#define KEYS 4
#define PLAIN 3 /* the key under a rule without leases */
#define WAITING 48
#define COST_MAX 12
#define TIME_MAX_NS (45 * MS) /* of a request */
#define LATE_NS (11 * MS)     /* a turn of the leases, and one of the test */

static const char *const names[KEYS] = {"hot", "warm", "cool", "plain"};

/* Who asks the ledger: a refund by a caller changes nothing of what the store gave to leases. */
enum asker { LEASES, CALLER, LIST };

/* Of one key, in units. */
struct key_ledger {
    uint64_t leased;  /* to this worker */
    uint64_t direct;  /* granted by the store to a caller */
    uint64_t back;    /* given back to the store */
    uint64_t granted; /* to callers, without what they gave back to leases */
};

enum caller_state { FREE, WAITS, GONE };

struct caller {
    struct backend_op op;
    struct stint_decision each[KEYS];
    enum caller_state state;
    uint8_t verb;
    size_t n_items;
    unsigned keys[KEYS];
    uint64_t latest_ns; /* of the world: when it is answered */
};

/* One request on its way through the ledger. */
struct entry {
    struct backend_op inner;
    struct backend_op *op;
    uint8_t verb;
    unsigned key;
};

struct grant {
    unsigned key;
    uint32_t units;
    uint64_t at_ns;
};

static struct world world;
static struct world_node node;
static struct backend *front, *lease;
static struct backend ledger;
static struct key_ledger keys[KEYS];
static struct caller callers[CALLERS];
static struct grant grants[16];
static struct stint_quota quota;
static struct rule rules[2]; /* with leases, without */
static size_t n_entries;
static bool is_asking, is_quiet, is_closing, is_failing;
static unsigned answers, nested, gone, failures, refunds, overloads;

static bool chance(unsigned of)
{
    return world_random(&world, of) == 0;
}

/* ---- What the store gives -------------------------------------------------------------------- */

static void note(const struct entry *entry, const struct backend_answer *answer)
{
    struct key_ledger *key = &keys[entry->key];
    if (answer->outcome != BACKEND_DECIDED || answer->sum.outcome != STINT_ALLOW)
        return;
    if (entry->verb == REQUEST_LEASE)
        key->leased += answer->sum.granted;
    else if (entry->verb == REQUEST_TAKE || entry->verb == REQUEST_TAKE_UPTO ||
             entry->verb == REQUEST_CHARGE)
        key->direct += answer->sum.granted;
}

static void hand_over(struct entry *entry, struct backend_op *op)
{
    note(entry, &entry->inner.answer);
    op->answer = entry->inner.answer;
    op->at_work = NULL;
    free(entry);
    n_entries--;
}

static void ledger_answered(struct backend_op *inner, uint64_t now_ns)
{
    struct entry *entry = inner->arg;
    struct backend_op *op = entry->op;
    hand_over(entry, op);
    op->answered(op, now_ns);
}

static unsigned key_of(const struct backend_item *item)
{
    for (unsigned i = 0; i < KEYS; i++)
        if (item->key.len == strlen(names[i]) &&
            memcmp(item->key.ptr, names[i], item->key.len) == 0)
            return i;
    abort();
}

/* A lease that is refused at once was not requested, and gives nothing back. */
static void count_back(const struct backend_request *asked, unsigned key, uint8_t outcome)
{
    bool is_sent = outcome == BACKEND_WAITS || outcome == BACKEND_DECIDED;
    for (size_t i = 0; i < asked->n_ended && (is_sent || asked->verb != REQUEST_LEASE); i++)
        keys[key].back += asked->ended[i].left;
    if (asked->verb == REQUEST_REFUND && asked->body != CALLER)
        keys[key].back += asked->items[0].cost;
}

static void ledger_ask(struct backend *store, const struct backend_request *asked,
                       struct backend_op *op)
{
    (void)store;
    assert_int_equal(asked->n_items, 1);
    unsigned key = key_of(&asked->items[0]);
    if (is_closing || is_failing) { /* as where the server ends, or a breaker is open */
        op->answer.outcome = BACKEND_FAILED;
        count_back(asked, key, BACKEND_FAILED);
        return;
    }
    struct entry *entry = calloc(1, sizeof(*entry));
    assert_non_null(entry);
    n_entries++;
    *entry = (struct entry){
        .op = op,
        .verb = asked->verb,
        .key = key,
        .inner = {.answered = ledger_answered, .arg = entry, .answer = {.each = op->answer.each}}};
    front->ops->ask(front, asked, &entry->inner);
    count_back(asked, key, entry->inner.answer.outcome);
    if (entry->inner.answer.outcome != BACKEND_WAITS) {
        hand_over(entry, op);
        return;
    }
    op->answer.outcome = BACKEND_WAITS;
    op->at_work = entry;
}

static void ledger_forget(struct backend *store, struct backend_op *op)
{
    (void)store;
    struct entry *entry = op->at_work;
    front->ops->forget(front, &entry->inner);
    memset(entry, 0xa5, sizeof(*entry));
    free(entry);
    n_entries--;
}

static void ledger_drain(struct backend *store, uint64_t deadline_ns, void (*done)(void *arg),
                         void *arg)
{
    (void)store;
    front->ops->drain(front, deadline_ns, done, arg);
}

static void ledger_free(struct backend *store)
{
    (void)store;
    front->ops->free(front);
}

static const struct backend_ops ledger_ops = {
    .ask = ledger_ask, .forget = ledger_forget, .drain = ledger_drain, .free = ledger_free};

/* ---- What holds at all times ----------------------------------------------------------------- */

static uint64_t held_of(unsigned key)
{
    const struct lease *own = (const struct lease *)lease;
    for (const struct lease_key *held = own->oldest; held != NULL; held = held->newer)
        if (key_of(held->item) == key)
            return lease_left(held);
    return 0;
}

static void check_units(bool is_exact)
{
    uint64_t held = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        uint64_t used = keys[i].granted + held_of(i), given = keys[i].leased + keys[i].direct;
        held += held_of(i);
        if (is_exact)
            assert_int_equal(used + keys[i].back, given);
        else
            assert_true(used + keys[i].back <= given);
    }
    assert_int_equal(held, ((const struct lease *)lease)->units);
}

/* ---- Callers --------------------------------------------------------------------------------- */

static void ask_something(void);
static void forget_someone(void);

static void keep_grant(const struct caller *caller)
{
    if (caller->n_items == 1 && caller->op.answer.is_local && caller->each[0].granted > 0)
        grants[world_random(&world, N(grants))] =
            (struct grant){caller->keys[0], caller->each[0].granted, caller->op.answer.at_ns};
}

static void take_answer(struct caller *caller)
{
    const struct backend_answer *answer = &caller->op.answer;
    caller->state = FREE;
    answers++;
    failures += answer->outcome == BACKEND_FAILED;
    overloads += answer->outcome == BACKEND_FAILED && answer->fault == BACKEND_ERROR_OVERLOAD;
    if (answer->outcome != BACKEND_DECIDED || answer->sum.outcome != STINT_ALLOW ||
        caller->verb == REQUEST_PEEK || caller->verb == REQUEST_RESET)
        return;
    if (caller->verb == REQUEST_REFUND) {
        refunds += answer->is_local;
        keys[caller->keys[0]].granted -= answer->is_local ? answer->sum.granted : 0;
        return;
    }
    for (size_t i = 0; i < caller->n_items; i++)
        keys[caller->keys[i]].granted += caller->each[i].granted;
    keep_grant(caller);
}

static void on_answer(struct backend_op *op, uint64_t now_ns)
{
    (void)now_ns;
    struct caller *caller = op->arg;
    assert_false(is_asking);
    assert_int_equal(caller->state, WAITS);
    assert_true(caller->n_items > 1 || world.now_ns <= caller->latest_ns);
    take_answer(caller);
    if (is_quiet)
        return;
    is_failing = is_failing || chance(20);
    for (unsigned i = 0; i < 2 && chance(2); i++, nested++)
        ask_something();
    if (chance(4))
        forget_someone();
}

static void send_items(uint8_t verb, const struct backend_item *items, size_t n_items,
                       uint64_t at_ns)
{
    size_t i = 0;
    while (i < CALLERS && callers[i].state != FREE)
        i++;
    if (i == CALLERS)
        return;
    struct caller *caller = &callers[i];
    uint64_t time = 1 + world_random(&world, TIME_MAX_NS), now = world_node_now(&node);
    *caller = (struct caller){.state = WAITS, .verb = verb, .n_items = n_items};
    caller->latest_ns = world.now_ns + time + LATE_NS;
    caller->op =
        (struct backend_op){.answered = on_answer, .arg = caller, .answer = {.each = caller->each}};
    for (i = 0; i < n_items; i++)
        caller->keys[i] = key_of(&items[i]);
    const struct backend_request asked = {.verb = verb,
                                          .items = items,
                                          .n_items = n_items,
                                          .at_ns = at_ns,
                                          .now_ns = now,
                                          .deadline_ns = now + time,
                                          .body = n_items > 1 ? LIST : CALLER,
                                          .is_ahead = chance(16)};
    is_asking = true;
    lease->ops->ask(lease, &asked, &caller->op);
    is_asking = false;
    if (caller->op.answer.outcome != BACKEND_WAITS)
        take_answer(caller);
    check_units(false);
}

static struct backend_item item_of(unsigned key, uint32_t cost)
{
    return (struct backend_item){.quota = &quota,
                                 .rule = &rules[key == PLAIN],
                                 .name = span_of_text("rule"),
                                 .key = span_of_text(names[key]),
                                 .cost = cost};
}

static void send_list(void)
{
    struct backend_item items[KEYS];
    size_t n_items = 0;
    for (unsigned key = 0; key < KEYS; key++)
        if (chance(2))
            items[n_items++] = item_of(key, (uint32_t)world_random(&world, COST_MAX + 1));
    if (n_items > 1)
        send_items(chance(3) ? REQUEST_TAKE_UPTO : REQUEST_TAKE, items, n_items, STINT_NEVER_NS);
}

static void refund_something(void)
{
    struct grant *grant = &grants[world_random(&world, N(grants))];
    if (grant->units == 0)
        return;
    const struct backend_item item =
        item_of(grant->key, 1 + (uint32_t)world_random(&world, grant->units));
    grant->units -= item.cost;
    send_items(REQUEST_REFUND, &item, 1, grant->at_ns);
}

static void ask_something(void)
{
    static const uint8_t verbs[] = {REQUEST_TAKE,      REQUEST_TAKE, REQUEST_TAKE,
                                    REQUEST_TAKE_UPTO, REQUEST_PEEK, REQUEST_CHARGE};
    bool is_reset = rules[0].store.lease == RULE_LEASE_STRICT && chance(200);
    unsigned key = chance(2) ? 0 : (unsigned)world_random(&world, KEYS);
    uint32_t cost = chance(20) ? 0 : 1 + (uint32_t)world_random(&world, COST_MAX);
    uint8_t verb = is_reset ? REQUEST_RESET : verbs[world_random(&world, N(verbs))];
    if (chance(8)) {
        refund_something();
    } else if (chance(8)) {
        send_list();
    } else {
        const struct backend_item item = item_of(key, cost);
        send_items(verb, &item, 1, STINT_NEVER_NS);
    }
}

/* The memory of a request whose caller has gone is not the backend's any more. */
static void forget_someone(void)
{
    struct caller *caller = &callers[world_random(&world, CALLERS)];
    if (caller->state != WAITS)
        return;
    lease->ops->forget(lease, &caller->op);
    caller->state = GONE;
    memset(&caller->op, 0xa5, sizeof(caller->op));
    memset(caller->each, 0xa5, sizeof(caller->each));
    gone++;
    check_units(false);
}

static void check_gone(void)
{
    struct caller untouched;
    memset(&untouched, 0xa5, sizeof(untouched));
    for (size_t i = 0; i < CALLERS; i++) {
        if (callers[i].state != GONE)
            continue;
        assert_memory_equal(&callers[i].op, &untouched.op, sizeof(untouched.op));
        assert_memory_equal(callers[i].each, untouched.each, sizeof(untouched.each));
        callers[i].state = FREE;
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void pass(uint64_t ns)
{
    world.now_ns += ns;
    world_run(&world);
    if (lease_deadline(lease) <= world_node_now(&node))
        lease_wake(lease, world_node_now(&node));
    check_units(false);
}

/* Until everybody is answered. */
static void settle(bool is_exact)
{
    const struct lease *own = (const struct lease *)lease;
    size_t n_free = 0;
    is_quiet = true;
    for (unsigned i = 0; i < 240; i++) /* what goes back has a second */
        pass(5 * MS);
    is_quiet = false;
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_not_equal(callers[i].state, WAITS);
    check_gone();
    assert_int_equal(n_entries, 0);
    for (const struct lease_waiter *waiter = own->free_waiters; waiter != NULL;
         waiter = waiter->next)
        n_free++;
    assert_int_equal(n_free, WAITING);
    for (const struct lease_key *key = own->oldest; key != NULL; key = key->newer)
        assert_true(key->pins == 0 && key->asking == 0 && key->waiting == 0);
    check_units(is_exact);
}

static void open_layers(uint8_t kind, uint64_t term_ns, uint64_t seed)
{
    struct stint_error error;
    world = (struct world){
        .now_ns = NS_PER_S, .seed = seed * UINT64_C(0x9e3779b97f4a7c15) + 1, .slow_ns = 2 * MS};
    node = (struct world_node){.store = {&world_ops}, .world = &world, .rate_per_mille = 1000};
    memset(keys, 0, sizeof(keys));
    memset(callers, 0, sizeof(callers));
    memset(grants, 0, sizeof(grants));
    is_asking = is_closing = is_failing = false;
    assert_int_equal(stint_quota_parse(&quota, "window 300/1s", &error), 0);
    rules[1] = rules[0] = (struct rule){.domain = "d", .quota = quota};
    rules[0].store =
        (struct rule_store){.lease = kind, .lease_units = 20, .lease_term_ns = term_ns};
    ledger.ops = &ledger_ops;
    front = front_new(&(struct front_options){
        .inner = &node.store,
        .denials = 64,
        .breaker = {.failures_max = 3, .open_ns = 10 * MS, .open_max_ns = 20 * MS}});
    lease = lease_new(&(struct lease_options){.inner = &ledger,
                                              .now = world_node_clock,
                                              .arg = &node,
                                              .keys = 2,
                                              .waiting = WAITING,
                                              .denied_max_ns = 20 * MS});
    assert_true(front != NULL && lease != NULL);
}

static void set_done(void *arg)
{
    *(bool *)arg = true;
}

/* Half of the ends leave everything as it is, and answer who waits. */
static void close_layers(bool is_drained, bool is_exact)
{
    bool is_done = false;
    node.is_cut = is_failing = false;
    if (is_drained) {
        settle(is_exact);
        lease->ops->drain(lease, STINT_NEVER_NS, set_done, &is_done);
        ask_something();
        settle(is_exact);
        assert_true(is_done);
        assert_int_equal(((const struct lease *)lease)->units, 0);
    }
    is_closing = true;
    lease->ops->free(lease);
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_not_equal(callers[i].state, WAITS);
    assert_int_equal(n_entries, 0);
    world_close(&world);
}

static void play(uint8_t kind, uint64_t term_ns, uint64_t length_ns, bool is_exact, uint64_t seed)
{
    open_layers(kind, term_ns, seed);
    while (world.now_ns < NS_PER_S + length_ns) {
        pass(1 + world_random(&world, MS));
        node.is_cut = node.is_cut ? !chance(40) : chance(100);
        is_failing = is_failing && !chance(3);
        node.is_prompt = node.is_prompt ? !chance(20) : chance(40);
        for (unsigned i = (unsigned)world_random(&world, 5); i > 0; i--)
            ask_something();
        if (chance(2))
            forget_someone();
        if (chance(300))
            settle(is_exact);
    }
    close_layers(seed % 2 == 0, is_exact);
}

static const uint8_t kinds[] = {RULE_LEASE_STRICT, RULE_LEASE_FAST};

/* No lease ends by itself, so each unit that the store gave is somewhere. */
TEST(no_unit_is_lost_or_granted_twice)
{
    for (uint64_t seed = 1; seed <= 200; seed++)
        play(kinds[seed / 2 % 2], 100 * NS_PER_S, NS_PER_S / 2, true, seed);
    assert_true(answers > 0 && nested > 0 && gone > 0 && failures > 0 && refunds > 0);
}

TEST(leases_end_while_callers_wait)
{
    for (uint64_t seed = 1; seed <= 200; seed++)
        play(kinds[seed / 2 % 2], (4 + seed % 3 * 20) * MS, NS_PER_S / 2, false, seed + 1000);
    print_message("%u answers, %u failed, %u for want of memory, %u nested, %u gone, %u refunds\n",
                  answers, failures, overloads, nested, gone, refunds);
}
