/* SPDX-License-Identifier: MIT */
/* gRPC calls whose answer a shared store has: it comes later, in another order, or never. */
#include "unit/fake_store.h"
#include "unit/test_grpc_client.h"

#include "proto/grpc/rls.h"

#define YAML                                                                                       \
    "domain: d\n"                                                                                  \
    "descriptors:\n"                                                                               \
    "  - key: k\n"                                                                                 \
    "    rate_limit: {unit: minute, requests_per_unit: 2, store: red}\n"                           \
    "  - key: open\n"                                                                              \
    "    rate_limit: {unit: minute, requests_per_unit: 2, store: red, on_store_error: allow}\n"    \
    "  - key: here\n"                                                                              \
    "    rate_limit: {unit: minute, requests_per_unit: 1000}\n"

#define OK 1
#define OVER_LIMIT 2

static struct grpc_client *grpc;
static struct fake_store red;
static unsigned n_stirred;

static void count_stir(void *owner, uint64_t now_ns)
{
    assert_ptr_equal(owner, grpc);
    assert_int_equal(now_ns, grpc->s.now_ns);
    n_stirred++;
}

static void open_with(const struct grpc_limits *limits)
{
    static struct backend *stores[1];
    grpc = grpc_open(YAML, limits, NULL);
    grpc->conn->owner = grpc;
    grpc->conn->woken = count_stir;
    n_stirred = 0;
    fake_store_begin(&red);
    stores[0] = &red.store;
    service_set_stores(
        grpc->s.service,
        &(struct evaluation_stores){.stores = stores, .n_stores = 1, .timeout_ns = 50 * MS});
}

SETUP
{
    open_with(NULL);
}

TEARDOWN
{
    grpc_close(grpc);
    fake_store_end(&red);
}

static void reopen(const struct grpc_limits *limits)
{
    tear_down();
    open_with(limits);
}

/* A call that waits. */
static struct heard *wait_for(const char *text, const struct field *more)
{
    size_t n_asks = red.n_asks;
    struct heard *heard = call_limit(grpc, text, more);
    exchange(grpc);
    assert_int_equal(red.n_asks, n_asks + 1);
    assert_int_equal(heard->http_status, 0);
    assert_false(heard->is_closed);
    return heard;
}

static void let(size_t i)
{
    fake_let(&red, i, grpc->s.now_ns);
}

/* ---- Answers that come ----------------------------------------------------------------------- */

TEST(a_call_is_answered_once_its_store_has)
{
    struct heard *first = wait_for("k=a", NULL);
    assert_true(grpc->conn->ops->is_busy(grpc->conn));
    pass(grpc, 3 * MS);
    assert_int_equal(n_stirred, 0);
    let(0);
    assert_int_equal(n_stirred, 1);
    /* The answer is there to be sent: nothing else has to happen. */
    assert_true(grpc->conn->ops->output(grpc->conn).len > 0);
    exchange(grpc);
    assert_code(first, OK);
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
    struct heard *second = wait_for("k=a", NULL), *third = wait_for("k=a", NULL);
    fake_let_all(&red, grpc->s.now_ns);
    exchange(grpc);
    assert_code(second, OK);
    assert_code(third, OVER_LIMIT);
    assert_int_equal(red.n_asks, 3);
    assert_int_equal(red.n_forgotten, 0);
}

TEST(other_calls_go_on_and_overtake)
{
    struct heard *slow = wait_for("k=a", NULL), *fast = wait_for("k=b", NULL);
    struct heard *here = call_limit(grpc, "here=x", NULL);
    struct heard *health = call_path(grpc, HEALTH "Check", span_of_text(""));
    exchange(grpc);
    assert_code(here, OK);
    assert_code(health, 1);
    let(1);
    exchange(grpc);
    assert_code(fast, OK);
    assert_false(slow->is_closed);
    let(0);
    exchange(grpc);
    assert_code(slow, OK);
}

TEST(what_a_store_answers_at_once_is_not_waited_for)
{
    red.is_prompt = true;
    struct heard *heard = call_limit(grpc, "k=a", NULL);
    exchange(grpc);
    assert_code(heard, OK);
    assert_int_equal(n_stirred, 0);
}

/* Bytes that were fed are gone when it is asked again: in one piece, and in many. */
TEST(a_message_is_kept_however_it_came)
{
    char text[400] = "k=";
    memset(text + 2, 'a', sizeof(text) - 3);
    text[sizeof(text) - 1] = '\0';
    for (grpc->piece = 0; grpc->piece < 20; grpc->piece += 7) {
        struct heard *heard = wait_for(text, NULL), *other = wait_for("k=b", NULL);
        fake_let_all(&red, grpc->s.now_ns);
        exchange(grpc);
        assert_status(heard, GRPC_OK, "");
        assert_status(other, GRPC_OK, "");
    }
    const struct fake_ask *last = &red.asks[red.n_asks - 2];
    assert_true(last->items[0].name_len > sizeof(text) - 3);
    assert_memory_equal(last->items[0].name + last->items[0].name_len - (sizeof(text) - 3),
                        text + 2, sizeof(text) - 3);
}

TEST(a_message_in_gzip_is_kept_as_it_came)
{
    const struct field more[] = {{"grpc-encoding", "gzip"}, {NULL, NULL}};
    static uint8_t bytes[4096];
    struct asked asked;
    struct wire message;
    struct span packed;
    struct grpc_zip *zip = grpc_zip_new();
    assert_non_null(zip);
    assert_true(
        grpc_zip_write(zip, wire_of_request(&message, descriptors_of(&asked, "k=a")), &packed));
    grpc_frame_write(bytes, true, packed.len);
    memcpy(bytes + GRPC_PREFIX, packed.ptr, packed.len);
    struct heard *heard =
        call_bytes(grpc, SHOULD_RATE_LIMIT, span_of(bytes, GRPC_PREFIX + packed.len), more);
    grpc_zip_free(zip);
    exchange(grpc);
    assert_false(heard->is_closed);
    let(0);
    exchange(grpc);
    assert_code(heard, OK);
}

TEST(many_wait_at_once)
{
    struct heard *heard[300];
    char text[16];
    for (size_t i = 0; i < N(heard); i++) {
        snprintf(text, sizeof(text), "k=%zu", i % 100);
        heard[i] = wait_for(text, NULL);
    }
    for (size_t i = N(heard); i > 0; i--)
        let(i - 1);
    assert_int_equal(n_stirred, N(heard));
    exchange(grpc);
    for (size_t i = 0; i < N(heard); i++)
        assert_code(heard[i], i >= 100 ? OK : OVER_LIMIT);
}

/* ---- Answers that do not come ---------------------------------------------------------------- */

TEST(a_store_that_fails_answers_as_the_rule_has_it)
{
    struct heard *shut = wait_for("k=a", NULL), *open = wait_for("open=a", NULL);
    fake_fail(&red, 0, grpc->s.now_ns);
    fake_fail(&red, 1, grpc->s.now_ns);
    exchange(grpc);
    assert_code(shut, OVER_LIMIT);
    assert_code(open, OK);
}

TEST(who_takes_his_call_back_is_forgotten)
{
    struct heard *gone = wait_for("k=a", NULL), *stays = wait_for("k=a", NULL);
    nghttp2_submit_rst_stream(grpc->client, NGHTTP2_FLAG_NONE, gone->id, NGHTTP2_CANCEL);
    exchange(grpc);
    assert_int_equal(red.n_forgotten, 1);
    assert_true(red.asks[0].is_forgotten);
    let(1);
    exchange(grpc);
    assert_code(stays, OK);
    assert_false(grpc->conn->ops->is_busy(grpc->conn));
}

TEST(a_deadline_that_passes_ends_the_call_and_no_other)
{
    const struct field late[] = {{"grpc-timeout", "20m"}, {NULL, NULL}};
    const struct field soon[] = {{"grpc-timeout", "5m"}, {NULL, NULL}};
    struct heard *second = wait_for("k=a", late), *first = wait_for("k=b", soon);
    struct heard *last = wait_for("k=c", NULL);
    pass(grpc, 5 * MS - 1);
    exchange(grpc);
    assert_false(first->is_closed);
    pass(grpc, 1);
    exchange(grpc);
    assert_status(first, GRPC_DEADLINE_EXCEEDED, "the store has not answered in time");
    assert_true(red.asks[1].is_forgotten);
    assert_false(second->is_closed || last->is_closed);
    /* It is answered at the instant at which it would end. */
    pass(grpc, 15 * MS - 1);
    let(0);
    exchange(grpc);
    assert_code(second, OK);
    pass(grpc, 15 * MS);
    let(2);
    exchange(grpc);
    assert_code(last, OK);
    assert_int_equal(red.n_forgotten, 1);
    assert_int_equal(grpc->conn->ops->deadline(grpc->conn), STINT_NEVER_NS);
}

TEST(each_deadline_is_kept_in_its_turn)
{
    static const char *const times[] = {"30m", "10m", "20m"};
    struct heard *heard[N(times)];
    for (size_t i = 0; i < N(times); i++) {
        const struct field more[] = {{"grpc-timeout", times[i]}, {NULL, NULL}};
        heard[i] = wait_for("k=a", more);
    }
    for (size_t n_ended = 1; n_ended <= N(times); n_ended++) {
        pass(grpc, 10 * MS);
        exchange(grpc);
        assert_int_equal(heard[1]->is_closed + heard[2]->is_closed + heard[0]->is_closed, n_ended);
        assert_int_equal(red.n_forgotten, n_ended);
    }
    assert_status(heard[0], GRPC_DEADLINE_EXCEEDED, "");
}

TEST(an_answer_that_comes_behind_the_deadline_is_none)
{
    const struct field soon[] = {{"grpc-timeout", "5m"}, {NULL, NULL}};
    struct heard *heard = wait_for("k=a", soon);
    set_now(grpc, grpc->s.now_ns + 5 * MS); /* no reply has woken it yet */
    let(0);
    exchange(grpc);
    assert_status(heard, GRPC_DEADLINE_EXCEEDED, "");
    pass(grpc, 0);
    exchange(grpc);
    assert_true(heard->is_closed);
    assert_int_equal(grpc->conn->ops->deadline(grpc->conn), STINT_NEVER_NS);
}

TEST(no_call_waits_longer_than_calls_may_last)
{
    reopen(&(struct grpc_limits){.call_ns = 40 * MS});
    struct heard *heard = wait_for("k=a", NULL);
    pass(grpc, 40 * MS);
    exchange(grpc);
    assert_status(heard, GRPC_DEADLINE_EXCEEDED, "the store has not answered in time");
    assert_int_equal(red.n_forgotten, 1);
}

TEST(what_waits_is_bounded)
{
    struct heard *heard[5];
    reopen(&(struct grpc_limits){.message_bytes = 256});
    for (size_t i = 0; i < N(heard); i++) {
        heard[i] = call_limit(grpc, "k=a", NULL);
        exchange(grpc);
    }
    assert_status(heard[4], GRPC_RESOURCE_EXHAUSTED, "the incomplete calls of this connection");
    assert_int_equal(red.n_forgotten, 1);
    fake_let_all(&red, grpc->s.now_ns);
    exchange(grpc);
    assert_code(heard[0], OK);
    assert_code(heard[1], OK);
    assert_code(heard[2], OVER_LIMIT);
    /* Their room is there again. */
    struct heard *next = wait_for("k=b", NULL);
    let(5);
    exchange(grpc);
    assert_code(next, OK);
}

TEST(a_connection_that_is_lost_forgets_its_calls)
{
    wait_for("k=a", NULL);
    wait_for("k=b", NULL);
    hang_up_on(grpc);
    assert_int_equal(red.n_forgotten, 2);
    connect_to(grpc);
}

TEST(calls_that_wait_are_answered_before_a_connection_ends)
{
    struct heard *first = wait_for("k=a", NULL), *second = wait_for("k=b", NULL);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    exchange(grpc);
    assert_true(grpc->n_goaways > 0);
    grpc->conn->ops->drain(grpc->conn, grpc->s.now_ns);
    assert_false(is_over(grpc));
    let(1);
    exchange(grpc);
    assert_code(second, OK);
    assert_false(is_over(grpc));
    let(0);
    assert_int_equal(n_stirred, 2);
    exchange(grpc);
    assert_code(first, OK);
    assert_true(is_over(grpc));
}

/* What the session was told to end at once hears nothing more, and is not touched. */
TEST(what_comes_after_the_end_is_nobodys)
{
    wait_for("k=a", NULL);
    static const uint8_t wrong[9] = {0, 0, 1, NGHTTP2_PING, 0, 0, 0, 0, 0};
    grpc->conn->ops->feed(grpc->conn, span_of(wrong, sizeof(wrong)), grpc->s.now_ns);
    while (grpc->conn->ops->output(grpc->conn).len > 0)
        grpc->conn->ops->sent(grpc->conn, grpc->conn->ops->output(grpc->conn).len, grpc->s.now_ns);
    let(0);
    assert_int_equal(red.n_forgotten, 0);
}
