/* SPDX-License-Identifier: MIT */
/*
 * The store over a memcached that is this file, in virtual time: two servers of a few keys each,
 * which answer when they are told to, so that others may write in between, answers may be lost,
 * and clocks may be what they like.
 */
#include "unit/test_memcached.h"

/* ---- One key --------------------------------------------------------------------------------- */

TEST(a_take_is_a_read_and_a_write_and_a_denial_only_a_read)
{
    assert_int_equal(take("window 5/10s", "k", 3).remaining, 2);
    assert_int_equal(all_reads(), 1);
    assert_int_equal(all_writes(), 1);
    assert_int_equal(take("window 5/10s", "k", 3).outcome, STINT_DENY);
    assert_int_equal(all_reads(), 2);
    assert_int_equal(all_writes(), 1);
    wall_ns += 11 * NS_PER_S;
    assert_int_equal(take("window 5/10s", "k", 5).granted, 5);
}

TEST(the_expiry_covers_what_the_state_holds)
{
    take("gcra 10/10s", "k", 4);
    struct value *value = find(&servers[0], "p:{k}gcra:r:");
    value = value != NULL ? value : find(&servers[1], "p:{k}gcra:r:");
    assert_non_null(value);
    assert_in_range(value->ttl_s, 8, 9); /* 5 s, and what memcached's clock may be late */
    take("gcra 10/90d", "long", 10);
    value = find(&servers[0], "p:{long}gcra:r:");
    value = value != NULL ? value : find(&servers[1], "p:{long}gcra:r:");
    assert_non_null(value);
    uint64_t expires_s = wall_ns / NS_PER_S + UINT64_C(90) * 86400;
    assert_in_range(value->ttl_s, expires_s, expires_s + 3700); /* an instant, and not a length */
}

#define K_NAME "p:{k}window,10000000,24:r:"

TEST(who_is_slower_reads_and_decides_again)
{
    struct asked asked;
    take("window 5/10s", "k", 1);
    struct server *server = server_of("window 5/10s", "k");
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_true(run_one(server)); /* the read */
    rival_takes(server, "window 5/10s", K_NAME, 3);
    run_all();
    assert_decided(&asked, STINT_DENY, 0);
    assert_int_equal(asked.op.answer.sum.remaining, 1);
    assert_int_equal(metrics()->conflicts, 1);
}

TEST(a_new_key_that_another_made_is_read_again)
{
    struct asked asked;
    struct server *server = server_of("window 5/10s", "k");
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_true(run_one(server));
    rival_takes(server, "window 5/10s", K_NAME, 3);
    run_all();
    assert_decided(&asked, STINT_DENY, 0);
    /* And one that has been evicted between read and write is new. */
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 2);
    assert_true(run_one(server));
    find(server, K_NAME)->key[0] = 'x';
    run_all();
    assert_decided(&asked, STINT_ALLOW, 2);
    assert_int_equal(asked.op.answer.sum.remaining, 3);
}

TEST(all_who_wait_for_a_key_are_decided_together)
{
    static struct asked asked[6];
    for (int i = 0; i < 6; i++)
        start_one(&asked[i], i == 3 ? REQUEST_PEEK : REQUEST_TAKE, "window 8/10s", "k", 2);
    run_all();
    for (int i = 0; i < 6; i++)
        assert_decided(&asked[i], i < 5 ? STINT_ALLOW : STINT_DENY, i < 5 ? 2 : 0);
    assert_int_equal(asked[4].op.answer.sum.remaining, 0);
    assert_int_equal(all_reads(), 1);
    assert_int_equal(all_writes(), 1);
}

TEST(a_reset_stands_in_its_place_among_asks)
{
    static struct asked asked[4];
    start_one(&asked[0], REQUEST_TAKE, "window 3/10s", "k", 3);
    start_one(&asked[1], REQUEST_RESET, "window 3/10s", "k", 0);
    start_one(&asked[2], REQUEST_TAKE, "window 3/10s", "k", 2);
    start_one(&asked[3], REQUEST_TAKE, "window 3/10s", "k", 2);
    run_all();
    assert_decided(&asked[0], STINT_ALLOW, 3);
    assert_decided(&asked[1], STINT_ALLOW, 0);
    assert_int_equal(asked[1].op.answer.sum.remaining, 3);
    assert_decided(&asked[2], STINT_ALLOW, 2);
    assert_decided(&asked[3], STINT_DENY, 0);
}

/* ---- Lost and late --------------------------------------------------------------------------- */

TEST(a_write_without_an_answer_fails_and_is_not_repeated)
{
    struct asked asked, behind;
    struct server *server = server_of("window 5/10s", "k");
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_true(run_one(server));
    struct link *link = memcached_conn_link(server->conn);
    link_sent(link, link_output(link).len); /* it may have got there */
    start_one(&behind, REQUEST_TAKE, "window 5/10s", "k", 4);
    cut(server);
    assert_failed(&asked, BACKEND_ERROR_LOST);
    assert_int_equal(behind.n_answers, 0);
    assert_int_equal(metrics()->lost, 1);
    now_ns += 20 * MS;
    link_wake(link, now_ns);
    greet(server);
    run_all(); /* the one behind it is asked now, and nobody for the first */
    assert_decided(&behind, STINT_ALLOW, 4);
    assert_int_equal(left_of("window 5/10s", "k"), 1);
    assert_int_equal(metrics()->restarts, 1);
}

TEST(a_read_without_an_answer_is_read_again)
{
    struct asked asked;
    struct server *server = server_of("window 5/10s", "k");
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    link_sent(memcached_conn_link(server->conn),
              link_output(memcached_conn_link(server->conn)).len);
    cut(server);
    assert_int_equal(asked.n_answers, 0);
    now_ns += 20 * MS;
    link_wake(memcached_conn_link(server->conn), now_ns);
    greet(server);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 3);
    assert_int_equal(metrics()->lost, 0);
}

TEST(nobody_waits_longer_than_he_said)
{
    struct asked asked;
    struct server *server = server_of("window 5/10s", "k");
    cut(server);
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_int_equal(hurried > 0, true);
    assert_int_equal(memcached_backend_deadline(store), now_ns + 50 * MS);
    now_ns += 50 * MS;
    memcached_backend_wake(store, now_ns);
    assert_failed(&asked, BACKEND_ERROR_UNREACHABLE);
    /* Away for longer than an ask can wait: it fails at once, and is told so where it is ahead. */
    now_ns += 10 * MS;
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_int_equal(asked.op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(asked.op.answer.fault, BACKEND_ERROR_UNREACHABLE);
    assert_true(asked.op.answer.failed == UINT64_C(1) << (server - servers));
    asked.ask.is_ahead = true;
    start(&asked, REQUEST_TAKE);
    assert_int_equal(asked.op.answer.outcome, BACKEND_AHEAD);
    assert_int_equal(asked.n_answers, 0);
    assert_int_equal(store->ops->unavailable_since_ns(store), 0); /* the other one is there */
    cut(server == &servers[0] ? &servers[1] : &servers[0]);
    assert_int_not_equal(store->ops->unavailable_since_ns(store), 0);
}

static void ignore(void *arg, enum link_outcome outcome, const struct memcached_reply *reply,
                   uint64_t at_ns)
{
    (void)arg, (void)outcome, (void)reply, (void)at_ns;
}

/* Nothing is lost by a queue that was full for a moment: the key is read once it has space. */
TEST(a_key_waits_for_space_in_the_connection)
{
    struct asked asked;
    struct server *server = server_of("window 5/10s", "k");
    struct link *link = memcached_conn_link(server->conn);
    const struct memcached_command other = {
        .verb = MEMCACHED_GET, .key = span_of_text("x"), .answered = ignore};
    size_t n = 0;
    while (memcached_conn_ask(server->conn, &other, now_ns))
        n++;
    link_sent(link, link_output(link).len);
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_int_equal(link_output(link).len, 0);
    assert_in_range(memcached_backend_deadline(store), now_ns, now_ns + 10 * MS);
    now_ns = memcached_backend_deadline(store);
    memcached_backend_wake(store, now_ns); /* full still */
    for (; n > 0; n--)
        answer(server, "EN\r\n");
    now_ns = memcached_backend_deadline(store);
    memcached_backend_wake(store, now_ns);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 3);
}

TEST(a_late_write_may_have_been_done)
{
    struct asked asked;
    struct server *server = server_of("window 5/10s", "k");
    struct link *link = memcached_conn_link(server->conn);
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_true(run_one(server));
    link_sent(link, link_output(link).len);
    now_ns += 50 * MS;
    link_wake(link, now_ns);
    assert_failed(&asked, BACKEND_ERROR_LATE);
}

TEST(a_write_that_is_refused_fails)
{
    struct asked asked;
    struct server *server = server_of("window 5/10s", "k");
    server->fault = "SERVER_ERROR out of memory storing object\r\n";
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    run_all();
    assert_failed(&asked, BACKEND_ERROR_OTHER);
    assert_non_null(strstr(asked.op.answer.error, "out of memory"));
}

TEST(what_is_forgotten_is_not_touched_again)
{
    struct asked asked, kept;
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    start_one(&kept, REQUEST_TAKE, "window 5/10s", "k", 1);
    store->ops->forget(store, &asked.op);
    memset(&asked, 0xff, sizeof(asked));
    run_all();
    assert_decided(&kept, STINT_ALLOW, 1);
    assert_int_equal(kept.op.answer.sum.remaining, 4);
    struct server *server = server_of("window 5/10s", "k");
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 3);
    assert_true(run_one(server)); /* it is being written */
    store->ops->forget(store, &asked.op);
    memset(&asked, 0xff, sizeof(asked));
    run_all();
    assert_int_equal(left_of("window 5/10s", "k"), 1); /* and so it was done all the same */
}

TEST(who_waits_when_it_ends_hears_of_it)
{
    static struct asked asked[3];
    start_one(&asked[0], REQUEST_TAKE, "window 5/10s", "a", 1);
    start_one(&asked[1], REQUEST_TAKE, "window 5/10s", "b", 1);
    asked[2] = (struct asked){.n_answers = 0};
    add(&asked[2], "window 5/10s", "a", 1);
    add(&asked[2], "gcra 5/10s", "c", 1);
    start(&asked[2], REQUEST_TAKE);
    store->ops->free(store);
    store = NULL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(asked[i].n_answers, 1);
        assert_int_equal(asked[i].op.answer.outcome, BACKEND_FAILED);
    }
}

/* ---- Lists ----------------------------------------------------------------------------------- */

static void start_pair(struct asked *asked, enum request_verb verb, uint32_t cost)
{
    *asked = (struct asked){.n_answers = 0};
    add(asked, "window 5/10s", "a", cost);
    add(asked, "gcra 4/10s", "b", cost);
    start(asked, verb);
}

TEST(a_list_takes_all_or_nothing)
{
    struct asked asked;
    start_pair(&asked, REQUEST_TAKE, 3);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 3);
    assert_int_equal(asked.op.answer.sum.binding, 1);
    assert_int_equal(asked.each[0].remaining, 2);
    assert_int_equal(asked.each[1].remaining, 1);
    unsigned writes = all_writes();
    start_pair(&asked, REQUEST_TAKE, 2);
    run_all();
    assert_decided(&asked, STINT_DENY, 0);
    assert_int_equal(all_writes(), writes);
    assert_int_equal(asked.each[0].outcome, STINT_ALLOW);
    assert_int_equal(asked.each[0].remaining, 2); /* as if nothing had been taken */
    assert_int_equal(asked.each[1].outcome, STINT_DENY);
    start_pair(&asked, REQUEST_TAKE_UPTO, 9);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 1);
    start_pair(&asked, REQUEST_TAKE, 9);
    run_all();
    assert_decided(&asked, STINT_NEVER, 0);
}

TEST(a_peek_that_is_denied_shows_each_key_as_a_peek_of_it_alone)
{
    struct asked asked;
    start_pair(&asked, REQUEST_TAKE, 2);
    run_all();
    start_pair(&asked, REQUEST_PEEK, 3);
    run_all();
    assert_decided(&asked, STINT_DENY, 0);
    assert_int_equal(asked.each[0].outcome, STINT_ALLOW);
    assert_int_equal(asked.each[0].granted, 3);
    assert_int_equal(asked.each[0].remaining, 0);
    assert_int_equal(asked.each[1].outcome, STINT_DENY);
    assert_int_equal(asked.each[1].remaining, 2);
}

/* Both keys have been looked at, and are read once more to be charged. */
static void run_looks(const struct asked *asked)
{
    unsigned reads = all_reads() + (unsigned)asked->ask.n_items;
    while (all_reads() < reads)
        assert_true(run_one(&servers[0]) || run_one(&servers[1]));
    assert_int_equal(asked->n_answers, 0);
}

TEST(what_a_list_was_charged_is_given_back_where_another_denies)
{
    struct asked asked;
    struct server *server = server_of("gcra 4/10s", "b");
    start_pair(&asked, REQUEST_TAKE, 3);
    run_looks(&asked);
    rival_takes(server, "gcra 4/10s", "p:{b}gcra:r:", 2);
    run_all();
    assert_decided(&asked, STINT_DENY, 0);
    assert_int_equal(asked.op.answer.sum.binding, 1);
    assert_int_equal(asked.each[0].outcome, STINT_ALLOW);
    assert_int_equal(asked.each[0].granted, 0);
    assert_int_equal(asked.each[0].remaining, 5);
    assert_int_equal(left_of("window 5/10s", "a"), 5);
    assert_int_equal(left_of("gcra 4/10s", "b"), 2);
    assert_int_equal(metrics()->kept, 0);
    /* As many as fit takes what the other has left. */
    start_pair(&asked, REQUEST_TAKE_UPTO, 4);
    run_looks(&asked);
    rival_takes(server, "gcra 4/10s", "p:{b}gcra:r:", 1);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 1);
    assert_int_equal(left_of("window 5/10s", "a"), 4);
    assert_int_equal(left_of("gcra 4/10s", "b"), 0);
}

/* Whoever asked has gone, but nothing stays charged of a list that was refused. */
TEST(a_list_that_is_forgotten_is_taken_back_all_the_same)
{
    struct asked asked;
    struct server *server = server_of("gcra 4/10s", "b");
    start_pair(&asked, REQUEST_TAKE, 3);
    run_looks(&asked);
    rival_takes(server, "gcra 4/10s", "p:{b}gcra:r:", 2);
    store->ops->forget(store, &asked.op);
    memset(&asked, 0xff, sizeof(asked));
    run_all();
    assert_int_equal(left_of("window 5/10s", "a"), 5);
}

TEST(equal_keys_of_a_list_add_up)
{
    struct asked asked = {.n_answers = 0};
    add(&asked, "window 5/10s", "a", 2);
    add(&asked, "gcra 9/10s", "b", 1);
    add(&asked, "window 5/10s", "a", 2);
    start(&asked, REQUEST_TAKE);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 4);
    assert_int_equal(asked.each[0].remaining, 1);
    assert_int_equal(asked.each[2].remaining, 1);
    assert_int_equal(asked.each[0].granted, 2); /* of four for the key */
    assert_int_equal(asked.each[1].granted, 1);
    assert_int_equal(asked.each[2].granted, 2);
    asked = (struct asked){.n_answers = 0};
    add(&asked, "window 5/10s", "a", UINT32_MAX);
    add(&asked, "window 5/10s", "a", 1);
    start(&asked, REQUEST_TAKE);
    assert_int_equal(asked.op.answer.outcome, BACKEND_DECIDED);
    assert_int_equal(asked.op.answer.sum.outcome, STINT_NEVER);
}

/* In their order, as far as they were done; best effort grants each the same. */
TEST(equal_keys_of_a_list_share_what_they_are_granted)
{
    struct asked asked = {.n_answers = 0};
    add(&asked, "window 9/10s", "a", 3);
    add(&asked, "window 9/10s", "a", 4);
    start(&asked, REQUEST_TAKE);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 7);
    assert_int_equal(asked.each[0].granted, 3);
    assert_int_equal(asked.each[1].granted, 4);
    asked.ask.at_ns = STINT_NEVER_NS;
    asked.items[1].cost = 9;
    start(&asked, REQUEST_REFUND);
    run_all();
    assert_int_equal(asked.each[0].granted, 3);
    assert_int_equal(asked.each[1].granted, 4);
    assert_int_equal(asked.each[1].remaining, 9);
    start(&asked, REQUEST_TAKE_UPTO);
    run_all();
    assert_int_equal(asked.op.answer.sum.granted, 3);
    assert_int_equal(asked.each[0].granted, 3);
    assert_int_equal(asked.each[1].granted, 3);
    start(&asked, REQUEST_TAKE);
    run_all();
    assert_int_equal(asked.op.answer.sum.outcome, STINT_NEVER);
    assert_int_equal(asked.each[0].granted + asked.each[1].granted, 0);
}

/* As an override makes it: one state, and each quota is asked by itself. */
TEST(a_key_under_two_quotas_is_asked_under_both)
{
    for (int i = 0; i < 2; i++) {
        struct asked asked = {.n_answers = 0};
        const char *key = i == 0 ? "first" : "second";
        add(&asked, i == 0 ? "gcra 9/10s" : "gcra 2/10s", key, 3);
        add(&asked, i == 0 ? "gcra 2/10s" : "gcra 9/10s", key, 3);
        start(&asked, REQUEST_TAKE);
        run_all();
        assert_decided(&asked, STINT_NEVER, 0);
        assert_int_equal(asked.op.answer.sum.binding, 1 - i);
        assert_int_equal(left_of("gcra 9/10s", key), 9);
    }
    struct asked asked = {.n_answers = 0};
    add(&asked, "gcra 9/10s", "k", 3);
    add(&asked, "gcra 18/10s", "k", 3);
    start(&asked, REQUEST_TAKE);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 3);
    assert_int_equal(left_of("gcra 18/10s", "k"), 18 - 6 - 3);
}

/* A server that is away in the middle of a list: what was charged elsewhere comes back. */
TEST(a_list_whose_server_goes_is_taken_back)
{
    struct asked asked;
    char key[16] = "a";
    while (server_of("window 5/10s", key) != &servers[0])
        key[0]++;
    char other[16] = "a";
    while (server_of("gcra 5/10s", other) != &servers[1])
        other[0]++;
    asked = (struct asked){.n_answers = 0};
    add(&asked, "window 5/10s", key, 3);
    add(&asked, "gcra 5/10s", other, 3);
    start(&asked, REQUEST_TAKE);
    assert_true(run_one(&servers[0]));
    assert_true(run_one(&servers[1])); /* both were looked at */
    assert_true(run_one(&servers[0]));
    assert_true(run_one(&servers[0])); /* the one is charged */
    assert_int_equal(servers[0].writes, 1);
    struct link *link = memcached_conn_link(servers[1].conn);
    assert_true(run_one(&servers[1]));
    link_sent(link, link_output(link).len);
    cut(&servers[1]);
    while (run_one(&servers[0]))
        ;
    assert_failed(&asked, BACKEND_ERROR_LOST);
    assert_true(asked.op.answer.servers == 3 && asked.op.answer.failed == 2);
    assert_int_equal(left_of("window 5/10s", key), 5);
    /* Where it is not to be asked, the other is not either. */
    unsigned reads = servers[0].reads;
    asked.ask.stopped = 2;
    start(&asked, REQUEST_TAKE);
    assert_int_equal(asked.op.answer.outcome, BACKEND_FAILED);
    assert_int_equal(asked.op.answer.fault, BACKEND_ERROR_STOPPED);
    assert_int_equal(servers[0].reads, reads);
}

/* ---- Time ------------------------------------------------------------------------------------ */

/* Four years after four years: what was used before counts on behind the change of epochs. */
TEST(a_window_goes_on_over_a_change_of_epochs)
{
    static const char *const specs[] = {"window 10/1h", "gcra 10/1h", "fixed_window 10/250d"};
    for (int i = 0; i < 3; i++) {
        wall_ns = BEGAN_NS + 4 * NS_PER_YEAR - 60 * NS_PER_S;
        assert_int_equal(take(specs[i], "k", 8).remaining, 2);
        wall_ns += 120 * NS_PER_S;
        struct stint_decision decision = take(specs[i], "k", 3);
        assert_int_equal(decision.outcome, STINT_DENY);
        assert_int_equal(take(specs[i], "k", 2).granted, 2);
        /* A node that has not come so far yet reads what is written. */
        wall_ns = BEGAN_NS + 4 * NS_PER_YEAR - NS_PER_MS;
        assert_int_equal(take(specs[i], "k", 8).outcome, STINT_DENY);
        wall_ns += 120 * NS_PER_S + decision.retry_after_ns;
        assert_int_equal(take(specs[i], "k", 1).outcome, STINT_ALLOW);
    }
}

TEST(a_step_back_of_the_clock_frees_nothing)
{
    assert_int_equal(take("window 5/10s", "k", 5).granted, 5);
    wall_ns -= 60 * NS_PER_S;
    assert_int_equal(take("window 5/10s", "k", 1).outcome, STINT_DENY);
}

TEST(a_state_of_tomorrow_is_an_error_and_stays)
{
    struct asked asked;
    uint64_t today_ns = wall_ns;
    wall_ns += NS_PER_DAY;
    take("window 5/10s", "k", 5);
    take("gcra 5/10s", "k", 5);
    wall_ns = today_ns;
    /* gcra has no time of its own, and owes no longer than two capacities behind that hour. */
    assert_in_range(take("gcra 5/10s", "k", 1).retry_after_ns, 1, NS_PER_HOUR + 20 * NS_PER_S);
    unsigned writes = all_writes();
    start_one(&asked, REQUEST_TAKE, "window 5/10s", "k", 1);
    run_all();
    assert_failed(&asked, BACKEND_ERROR_STATE);
    assert_non_null(strstr(asked.op.answer.error, "hour in the future"));
    assert_int_equal(all_writes(), writes);
    wall_ns = today_ns + NS_PER_DAY - NS_PER_S;
    assert_int_equal(take("window 5/10s", "k", 5).outcome, STINT_DENY);
}

TEST(clocks_are_looked_at_and_told_of)
{
    uint64_t ours_ns = wall_ns;
    now_ns += 2 * NS_PER_HOUR;
    wall_ns = ours_ns + 2 * NS_PER_S; /* we are another node now */
    memcached_backend_wake(store, now_ns);
    run_all();
    assert_int_equal(metrics()->skew_ns, 0);
    wall_ns = ours_ns + NS_PER_S;
    now_ns += 2 * NS_PER_HOUR;
    memcached_backend_wake(store, now_ns);
    run_all();
    assert_int_equal(metrics()->skew_ns, NS_PER_S);
    assert_int_equal(skew_told_ns, NS_PER_S);
    skew_told_ns = 0;
    wall_ns = ours_ns + NS_PER_S / 2; /* worse, but not twice as bad */
    now_ns += 2 * NS_PER_HOUR;
    memcached_backend_wake(store, now_ns);
    run_all();
    assert_int_equal(metrics()->skew_ns, 1500 * MS);
    assert_int_equal(skew_told_ns, 0);
}

/* ---- What it cannot do ----------------------------------------------------------------------- */

TEST(what_it_cannot_do_is_refused)
{
    static const uint8_t id[BACKEND_ID_LEN];
    struct rule rule = {.store.lease = RULE_LEASE_STRICT};
    struct asked asked;
    struct stint_error error;
    static const char *const specs[] = {"gcra 5/1000001ns", "concurrency 3 lease=5s",
                                        "log 5/1825d"};
    for (size_t i = 0; i < N(specs); i++) {
        start_one(&asked, REQUEST_TAKE, specs[i], "k", 1);
        assert_int_equal(asked.op.answer.outcome, BACKEND_REFUSED);
        assert_int_not_equal(store->ops->accepts(store, &asked.quotas[0], &error), 0);
    }
    start_one(&asked, REQUEST_LEASE, "window 5/1s", "k", 1);
    assert_int_equal(asked.op.answer.outcome, BACKEND_REFUSED);
    asked = (struct asked){.ask.id = id};
    add(&asked, "window 5/1s", "k", 1);
    start(&asked, REQUEST_TAKE);
    assert_int_equal(asked.op.answer.outcome, BACKEND_REFUSED);
    assert_non_null(strstr(asked.op.answer.error, "id"));
    asked.ask.id = NULL;
    asked.items[0].rule = &rule;
    start(&asked, REQUEST_TAKE);
    assert_int_equal(asked.op.answer.outcome, BACKEND_REFUSED);
    assert_non_null(strstr(asked.op.answer.error, "lease"));
    assert_int_equal(all_reads(), 0);
}

static bool is_anywhere(const char *key)
{
    return find(&servers[0], key) != NULL || find(&servers[1], key) != NULL;
}

TEST(values_of_rules_fallback_the_braces)
{
    static const uint8_t values[] = "\0\0\0\0\0\0\0\1\0\0\0\3a,%\0\0\0\0\0\0\0\1b";
    struct asked asked = {.n_answers = 0};
    add(&asked, "gcra 5/10s", "", 1);
    asked.items[0].key = span_of(values, sizeof(values) - 1);
    asked.items[0].is_values = true;
    start(&asked, REQUEST_TAKE);
    run_all();
    assert_decided(&asked, STINT_ALLOW, 1);
    assert_true(is_anywhere("p:{a%2C%25,,b}gcra:r:"));
    /* Or what else the rule wants to have there. */
    struct rule rule = {.domain = "d", .store.tag = RULE_TAG_DOMAIN};
    asked.items[0].rule = &rule;
    start(&asked, REQUEST_TAKE);
    run_all();
    assert_true(is_anywhere("p:{d}gcra:r:a%2C%25,,b"));
}

TEST(a_name_that_is_too_long_is_hashed)
{
    char key[400];
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    assert_int_equal(take("gcra 5/10s", key, 3).remaining, 2);
    assert_int_equal(left_of("gcra 5/10s", key), 2);
    key[0] = 'x';
    assert_int_equal(left_of("gcra 5/10s", key), 5);
    bool is_found = false;
    for (unsigned i = 0; i < SERVERS; i++)
        for (size_t at = 0; at < servers[i].n_values; at++)
            is_found = is_found || (strncmp(servers[i].values[at].key, "p:#", 3) == 0 &&
                                    strlen(servers[i].values[at].key) == 3 + 64);
    assert_true(is_found);
}
