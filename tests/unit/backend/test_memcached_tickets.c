/* SPDX-License-Identifier: MIT */
/*
 * Tickets in the value of their key: good once, within their time, closed as they say by any swap,
 * bounded, and gone where bits flip. A value whose tickets are closed is as it was before them.
 */
#include "unit/test_memcached.h"

#include "base/siphash.h"
#include "base/splitmix.h"

#define LIFE_NS (60 * NS_PER_S)
#define RECORDS_LEN(n) (2 + 48 * (size_t)(n))

static const char *const specs[] = {
    "gcra 200/60s",
    "window 200/60s",
    "fixed_window 200/1h align=first_use",
    "sliding_counter 200/60s",
    "log 200/60s",
    "buckets 200/60s time_slack=6s",
};
#define SPECS (N(specs))

static uint64_t at_ns = UINT64_C(56) * NS_PER_YEAR + 500 * NS_PER_DAY;

static struct stint_quota quota_of(const char *spec)
{
    struct stint_quota quota;
    assert_int_equal(stint_quota_parse(&quota, spec, NULL), 0);
    return quota;
}

struct one {
    uint8_t verb;
    unsigned id; /* 0: no ticket */
    uint32_t cost, kept;
};

static struct memcached_step step_of(const struct stint_quota *quota, const struct one *one,
                                     uint8_t id[BACKEND_ID_LEN])
{
    memset(id, 0, BACKEND_ID_LEN);
    memcpy(id, &one->id, sizeof(one->id));
    return (struct memcached_step){
        .quota = quota,
        .now_ns = at_ns,
        .at_ns = STINT_NEVER_NS,
        .cost = one->cost,
        .verb = one->verb,
        .ticket = {one->id > 0 ? id : NULL, LIFE_NS, one->kept},
    };
}

static int ask(struct memcached_state *state, const struct stint_quota *quota, struct one one,
               struct stint_decision *decision)
{
    uint8_t id[BACKEND_ID_LEN];
    const struct memcached_step step = step_of(quota, &one, id);
    return memcached_state_ask(state, &step, decision, NULL);
}

static uint32_t moved(struct memcached_state *state, const struct stint_quota *quota,
                      struct one one)
{
    struct stint_decision decision;
    assert_int_equal(ask(state, quota, one, &decision), 0);
    assert_int_equal(decision.outcome, STINT_ALLOW);
    return decision.granted;
}

static void assert_gone(struct memcached_state *state, const struct stint_quota *quota, unsigned id)
{
    struct stint_decision decision;
    for (uint8_t verb = REQUEST_SETTLE; verb <= REQUEST_EXPIRE; verb++)
        if (verb != REQUEST_EXTEND)
            assert_int_equal(ask(state, quota, (struct one){verb, id, 0, 0}, &decision),
                             STINT_E_GONE);
}

static uint32_t left(struct memcached_state *state, const struct stint_quota *quota)
{
    struct stint_decision decision;
    assert_int_equal(ask(state, quota, (struct one){STINT_PEEK, 0, 0, 0}, &decision), 0);
    return decision.remaining;
}

static void reserve(struct memcached_state *state, const struct stint_quota *quota, unsigned id,
                    uint32_t cost, uint32_t kept)
{
    assert_int_equal(moved(state, quota, (struct one){STINT_TAKE, id, cost, kept}), cost);
}

TEST(a_ticket_is_good_once_and_leaves_nothing_behind)
{
    for (size_t i = 0; i < SPECS; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct memcached_state plain = {.len = 0}, state;
        moved(&plain, &quota, (struct one){STINT_TAKE, 0, 8, 0});
        state = plain;
        reserve(&state, &quota, 1, 48, STINT_KEEP_ALL);
        assert_in_range(state.len, plain.len + RECORDS_LEN(1), plain.len + RECORDS_LEN(1) + 24);
        reserve(&state, &quota, 2, 48, STINT_KEEP_ALL);
        assert_int_equal(left(&state, &quota), 200 - 8 - 96);
        assert_gone(&state, &quota, 3);
        moved(&state, &quota, (struct one){REQUEST_SETTLE, 2, 24, 0});
        assert_gone(&state, &quota, 2);
        moved(&state, &quota, (struct one){REQUEST_CANCEL, 1, 0, 0});
        assert_gone(&state, &quota, 1);
        assert_in_range(left(&state, &quota), 200 - 8 - 24 - 16, 200 - 8 - 24);
        assert_int_equal(state.bytes[0], plain.bytes[0]);
        /* More than was estimated is charged. */
        uint32_t before = left(&state, &quota);
        reserve(&state, &quota, 4, 8, STINT_KEEP_ALL);
        moved(&state, &quota, (struct one){REQUEST_SETTLE, 4, 28, 0});
        assert_int_equal(left(&state, &quota), before - 28);
        assert_int_equal(state.closed.dropped, 0);
    }
}

TEST(any_swap_closes_what_has_ended_as_it_says)
{
    struct stint_quota quota = quota_of("log 200/1h");
    struct memcached_state state = {.len = 0};
    uint64_t began_ns = at_ns;
    reserve(&state, &quota, 1, 10, STINT_KEEP_ALL);
    reserve(&state, &quota, 2, 10, 0);
    reserve(&state, &quota, 3, 10, 3);
    reserve(&state, &quota, 4, 10, 50);
    at_ns += LIFE_NS - NS_PER_US;
    assert_int_equal(left(&state, &quota), 160);
    struct stint_decision decision;
    assert_int_equal(ask(&state, &quota, (struct one){REQUEST_EXPIRE, 2, 0, 0}, &decision), 0);
    assert_int_equal(decision.outcome, STINT_DENY);
    assert_int_equal(decision.retry_after_ns, NS_PER_US);
    at_ns += NS_PER_US;
    /* A look sees it, and writes nothing. */
    struct memcached_state looked_at = state;
    looked_at.has_changed = false;
    assert_int_equal(left(&looked_at, &quota), 177);
    assert_false(looked_at.has_changed);
    assert_memory_equal(looked_at.bytes, state.bytes, state.len);
    assert_int_equal(looked_at.closed.expired[STINT_EXPIRY_RELEASE], 0);
    /* A ticket that is expired by its name is its caller's to count. */
    assert_int_equal(moved(&state, &quota, (struct one){REQUEST_EXPIRE, 2, 0, 0}), 10);
    assert_int_equal(state.closed.expired[STINT_EXPIRY_RELEASE], 0);
    assert_int_equal(state.closed.expired[STINT_EXPIRY_FLOOR], 2);
    assert_int_equal(state.closed.expired[STINT_EXPIRY_KEEP], 1);
    assert_int_equal(left(&state, &quota), 177);
    for (unsigned id = 1; id <= 4; id++)
        assert_gone(&state, &quota, id);
    assert_int_equal(left(&state, &quota), 177);
    at_ns = began_ns;
}

TEST(what_can_no_longer_come_back_is_counted)
{
    struct stint_quota quota = quota_of("log 200/10s");
    struct memcached_state state = {.len = 0};
    uint64_t began_ns = at_ns;
    reserve(&state, &quota, 1, 10, 3);
    at_ns += LIFE_NS; /* by then they have come back by themselves */
    moved(&state, &quota, (struct one){STINT_TAKE, 0, 1, 0});
    assert_int_equal(state.closed.expired[STINT_EXPIRY_FLOOR], 1);
    assert_int_equal(state.closed.kept_units, 7);
    assert_int_equal(left(&state, &quota), 199);
    at_ns = began_ns;
}

TEST(of_too_many_the_oldest_stays_as_estimated)
{
    struct stint_quota quota = quota_of("gcra 5000/1h");
    static struct memcached_state state;
    memcached_state_forget(&state);
    for (unsigned id = 1; id <= MEMCACHED_TICKETS_MAX + 3; id++)
        reserve(&state, &quota, id, 1, 0);
    assert_int_equal(state.closed.dropped, 3);
    assert_int_equal(state.len, 15 + RECORDS_LEN(MEMCACHED_TICKETS_MAX));
    uint32_t before = left(&state, &quota);
    for (unsigned id = 1; id <= 3; id++)
        assert_gone(&state, &quota, id);
    assert_int_equal(left(&state, &quota), before);
    for (unsigned id = 4; id <= MEMCACHED_TICKETS_MAX + 3; id++)
        assert_int_equal(moved(&state, &quota, (struct one){REQUEST_CANCEL, id, 0, 0}), 1);
    assert_int_equal(left(&state, &quota), 5000 - 3);
    assert_int_equal(state.len, 15);
}

TEST(any_one_bit_may_flip)
{
    for (size_t i = 0; i < SPECS; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        static struct memcached_state whole, state;
        memcached_state_forget(&whole);
        reserve(&whole, &quota, 1, 40, 0);
        reserve(&whole, &quota, 2, 40, 0);
        for (size_t bit = 0; bit < 8 * whole.len; bit++) {
            state = whole;
            state.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_gone(&state, &quota, 1 + bit % 2);
            assert_true(state.was_damaged);
            assert_int_equal(left(&state, &quota), 0);
            assert_gone(&state, &quota, 2 - bit % 2);
        }
        for (size_t len = 1; len < whole.len; len++) {
            memcached_state_read(&state, span_of(whole.bytes, len));
            assert_gone(&state, &quota, 1);
            assert_int_equal(left(&state, &quota), 0);
        }
    }
}

/* Any program may write to memcached: whatever the numbers of a record are, they harm nothing. */
TEST(a_record_may_say_anything)
{
    static const uint64_t key[2] = {UINT64_C(0x7374696e742d7375), UINT64_C(0x6d6f667374617465)};
    static const uint64_t numbers[] = {0, 1, UINT32_MAX, UINT64_C(1) << 60, INT64_MAX, UINT64_MAX};
    uint64_t random = 1;
    for (size_t i = 0; i < 200 * SPECS; i++) {
        struct stint_quota quota = quota_of(specs[i % SPECS]);
        struct memcached_state state = {.len = 0};
        reserve(&state, &quota, 1, 40, 0);
        uint8_t *at = state.bytes + state.len - 4 - RECORDS_LEN(1) + BACKEND_ID_LEN;
        for (size_t word = 0; word < 4; word++) {
            uint64_t number = numbers[splitmix_next(&random) % (sizeof(numbers) / 8)];
            for (size_t byte = 0; byte < 8; byte++)
                *at++ = (uint8_t)(number >> (56 - 8 * byte));
        }
        uint32_t sum = (uint32_t)siphash13_128(key, 0, state.bytes, state.len - 4).lo;
        for (size_t byte = 0; byte < 4; byte++)
            state.bytes[state.len - 4 + byte] = (uint8_t)(sum >> (24 - 8 * byte));
        struct stint_decision decision;
        for (unsigned n = 0; n < 3; n++) {
            uint64_t which = splitmix_next(&random) % 4;
            static const uint8_t verbs[] = {REQUEST_SETTLE, REQUEST_CANCEL, REQUEST_EXPIRE,
                                            STINT_TAKE};
            ask(&state, &quota, (struct one){verbs[which], which < 3, 10, 0}, &decision);
            assert_false(state.was_damaged);
            assert_in_range(left(&state, &quota), 0, 200);
        }
    }
}

/* A state of before the checksum, of an epoch that no quota can have. */
TEST(a_settle_of_a_state_that_is_none_finds_nothing)
{
    static const uint8_t bytes[15] = {0x58, 0x3d, 0x5a, 0x0b, 0xff, 0xff, 0xff, 0x13};
    struct stint_quota quota = quota_of("fixed_window 5/10s");
    struct memcached_state state;
    memcached_state_read(&state, span_of(bytes, sizeof(bytes)));
    assert_gone(&state, &quota, 1);
    assert_true(state.was_damaged);
}

/* A value is to be there as long as a ticket may be settled for more. */
TEST(the_expiry_covers_the_tickets)
{
    struct stint_quota quota = quota_of("gcra 10/1s");
    struct memcached_state state = {.len = 0};
    const struct one one = {STINT_TAKE, 1, 1, 0};
    uint8_t id[BACKEND_ID_LEN];
    struct memcached_step step = step_of(&quota, &one, id);
    struct stint_decision decision;
    for (uint64_t life_ns = NS_PER_S; life_ns < 1000 * NS_PER_DAY; life_ns *= 7) {
        step.ticket.good_ns = life_ns;
        memcached_state_forget(&state);
        assert_int_equal(memcached_state_ask(&state, &step, &decision, NULL), 0);
        uint64_t ttl_s = memcached_state_ttl_s(&state, &step, 0);
        if (life_ns > 29 * NS_PER_DAY) /* an instant of the calendar */
            ttl_s -= at_ns / NS_PER_S;
        assert_in_range(ttl_s, life_ns / NS_PER_S + 1, life_ns / NS_PER_S + 3605);
    }
    step.ticket.good_ns = UINT64_MAX;
    memcached_state_forget(&state);
    assert_int_equal(memcached_state_ask(&state, &step, &decision, NULL), 0);
    assert_int_equal(memcached_state_ttl_s(&state, &step, 0), 0);
}

/* The ticket names the quota of before: that must not count what was used under it. */
TEST(a_ticket_of_before_a_new_limit_changes_its_units_alone)
{
    static const char *const pairs[][2] = {
        {"window 100/1h", "window 200/1h"},
        {"window 1000/1h", "window 200/1h"},
        {"log 100/1h", "log 200/1h"},
        {"fixed_window 100/1h", "fixed_window 200/1h"},
        {"sliding_counter 100/1h", "sliding_counter 200/1h"},
        {"buckets 100/1h time_slack=6m", "buckets 200/1h time_slack=6m"},
    };
    for (size_t i = 0; i < N(pairs); i++) {
        struct stint_quota was = quota_of(pairs[i][0]), is = quota_of(pairs[i][1]);
        struct memcached_state state = {.len = 0};
        reserve(&state, &was, 1, 40, 0);
        reserve(&state, &is, 2, 100, 0);
        assert_int_equal(left(&state, &is), 60);
        moved(&state, &was, (struct one){REQUEST_CANCEL, 1, 0, 0});
        uint32_t after = left(&state, &is);
        assert_in_range(after, 60 + 30, 60 + 40); /* a bunch may stay charged */
    }
}

/* A unit is a second of one quota and a minute of the other: 30 seconds were charged, not 30 min.
 */
TEST(a_unit_that_is_longer_now_gives_back_no_more_than_it_took)
{
    struct stint_quota was = quota_of("gcra 3600/1h burst=60"),
                       is = quota_of("gcra 60/1h burst=60");
    uint64_t began_ns = at_ns;
    for (unsigned ends = 0; ends < 2; ends++) {
        struct memcached_state state = {.len = 0};
        reserve(&state, &was, 1, 30, 0);
        moved(&state, &is, (struct one){STINT_TAKE, 0, 20, 0});
        assert_int_equal(left(&state, &is), 39);
        at_ns += ends > 0 ? LIFE_NS : 0;
        /* By its name, and once it has ended by whatever comes. */
        moved(&state, &is, (struct one){ends > 0 ? STINT_TAKE : REQUEST_CANCEL, 1 - ends, 0, 0});
        assert_in_range(left(&state, &is), 39, 40);
        assert_gone(&state, &was, 1);
        assert_int_equal(state.closed.kept_units, 30 * ends);
        at_ns = began_ns;
    }
}

TEST(a_ticket_goes_on_over_a_change_of_epochs)
{
    uint64_t began_ns = at_ns;
    at_ns = UINT64_C(56) * NS_PER_YEAR - NS_PER_S; /* a multiple of four: one second before it */
    for (size_t i = 0; i < SPECS; i++) {
        struct stint_quota quota = quota_of(specs[i]);
        struct memcached_state state = {.len = 0};
        reserve(&state, &quota, 1, 40, 0);
        at_ns += 2 * NS_PER_S;
        /* A fixed window begins anew there, and what was charged before it does not come back. */
        uint32_t least = quota.algorithm == STINT_FIXED_WINDOW ? 0 : 20;
        uint32_t before = left(&state, &quota);
        uint32_t back = moved(&state, &quota, (struct one){REQUEST_SETTLE, 1, 10, 0});
        assert_in_range(back, least, 30);
        assert_int_equal(left(&state, &quota), before + back);
        assert_gone(&state, &quota, 1);
        at_ns -= 2 * NS_PER_S;
    }
    at_ns = began_ns;
}

/* ---- By the store ---------------------------------------------------------------------------- */

static const uint8_t first_id[BACKEND_ID_LEN] = {1};

static void start_ticket(struct asked *asked, enum request_verb verb, uint32_t cost)
{
    *asked = (struct asked){.n_answers = 0};
    add(asked, "log 50/10s", "a", cost);
    add(asked, "gcra 40/10s", "b", cost);
    asked->ask.id = first_id;
    asked->ask.is_ticket = true;
    asked->ask.ticket_ns = LIFE_NS;
    start(asked, verb);
}

TEST(a_reservation_and_its_settling_are_a_swap_each)
{
    struct asked asked = {.n_answers = 0};
    add(&asked, "log 50/10s", "a", 20);
    asked.ask.id = first_id;
    asked.ask.is_ticket = true;
    asked.ask.ticket_ns = LIFE_NS;
    start(&asked, REQUEST_TAKE);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 20);
    assert_int_equal(all_reads(), 1);
    assert_int_equal(all_writes(), 1);
    asked.items[0].cost = 5;
    asked.n_answers = 0;
    start(&asked, REQUEST_SETTLE);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 15);
    assert_int_equal(all_reads(), 2);
    assert_int_equal(all_writes(), 2);
    assert_int_equal(left_of("log 50/10s", "a"), 45);
    /* Used, it is gone, and nothing is written. */
    asked.n_answers = 0;
    start(&asked, REQUEST_CANCEL);
    run_all();
    assert_int_equal(asked.n_answers, 1);
    assert_int_equal(asked.op.answer.outcome, BACKEND_GONE);
    assert_int_equal(all_writes(), 2);
}

/* The first key is charged, then the second denies: the record goes with the units. */
TEST(what_a_list_reserved_goes_where_another_denies)
{
    struct asked asked;
    left_of("log 50/10s", "a");
    struct server *server = server_of("gcra 40/10s", "b");
    start_ticket(&asked, REQUEST_TAKE, 20);
    for (unsigned reads = all_reads(); all_reads() < reads + 2;)
        if (!run_one(&servers[0]))
            assert_true(run_one(&servers[1]));
    rival_takes(server, "gcra 40/10s", "p:{b}gcra:r:", 30);
    run_all();
    assert_int_equal(asked.n_answers, 1);
    assert_int_equal(asked.op.answer.sum.outcome, STINT_DENY);
    assert_int_equal(metrics()->kept, 0);
    assert_int_equal(left_of("log 50/10s", "a"), 50);
    assert_int_equal(left_of("gcra 40/10s", "b"), 10);
    start_ticket(&asked, REQUEST_SETTLE, 0);
    run_all();
    assert_int_equal(asked.op.answer.outcome, BACKEND_GONE);
}

/* What one key has forgotten does not keep the others from being settled, each once. */
TEST(a_ticket_of_which_a_part_is_lost_is_settled_at_the_others)
{
    struct asked asked;
    start_ticket(&asked, REQUEST_TAKE, 20);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 20);
    struct server *server = server_of("log 50/10s", "a");
    struct value *value = find(server, "p:{a}log:r:");
    assert_non_null(value);
    *value = server->values[--server->n_values];
    start_ticket(&asked, REQUEST_SETTLE, 5);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 15);
    assert_int_equal(left_of("gcra 40/10s", "b"), 35);
    assert_int_equal(left_of("log 50/10s", "a"), 50);
    start_ticket(&asked, REQUEST_SETTLE, 5);
    run_all();
    assert_int_equal(asked.op.answer.outcome, BACKEND_GONE);
}

/* It is decided again, on what the other has left, and has one record. */
TEST(a_swap_that_another_won_reserves_once)
{
    struct asked asked;
    struct server *server = server_of("gcra 40/10s", "b");
    rival_takes(server, "gcra 40/10s", "p:{b}gcra:r:", 1);
    asked = (struct asked){.n_answers = 0};
    add(&asked, "gcra 40/10s", "b", 10);
    asked.ask.id = first_id;
    asked.ask.is_ticket = true;
    asked.ask.ticket_ns = LIFE_NS;
    start(&asked, REQUEST_TAKE);
    run_one(server); /* its read */
    rival_takes(server, "gcra 40/10s", "p:{b}gcra:r:", 1);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 10);
    assert_int_equal(metrics()->conflicts, 1);
    assert_int_equal(find(server, "p:{b}gcra:r:")->len, 15 + RECORDS_LEN(1));
    assert_int_equal(left_of("gcra 40/10s", "b"), 28);
}
